-- What became of tool calls is told by scoring version: version 1 called calls wasted that had served.
-- All days that are kept hold figures of version 1 (0011 left none); they are not counted again.
ALTER TABLE tool_use_rollup
    ADD COLUMN scoring_version int NOT NULL DEFAULT 1,
    ADD COLUMN actions         bigint,
    ADD COLUMN not_cited       bigint;

-- (By criteria first: of each, the version is read once.)
CREATE OR REPLACE FUNCTION count_tool_use(which date) RETURNS SETOF tool_use_rollup
LANGUAGE sql STABLE AS $$
    SELECT which, judge_profile_id, classification_label, agent, agent_model, sessions, calls, failed,
        corrections, repeated, wasted, wasted_tokens, wasted_cost_usd, wasted_cost_unknown,
        effectiveness_sum, criteria_hash::text, judge_profile_version,
        coalesce((criteria_content ->> 'scoring_version')::int, 1), actions, not_cited
    FROM (
        SELECT judge_profile_id, classification_label, agent, agent_model, criteria_hash,
            judge_profile_version,
            count(*) AS sessions, sum((tool_report ->> 'calls')::bigint)::bigint AS calls,
            sum(jsonb_array_length(tool_report -> 'failed')) AS failed,
            sum(jsonb_array_length(tool_report -> 'corrections')) AS corrections,
            sum(jsonb_array_length(tool_report -> 'repeated')) AS repeated,
            sum(jsonb_array_length(tool_report -> 'wasted')) AS wasted,
            coalesce(sum(tokens), 0)::bigint AS wasted_tokens,
            coalesce(sum(cost_usd), 0) AS wasted_cost_usd,
            coalesce(sum(unknown), 0)::bigint AS wasted_cost_unknown,
            sum((tool_report ->> 'effectiveness')::bigint)::bigint AS effectiveness_sum,
            sum((tool_report ->> 'actions')::bigint)::bigint AS actions,
            sum(jsonb_array_length(tool_report -> 'not_cited')) AS not_cited
        FROM session_scores s, LATERAL (
            SELECT sum((w ->> 'tokens')::bigint) AS tokens,
                sum((w ->> 'cost_usd')::double precision) AS cost_usd,
                count(*) FILTER (WHERE w ->> 'cost_usd' IS NULL) AS unknown
            FROM jsonb_array_elements(tool_report -> 'wasted') AS w
        ) wasted
        WHERE scored_at >= day_starts(which) AND scored_at < day_starts(which + 1) AND is_current
            AND tool_report IS NOT NULL
        GROUP BY 1, 2, 3, 4, 5, 6
    ) used JOIN scoring_criteria_definitions USING (criteria_hash)
$$;

CREATE OR REPLACE VIEW tool_use_figures AS
SELECT kept.* FROM tool_use_rollup kept JOIN rollup_days d USING (day) WHERE rolled_up_at IS NOT NULL
UNION ALL SELECT d.day, c.judge_profile_id, c.classification_label, c.agent, c.agent_model, c.sessions,
    c.calls, c.failed, c.corrections, c.repeated, c.wasted, c.wasted_tokens, c.wasted_cost_usd,
    c.wasted_cost_unknown, c.effectiveness_sum, c.criteria_hash, c.judge_profile_version,
    c.scoring_version, c.actions, c.not_cited
FROM open_days d, count_tool_use(d.day) c;
