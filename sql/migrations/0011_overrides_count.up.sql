-- An override counts on a disqualified or gate-failed score too: it is somebody's answer to just that. And
-- all figures tell criteria and profile versions apart. Former code goes on working.
--
-- All finished days are open from here on, until they are rolled up again: reports of them are right, and
-- slower meanwhile.
DROP VIEW criteria_history, model_comparison_runs, missing_tool_frequency, score_distribution,
    score_trend_daily, tool_use_figures, approach_figures, missing_tool_figures, criterion_figures,
    score_figures;
DROP FUNCTION count_tool_use(date);
DROP FUNCTION count_approaches(date);
DROP FUNCTION count_missing_tools(date);
DROP FUNCTION count_criteria(date);
DROP FUNCTION count_scores(date);
DROP VIEW reported_scores;
TRUNCATE score_rollup, criterion_rollup, missing_tool_rollup, approach_rollup, tool_use_rollup;
UPDATE rollup_days SET rolled_up_at = NULL WHERE rolled_up_at IS NOT NULL;
ALTER TABLE score_rollup
    ADD COLUMN judge_profile_version integer NOT NULL,
    ADD COLUMN stored_counted bigint NOT NULL  -- what would be counted without overrides
;
ALTER TABLE criterion_rollup
    ADD COLUMN criteria_hash text NOT NULL, ADD COLUMN judge_profile_version integer NOT NULL;
ALTER TABLE missing_tool_rollup
    ADD COLUMN criteria_hash text NOT NULL, ADD COLUMN judge_profile_version integer NOT NULL;
ALTER TABLE approach_rollup
    ADD COLUMN criteria_hash text NOT NULL, ADD COLUMN judge_profile_version integer NOT NULL;
ALTER TABLE tool_use_rollup
    ADD COLUMN criteria_hash text NOT NULL, ADD COLUMN judge_profile_version integer NOT NULL;

-- Scores with the newest override in place of the total. Averages and bands are about those that are
-- `counted`: disqualified and gate-failed ones are counted apart, unless somebody gave them a score.
CREATE VIEW reported_scores AS
SELECT s.*, (s.scored_at AT TIME ZONE 'UTC')::date AS day, o.override_score,
    coalesce(o.override_score, s.total_score) AS total,
    accepted OR o.override_score IS NOT NULL AS counted, accepted AS counted_as_stored
FROM session_scores s
CROSS JOIN LATERAL (SELECT NOT s.disqualified AND (s.gate ->> 'passed')::boolean AS accepted) own
LEFT JOIN LATERAL (
    SELECT override_score FROM score_overrides o WHERE o.score_id = s.score_id
    ORDER BY o.seq DESC LIMIT 1
) o ON true;

CREATE FUNCTION count_scores(which date) RETURNS SETOF score_rollup LANGUAGE sql STABLE AS $$
    SELECT which, is_current, judge_profile_id, criteria_hash::text, classification_label, agent,
        agent_provider, agent_model, judge_provider, judge_model,
        count(*),
        count(*) FILTER (WHERE NOT counted AND disqualified),
        count(*) FILTER (WHERE NOT counted AND NOT disqualified),
        count(*) FILTER (WHERE counted),
        count(override_score) FILTER (WHERE counted),
        coalesce(sum(total) FILTER (WHERE counted), 0)::bigint,
        coalesce(sum(total_score) FILTER (WHERE counted_as_stored), 0)::bigint,
        count(*) FILTER (WHERE counted AND score_band(total) = 'failed'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'weak'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'adequate'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'good'),
        count(*) FILTER (WHERE counted AND score_band(total) = 'near-perfect'),
        count(*) FILTER (WHERE counted_as_stored AND score_band(total_score) = 'failed'),
        count(*) FILTER (WHERE counted_as_stored AND score_band(total_score) = 'weak'),
        count(*) FILTER (WHERE counted_as_stored AND score_band(total_score) = 'adequate'),
        count(*) FILTER (WHERE counted_as_stored AND score_band(total_score) = 'good'),
        count(*) FILTER (WHERE counted_as_stored AND score_band(total_score) = 'near-perfect'),
        count(*) FILTER (WHERE judge_samples > 0),
        sum(judge_samples),
        sum(judge_input_tokens)::bigint,
        sum(judge_output_tokens)::bigint,
        coalesce(sum(judge_cost_usd), 0),
        count(*) FILTER (WHERE judge_samples > 0 AND judge_cost_usd IS NULL),
        min(scored_at), max(scored_at), judge_profile_version,
        count(*) FILTER (WHERE counted_as_stored)
    FROM reported_scores
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1)
    GROUP BY 2, 3, 4, 5, 6, 7, 8, 9, 10, judge_profile_version
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
        count(*) FILTER (WHERE score_band(score) = 'near-perfect'),
        criteria_hash::text, judge_profile_version
    FROM session_scores s, jsonb_array_elements(score_details) AS line,
        LATERAL (SELECT (line ->> 'score')::double precision AS score) given
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6, criteria_hash, judge_profile_version
$$;

CREATE FUNCTION count_missing_tools(which date) RETURNS SETOF missing_tool_rollup
LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model, tool_name, availability,
        count(DISTINCT s.score_id), criteria_hash::text, judge_profile_version
    FROM session_scores s,
        LATERAL (SELECT tool_name, availability FROM score_missing_tools t
                 WHERE t.score_id = s.score_id OFFSET 0) missed
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6, 7, criteria_hash, judge_profile_version
$$;

