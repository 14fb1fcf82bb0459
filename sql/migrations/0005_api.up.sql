-- What people and programs add over HTTP: overrides, batches, activated profiles; and what happens, for
-- those who watch it live. Only adds.

-- A human's score beside the judge's. Append-only; the newest of a score counts.
CREATE TABLE score_overrides (
    override_id    uuid PRIMARY KEY,
    seq            bigint GENERATED ALWAYS AS IDENTITY,
    score_id       uuid NOT NULL REFERENCES session_scores,
    override_score integer NOT NULL CHECK (override_score BETWEEN 0 AND 100),
    annotator      text NOT NULL,
    reason         text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX score_overrides_by_score ON score_overrides (score_id, seq DESC);
CREATE TRIGGER overrides_immutable BEFORE UPDATE OR DELETE ON score_overrides
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Which stored version of a profile is used in place of the configuration's file. Append-only; the
-- newest of a profile counts, and version null takes it back to the file.
CREATE TABLE profile_activations (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    profile_id   text NOT NULL,
    version      integer,
    activated_by text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (profile_id, version) REFERENCES judge_profiles
);
CREATE INDEX profile_activations_by_profile ON profile_activations (profile_id, seq DESC);
CREATE TRIGGER activations_immutable BEFORE UPDATE OR DELETE ON profile_activations
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Many requests at once. One process at a time works on a batch, under a lease; who comes after a
-- crash goes on where it stopped, with the same request ids.
CREATE TABLE score_batches (
    batch_id         uuid PRIMARY KEY,
    state            text NOT NULL CHECK (state IN
                     ('listing', 'publishing', 'cancelling', 'completed', 'cancelled', 'failed')),
    selection        jsonb,                       -- what of History is meant; null: sessions were named
    profile_id       text,
    force_rescore    boolean NOT NULL,
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    per_second       double precision CHECK (per_second > 0),
    created_by       text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    finished_at      timestamptz,
    error_message    text,
    lease_token      uuid,
    lease_expires_at timestamptz,
    CONSTRAINT finished_batch_has_time
        CHECK ((state IN ('listing', 'publishing', 'cancelling')) = (finished_at IS NULL))
);
CREATE INDEX score_batches_open ON score_batches (created_at) WHERE finished_at IS NULL;
CREATE INDEX score_batches_by_time ON score_batches (created_at DESC, batch_id);

CREATE TABLE score_batch_items (
    batch_id     uuid NOT NULL REFERENCES score_batches ON DELETE CASCADE,
    session_id   text NOT NULL CHECK (session_id ~ '^[A-Za-z0-9._:-]{1,128}$'),
    request_id   uuid NOT NULL,
    published_at timestamptz,
    PRIMARY KEY (batch_id, session_id)
);
CREATE INDEX score_batch_items_left ON score_batch_items (batch_id, session_id)
    WHERE published_at IS NULL;

-- What happened, one row a statement and state, for server-sent events. Kept for an hour. Readers go by
-- (xid, seq) and read only what is older than every transaction under way: `seq` alone is given
-- before a transaction commits, so that a later number may be seen first, and the earlier be missed.
CREATE TABLE live_changes (
    xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq   bigint GENERATED ALWAYS AS IDENTITY,
    kind  text NOT NULL CHECK (kind IN ('request', 'override')),
    state text,                                   -- of the requests, after this statement
    ids   uuid[] NOT NULL,                        -- of the requests, or of the overrides
    at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (xid, seq)
);
-- Deleting leaves the newest of what is old: whoever stopped before that one has missed something.
INSERT INTO live_changes (kind, ids) VALUES ('request', '{}');
ALTER TABLE live_changes SET (autovacuum_vacuum_scale_factor = 0.02);

CREATE FUNCTION note_new_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_changes (kind, state, ids)
    SELECT 'request', state, array_agg(request_id) FROM added GROUP BY state;
    RETURN NULL;
END $$;
CREATE TRIGGER new_requests_noted AFTER INSERT ON score_requests
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION note_new_requests();

CREATE FUNCTION note_request_states() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_changes (kind, state, ids)
    SELECT 'request', changed.state, array_agg(changed.request_id)
    FROM changed JOIN former USING (request_id)
    WHERE changed.state <> former.state GROUP BY changed.state;
    RETURN NULL;
END $$;
CREATE TRIGGER request_states_noted AFTER UPDATE ON score_requests
    REFERENCING NEW TABLE AS changed OLD TABLE AS former
    FOR EACH STATEMENT EXECUTE FUNCTION note_request_states();

CREATE FUNCTION note_overrides() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_changes (kind, ids) SELECT 'override', array_agg(override_id) FROM added
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER overrides_noted AFTER INSERT ON score_overrides
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION note_overrides();
