-- Every query of the product. A block starts with its name; the next line says what it does.

-- name: insert_leaders
-- Accepts requests; one per session and profile, and none that is known or already under way.
INSERT INTO score_requests (request_id, session_id, profile_id, force_rescore, triggered_by, priority,
    requested_at, source_topic, source_partition, source_offset, traceparent, tracestate)
SELECT DISTINCT ON (session_id, coalesce(profile_id, ''))
    request_id, session_id, profile_id, force_rescore, triggered_by, priority,
    requested_at, source_topic, source_partition, source_offset, traceparent, tracestate
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::smallint[],
    $7::timestamptz[], $8::text[], $9::integer[], $10::bigint[], $11::text[], $12::text[])
    AS incoming (request_id, session_id, profile_id, force_rescore, triggered_by, priority,
    requested_at, source_topic, source_partition, source_offset, traceparent, tracestate)
-- A fixed order keeps two intakes from waiting for each other.
ORDER BY session_id, coalesce(profile_id, ''), priority DESC
ON CONFLICT DO NOTHING
RETURNING request_id;

-- name: insert_waiters
-- Accepts requests whose session and profile are under way: they wait for that answer. Holds the
-- leader's row, so that it can't finish without seeing them.
WITH incoming AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::smallint[],
        $7::timestamptz[], $8::text[], $9::integer[], $10::bigint[], $11::text[], $12::text[])
        AS i (request_id, session_id, profile_id, force_rescore, triggered_by, priority,
        requested_at, source_topic, source_partition, source_offset, traceparent, tracestate)
    WHERE NOT EXISTS (SELECT FROM score_requests r WHERE r.request_id = i.request_id)
), wanted AS (
    SELECT session_id, coalesce(profile_id, '') AS profile_key,
        bool_or(force_rescore) AS force_rescore, max(priority) AS priority
    FROM incoming GROUP BY 1, 2
), leaders AS (
    UPDATE score_requests leader
    SET priority = greatest(leader.priority, wanted.priority),
        force_rescore = leader.force_rescore OR (wanted.force_rescore AND leader.state = 'pending')
    FROM wanted
    WHERE leader.session_id = wanted.session_id
        AND coalesce(leader.profile_id, '') = wanted.profile_key
        AND leader.state IN ('pending', 'in_progress') AND leader.coalesced_into IS NULL
    RETURNING leader.request_id, leader.session_id, coalesce(leader.profile_id, '') AS profile_key
)
INSERT INTO score_requests (request_id, session_id, profile_id, force_rescore, triggered_by, priority,
    requested_at, source_topic, source_partition, source_offset, traceparent, tracestate, coalesced_into)
SELECT i.request_id, i.session_id, i.profile_id, i.force_rescore, i.triggered_by, i.priority,
    i.requested_at, i.source_topic, i.source_partition, i.source_offset, i.traceparent, i.tracestate,
    leaders.request_id
FROM incoming i
JOIN leaders ON leaders.session_id = i.session_id
    AND leaders.profile_key = coalesce(i.profile_id, '')
ON CONFLICT (request_id) DO NOTHING
RETURNING request_id;

-- name: known_requests
-- Which of these request ids are stored already.
SELECT request_id FROM score_requests WHERE request_id = ANY($1::uuid[]);

-- name: insert_outbox
-- Events and dead letters to be sent, in this order.
INSERT INTO outbox (event_id, topic, key, type, payload, headers)
SELECT event_id, topic, key, type, payload, headers::jsonb
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::bytea[], $6::text[])
    AS event (event_id, topic, key, type, payload, headers);

-- name: claim
-- Takes up to $1 due requests, the most urgent first, under a lease of $3 seconds for owner $2.
WITH due AS (
    SELECT request_id FROM score_requests
    WHERE state = 'pending' AND coalesced_into IS NULL AND next_attempt_at <= now()
    ORDER BY priority DESC, next_attempt_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE score_requests r
SET state = 'in_progress', attempt = attempt + 1, started_at = coalesce(started_at, now()),
    lease_owner = $2, lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $3)
