-- What belongs to a score is as immutable as the score itself. Only adds triggers.

CREATE TRIGGER missing_tools_immutable BEFORE UPDATE OR DELETE ON score_missing_tools
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER approaches_immutable BEFORE UPDATE OR DELETE ON score_alternative_approaches
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER approach_steps_immutable BEFORE UPDATE OR DELETE ON score_alternative_approach_steps
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
