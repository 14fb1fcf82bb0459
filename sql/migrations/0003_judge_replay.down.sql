DROP VIEW score_cards;
ALTER TABLE session_scores DROP COLUMN injection_flags, DROP COLUMN judge_skipped;
DROP TABLE judge_inputs;
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