FROM due WHERE r.request_id = due.request_id
RETURNING r.*, now() AS claimed_at;

-- name: renew_leases
-- Extends our leases to $3 seconds from now; those not returned are no longer ours.
UPDATE score_requests r SET lease_expires_at = now() + make_interval(secs => $3)
FROM unnest($1::uuid[], $2::uuid[]) AS mine (request_id, lease_token)
WHERE r.request_id = mine.request_id AND r.lease_token = mine.lease_token
    AND r.state = 'in_progress'
RETURNING r.request_id;

-- name: free_expired_leases
-- Gives requests of vanished workers back to the queue.
WITH expired AS (
    SELECT request_id FROM score_requests
    WHERE state = 'in_progress' AND lease_expires_at < now()
    ORDER BY lease_expires_at LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
UPDATE score_requests r
SET state = 'pending', lost_leases = lost_leases + 1, next_attempt_at = now(),
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
FROM expired WHERE r.request_id = expired.request_id
RETURNING r.request_id, r.session_id, r.lost_leases;

-- name: begin_scoring
-- Marks our request as scoring by this profile; the unique index refuses a second one.
UPDATE score_requests SET scoring_profile_id = $3
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
RETURNING force_rescore;

-- name: current_score
-- The current score of a session by a profile, where it was made under these criteria.
SELECT * FROM score_cards
WHERE session_id = $1 AND judge_profile_id = $2 AND is_current AND criteria_hash = $3;

-- name: put_back
-- Returns our request to the queue for $3 seconds; $7 takes the attempt back (none was made).
UPDATE score_requests
SET state = 'pending', next_attempt_at = now() + make_interval(secs => $3),
    error_code = coalesce($4, error_code), error_message = coalesce($5, error_message),
    deadline_at = coalesce($6, deadline_at), attempt = attempt - $7,
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
RETURNING request_id;

-- name: lock_request
-- Holds our request until the transaction ends; no row: the lease is lost.
SELECT now() AS now FROM score_requests
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
FOR UPDATE;

-- name: waiters
-- The requests that wait for this one's answer, in the order they came.
SELECT request_id, session_id, triggered_by, force_rescore, attempt, traceparent, tracestate
FROM score_requests WHERE coalesced_into = $1 AND state = 'pending'
ORDER BY received_at, request_id
FOR UPDATE;

-- name: retire_score
-- The session's former score by this profile is no longer the current one.
UPDATE session_scores SET is_current = false
WHERE session_id = $1 AND judge_profile_id = $2 AND is_current;

-- name: insert_score
-- The score with its missing tools, approaches and steps.
WITH score AS (
    INSERT INTO session_scores (score_id, session_id, request_id, criteria_hash, judge_profile_id,
        judge_profile_version, method, total_score, score_breakdown, score_details, score_reasoning,
        confidence, gate, disqualified, disqualifier_triggered, quality_risk, quality_risk_threshold,
        weakest_criteria, judge_provider, judge_model, judge_samples, judge_input_tokens,
        judge_output_tokens, judge_cost_usd, samples, injection_suspected, agent, agent_model,
        agent_provider, classification_label, session_total_tokens, session_cost_usd,
        session_duration_ms, scored_triggered_by, duration_ms, ranking, tool_report)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37)
    RETURNING score_id
), tools AS (
    INSERT INTO score_missing_tools (score_id, tool_name, rationale, availability)
    SELECT score_id, tool_name, rationale, availability
    FROM score, jsonb_to_recordset($38::jsonb) AS t (tool_name text, rationale text, availability text)
), given AS (
    SELECT * FROM jsonb_to_recordset($39::jsonb)
        AS a (position integer, name text, description text, steps jsonb)
), approaches AS (
    INSERT INTO score_alternative_approaches (score_id, position, name, description)
    SELECT score_id, given.position, name, description FROM score, given
    RETURNING id, position
)
INSERT INTO score_alternative_approach_steps (approach_id, step_order, step_description)
SELECT approaches.id, step.ordinality, step.text
FROM approaches JOIN given ON given.position = approaches.position,
    jsonb_array_elements_text(given.steps) WITH ORDINALITY AS step (text, ordinality);

