-- Scorecards and reports. Adds indexes, views, and figures of finished days. Former code goes on working.
--
-- A finished UTC day is rolled up once: its figures are counted and kept. Whatever changes a score of
-- such a day afterwards opens it again, and an open day is counted from its scores. So no view is ever
-- behind, whether or not anyone rolls up; it is only slower.

-- ── scorecards ──────────────────────────────────────────────────────────────

CREATE FUNCTION score_band(score double precision) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN score < 45 THEN 'failed' WHEN score < 60 THEN 'weak'
        WHEN score < 75 THEN 'adequate' WHEN score < 90 THEN 'good'
        WHEN score >= 90 THEN 'near-perfect' END
$$;

-- One a filter, each in the order in which scorecards are listed, and with what the other filters look
-- at: where several are given, no score is read that they turn away.
CREATE INDEX session_scores_by_time ON session_scores (scored_at DESC, score_id DESC)
    INCLUDE (is_current, agent, classification_label, agent_model, judge_profile_id, total_score);
CREATE INDEX session_scores_by_agent ON session_scores (agent, scored_at DESC, score_id DESC)
    INCLUDE (is_current, classification_label, agent_model, judge_profile_id, total_score);
CREATE INDEX session_scores_by_label ON session_scores (classification_label, scored_at DESC, score_id DESC)
    INCLUDE (is_current, agent, agent_model, judge_profile_id, total_score);
CREATE INDEX session_scores_by_model ON session_scores (agent_model, scored_at DESC, score_id DESC)
    INCLUDE (is_current, agent, classification_label, judge_profile_id, total_score);
CREATE INDEX session_scores_by_profile ON session_scores (judge_profile_id, scored_at DESC, score_id DESC)
    INCLUDE (is_current, agent, classification_label, agent_model, total_score);
CREATE INDEX session_scores_by_band ON session_scores (score_band(total_score), scored_at DESC, score_id DESC)
    INCLUDE (is_current, agent, classification_label, agent_model, judge_profile_id, total_score);
DROP INDEX session_scores_by_criteria;
CREATE INDEX session_scores_by_criteria
    ON session_scores (criteria_hash, scored_at DESC, score_id DESC);
-- 'simple': words as they are written, in any language; no server needs an extension for it.
CREATE INDEX session_scores_by_words
    ON session_scores USING gin (to_tsvector('simple', coalesce(score_reasoning, '')));
-- All that models are compared by, so that no score itself need be read.
CREATE INDEX session_scores_runs ON session_scores (scored_at DESC, score_id DESC)
    INCLUDE (session_id, judge_profile_id, classification_label, agent, agent_provider, agent_model,
        total_score, session_cost_usd, session_total_tokens, session_duration_ms)
    WHERE is_current AND NOT disqualified AND (gate ->> 'passed')::boolean;
-- Requests that got no score. Those that are still under way have indexes of their own.
CREATE INDEX score_requests_without_score ON score_requests (received_at DESC, request_id DESC)
    WHERE state IN ('failed', 'skipped', 'cancelled');
CREATE INDEX score_overrides_by_time ON score_overrides (created_at DESC);

-- ── what reports count ──────────────────────────────────────────────────────

-- Scores with the newest override in place of the total. Averages and bands are about those that are
-- `counted`; disqualified and gate-failed ones are counted apart.
CREATE VIEW reported_scores AS
SELECT s.*, (s.scored_at AT TIME ZONE 'UTC')::date AS day, o.override_score,
    coalesce(o.override_score, s.total_score) AS total,
    NOT s.disqualified AND (s.gate ->> 'passed')::boolean AS counted
FROM session_scores s
LEFT JOIN LATERAL (
    SELECT override_score FROM score_overrides o WHERE o.score_id = s.score_id
    ORDER BY o.seq DESC LIMIT 1
) o ON true;

-- Every finished day since the first score; rolled_up_at is null where something has changed since.
CREATE TABLE rollup_days (
    day          date PRIMARY KEY,
    rolled_up_at timestamptz
);

