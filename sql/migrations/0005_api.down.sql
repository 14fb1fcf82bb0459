DROP TRIGGER request_states_noted ON score_requests;
DROP TRIGGER new_requests_noted ON score_requests;
DROP TABLE live_changes, score_batch_items, score_batches, profile_activations, score_overrides;
DROP FUNCTION note_new_requests(), note_request_states(), note_overrides();
