-- Takes 0010 back; not while somebody waits for an answer that the former program would not give.
DO $$
BEGIN
    IF EXISTS (SELECT FROM score_requests WHERE waiters_left) THEN
        RAISE EXCEPTION 'requests still wait for an answer that is there: run a worker of this '
            'version until score_requests has no row with waiters_left';
    END IF;
END $$;
DROP INDEX score_requests_waiting;
DROP INDEX score_requests_waiters_left;
ALTER TABLE score_requests DROP COLUMN waiters_left;

CREATE OR REPLACE FUNCTION note_request_states() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_changes (kind, state, ids)
    SELECT 'request', changed.state, array_agg(changed.request_id)
    FROM changed JOIN former USING (request_id)
    WHERE changed.state <> former.state GROUP BY changed.state;
    RETURN NULL;
END $$;