CREATE TABLE score_rollup (
    day                   date NOT NULL,
    is_current            boolean NOT NULL,
    judge_profile_id      text NOT NULL,
    criteria_hash         text NOT NULL,
    classification_label  text NOT NULL,
    agent                 text NOT NULL,
    agent_provider        text,
    agent_model           text,
    judge_provider        text,
    judge_model           text,
    scores                bigint NOT NULL,
    disqualified          bigint NOT NULL,
    gate_failed           bigint NOT NULL,          -- and not disqualified
    counted               bigint NOT NULL,
    overridden            bigint NOT NULL,
    total_sum             bigint NOT NULL,          -- of what was counted, as all that follows
    stored_sum            bigint NOT NULL,          -- the same without overrides
    failed                bigint NOT NULL,
    weak                  bigint NOT NULL,
    adequate              bigint NOT NULL,
    good                  bigint NOT NULL,
    near_perfect          bigint NOT NULL,
    stored_failed         bigint NOT NULL,          -- the same without overrides
    stored_weak           bigint NOT NULL,
    stored_adequate       bigint NOT NULL,
    stored_good           bigint NOT NULL,
    stored_near_perfect   bigint NOT NULL,
    judged                bigint NOT NULL,          -- of all scores, as all that follows
    judge_samples         bigint NOT NULL,
    judge_input_tokens    bigint NOT NULL,
    judge_output_tokens   bigint NOT NULL,
    judge_cost_usd        double precision NOT NULL,
    judge_cost_unknown    bigint NOT NULL,
    first_scored_at       timestamptz NOT NULL,
    last_scored_at        timestamptz NOT NULL
);
CREATE INDEX score_rollup_by_day ON score_rollup (day);

CREATE TABLE criterion_rollup (
    day                  date NOT NULL,
    judge_profile_id     text NOT NULL,
    classification_label text NOT NULL,
    agent                text NOT NULL,
    agent_model          text,
    criterion            text NOT NULL,
    scores               bigint NOT NULL,
    not_applicable       bigint NOT NULL,
    score_sum            double precision NOT NULL,
    failed               bigint NOT NULL,
    weak                 bigint NOT NULL,
    adequate             bigint NOT NULL,
    good                 bigint NOT NULL,
    near_perfect         bigint NOT NULL
);
CREATE INDEX criterion_rollup_by_day ON criterion_rollup (day);

CREATE TABLE missing_tool_rollup (
    day                  date NOT NULL,
    judge_profile_id     text NOT NULL,
    classification_label text NOT NULL,
    agent                text NOT NULL,
    agent_model          text,
    tool_name            text NOT NULL,
    availability         text NOT NULL,
    scores               bigint NOT NULL
);
CREATE INDEX missing_tool_rollup_by_day ON missing_tool_rollup (day);

CREATE TABLE approach_rollup (
    day                  date NOT NULL,
    judge_profile_id     text NOT NULL,
    classification_label text NOT NULL,
    agent                text NOT NULL,
    agent_model          text,
    name                 text NOT NULL,            -- in small letters, with single blanks
    scores               bigint NOT NULL,
    steps                bigint NOT NULL,
    example_score_id     text COLLATE "C" NOT NULL
);
CREATE INDEX approach_rollup_by_day ON approach_rollup (day);

CREATE TABLE tool_use_rollup (
    day                  date NOT NULL,
    judge_profile_id     text NOT NULL,
    classification_label text NOT NULL,
    agent                text NOT NULL,
    agent_model          text,
    sessions             bigint NOT NULL,
    calls                bigint NOT NULL,
    failed               bigint NOT NULL,
    corrections          bigint NOT NULL,
    repeated             bigint NOT NULL,
    wasted               bigint NOT NULL,
    wasted_tokens        bigint NOT NULL,
    wasted_cost_usd      double precision NOT NULL,
    wasted_cost_unknown  bigint NOT NULL,
    effectiveness_sum    bigint NOT NULL
);
CREATE INDEX tool_use_rollup_by_day ON tool_use_rollup (day);

-- ── one day's figures, counted from its scores ──────────────────────────────

CREATE FUNCTION day_starts(day date) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT day::timestamp AT TIME ZONE 'UTC'
$$;