CREATE FUNCTION count_approaches(which date) RETURNS SETOF approach_rollup LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model,
        lower(btrim(regexp_replace(name, '\s+', ' ', 'g'))),
        count(DISTINCT s.score_id), sum(steps)::bigint, max(s.score_id::text),
        criteria_hash::text, judge_profile_version
    FROM session_scores s,
        LATERAL (SELECT name, (SELECT count(*) FROM score_alternative_approach_steps p
                               WHERE p.approach_id = a.id) AS steps
                 FROM score_alternative_approaches a WHERE a.score_id = s.score_id OFFSET 0) named
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
    GROUP BY 2, 3, 4, 5, 6, criteria_hash, judge_profile_version
$$;

CREATE FUNCTION count_tool_use(which date) RETURNS SETOF tool_use_rollup LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model,
        count(*), sum((tool_report ->> 'calls')::bigint)::bigint,
        sum(jsonb_array_length(tool_report -> 'failed')),
        sum(jsonb_array_length(tool_report -> 'corrections')),
        sum(jsonb_array_length(tool_report -> 'repeated')),
        sum(jsonb_array_length(tool_report -> 'wasted')),
        coalesce(sum(tokens), 0)::bigint, coalesce(sum(cost_usd), 0), coalesce(sum(unknown), 0)::bigint,
        sum((tool_report ->> 'effectiveness')::bigint)::bigint, criteria_hash::text, judge_profile_version
    FROM session_scores s, LATERAL (
        SELECT sum((w ->> 'tokens')::bigint) AS tokens,
            sum((w ->> 'cost_usd')::double precision) AS cost_usd,
            count(*) FILTER (WHERE w ->> 'cost_usd' IS NULL) AS unknown
        FROM jsonb_array_elements(tool_report -> 'wasted') AS w
    ) wasted
    WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
        AND tool_report IS NOT NULL
    GROUP BY 2, 3, 4, 5, criteria_hash, judge_profile_version
$$;

-- (The day is `d.day`, not `c.day`: so a report of a month looks at that month's open days only.)
CREATE VIEW score_figures AS
SELECT kept.* FROM score_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.is_current, c.judge_profile_id, c.criteria_hash, c.classification_label,
    c.agent, c.agent_provider, c.agent_model, c.judge_provider, c.judge_model, c.scores, c.disqualified,
    c.gate_failed, c.counted, c.overridden, c.total_sum, c.stored_sum, c.failed, c.weak, c.adequate,
    c.good, c.near_perfect, c.stored_failed, c.stored_weak, c.stored_adequate, c.stored_good,
    c.stored_near_perfect, c.judged, c.judge_samples, c.judge_input_tokens, c.judge_output_tokens,
    c.judge_cost_usd, c.judge_cost_unknown, c.first_scored_at, c.last_scored_at,
    c.judge_profile_version, c.stored_counted
FROM open_days d, count_scores(d.day) c;
CREATE VIEW criterion_figures AS
SELECT kept.* FROM criterion_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.criterion,
    c.scores, c.not_applicable, c.score_sum, c.failed, c.weak, c.adequate, c.good, c.near_perfect,
    c.criteria_hash, c.judge_profile_version
FROM open_days d, count_criteria(d.day) c;
CREATE VIEW missing_tool_figures AS
SELECT kept.* FROM missing_tool_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.tool_name,
    c.availability, c.scores,
    c.criteria_hash, c.judge_profile_version
FROM open_days d, count_missing_tools(d.day) c;
CREATE VIEW approach_figures AS
SELECT kept.* FROM approach_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.name,
    c.scores, c.steps, c.example_score_id,
    c.criteria_hash, c.judge_profile_version
FROM open_days d, count_approaches(d.day) c;
CREATE VIEW tool_use_figures AS
SELECT kept.* FROM tool_use_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.sessions,
    c.calls, c.failed, c.corrections, c.repeated, c.wasted, c.wasted_tokens, c.wasted_cost_usd,
    c.wasted_cost_unknown, c.effectiveness_sum,
    c.criteria_hash, c.judge_profile_version
FROM open_days d, count_tool_use(d.day) c;

CREATE VIEW score_trend_daily AS
SELECT day, judge_profile_id, classification_label, agent, agent_provider, agent_model,
    sum(counted)::bigint AS scores,
    sum(total_sum)::double precision / nullif(sum(counted), 0)::double precision AS average_score,
    sum(stored_sum)::double precision / nullif(sum(stored_counted), 0)::double precision
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

-- One row a run of an agent that counts: its current score by a profile, with what the run cost. Those
-- that count for their override alone are few: the index of all others is left as it is.
CREATE VIEW model_comparison_runs AS
SELECT s.score_id, session_id, scored_at, judge_profile_id, classification_label, agent,
    agent_provider, agent_model, coalesce(o.override_score, total_score) AS total,
    total_score AS stored_total, o.override_score, session_cost_usd, session_total_tokens,
    session_duration_ms, criteria_hash::text AS criteria_hash, judge_profile_version
FROM session_scores s
LEFT JOIN score_overrides o ON o.score_id = s.score_id AND NOT EXISTS (
    SELECT FROM score_overrides later WHERE later.score_id = o.score_id AND later.seq > o.seq)
WHERE is_current AND NOT disqualified AND (gate ->> 'passed')::boolean
UNION ALL
SELECT s.score_id, session_id, scored_at, judge_profile_id, classification_label, agent,
    agent_provider, agent_model, o.override_score, total_score, o.override_score, session_cost_usd,
    session_total_tokens, session_duration_ms, criteria_hash::text, judge_profile_version
FROM score_overrides o JOIN session_scores s USING (score_id)
WHERE is_current AND (disqualified OR NOT (gate ->> 'passed')::boolean) AND NOT EXISTS (
    SELECT FROM score_overrides later WHERE later.score_id = o.score_id AND later.seq > o.seq);

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