-- name: lock_unfinished
-- Holds a request that is not finished yet, whoever works on it.
SELECT request_id, session_id, triggered_by, attempt, traceparent, tracestate, coalesced_into,
    now() AS now
FROM score_requests
WHERE request_id = $1 AND state IN ('pending', 'in_progress')
FOR UPDATE;

-- name: complete_requests
-- These requests are answered by this score.
UPDATE score_requests
SET state = 'completed', score_id = $2, finished_at = now(), error_code = NULL, error_message = NULL,
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = ANY($1::uuid[]);

-- name: end_requests
-- These requests end without a score, in state $2 and with this reason.
UPDATE score_requests
SET state = $2, error_code = $3, error_message = $4, finished_at = now(),
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = ANY($1::uuid[]);

-- name: promote_waiter
-- The first of these waiting requests becomes their leader.
UPDATE score_requests
SET coalesced_into = CASE WHEN request_id = ($1::uuid[])[1] THEN NULL ELSE ($1::uuid[])[1] END
WHERE request_id = ANY($1::uuid[]);

-- name: outbox_lock
-- True where we are the one relay, until the transaction ends.
SELECT pg_try_advisory_xact_lock(715517001);

-- name: outbox_page
-- The next events to send, oldest first.
SELECT seq, event_id, topic, key, type, payload, headers, created_at
FROM outbox ORDER BY seq LIMIT $1;

-- name: outbox_delete
-- Forgets events that Kafka has acknowledged.
DELETE FROM outbox WHERE seq = ANY($1::bigint[]);

-- name: backlog
-- How much waits: pending requests up to $1, the oldest one's age, outbox rows up to $1 and age.
SELECT
    (SELECT count(*) FROM (SELECT FROM score_requests WHERE state = 'pending' LIMIT $1) p) AS pending,
    (SELECT count(*) FROM score_requests WHERE state = 'in_progress') AS in_progress,
    coalesce((SELECT extract(epoch FROM now() - min(received_at))
              FROM score_requests WHERE state = 'pending'), 0)::double precision AS oldest_pending_s,
    (SELECT count(*) FROM (SELECT FROM outbox LIMIT $1) o) AS outbox,
    coalesce((SELECT extract(epoch FROM now() - created_at)
              FROM outbox ORDER BY seq LIMIT 1), 0)::double precision AS oldest_outbox_s;

-- name: insert_criteria
-- Keeps a criteria definition, once.
INSERT INTO scoring_criteria_definitions (criteria_hash, criteria_content)
VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: register_profile
-- Keeps a profile version, once; answers whether the stored one is the same. The update changes
-- nothing: it waits for, and sees, what another replica has stored at the same time.
INSERT INTO judge_profiles AS kept (profile_id, version, content, created_by)
VALUES ($1, $2, $3, $4)
ON CONFLICT (profile_id, version) DO UPDATE SET content = kept.content
RETURNING kept.content = $3;

-- name: prune_requests
-- Deletes up to $2 requests that were finished before $1 days ago; scores are kept.
DELETE FROM score_requests WHERE request_id IN (
    SELECT request_id FROM score_requests
    WHERE finished_at < now() - make_interval(days => $1)
    ORDER BY finished_at LIMIT $2
    FOR UPDATE SKIP LOCKED
);

-- name: status_counts
-- Requests by state.
SELECT state, count(*) AS requests FROM score_requests GROUP BY state ORDER BY state;

-- name: session_requests
-- A session's requests, the newest first.
SELECT * FROM score_requests WHERE session_id = $1 ORDER BY received_at DESC LIMIT 100;

-- name: session_current_scores
-- A session's current scores, one a profile, with all that belongs to them.
SELECT * FROM score_cards WHERE session_id = $1 AND is_current ORDER BY scored_at DESC;