CREATE FUNCTION count_scores(which date) RETURNS SETOF score_rollup LANGUAGE sql STABLE AS $$
    SELECT which, is_current, judge_profile_id, criteria_hash::text, classification_label, agent,
        agent_provider, agent_model, judge_provider, judge_model,
        count(*),
        count(*) FILTER (WHERE disqualified),
        count(*) FILTER (WHERE NOT counted AND NOT disqualified),
        count(*) FILTER (WHERE counted),
        count(override_score) FILTER (WHERE counted),
        coalesce(sum(total) FILTER (WHERE counted), 0)::bigint,
        coalesce(sum(total_score) FILTER (WHERE counted), 0)::bigint,
        count(*) FILTER (WHERE counted AND score_band(total) = 'failed'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'weak'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'adequate'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'good'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'near-perfect'),
        count(*) FILTER (WHERE counted AND score_band(total_score) = 'failed'),
        count(*) FILTER (WHERE counted AND score_band(total_score) = 'weak'),
        count(*) FILTER (WHERE counted AND score_band(total_score) = 'adequate'),
        count(*) FILTER (WHERE counted AND score_band(total_score) = 'good'),
        count(*) FILTER (WHERE counted AND score_band(total_score) = 'near-perfect'),
        count(*) FILTER (WHERE judge_samples > 0),
        sum(judge_samples),
        sum(judge_input_tokens)::bigint,
        sum(judge_output_tokens)::bigint,
        coalesce(sum(judge_cost_usd), 0),
        count(*) FILTER (WHERE judge_samples > 0 AND judge_cost_usd IS NULL),
        min(scored_at), max(scored_at)
    FROM reported_scores
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1)
    GROUP BY 2, 3, 4, 5, 6, 7, 8, 9, 10
$$;

