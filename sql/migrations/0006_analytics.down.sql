DROP VIEW criteria_history, model_comparison_runs, missing_tool_frequency, score_distribution,
    score_trend_daily;
DROP TRIGGER override_opens_its_day ON score_overrides;
DROP TRIGGER score_opens_its_day ON session_scores;
DROP FUNCTION open_day_of_override();
DROP FUNCTION open_day_of_score();
DROP FUNCTION open_day(date);
DROP VIEW tool_use_figures, approach_figures, missing_tool_figures, criterion_figures, score_figures,
    open_days;
DROP FUNCTION count_tool_use(date);
DROP FUNCTION count_approaches(date);
DROP FUNCTION count_missing_tools(date);
DROP FUNCTION count_criteria(date);
DROP FUNCTION count_scores(date);
DROP FUNCTION day_starts(date);
DROP TABLE tool_use_rollup, approach_rollup, missing_tool_rollup, criterion_rollup, score_rollup,
    rollup_days;
DROP VIEW reported_scores;
DROP INDEX score_overrides_by_time, score_requests_without_score, session_scores_runs,
    session_scores_by_words,
    session_scores_by_criteria, session_scores_by_band, session_scores_by_profile,
    session_scores_by_model, session_scores_by_label, session_scores_by_agent, session_scores_by_time;
CREATE INDEX session_scores_by_criteria ON session_scores (criteria_hash);
DROP FUNCTION score_band(double precision);
