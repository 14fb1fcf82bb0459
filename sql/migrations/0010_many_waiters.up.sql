-- However many requests wait for one answer, they get it: in portions, and told in as many steps as
-- they are. To build the indexes, the table is read, and not written to meanwhile.

-- The answer is there, and some of those that wait for it are still to be told.
ALTER TABLE score_requests ADD COLUMN waiters_left boolean NOT NULL DEFAULT false;
CREATE INDEX score_requests_waiters_left ON score_requests (finished_at) WHERE waiters_left;
CREATE INDEX score_requests_waiting ON score_requests (coalesced_into, received_at, request_id)
    WHERE state = 'pending' AND coalesced_into IS NOT NULL;

-- No join: its plan is kept from when there were few rows, and goes through all pairs of many.
CREATE OR REPLACE FUNCTION note_request_states() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_changes (kind, state, ids)
    SELECT 'request', state, array_agg(request_id)
    FROM (SELECT request_id, state FROM changed EXCEPT SELECT request_id, state FROM former) told
    GROUP BY state;
    RETURN NULL;
END $$;
