-- Takes 0007 back.
ALTER TABLE score_batch_items
    DROP CONSTRAINT score_batch_items_session_id_check,
    ADD CONSTRAINT score_batch_items_session_id_check CHECK (session_id ~ '^[A-Za-z0-9._:-]{1,128}$');
ALTER TABLE score_requests
    DROP CONSTRAINT score_requests_session_id_check,
    ADD CONSTRAINT score_requests_session_id_check CHECK (session_id ~ '^[A-Za-z0-9._:-]{1,128}$');