-- The other figures are about current scores: a session that was scored again counts once. (OFFSET 0:
-- what belongs to a day's scores is looked up by index, not joined as a whole.)
CREATE FUNCTION count_criteria(which date) RETURNS SETOF criterion_rollup LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model, line ->> 'id',
        count(score), count(*) - count(score), coalesce(sum(score), 0),
        count(*) FILTER (WHERE score_band(score) = 'failed'),
        count(*) FILTER (WHERE score_band(score) = 'weak'),
        count(*) FILTER (WHERE score_band(score) = 'adequate'),
        count(*) FILTER (WHERE score_band(score) = 'good'),
        count(*) FILTER (WHERE score_band(score) = 'near-perfect')
    FROM session_scores s, jsonb_array_elements(score_details) AS line,
        LATERAL (SELECT (line ->> 'score')::double precision AS score) given
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6
$$;

CREATE FUNCTION count_missing_tools(which date) RETURNS SETOF missing_tool_rollup
LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model, tool_name, availability,
        count(DISTINCT s.score_id)
    FROM session_scores s,
        LATERAL (SELECT tool_name, availability FROM score_missing_tools t
                 WHERE t.score_id = s.score_id OFFSET 0) missed
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6, 7
$$;

CREATE FUNCTION count_approaches(which date) RETURNS SETOF approach_rollup LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model,
        lower(btrim(regexp_replace(name, '\s+', ' ', 'g'))),
        count(DISTINCT s.score_id), sum(steps)::bigint, max(s.score_id::text)
    FROM session_scores s,
        LATERAL (SELECT name, (SELECT count(*) FROM score_alternative_approach_steps p
                               WHERE p.approach_id = a.id) AS steps
                 FROM score_alternative_approaches a WHERE a.score_id = s.score_id OFFSET 0) named
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6
$$;

CREATE FUNCTION count_tool_use(which date) RETURNS SETOF tool_use_rollup LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model,
        count(*), sum((tool_report ->> 'calls')::bigint)::bigint,
        sum(jsonb_array_length(tool_report -> 'failed')),
        sum(jsonb_array_length(tool_report -> 'corrections')),
        sum(jsonb_array_length(tool_report -> 'repeated')),
        sum(jsonb_array_length(tool_report -> 'wasted')),
        coalesce(sum(tokens), 0)::bigint, coalesce(sum(cost_usd), 0), coalesce(sum(unknown), 0)::bigint,
        sum((tool_report ->> 'effectiveness')::bigint)::bigint
    FROM session_scores s, LATERAL (
        SELECT sum((w ->> 'tokens')::bigint) AS tokens,
            sum((w ->> 'cost_usd')::double precision) AS cost_usd,
            count(*) FILTER (WHERE w ->> 'cost_usd' IS NULL) AS unknown
        FROM jsonb_array_elements(tool_report -> 'wasted') AS w
    ) wasted
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
        AND tool_report IS NOT NULL
    GROUP BY 2, 3, 4, 5
$$;

-- ── figures of any day: as they were kept, else counted now ─────────────────

-- Days whose figures are counted from their scores: changed ones, and those after the last known.
CREATE VIEW open_days AS
SELECT day FROM rollup_days WHERE rolled_up_at IS NULL
UNION ALL
SELECT later::date FROM generate_series(
    coalesce((SELECT max(day) + 1 FROM rollup_days),
             (SELECT (min(scored_at) AT TIME ZONE 'UTC')::date FROM session_scores))::timestamp,
    (now() AT TIME ZONE 'UTC')::date::timestamp, interval '1 day') AS later;
CREATE INDEX rollup_days_open ON rollup_days (day) WHERE rolled_up_at IS NULL;

-- (The day is `d.day`, not `c.day`: so a report of a month looks at that month's open days only.)
CREATE VIEW score_figures AS
SELECT kept.* FROM score_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.is_current, c.judge_profile_id, c.criteria_hash, c.classification_label,
    c.agent, c.agent_provider, c.agent_model, c.judge_provider, c.judge_model, c.scores, c.disqualified,
    c.gate_failed, c.counted, c.overridden, c.total_sum, c.stored_sum, c.failed, c.weak, c.adequate,
    c.good, c.near_perfect, c.stored_failed, c.stored_weak, c.stored_adequate, c.stored_good,
    c.stored_near_perfect, c.judged, c.judge_samples, c.judge_input_tokens, c.judge_output_tokens,
    c.judge_cost_usd, c.judge_cost_unknown, c.first_scored_at, c.last_scored_at
FROM open_days d, count_scores(d.day) c;
CREATE VIEW criterion_figures AS
SELECT kept.* FROM criterion_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.criterion,
    c.scores, c.not_applicable, c.score_sum, c.failed, c.weak, c.adequate, c.good, c.near_perfect
FROM open_days d, count_criteria(d.day) c;
CREATE VIEW missing_tool_figures AS
SELECT kept.* FROM missing_tool_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.tool_name,
    c.availability, c.scores
FROM open_days d, count_missing_tools(d.day) c;
CREATE VIEW approach_figures AS
SELECT kept.* FROM approach_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.name,
    c.scores, c.steps, c.example_score_id
FROM open_days d, count_approaches(d.day) c;
CREATE VIEW tool_use_figures AS
SELECT kept.* FROM tool_use_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.sessions,
    c.calls, c.failed, c.corrections, c.repeated, c.wasted, c.wasted_tokens, c.wasted_cost_usd,
    c.wasted_cost_unknown, c.effectiveness_sum
FROM open_days d, count_tool_use(d.day) c;

-- Opens a day whose figures are kept. Whoever changes its scores shares a lock; who rolls it up holds
-- that lock alone, and so sees all that was changed before, and is undone by all that comes after.
-- The second one to open a day does not wait for the first.
CREATE FUNCTION open_day(which date) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(715517, which - date '2000-01-01');
    IF which > (SELECT max(day) FROM rollup_days)
        OR EXISTS (SELECT FROM rollup_days WHERE day = which AND rolled_up_at IS NULL)
    THEN
        RETURN;
    END IF;
    UPDATE rollup_days SET rolled_up_at = NULL WHERE day = which AND rolled_up_at IS NOT NULL;
    IF NOT FOUND THEN  -- before all that is known
        INSERT INTO rollup_days (day)
        SELECT earlier::date FROM generate_series(which::timestamp,
            (SELECT min(day) - 1 FROM rollup_days)::timestamp, interval '1 day') AS earlier
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Today is open anyway: only scores of former days that are replaced, imported or overridden are told.
CREATE FUNCTION open_day_of_score() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM open_day((NEW.scored_at AT TIME ZONE 'UTC')::date);
    RETURN NULL;
END $$;
CREATE TRIGGER score_opens_its_day AFTER INSERT OR UPDATE OF is_current ON session_scores
    FOR EACH ROW
    WHEN ((NEW.scored_at AT TIME ZONE 'UTC')::date < (now() AT TIME ZONE 'UTC')::date)
    EXECUTE FUNCTION open_day_of_score();

CREATE FUNCTION open_day_of_override() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM open_day((scored_at AT TIME ZONE 'UTC')::date)
    FROM session_scores s WHERE s.score_id = NEW.score_id;
    RETURN NULL;
END $$;
CREATE TRIGGER override_opens_its_day AFTER INSERT ON score_overrides
    FOR EACH ROW EXECUTE FUNCTION open_day_of_override();

-- ── for dashboards of one's own ─────────────────────────────────────────────

CREATE VIEW score_trend_daily AS
SELECT day, judge_profile_id, classification_label, agent, agent_provider, agent_model,
    sum(counted)::bigint AS scores,
    sum(total_sum)::double precision / nullif(sum(counted), 0)::double precision AS average_score,
    sum(stored_sum)::double precision / nullif(sum(counted), 0)::double precision
        AS average_stored_score,
    sum(overridden)::bigint AS overridden, sum(disqualified)::bigint AS disqualified,
    sum(gate_failed)::bigint AS gate_failed
FROM score_figures WHERE is_current
GROUP BY 1, 2, 3, 4, 5, 6;

CREATE VIEW score_distribution AS
SELECT day, judge_profile_id, classification_label, agent, agent_model, band,
    sum(bands.scores)::bigint AS scores, sum(bands.stored_scores)::bigint AS stored_scores
FROM score_figures f, LATERAL (VALUES
    ('failed', f.failed, f.stored_failed), ('weak', f.weak, f.stored_weak),
    ('adequate', f.adequate, f.stored_adequate), ('good', f.good, f.stored_good),
    ('near-perfect', f.near_perfect, f.stored_near_perfect)) AS bands (band, scores, stored_scores)
WHERE is_current
GROUP BY 1, 2, 3, 4, 5, 6;

CREATE VIEW missing_tool_frequency AS
SELECT day, judge_profile_id, classification_label, agent, tool_name, availability,
    sum(scores)::bigint AS scores
FROM missing_tool_figures GROUP BY 1, 2, 3, 4, 5, 6;

-- One row a run of an agent that counts: its current score by a profile, with what the run cost.
CREATE VIEW model_comparison_runs AS
SELECT s.score_id, session_id, scored_at, judge_profile_id, classification_label, agent,
    agent_provider, agent_model, coalesce(o.override_score, total_score) AS total,
    total_score AS stored_total, o.override_score, session_cost_usd, session_total_tokens,
    session_duration_ms
FROM session_scores s
LEFT JOIN score_overrides o ON o.score_id = s.score_id AND NOT EXISTS (
    SELECT FROM score_overrides later WHERE later.score_id = o.score_id AND later.seq > o.seq)
WHERE is_current AND NOT disqualified AND (gate ->> 'passed')::boolean;

CREATE VIEW criteria_history AS
SELECT judge_profile_id, criteria_hash, registered_at, first_scored_at, last_scored_at, scores,
    current_scores
FROM (
    SELECT judge_profile_id, criteria_hash, min(first_scored_at) AS first_scored_at,
        max(last_scored_at) AS last_scored_at, sum(scores)::bigint AS scores,
        coalesce(sum(scores) FILTER (WHERE is_current), 0)::bigint AS current_scores
    FROM score_figures GROUP BY 1, 2
) scored
LEFT JOIN LATERAL (SELECT created_at AS registered_at FROM scoring_criteria_definitions d
                   WHERE d.criteria_hash = scored.criteria_hash::bpchar) known ON true;
