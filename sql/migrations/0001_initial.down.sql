DROP VIEW score_cards;
DROP TABLE outbox, score_requests, score_alternative_approach_steps, score_alternative_approaches,
    score_missing_tools, session_scores, judge_profiles, scoring_criteria_definitions;
DROP FUNCTION refuse_score_change, refuse_change, require_completed_request, refuse_second_end;
