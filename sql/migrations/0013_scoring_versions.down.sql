-- As 0011 made them. What was kept by 0013 is counted again: 0013, once more, takes kept days for version 1's.
UPDATE rollup_days SET rolled_up_at = NULL WHERE rolled_up_at IS NOT NULL;
TRUNCATE tool_use_rollup;
DROP VIEW tool_use_figures;
DROP FUNCTION count_tool_use(date);
ALTER TABLE tool_use_rollup
    DROP COLUMN scoring_version, DROP COLUMN actions, DROP COLUMN not_cited;

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

CREATE VIEW tool_use_figures AS
SELECT kept.* FROM tool_use_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.sessions,
    c.calls, c.failed, c.corrections, c.repeated, c.wasted, c.wasted_tokens, c.wasted_cost_usd,
    c.wasted_cost_unknown, c.effectiveness_sum,
    c.criteria_hash, c.judge_profile_version
FROM open_days d, count_tool_use(d.day) c;
