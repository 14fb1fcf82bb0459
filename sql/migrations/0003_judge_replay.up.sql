-- What a judge was shown, so that it can be asked the same again; why a judge was not asked; and what
-- in the session looks as if it was meant for the judge. Only adds: former code goes on working.

CREATE TABLE judge_inputs (
    sha256  char(64) PRIMARY KEY CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    content bytea NOT NULL,                        -- the session as JSON; compressed by the server
    used_at timestamptz NOT NULL DEFAULT now()     -- last; `prune` goes by it
);
CREATE INDEX judge_inputs_age ON judge_inputs (used_at);

ALTER TABLE session_scores
    ADD COLUMN judge_skipped text,
    ADD COLUMN injection_flags jsonb NOT NULL DEFAULT '[]';

-- `s.*` is what it was when the view was made.
DROP VIEW score_cards;
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
