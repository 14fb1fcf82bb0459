-- The few requests that lost a worker: whether one of them is to be worked on alone is asked twice a
-- second by each worker. To build it, the table is read once, and not written to meanwhile.
CREATE INDEX score_requests_lost ON score_requests (lost_leases, priority DESC, next_attempt_at)
    WHERE state = 'pending' AND coalesced_into IS NULL AND lost_leases > 0;
