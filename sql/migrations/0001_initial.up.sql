-- Everything that the main job stores. Times are timestamptz; the database's clock is the clock.

CREATE TABLE scoring_criteria_definitions (
    criteria_hash    char(64) PRIMARY KEY CHECK (criteria_hash ~ '^[0-9a-f]{64}$'),
    criteria_content jsonb NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE judge_profiles (
    profile_id text NOT NULL,
    version    integer NOT NULL CHECK (version >= 1),
    content    jsonb NOT NULL,
    active     boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    PRIMARY KEY (profile_id, version)
);

CREATE TABLE session_scores (
    score_id               uuid PRIMARY KEY,
    session_id             text NOT NULL,
    request_id             uuid NOT NULL CONSTRAINT one_score_per_request UNIQUE,
    criteria_hash          char(64) NOT NULL REFERENCES scoring_criteria_definitions,
    judge_profile_id       text NOT NULL,
    judge_profile_version  integer NOT NULL,
    method                 text NOT NULL CHECK (method IN ('heuristic', 'llm', 'hybrid', 'two_tier')),
    total_score            integer NOT NULL CHECK (total_score BETWEEN 0 AND 100),
    ranking                double precision CHECK (ranking BETWEEN 0 AND 1),
    -- criterion id to score; the criteria that did not apply are in score_details with the reason
    score_breakdown        jsonb NOT NULL,
    score_details          jsonb NOT NULL,
    score_reasoning        text,
    confidence             double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    gate                   jsonb NOT NULL,
    disqualified           boolean NOT NULL,
    disqualifier_triggered text,
    quality_risk           text[] NOT NULL,
    quality_risk_threshold double precision NOT NULL,
    weakest_criteria       text[] NOT NULL,
    tool_report            jsonb,
    judge_provider         text,
    judge_model            text,
    judge_samples          integer NOT NULL,
    judge_input_tokens     bigint NOT NULL,
    judge_output_tokens    bigint NOT NULL,
    judge_cost_usd         double precision,
    samples                jsonb NOT NULL,
    elision                jsonb,
    injection_suspected    boolean NOT NULL,
    agent                  text NOT NULL,
    agent_model            text,
    agent_provider         text,
    classification_label   text NOT NULL,
    session_total_tokens   bigint,
    session_cost_usd       double precision,
    session_duration_ms    bigint,
    scored_triggered_by    text NOT NULL,
    duration_ms            bigint NOT NULL,
    scored_at              timestamptz NOT NULL DEFAULT now(),
    is_current             boolean NOT NULL DEFAULT true
);
CREATE UNIQUE INDEX one_current_score ON session_scores (session_id, judge_profile_id) WHERE is_current;
CREATE INDEX session_scores_by_session ON session_scores (session_id, scored_at DESC);
CREATE INDEX session_scores_by_criteria ON session_scores (criteria_hash);

CREATE TABLE score_missing_tools (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    score_id     uuid NOT NULL REFERENCES session_scores,
    tool_name    text NOT NULL,
    rationale    text NOT NULL,
    availability text NOT NULL
                 CHECK (availability IN ('exists_unused', 'exists_used', 'does_not_exist', 'unknown'))
);
CREATE INDEX score_missing_tools_by_score ON score_missing_tools (score_id);
CREATE INDEX score_missing_tools_by_name ON score_missing_tools (tool_name);

CREATE TABLE score_alternative_approaches (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    score_id    uuid NOT NULL REFERENCES session_scores,
    position    integer NOT NULL,
    name        text NOT NULL,
    description text NOT NULL,
    UNIQUE (score_id, position)
);

CREATE TABLE score_alternative_approach_steps (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    approach_id      bigint NOT NULL REFERENCES score_alternative_approaches,
    step_order       integer NOT NULL,
    step_description text NOT NULL,
    UNIQUE (approach_id, step_order)
);

-- A score with its children, as its readers want it.
CREATE VIEW score_cards AS
SELECT s.*,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('tool_name', t.tool_name,
                'rationale', t.rationale, 'availability', t.availability) ORDER BY t.id), '[]')
     FROM score_missing_tools t WHERE t.score_id = s.score_id) AS missing_tools,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.name, 'description', a.description,
                'steps', (SELECT coalesce(jsonb_agg(p.step_description ORDER BY p.step_order), '[]')
                          FROM score_alternative_approach_steps p WHERE p.approach_id = a.id)
            ) ORDER BY a.position), '[]')
     FROM score_alternative_approaches a WHERE a.score_id = s.score_id) AS alternative_approaches
FROM session_scores s;

CREATE TABLE score_requests (
    request_id         uuid PRIMARY KEY,
    session_id         text NOT NULL CHECK (session_id ~ '^[A-Za-z0-9._:-]{1,128}$'),
    profile_id         text,                       -- as asked for; null: chosen by the label
    force_rescore      boolean NOT NULL,
    triggered_by       text NOT NULL,
    priority           smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    state              text NOT NULL DEFAULT 'pending' CHECK (state IN
                       ('pending', 'in_progress', 'completed', 'failed', 'skipped', 'cancelled')),
    attempt            integer NOT NULL DEFAULT 0,
    lost_leases        integer NOT NULL DEFAULT 0,  -- how often a worker vanished while at it
    next_attempt_at    timestamptz NOT NULL DEFAULT now(),
    deadline_at        timestamptz,                 -- set by the first trouble
    lease_owner        text,
    lease_token        uuid,
    lease_expires_at   timestamptz,
    scoring_profile_id text,                        -- the profile chosen, while it is being scored
    error_code         text,
    error_message      text,
    score_id           uuid REFERENCES session_scores,
    coalesced_into     uuid REFERENCES score_requests ON DELETE SET NULL,
    source_topic       text,
    source_partition   integer,
    source_offset      bigint,
    traceparent        text,
    tracestate         text,
    requested_at       timestamptz NOT NULL,
    received_at        timestamptz NOT NULL DEFAULT now(),
    started_at         timestamptz,
    finished_at        timestamptz,
    CONSTRAINT completed_has_score CHECK ((state = 'completed') = (score_id IS NOT NULL)),
    CONSTRAINT ended_without_score_says_why
        CHECK (state NOT IN ('failed', 'skipped', 'cancelled') OR error_code IS NOT NULL),
    CONSTRAINT in_progress_is_leased CHECK ((state = 'in_progress') =
        (lease_token IS NOT NULL AND lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CONSTRAINT finished_has_time
        CHECK ((state IN ('pending', 'in_progress')) = (finished_at IS NULL))
);
-- Races are decided here: whoever comes second waits for the first one's answer.
CREATE UNIQUE INDEX one_active_request ON score_requests (session_id, coalesce(profile_id, ''))
    WHERE state IN ('pending', 'in_progress') AND coalesced_into IS NULL;
CREATE UNIQUE INDEX one_scoring_at_a_time ON score_requests (session_id, scoring_profile_id)
    WHERE state = 'in_progress';
CREATE INDEX score_requests_claim ON score_requests (priority DESC, next_attempt_at)
    WHERE state = 'pending' AND coalesced_into IS NULL;
CREATE INDEX score_requests_leases ON score_requests (lease_expires_at) WHERE state = 'in_progress';
CREATE INDEX score_requests_waiters ON score_requests (coalesced_into)
    WHERE coalesced_into IS NOT NULL;
CREATE INDEX score_requests_pending_age ON score_requests (received_at) WHERE state = 'pending';
CREATE INDEX score_requests_by_session ON score_requests (session_id, received_at DESC);
CREATE INDEX score_requests_by_score ON score_requests (score_id) WHERE score_id IS NOT NULL;
CREATE INDEX score_requests_finished ON score_requests (finished_at) WHERE finished_at IS NOT NULL;
-- Rows change state often and live briefly: vacuum by share of dead rows comes too late here.
ALTER TABLE score_requests SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE outbox (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   uuid NOT NULL,
    topic      text NOT NULL,
    key        bytea,
    type       text NOT NULL,
    payload    bytea,                               -- null: a tombstone on its way to the DLQ
    headers    jsonb NOT NULL,                      -- [[name, text | {"base64": bytes} | null], ...]
    created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- A score is immutable, but for ceasing to be the current one.
CREATE FUNCTION refuse_score_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    former session_scores := OLD;
BEGIN
    former.is_current := NEW.is_current;
    IF NEW.is_current OR NEW IS DISTINCT FROM former THEN
        RAISE EXCEPTION 'session_scores are immutable' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER session_scores_immutable BEFORE UPDATE ON session_scores
    FOR EACH ROW EXECUTE FUNCTION refuse_score_change();

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% are immutable', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER criteria_immutable BEFORE UPDATE OR DELETE ON scoring_criteria_definitions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A score exists only for a request that it completed; looked at when the transaction commits.
CREATE FUNCTION require_completed_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM score_requests r
                   WHERE r.request_id = NEW.request_id AND r.score_id = NEW.score_id) THEN
        RAISE EXCEPTION 'score % belongs to no completed request', NEW.score_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER score_completes_its_request AFTER INSERT ON session_scores
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_completed_request();

-- ... and stays completed: a score without its request's word for it would be an orphan.
CREATE FUNCTION refuse_second_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'request % has its score already', OLD.request_id
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER completed_is_final BEFORE UPDATE OF state, score_id ON score_requests
    FOR EACH ROW WHEN (OLD.state = 'completed'
        AND (NEW.state <> 'completed' OR NEW.score_id IS DISTINCT FROM OLD.score_id))
    EXECUTE FUNCTION refuse_second_end();
