-- Every query of the product. A block starts with its name; the next line says what it does.
--
-- A LIMIT that says which rows to change is in an ARRAY(...) or a MATERIALIZED CTE, which run once.
-- Within IN or FROM it may run again for each row, and then find the next ones.

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
ON CONFLICT DO NOTHING;

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
ON CONFLICT (request_id) DO NOTHING;

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
-- Takes up to $1 due requests, the most urgent first, under a lease of $3 seconds for owner $2; none
-- of the profiles $4, whose judge is left alone ('': not known yet), and none that has lost exactly $5
-- leases (null: any number): those are for claim_alone. Its commit does not wait for the disk: a claim
-- that a crash of the server takes back is a request that is due again; see begin_scoring.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', true)
), due AS (
    SELECT request_id FROM score_requests
    WHERE state = 'pending' AND coalesced_into IS NULL AND next_attempt_at <= now()
        AND coalesce(profile_id, scoring_profile_id, '') <> ALL ($4::text[])
        AND lost_leases IS DISTINCT FROM $5::integer
    ORDER BY priority DESC, next_attempt_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE score_requests r
SET state = 'in_progress', attempt = attempt + 1, started_at = coalesce(started_at, now()),
    scoring_profile_id = NULL, lease_owner = $2, lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $3)
FROM due, relaxed WHERE r.request_id = due.request_id
RETURNING r.*, now() AS claimed_at;

-- name: claim_probe
-- As claim, but one request of the profiles $1: of their most urgent thousand the one that has waited
-- longest. One that a judge can't bear must not be what finds out, again and again, if it is well.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', true)
), urgent AS (
    SELECT request_id, next_attempt_at FROM score_requests
    WHERE state = 'pending' AND coalesced_into IS NULL AND next_attempt_at <= now()
        AND coalesce(profile_id, scoring_profile_id, '') = ANY ($1::text[])
        AND lost_leases IS DISTINCT FROM $4::integer
    ORDER BY priority DESC, next_attempt_at
    LIMIT 1000
), due AS (
    SELECT r.request_id FROM score_requests r JOIN urgent USING (request_id)
    WHERE r.state = 'pending' AND r.coalesced_into IS NULL
    ORDER BY urgent.next_attempt_at
    LIMIT 1
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE score_requests r
SET state = 'in_progress', attempt = attempt + 1, started_at = coalesce(started_at, now()),
    scoring_profile_id = NULL, lease_owner = $2, lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $3)
FROM due, relaxed WHERE r.request_id = due.request_id
RETURNING r.*, now() AS claimed_at;

-- name: due_alone
-- Whether a request that has lost $1 leases is due, none of the profiles $2. Asked all the time: an
-- index of its own holds the few that ever lost one.
SELECT EXISTS (
    SELECT FROM score_requests
    WHERE state = 'pending' AND coalesced_into IS NULL AND next_attempt_at <= now()
        AND lost_leases > 0 AND lost_leases = $1
        AND coalesce(profile_id, scoring_profile_id, '') <> ALL ($2::text[])) AS due;

-- name: claim_alone
-- As claim, but one request that has lost exactly $1 leases.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', true)
), due AS (
    SELECT request_id FROM score_requests
    WHERE state = 'pending' AND coalesced_into IS NULL AND next_attempt_at <= now()
        AND lost_leases > 0 AND lost_leases = $1
        AND coalesce(profile_id, scoring_profile_id, '') <> ALL ($4::text[])
    ORDER BY priority DESC, next_attempt_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE score_requests r
SET state = 'in_progress', attempt = attempt + 1, started_at = coalesce(started_at, now()),
    scoring_profile_id = NULL, lease_owner = $2, lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $3)
FROM due, relaxed WHERE r.request_id = due.request_id
RETURNING r.*, now() AS claimed_at;

-- name: renew_leases
-- Extends our leases to $3 seconds from now. Those not returned are no longer ours; those that somebody
-- holds locked are ours still, and are not renewed: the others don't wait for them.
WITH free AS MATERIALIZED (
    SELECT r.request_id
    FROM score_requests r JOIN unnest($1::uuid[], $2::uuid[]) AS mine (request_id, lease_token)
        ON r.request_id = mine.request_id AND r.lease_token = mine.lease_token
    WHERE r.state = 'in_progress'
    FOR NO KEY UPDATE OF r SKIP LOCKED
), renewed AS (
    UPDATE score_requests SET lease_expires_at = now() + make_interval(secs => $3)
    WHERE request_id = ANY (ARRAY(SELECT request_id FROM free))
    RETURNING request_id
)
SELECT r.request_id, renewed.request_id IS NOT NULL AS renewed
FROM score_requests r JOIN unnest($1::uuid[], $2::uuid[]) AS mine (request_id, lease_token)
    ON r.request_id = mine.request_id AND r.lease_token = mine.lease_token
LEFT JOIN renewed ON renewed.request_id = r.request_id
WHERE r.state = 'in_progress';

-- name: free_expired_leases
-- Gives requests of vanished workers back to the queue; not $1, on which the asking one is at work.
WITH expired AS (
    SELECT request_id FROM score_requests
    WHERE state = 'in_progress' AND lease_expires_at < now() AND request_id <> ALL ($1::uuid[])
    ORDER BY lease_expires_at LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
UPDATE score_requests r
SET state = 'pending', lost_leases = lost_leases + 1, next_attempt_at = now(),
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
FROM expired WHERE r.request_id = expired.request_id
RETURNING r.request_id, r.session_id, r.lost_leases;

-- name: begin_scoring
-- Marks our request as scoring by this profile; the unique index refuses a second one. Its commit
-- waits for the disk, and with it the claim: no judge is asked for what a crash could take back.
UPDATE score_requests SET scoring_profile_id = $3
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
RETURNING force_rescore;

-- name: current_score
-- The current score of a session by a profile, where it was made under these criteria, in full.
SELECT * FROM score_cards
WHERE session_id = $1 AND judge_profile_id = $2 AND is_current AND criteria_hash = $3
    AND judge_skipped IS NULL;

-- name: put_back
-- Returns our request to the queue for $3 seconds; $7 takes the attempt back (none was made). $8: its
-- judge is left alone; its profile is kept for the claim, and no deadline runs but $6. Its worker lives:
-- only leases lost in a row are counted.
UPDATE score_requests
SET state = 'pending', lost_leases = 0, next_attempt_at = now() + make_interval(secs => $3),
    error_code = coalesce($4, error_code), error_message = coalesce($5, error_message),
    deadline_at = coalesce($6, CASE WHEN NOT $8 THEN deadline_at END), attempt = attempt - $7,
    scoring_profile_id = CASE WHEN $8 THEN scoring_profile_id END, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
RETURNING request_id;

-- name: give_back
-- Returns our requests to the queue, at once and with their attempts taken back; not those that somebody
-- holds locked.
WITH free AS MATERIALIZED (
    SELECT r.request_id
    FROM score_requests r JOIN unnest($1::uuid[], $2::uuid[]) AS mine (request_id, lease_token)
        ON r.request_id = mine.request_id AND r.lease_token = mine.lease_token
    WHERE r.state = 'in_progress'
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE score_requests
SET state = 'pending', lost_leases = 0, next_attempt_at = now(), attempt = attempt - 1,
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = ANY (ARRAY(SELECT request_id FROM free));

-- name: lock_request
-- Holds our request until the transaction ends; no row: the lease is lost.
SELECT now() AS now FROM score_requests
WHERE request_id = $1 AND lease_token = $2 AND state = 'in_progress'
FOR UPDATE;

-- name: waiters
-- Up to $2 of the requests that wait for this one's answer, in the order they came; where $3, not those
-- that insist on a new score.
SELECT request_id, session_id, triggered_by, attempt, traceparent, tracestate
FROM score_requests
WHERE coalesced_into = $1 AND state = 'pending' AND NOT ($3::boolean AND force_rescore)
ORDER BY received_at, request_id LIMIT $2
FOR UPDATE;

-- name: waiters_to_promote
-- All that wait for this one's answer, in the order they came; where $2, only those that insist on a
-- new score.
SELECT request_id FROM score_requests
WHERE coalesced_into = $1 AND state = 'pending' AND (force_rescore OR NOT $2::boolean)
ORDER BY received_at, request_id
FOR UPDATE;

-- name: note_waiters_left
-- Whether some still wait for this finished request's answer.
UPDATE score_requests SET waiters_left = $2 WHERE request_id = $1;

-- name: lock_answered
-- The finished request that others have waited for longest, but for those that somebody is at.
SELECT request_id, score_id, error_code, error_message, now() AS now FROM score_requests
WHERE waiters_left ORDER BY finished_at LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: insert_score
-- The score with its missing tools, approaches and steps, in place of the session's former one by
-- this profile; and what judges were sent, under its SHA-256.
WITH retired AS (
    UPDATE session_scores SET is_current = false
    WHERE session_id = $2 AND judge_profile_id = $5 AND is_current
    RETURNING score_id
), sent AS (
    INSERT INTO judge_sent (sha256, content)
    SELECT sha256, content FROM unnest($43::text[], $44::bytea[]) AS made (sha256, content)
    -- All scores by a profile share a row: they would wait for each other to write to it.
    WHERE NOT EXISTS (SELECT FROM judge_sent known WHERE known.sha256 = made.sha256
                      AND known.used_at > now() - interval '1 hour')
    ORDER BY sha256
    ON CONFLICT (sha256) DO UPDATE SET used_at = now()
), score AS (
    INSERT INTO session_scores (score_id, session_id, request_id, criteria_hash, judge_profile_id,
        judge_profile_version, method, total_score, score_breakdown, score_details, score_reasoning,
        confidence, gate, disqualified, disqualifier_triggered, quality_risk, quality_risk_threshold,
        weakest_criteria, judge_provider, judge_model, judge_samples, judge_input_tokens,
        judge_output_tokens, judge_cost_usd, samples, injection_suspected, agent, agent_model,
        agent_provider, classification_label, session_total_tokens, session_cost_usd,
        session_duration_ms, scored_triggered_by, duration_ms, ranking, tool_report, judge_skipped,
        elision, injection_flags)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37,
        $38, $39, $40
    -- What is counted must have been done before: two can't be current.
    FROM (SELECT count(*) FROM retired) AS before
    RETURNING score_id
), tools AS (
    INSERT INTO score_missing_tools (score_id, tool_name, rationale, availability)
    SELECT score_id, tool_name, rationale, availability
    FROM score, jsonb_to_recordset($41::jsonb) AS t (tool_name text, rationale text, availability text)
), given AS (
    SELECT * FROM jsonb_to_recordset($42::jsonb)
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

-- name: sent
-- What judges were sent.
SELECT sha256, content FROM judge_sent WHERE sha256 = ANY ($1::text[]);

-- name: prune_sent
-- Deletes what judges were sent, where it was last used more than $1 days ago; up to $2 rows. Not
-- what a score is about to use again: to wait for it would be to delete what it then relies on.
DELETE FROM judge_sent WHERE sha256 = ANY (ARRAY(
    SELECT sha256 FROM judge_sent WHERE used_at < now() - make_interval(days => $1) LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: prune_inputs
-- The same of what a former program stored in its place.
DELETE FROM judge_inputs WHERE sha256 = ANY (ARRAY(
    SELECT sha256 FROM judge_inputs WHERE used_at < now() - make_interval(days => $1) LIMIT $2
    FOR UPDATE SKIP LOCKED));

-- name: score_by_id
-- One score, with tools, approaches and steps.
SELECT * FROM score_cards WHERE score_id = $1;

-- name: criteria_by_hash
-- What scores under this hash were made by.
SELECT criteria_content FROM scoring_criteria_definitions WHERE criteria_hash = $1;

-- name: lock_unfinished
-- Holds a request that is not finished yet, whoever works on it.
SELECT request_id, session_id, triggered_by, attempt, traceparent, tracestate, coalesced_into,
    now() AS now
FROM score_requests
WHERE request_id = $1 AND state IN ('pending', 'in_progress')
FOR UPDATE;

-- name: complete_requests
-- These requests are answered by this score, and these are the events that say so, in this order.
WITH answered AS (
    UPDATE score_requests
    SET state = 'completed', score_id = $2, finished_at = now(), error_code = NULL,
        error_message = NULL, scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL,
        lease_expires_at = NULL
    WHERE request_id = ANY($1::uuid[])
)
INSERT INTO outbox (event_id, topic, key, type, payload, headers)
SELECT event_id, topic, key, type, payload, headers::jsonb
FROM unnest($3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::bytea[], $8::text[])
    AS event (event_id, topic, key, type, payload, headers);

-- name: end_requests
-- These requests end without a score, in state $2 and with this reason.
UPDATE score_requests
SET state = $2, error_code = $3, error_message = $4, finished_at = now(),
    scoring_profile_id = NULL, lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
WHERE request_id = ANY($1::uuid[]);

-- name: promote_waiter
-- The first of these waiting requests becomes their leader, as urgent as the most urgent of them.
UPDATE score_requests
SET coalesced_into = CASE WHEN request_id = ($1::uuid[])[1] THEN NULL ELSE ($1::uuid[])[1] END,
    priority = CASE WHEN request_id = ($1::uuid[])[1]
        THEN (SELECT max(priority) FROM score_requests WHERE request_id = ANY($1::uuid[]))
        ELSE priority END
WHERE request_id = ANY($1::uuid[]);

-- name: outbox_lock
-- True where we are the one relay, until the transaction ends; it may idle for $1 (with unit) till then.
SELECT pg_try_advisory_xact_lock(715517001)
FROM set_config('idle_in_transaction_session_timeout', $1, true);

-- name: outbox_page
-- The next events to send, oldest first: up to $1, without those of $3 and of topics $4, and no more
-- once they have $2 bytes. Sizes are told without reading what is stored apart from its row.
SELECT seq, event_id, topic, key, type, payload, headers, created_at
FROM (SELECT *, sum(coalesce(octet_length(payload), 0) + pg_column_size(headers)) OVER (ORDER BY seq
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
      FROM outbox WHERE seq <> ALL ($3::bigint[]) AND topic <> ALL ($4::text[])
      ORDER BY seq LIMIT $1) page
WHERE coalesce(bytes_before, 0) < $2 ORDER BY seq;

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

-- name: write_nothing
-- Needs what a request's way through needs of locks and rights, and changes no row.
WITH score AS (INSERT INTO session_scores SELECT * FROM session_scores WHERE false),
     event AS (DELETE FROM outbox WHERE false)
UPDATE score_requests SET state = state WHERE false;

-- name: insert_criteria
-- Keeps a criteria definition, once.
INSERT INTO scoring_criteria_definitions (criteria_hash, criteria_content)
VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: register_profile
-- Keeps a profile version, once; answers what is stored. The update changes nothing: it waits for,
-- and sees, what another replica has stored at the same time.
INSERT INTO judge_profiles AS kept (profile_id, version, content, created_by)
VALUES ($1, $2, $3, $4)
ON CONFLICT (profile_id, version) DO UPDATE SET content = kept.content
RETURNING kept.content;

-- name: prune_requests
-- Deletes up to $2 requests that were finished before $1 days ago; scores are kept.
DELETE FROM score_requests WHERE request_id = ANY (ARRAY(
    SELECT request_id FROM score_requests
    WHERE finished_at < now() - make_interval(days => $1) AND NOT waiters_left
    ORDER BY finished_at LIMIT $2
    FOR UPDATE SKIP LOCKED
));

-- name: status_counts
-- Requests by state.
SELECT state, count(*) AS requests FROM score_requests GROUP BY state ORDER BY state;

-- name: read_only
-- Why nothing may be written here; null: it may.
SELECT CASE WHEN pg_is_in_recovery() THEN 'it is a standby'
    WHEN current_setting('transaction_read_only') = 'on' THEN 'default_transaction_read_only is on'
    END AS why;

-- name: blockers
-- Who holds up the connection with process id $1; 0: a prepared transaction. What belongs to another
-- role is null, unless ours may see it (pg_read_all_stats). No statement: it may hold anything.
SELECT blocker AS pid, application_name, usename, state, xact_start,
    extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds
FROM unnest(pg_blocking_pids($1::integer)) blocker LEFT JOIN pg_stat_activity ON pid = blocker;

-- name: listed_requests
-- Requests in one of states $1 and with one of codes $2 (null: any), the newest first, up to $8. What is
-- finished counts by its end, from $3 on, all else by its arrival, from $4 on; both before $5 (null: no
-- limit). $6: of this session, $7: of these ids (null: any). $9: only what was not asked for anew since:
-- by a later request for the same session and profile that insists on a new score as this one does.
WITH known AS NOT MATERIALIZED (
    SELECT r.*, coalesce(finished_at, received_at) AS at, (
        SELECT later.request_id FROM score_requests later
        WHERE later.session_id = r.session_id
            AND later.profile_id IS NOT DISTINCT FROM r.profile_id
            AND (later.received_at, later.request_id) > (r.received_at, r.request_id)
            AND (later.force_rescore OR NOT r.force_rescore)
        ORDER BY later.received_at DESC, later.request_id DESC LIMIT 1) AS asked_anew_as
    FROM score_requests r
), fitting AS NOT MATERIALIZED (
    SELECT * FROM known
    WHERE state = ANY ($1::text[]) AND ($2::text[] IS NULL OR error_code = ANY ($2))
        AND NOT ($9::boolean AND asked_anew_as IS NOT NULL)
)
-- A branch for each index. What a branch is not for costs nothing: that is looked at once.
(SELECT * FROM fitting WHERE $6::text IS NULL AND $7::uuid[] IS NULL
    AND finished_at >= coalesce($3::timestamptz, '-infinity')
    AND finished_at < coalesce($5::timestamptz, 'infinity')
 ORDER BY finished_at DESC, request_id DESC LIMIT $8::bigint)
UNION ALL
(SELECT * FROM fitting WHERE $6 IS NULL AND $7 IS NULL AND state = 'pending'
    AND received_at >= coalesce($4::timestamptz, '-infinity')
    AND received_at < coalesce($5, 'infinity')
 ORDER BY received_at DESC, request_id DESC LIMIT $8)
UNION ALL
(SELECT * FROM fitting WHERE $6 IS NULL AND $7 IS NULL AND state = 'in_progress'
    AND received_at >= coalesce($4, '-infinity') AND received_at < coalesce($5, 'infinity')
 ORDER BY received_at DESC, request_id DESC LIMIT $8)
UNION ALL
(SELECT * FROM fitting WHERE session_id = $6 AND $7 IS NULL
    AND at >= coalesce(CASE WHEN finished_at IS NULL THEN $4 ELSE $3 END, '-infinity')
    AND at < coalesce($5, 'infinity')
 ORDER BY at DESC, request_id DESC LIMIT $8)
UNION ALL
SELECT * FROM fitting WHERE request_id = ANY ($7)
ORDER BY at DESC, request_id DESC LIMIT $8;

-- name: session_requests
-- A session's requests, the newest first.
SELECT * FROM score_requests WHERE session_id = $1 ORDER BY received_at DESC LIMIT 100;

-- name: session_current_scores
-- A session's current scores, one a profile, with all that belongs to them.
SELECT * FROM score_cards WHERE session_id = $1 AND is_current ORDER BY scored_at DESC;

-- name: scorecards
-- A page of scorecards below $12 and $13, the newest first: scores ($17: of these only), and (where
-- $15) requests that have none. Planned for its parameters: those that are null cost nothing. $14
-- null: all, for exports.
WITH latest_override AS NOT MATERIALIZED (
    SELECT score_id, override_score FROM score_overrides o
    WHERE NOT EXISTS (SELECT FROM score_overrides later
                      WHERE later.score_id = o.score_id AND later.seq > o.seq)
), page AS (
    SELECT at, id, scored FROM (
        (SELECT scored_at AS at, score_id AS id, true AS scored FROM session_scores s
         WHERE ($8::text IS NULL OR $8 = 'completed')
            AND ($1::text IS NULL OR session_id = $1) AND ($2::text IS NULL OR agent = $2)
            AND ($3::text IS NULL OR classification_label = $3)
            AND ($4::text IS NULL OR agent_model = $4)
            AND ($5::text IS NULL OR judge_profile_id = $5)
            AND ($6::text IS NULL OR criteria_hash = $6::bpchar)
            AND ($7::text IS NULL OR (score_band(total_score) = $7 AND NOT EXISTS (
                SELECT FROM score_overrides o WHERE o.score_id = s.score_id)))
            AND ($9::timestamptz IS NULL OR scored_at >= $9)
            AND ($10::timestamptz IS NULL OR scored_at < $10)
            AND ($11::text IS NULL OR to_tsvector('simple', coalesce(score_reasoning, ''))
                @@ plainto_tsquery('simple', $11))
            AND ($12::timestamptz IS NULL OR (scored_at, score_id) < ($12, $13::uuid))
            AND ($16::boolean OR is_current)
            AND ($17::uuid[] IS NULL OR score_id = ANY ($17))
         ORDER BY scored_at DESC, score_id DESC LIMIT $14)
        UNION ALL
        -- A band is the override's, where there is one.
        (SELECT scored_at, score_id, true FROM latest_override o JOIN session_scores s USING (score_id)
         WHERE $7 IS NOT NULL AND score_band(override_score) = $7 AND ($8 IS NULL OR $8 = 'completed')
            AND ($1 IS NULL OR session_id = $1) AND ($2 IS NULL OR agent = $2)
            AND ($3 IS NULL OR classification_label = $3) AND ($4 IS NULL OR agent_model = $4)
            AND ($5 IS NULL OR judge_profile_id = $5) AND ($6 IS NULL OR criteria_hash = $6::bpchar)
            AND ($9 IS NULL OR scored_at >= $9) AND ($10 IS NULL OR scored_at < $10)
            AND ($11 IS NULL OR to_tsvector('simple', coalesce(score_reasoning, ''))
                @@ plainto_tsquery('simple', $11))
            AND ($12 IS NULL OR (scored_at, score_id) < ($12, $13))
            AND ($16 OR is_current) AND ($17 IS NULL OR score_id = ANY ($17))
         ORDER BY scored_at DESC, score_id DESC LIMIT $14)
        UNION ALL
        (SELECT received_at, request_id, false FROM score_requests
         WHERE $15::boolean AND ($8 IS NULL OR $8 = 'pending') AND state = 'pending'
            AND ($1 IS NULL OR session_id = $1) AND ($5 IS NULL OR profile_id = $5)
            AND ($9 IS NULL OR received_at >= $9) AND ($10 IS NULL OR received_at < $10)
            AND ($12 IS NULL OR (received_at, request_id) < ($12, $13))
         ORDER BY received_at DESC, request_id DESC LIMIT $14)
        UNION ALL
        (SELECT received_at, request_id, false FROM score_requests
         WHERE $15 AND ($8 IS NULL OR $8 = 'in_progress') AND state = 'in_progress'
            AND ($1 IS NULL OR session_id = $1) AND ($5 IS NULL OR $5 IN (profile_id, scoring_profile_id))
            AND ($9 IS NULL OR received_at >= $9) AND ($10 IS NULL OR received_at < $10)
            AND ($12 IS NULL OR (received_at, request_id) < ($12, $13))
         ORDER BY received_at DESC, request_id DESC LIMIT $14)
        UNION ALL
        (SELECT received_at, request_id, false FROM score_requests
         WHERE $15 AND ($8 IS NULL OR state = $8) AND state IN ('failed', 'skipped', 'cancelled')
            AND ($1 IS NULL OR session_id = $1) AND ($5 IS NULL OR profile_id = $5)
            AND ($9 IS NULL OR received_at >= $9) AND ($10 IS NULL OR received_at < $10)
            AND ($12 IS NULL OR (received_at, request_id) < ($12, $13))
         ORDER BY received_at DESC, request_id DESC LIMIT $14)
    ) found
    ORDER BY at DESC, id DESC LIMIT $14
)
SELECT page.at, page.id, CASE WHEN scored THEN 'completed' ELSE r.state END AS state,
    coalesce(s.session_id, r.session_id) AS session_id, s.score_id,
    coalesce(s.request_id, r.request_id) AS request_id,
    coalesce(s.judge_profile_id, r.scoring_profile_id, r.profile_id) AS profile_id,
    s.judge_profile_version AS profile_version, s.method, s.criteria_hash, s.is_current,
    s.classification_label AS label, s.agent, s.agent_provider, s.agent_model,
    coalesce(o.override_score, s.total_score) AS score, s.total_score, o.override_score,
    o.annotator AS override_by, score_band(coalesce(o.override_score, s.total_score)) AS band,
    s.ranking, s.confidence, s.disqualified, s.disqualifier_triggered,
    (s.gate ->> 'passed')::boolean AS gate_passed, s.quality_risk, s.score_breakdown,
    s.score_reasoning,
    CASE WHEN scored THEN ARRAY(SELECT tool_name FROM score_missing_tools t
                                WHERE t.score_id = page.id ORDER BY t.id) END AS missing_tools,
    (s.tool_report ->> 'effectiveness')::integer AS tool_effectiveness,
    s.injection_suspected, s.judge_provider, s.judge_model, s.judge_cost_usd, s.session_cost_usd,
    s.session_total_tokens, s.session_duration_ms,
    coalesce(s.scored_triggered_by, r.triggered_by) AS triggered_by, r.error_code, r.error_message
FROM page
-- One by one (OFFSET 0), so that the first of many is there at once.
LEFT JOIN LATERAL (SELECT * FROM session_scores s
                   WHERE s.score_id = page.id AND scored OFFSET 0) s ON true
LEFT JOIN LATERAL (SELECT * FROM score_requests r
                   WHERE r.request_id = page.id AND NOT scored OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT override_score, annotator FROM score_overrides o
                   WHERE o.score_id = page.id AND scored ORDER BY o.seq DESC LIMIT 1) o ON true
ORDER BY at DESC, id DESC;

-- name: scores_with_words
-- Up to $10 scores whose reasoning matches $1, in no order. Only quick by the index of words.
SELECT score_id FROM session_scores
WHERE to_tsvector('simple', coalesce(score_reasoning, '')) @@ plainto_tsquery('simple', $1)
    AND ($2::text IS NULL OR session_id = $2) AND ($3::text IS NULL OR agent = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent_model = $5)
    AND ($6::text IS NULL OR judge_profile_id = $6) AND ($7::text IS NULL OR criteria_hash = $7::bpchar)
    AND ($8::timestamptz IS NULL OR scored_at >= $8) AND ($9::timestamptz IS NULL OR scored_at < $9)
LIMIT $10;

-- name: report_trend
-- Averages and bands by day. Of all reports: UTC days $1 to $2, profile $3, label $4, agent $5, model
-- $6, a criteria hash's beginning $7, profile version $8.
SELECT day, sum(counted)::bigint AS scores, sum(total_sum)::bigint AS total_sum,
    sum(stored_sum)::bigint AS stored_sum, sum(stored_counted)::bigint AS stored_scores,
    sum(overridden)::bigint AS overridden,
    sum(disqualified)::bigint AS disqualified, sum(gate_failed)::bigint AS gate_failed,
    sum(failed)::bigint AS failed, sum(weak)::bigint AS weak, sum(adequate)::bigint AS adequate,
    sum(good)::bigint AS good, sum(near_perfect)::bigint AS near_perfect
FROM score_figures
WHERE is_current AND day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY day ORDER BY day;

-- name: report_mixture
-- Profiles whose scores were made under more than one criteria hash, so that they do not compare.
SELECT judge_profile_id AS profile, count(DISTINCT criteria_hash) AS criteria_hashes,
    array_agg(DISTINCT judge_profile_version ORDER BY judge_profile_version) AS profile_versions
FROM score_figures
WHERE is_current AND day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY 1 HAVING count(DISTINCT criteria_hash) > 1 ORDER BY 1;

-- name: report_distribution
-- Bands, with and without overrides, and what is counted apart.
SELECT coalesce(sum(counted), 0)::bigint AS scores, coalesce(sum(overridden), 0)::bigint AS overridden,
    coalesce(sum(disqualified), 0)::bigint AS disqualified,
    coalesce(sum(gate_failed), 0)::bigint AS gate_failed,
    coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(weak), 0)::bigint AS weak,
    coalesce(sum(adequate), 0)::bigint AS adequate, coalesce(sum(good), 0)::bigint AS good,
    coalesce(sum(near_perfect), 0)::bigint AS near_perfect,
    coalesce(sum(stored_failed), 0)::bigint AS stored_failed,
    coalesce(sum(stored_weak), 0)::bigint AS stored_weak,
    coalesce(sum(stored_adequate), 0)::bigint AS stored_adequate,
    coalesce(sum(stored_good), 0)::bigint AS stored_good,
    coalesce(sum(stored_near_perfect), 0)::bigint AS stored_near_perfect,
    coalesce(sum(judged), 0)::bigint AS judged
FROM score_figures
WHERE is_current AND day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8);

-- name: report_criteria_bands
-- Bands by criterion.
SELECT judge_profile_id AS profile, criterion, sum(scores)::bigint AS scores,
    sum(not_applicable)::bigint AS not_applicable, sum(score_sum) AS score_sum,
    sum(failed)::bigint AS failed, sum(weak)::bigint AS weak, sum(adequate)::bigint AS adequate,
    sum(good)::bigint AS good, sum(near_perfect)::bigint AS near_perfect
FROM criterion_figures
WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: report_missing_tools
-- Tools that judges missed, by how many scores name them, up to $9; of availability $10, if given.
SELECT tool_name, sum(scores)::bigint AS scores, sum(exists_unused)::bigint AS exists_unused,
    sum(exists_used)::bigint AS exists_used, sum(does_not_exist)::bigint AS does_not_exist,
    sum(unknown)::bigint AS unknown, count(*) AS agents, max(last_day) AS last_day
FROM (
    SELECT tool_name, agent, sum(scores) AS scores, max(day) AS last_day,
        coalesce(sum(scores) FILTER (WHERE availability = 'exists_unused'), 0) AS exists_unused,
        coalesce(sum(scores) FILTER (WHERE availability = 'exists_used'), 0) AS exists_used,
        coalesce(sum(scores) FILTER (WHERE availability = 'does_not_exist'), 0) AS does_not_exist,
        coalesce(sum(scores) FILTER (WHERE availability = 'unknown'), 0) AS unknown
    FROM missing_tool_figures
    WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
        AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
        AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
        AND ($8::integer IS NULL OR judge_profile_version = $8)
        AND ($10::text IS NULL OR availability = $10)
    GROUP BY tool_name, agent
) by_agent
GROUP BY tool_name ORDER BY 2 DESC, 1 LIMIT $9;

-- name: report_approaches
-- Alternative approaches by how many scores name them, up to $9.
SELECT name, sum(scores)::bigint AS scores, sum(steps)::double precision / sum(scores) AS average_steps,
    max(day) AS last_day, max(example_score_id) AS example_score_id
FROM approach_figures
WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY name ORDER BY 2 DESC, 1 LIMIT $9;

-- name: report_criteria
-- Which criteria scores were made by, the newest first.
SELECT judge_profile_id AS profile, criteria_hash, first_scored_at, last_scored_at, scores,
    current_scores, created_at AS registered_at
FROM (
    SELECT judge_profile_id, criteria_hash, min(first_scored_at) AS first_scored_at,
        max(last_scored_at) AS last_scored_at, sum(scores)::bigint AS scores,
        coalesce(sum(scores) FILTER (WHERE is_current), 0)::bigint AS current_scores
    FROM score_figures
    WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
        AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
        AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
        AND ($8::integer IS NULL OR judge_profile_version = $8)
    GROUP BY 1, 2
) scored
LEFT JOIN LATERAL (SELECT created_at FROM scoring_criteria_definitions d
                   WHERE d.criteria_hash = scored.criteria_hash::bpchar) known ON true
ORDER BY profile, last_scored_at DESC, criteria_hash;

-- name: report_models
-- The newest runs of agents, up to $9, as columns of each model.
SELECT agent_provider AS provider, agent_model AS model, array_agg(total) AS scores,
    array_agg(session_cost_usd) AS costs_usd,
    array_agg(session_total_tokens::double precision) AS tokens,
    array_agg(session_duration_ms::double precision) AS durations_ms, min(scored_at) AS since
FROM (
    SELECT * FROM model_comparison_runs
    WHERE scored_at >= day_starts($1) AND scored_at < day_starts($2::date + 1)
        AND ($3::text IS NULL OR judge_profile_id = $3)
        AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
        AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
        AND ($8::integer IS NULL OR judge_profile_version = $8)
    ORDER BY scored_at DESC, score_id DESC LIMIT $9
) newest
GROUP BY 1, 2 ORDER BY 2, 1;

-- name: report_models_counted
-- How many runs there are of each model, and how many are counted apart.
SELECT agent_provider AS provider, agent_model AS model, sum(counted)::bigint AS runs,
    sum(disqualified)::bigint AS disqualified, sum(gate_failed)::bigint AS gate_failed
FROM score_figures
WHERE is_current AND day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY 1, 2;

-- name: report_tools
-- What became of agents' tool calls. What version 1 called wasted mostly was not: left out.
SELECT agent, scoring_version, sum(sessions)::bigint AS sessions, sum(calls)::bigint AS calls,
    sum(actions)::bigint AS actions, sum(failed)::bigint AS failed,
    sum(corrections)::bigint AS corrections, sum(repeated)::bigint AS repeated,
    sum(not_cited)::bigint AS not_cited,
    sum(wasted) FILTER (WHERE scoring_version > 1)::bigint AS wasted,
    sum(wasted_tokens) FILTER (WHERE scoring_version > 1)::bigint AS wasted_tokens,
    sum(wasted_cost_usd) FILTER (WHERE scoring_version > 1) AS wasted_cost_usd,
    sum(wasted_cost_unknown) FILTER (WHERE scoring_version > 1)::bigint AS wasted_cost_unknown,
    sum(effectiveness_sum)::double precision / sum(sessions) AS average_effectiveness
FROM tool_use_figures
WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY agent, scoring_version ORDER BY agent, scoring_version;

-- name: session_tool_report
-- The tool report of a session's newest score.
SELECT score_id, scored_at, tool_report FROM session_scores
WHERE session_id = $1 ORDER BY scored_at DESC LIMIT 1;

-- name: report_cost
-- What judges used for scores, by day and model; all scores count, for all were paid for.
SELECT day, judge_provider AS provider, judge_model AS model, sum(judged)::bigint AS scores,
    sum(judge_samples)::bigint AS samples, sum(judge_input_tokens)::bigint AS input_tokens,
    sum(judge_output_tokens)::bigint AS output_tokens, sum(judge_cost_usd) AS cost_usd,
    sum(judge_cost_unknown)::bigint AS cost_unknown
FROM score_figures
WHERE judged > 0 AND day BETWEEN $1 AND $2 AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: report_booked
-- What was booked on each day and provider that has a cap, calls that led to no score included.
SELECT day, provider, cap_usd::double precision AS cap_usd, spent_usd::double precision AS spent_usd
FROM judge_spend WHERE day BETWEEN $1 AND $2 ORDER BY day, provider;

-- name: report_agreement
-- Totals and what humans gave instead, in the newest override of each score, up to $9 of these days.
SELECT coalesce(array_agg(total_score), '{}') AS totals,
    coalesce(array_agg(override_score), '{}') AS overrides
FROM (
    SELECT s.total_score, o.override_score
    FROM score_overrides o JOIN session_scores s USING (score_id)
    WHERE o.created_at >= day_starts($1) AND o.created_at < day_starts($2::date + 1)
        AND NOT EXISTS (SELECT FROM score_overrides later
                        WHERE later.score_id = o.score_id AND later.seq > o.seq)
        AND ($3::text IS NULL OR judge_profile_id = $3)
        AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
        AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
        AND ($8::integer IS NULL OR judge_profile_version = $8)
    ORDER BY o.created_at DESC LIMIT $9
) newest;

-- name: report_agreement_mixture
-- The same as report_mixture, of the scores that were overridden on these days.
SELECT judge_profile_id AS profile, count(DISTINCT criteria_hash) AS criteria_hashes,
    array_agg(DISTINCT judge_profile_version ORDER BY judge_profile_version) AS profile_versions
FROM score_overrides o JOIN session_scores s USING (score_id)
WHERE o.created_at >= day_starts($1) AND o.created_at < day_starts($2::date + 1)
    AND ($3::text IS NULL OR judge_profile_id = $3)
    AND ($4::text IS NULL OR classification_label = $4) AND ($5::text IS NULL OR agent = $5)
    AND ($6::text IS NULL OR agent_model = $6) AND ($7::text IS NULL OR starts_with(criteria_hash, $7))
    AND ($8::integer IS NULL OR judge_profile_version = $8)
GROUP BY 1 HAVING count(DISTINCT criteria_hash) > 1 ORDER BY 1;

-- name: days_to_roll_up
-- Up to $1 finished days whose figures are to be counted, the oldest first. An hour is longer than any
-- transaction: whatever belongs to such a day is there, or will open it again.
SELECT day FROM open_days
WHERE day_starts(day + 1) < now() - interval '1 hour' ORDER BY day LIMIT $1;

-- name: lock_day
-- Waits for all who are changing scores of day $1, and keeps others from it until we are done.
SELECT pg_advisory_xact_lock(715517, $1::date - date '2000-01-01');

-- name: roll_up_day
-- Counts and keeps the figures of day $1.
WITH known AS (
    INSERT INTO rollup_days (day, rolled_up_at) VALUES ($1::date, now())
    ON CONFLICT (day) DO UPDATE SET rolled_up_at = now()
), former_scores AS (DELETE FROM score_rollup WHERE day = $1),
former_criteria AS (DELETE FROM criterion_rollup WHERE day = $1),
former_tools AS (DELETE FROM missing_tool_rollup WHERE day = $1),
former_approaches AS (DELETE FROM approach_rollup WHERE day = $1),
former_use AS (DELETE FROM tool_use_rollup WHERE day = $1),
scores AS (INSERT INTO score_rollup SELECT * FROM count_scores($1)),
criteria AS (INSERT INTO criterion_rollup SELECT * FROM count_criteria($1)),
tools AS (INSERT INTO missing_tool_rollup SELECT * FROM count_missing_tools($1)),
approaches AS (INSERT INTO approach_rollup SELECT * FROM count_approaches($1)),
tool_use AS (INSERT INTO tool_use_rollup SELECT * FROM count_tool_use($1))
SELECT;

-- name: reserve_spend
-- Reserves $3 USD of provider $1's day under cap $2, for request $4 under lease $5; answers whether
-- the lease is ours, and the reservation where there was room. Who comes second to the day's row
-- sees what the first has reserved.
WITH lease AS (
    SELECT FROM score_requests
    WHERE request_id = $4::uuid AND lease_token = $5::uuid AND state = 'in_progress'
), room AS (
    INSERT INTO judge_spend AS known (day, provider, cap_usd, reserved_usd)
    SELECT (now() AT TIME ZONE 'UTC')::date, $1::text, $2::numeric, $3::numeric
    FROM lease WHERE $3::numeric <= $2::numeric
    ON CONFLICT (day, provider) DO UPDATE
    SET cap_usd = excluded.cap_usd, reserved_usd = known.reserved_usd + excluded.reserved_usd
    WHERE known.spent_usd + known.reserved_usd + excluded.reserved_usd <= excluded.cap_usd
    RETURNING day
), made AS (
    INSERT INTO judge_reservations
        (reservation_id, day, provider, request_id, lease_token, amount_usd)
    SELECT gen_random_uuid(), day, $1::text, $4::uuid, $5::uuid, $3::numeric FROM room
    RETURNING reservation_id
)
SELECT EXISTS (SELECT FROM lease) AS leased, (SELECT reservation_id FROM made) AS reservation_id;

-- name: keep_cap
-- Notes the cap $2 that refused a reservation of provider $1 today, for those who look.
INSERT INTO judge_spend AS known (day, provider, cap_usd)
VALUES ((now() AT TIME ZONE 'UTC')::date, $1::text, $2::numeric)
ON CONFLICT (day, provider) DO UPDATE SET cap_usd = excluded.cap_usd
WHERE known.cap_usd <> excluded.cap_usd;

-- name: settle_spend
-- Books $2 USD for reservation $1 on its day, once, and gives back what is still reserved for it;
-- answers whether there is such a reservation.
WITH settled AS (
    UPDATE judge_reservations SET settled_at = now(), spent_usd = $2::numeric
    WHERE reservation_id = $1::uuid AND settled_at IS NULL
    RETURNING day, provider, CASE WHEN released_at IS NULL THEN amount_usd ELSE 0 END AS held_usd
), booked AS (
    UPDATE judge_spend known
    SET spent_usd = known.spent_usd + $2::numeric, reserved_usd = known.reserved_usd - held_usd
    FROM settled WHERE known.day = settled.day AND known.provider = settled.provider
)
SELECT EXISTS (SELECT FROM judge_reservations WHERE reservation_id = $1::uuid);

-- name: release_reservations
-- Gives back what is reserved under leases that have ended; answers how many reservations. Like
-- everyone here it locks reservations before days, and days in one order: nobody waits in a circle.
WITH ended AS (
    SELECT reservation_id FROM judge_reservations held
    WHERE released_at IS NULL AND settled_at IS NULL AND NOT EXISTS (
        SELECT FROM score_requests r
        WHERE r.request_id = held.request_id AND r.lease_token = held.lease_token
            AND r.state = 'in_progress' AND r.lease_expires_at >= now())
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), released AS (
    UPDATE judge_reservations SET released_at = now()
    WHERE reservation_id = ANY (ARRAY(SELECT reservation_id FROM ended))
    RETURNING day, provider, amount_usd
), freed AS (
    SELECT day, provider, sum(amount_usd) AS usd FROM released GROUP BY day, provider
), days AS (
    SELECT day, provider, usd FROM judge_spend JOIN freed USING (day, provider)
    ORDER BY day, provider
    FOR UPDATE OF judge_spend
), booked AS (
    UPDATE judge_spend known SET reserved_usd = known.reserved_usd - days.usd
    FROM days WHERE known.day = days.day AND known.provider = days.provider
)
SELECT count(*) FROM released;

-- name: spend_today
-- What each of these providers may cost, did cost and is reserved to cost on this UTC day.
SELECT asked.provider, cap_usd, coalesce(spent_usd, 0) AS spent_usd,
    coalesce(reserved_usd, 0) AS reserved_usd
FROM unnest($1::text[]) AS asked (provider)
LEFT JOIN judge_spend known
    ON known.provider = asked.provider AND known.day = (now() AT TIME ZONE 'UTC')::date;

-- name: prune_reservations
-- Deletes up to $2 reservations of days more than $1 days ago; not those that are still held.
DELETE FROM judge_reservations WHERE reservation_id = ANY (ARRAY(
    SELECT reservation_id FROM judge_reservations
    WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::integer
        AND (released_at IS NOT NULL OR settled_at IS NOT NULL)
    ORDER BY day LIMIT $2
    FOR UPDATE SKIP LOCKED
));

-- name: prune_spend
-- Deletes the days more than $1 days ago that no reservation belongs to any more.
DELETE FROM judge_spend known
WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::integer AND NOT EXISTS (
    SELECT FROM judge_reservations r WHERE r.day = known.day AND r.provider = known.provider);

-- name: request_by_id
-- One request.
SELECT * FROM score_requests WHERE request_id = $1;

-- name: last_request
-- A session's newest request.
SELECT * FROM score_requests WHERE session_id = $1 ORDER BY received_at DESC LIMIT 1;

-- name: shown_score
-- One score with all that belongs to it, its newest override too.
SELECT c.*, (SELECT to_jsonb(o) FROM score_overrides o WHERE o.score_id = c.score_id
             ORDER BY seq DESC LIMIT 1) AS override
FROM score_cards c WHERE score_id = $1;

-- name: shown_current_score
-- A session's current score by profile $2; by any, the newest, where that is null.
SELECT c.*, (SELECT to_jsonb(o) FROM score_overrides o WHERE o.score_id = c.score_id
             ORDER BY seq DESC LIMIT 1) AS override
FROM score_cards c
WHERE session_id = $1 AND is_current AND ($2::text IS NULL OR judge_profile_id = $2)
ORDER BY scored_at DESC LIMIT 1;

-- name: shown_scores
-- A session's scores made before $2 (null: all), the newest first.
SELECT c.*, (SELECT to_jsonb(o) FROM score_overrides o WHERE o.score_id = c.score_id
             ORDER BY seq DESC LIMIT 1) AS override
FROM score_cards c
WHERE session_id = $1 AND ($2::timestamptz IS NULL OR scored_at < $2)
ORDER BY scored_at DESC LIMIT $3;

-- name: insert_override
-- A human's score beside the judge's; no row where there is no such score.
WITH judged AS (SELECT score_id, session_id, total_score FROM session_scores WHERE score_id = $2),
made AS (
    INSERT INTO score_overrides (override_id, score_id, override_score, annotator, reason)
    SELECT $1, score_id, $3, $4, $5 FROM judged
    RETURNING *
)
SELECT made.*, judged.session_id, judged.total_score FROM made JOIN judged USING (score_id);

-- name: overrides
-- A score's overrides, the newest first.
SELECT override_id, override_score, annotator, reason, created_at FROM score_overrides
WHERE score_id = $1 ORDER BY seq DESC LIMIT 1000;

-- name: live_now
-- A place behind all changes that can be read by now: what is below the oldest transaction under way.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin;

-- name: live_missed
-- Whether something after place ($1, $2) is deleted, or the place is of another database's future.
SELECT ($1::text::xid8, $2::bigint) < (oldest.xid, oldest.seq)
    OR $1::text::xid8 >= pg_snapshot_xmax(pg_current_snapshot())
FROM (SELECT xid, seq FROM live_changes ORDER BY xid, seq LIMIT 1) oldest;

-- name: live_page
-- What happened after place ($1, $2, $3), in up to $4 statements: only what is older than every
-- transaction under way, so that nothing can come before it any more.
WITH page AS (
    SELECT * FROM live_changes
    WHERE (xid, seq) >= ($1::text::xid8, $2::bigint) AND xid < pg_snapshot_xmin(pg_current_snapshot())
        -- a place within the last statement of a page must not be all that the next page holds
    ORDER BY xid, seq LIMIT $4 + 1
)
SELECT page.xid::text AS xid, page.seq, one.n, page.kind, page.at, page.state, one.id,
    coalesce(r.session_id, judged.session_id) AS session_id, r.profile_id, r.triggered_by,
    CASE WHEN r.state = page.state THEN r.error_code END AS error_code,
    CASE WHEN r.state = page.state THEN r.error_message END AS error_message,
    judged.score_id, judged.total_score, judged.judge_profile_id, o.override_score, o.annotator
FROM page
CROSS JOIN LATERAL unnest(page.ids) WITH ORDINALITY AS one (id, n)
LEFT JOIN score_requests r ON page.kind = 'request' AND r.request_id = one.id
LEFT JOIN score_overrides o ON page.kind = 'override' AND o.override_id = one.id
LEFT JOIN session_scores judged
    ON judged.score_id = coalesce(o.score_id, CASE WHEN page.state = 'completed' THEN r.score_id END)
WHERE (page.xid, page.seq, one.n) > ($1::text::xid8, $2::bigint, $3::bigint)
ORDER BY page.xid, page.seq, one.n;

-- name: prune_live
-- Deletes up to $1 changes that are older than an hour, all but the newest of them.
WITH oldest AS MATERIALIZED (
    SELECT xid, seq, at, lead(at) OVER (ORDER BY xid, seq) AS next_at
    FROM (SELECT xid, seq, at FROM live_changes ORDER BY xid, seq LIMIT $1 + 1) first
)
DELETE FROM live_changes l USING oldest
WHERE l.xid = oldest.xid AND l.seq = oldest.seq
    AND oldest.at < now() - interval '1 hour' AND oldest.next_at < now() - interval '1 hour';

-- name: known_profiles
-- Each stored profile with its newest version.
SELECT profile_id, max(version) AS version FROM judge_profiles GROUP BY profile_id ORDER BY profile_id;

-- name: profile_versions
-- All versions of a profile, the newest first.
SELECT version, created_at, created_by FROM judge_profiles WHERE profile_id = $1
ORDER BY version DESC LIMIT 1000;

-- name: profile_version
-- One version of a profile, in full.
SELECT * FROM judge_profiles WHERE profile_id = $1 AND version = $2;

-- name: add_profile
-- Keeps a new version of a profile; no row where there is one of this number.
INSERT INTO judge_profiles (profile_id, version, content, created_by) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING version;

-- name: activate_profile
-- From now on this version is used; null: the file's.
INSERT INTO profile_activations (profile_id, version, activated_by) VALUES ($1, $2, $3);

-- name: profile_activations
-- What was activated of a profile, the newest first.
SELECT version, activated_by, created_at FROM profile_activations WHERE profile_id = $1
ORDER BY seq DESC LIMIT 1000;

-- name: activation_mark
-- Changes whenever something is activated.
SELECT coalesce(max(seq), 0) AS mark FROM profile_activations;

-- name: activated_profiles
-- The profiles in use in place of files.
SELECT profile_id, content FROM (
    SELECT DISTINCT ON (profile_id) profile_id, version FROM profile_activations
    ORDER BY profile_id, seq DESC) newest
JOIN judge_profiles USING (profile_id, version);

-- name: insert_batch
-- A new batch; $2: its selection, null where its sessions are named.
INSERT INTO score_batches (batch_id, state, selection, profile_id, force_rescore, priority,
    per_second, created_by)
VALUES ($1, CASE WHEN $2::jsonb IS NULL THEN 'publishing' ELSE 'listing' END, $2, $3, $4, $5, $6, $7);

-- name: insert_batch_items
-- Sessions of a batch with their request ids; what is there already stays.
INSERT INTO score_batch_items (batch_id, session_id, request_id)
SELECT $1, session_id, request_id FROM unnest($2::text[], $3::uuid[]) AS i (session_id, request_id)
ON CONFLICT DO NOTHING;

-- name: claim_batch
-- A batch that nobody works on (or this one), under a lease: one to be ended first, then the one
-- that was left alone for longest. A rate puts a batch off by a lease that ends when it is due.
WITH free AS MATERIALIZED (
    SELECT batch_id FROM score_batches
    WHERE finished_at IS NULL AND (lease_token IS NULL OR lease_expires_at < now())
        AND ($2::uuid IS NULL OR batch_id = $2)
    ORDER BY state = 'cancelling' DESC, lease_expires_at NULLS FIRST, created_at LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE score_batches b
SET lease_token = gen_random_uuid(), lease_expires_at = now() + make_interval(secs => $1)
FROM free WHERE b.batch_id = free.batch_id
RETURNING b.*;

-- name: renew_batch
-- Keeps a batch's lease; no row where it is lost, or the batch was cancelled.
UPDATE score_batches SET lease_expires_at = now() + make_interval(secs => $3)
WHERE batch_id = $1 AND lease_token = $2 RETURNING batch_id;

-- name: release_batch
-- Lets others go on with a batch.
UPDATE score_batches SET lease_token = NULL WHERE batch_id = $1 AND lease_token = $2;

-- name: batch_listed
-- All sessions of a batch are there.
UPDATE score_batches SET state = 'publishing', lease_token = NULL
WHERE batch_id = $1 AND lease_token = $2 AND state = 'listing' RETURNING batch_id;

-- name: next_batch_items
-- Sessions of a batch that are not published yet.
SELECT session_id, request_id FROM score_batch_items
WHERE batch_id = $1 AND published_at IS NULL ORDER BY session_id LIMIT $2;

-- name: batch_items_published
-- Kafka has acknowledged these sessions' requests.
UPDATE score_batch_items SET published_at = now()
WHERE batch_id = $1 AND session_id = ANY($2::text[]) AND published_at IS NULL;

-- name: finish_batch
-- The end of a batch.
UPDATE score_batches
SET state = $3, error_message = coalesce($4, error_message), finished_at = now(), lease_token = NULL
WHERE batch_id = $1 AND lease_token = $2 RETURNING batch_id;

-- name: cancel_batch
-- Ends a batch: whoever works on it loses the lease, and somebody ends what waits.
UPDATE score_batches
SET state = 'cancelling', finished_at = NULL, lease_token = NULL, error_message = 'cancelled by ' || $2
WHERE batch_id = $1 AND state IN ('listing', 'publishing', 'completed') RETURNING batch_id;

-- name: batch_waiting
-- Up to $2 requests of a batch that wait.
SELECT request_id FROM score_batch_items JOIN score_requests r USING (request_id)
WHERE batch_id = $1 AND published_at IS NOT NULL AND r.state = 'pending' LIMIT $2;

-- name: batch_on_its_way
-- Whether something of a batch was published a short time ago and is not stored yet.
SELECT EXISTS (
    SELECT FROM score_batch_items i
    WHERE batch_id = $1 AND published_at > now() - interval '1 minute'
        AND NOT EXISTS (SELECT FROM score_requests r WHERE r.request_id = i.request_id));

-- name: batch_known
-- The current scores of these sessions.
SELECT session_id, judge_profile_id AS profile_id, criteria_hash, total_score,
    agent, classification_label AS label, judge_skipped
FROM session_scores WHERE is_current AND session_id = ANY($1::text[])
ORDER BY session_id, scored_at DESC;

-- name: batch_mean_usd
-- What the latest scores under these criteria cost on average; null where none has a known cost.
SELECT avg(judge_cost_usd) AS usd FROM (
    SELECT judge_cost_usd FROM session_scores
    WHERE criteria_hash = $2 AND judge_profile_id = $1 AND judge_cost_usd IS NOT NULL
    LIMIT 200) latest;

-- name: batch_by_id
-- One batch.
SELECT * FROM score_batches WHERE batch_id = $1;

-- name: batches
-- Batches that were made before $1 (null: all), the newest first.
SELECT * FROM score_batches WHERE $1::timestamptz IS NULL OR created_at < $1
ORDER BY created_at DESC, batch_id LIMIT $2;

-- name: batch_progress
-- How far a batch is: its sessions, how many are published, and what became of their requests.
SELECT count(*) AS sessions, count(i.published_at) AS published,
    count(*) FILTER (WHERE r.state = 'pending') AS pending,
    count(*) FILTER (WHERE r.state = 'in_progress') AS in_progress,
    count(*) FILTER (WHERE r.state = 'completed') AS completed,
    count(*) FILTER (WHERE r.state = 'failed') AS failed,
    count(*) FILTER (WHERE r.state = 'skipped') AS skipped,
    count(*) FILTER (WHERE r.state = 'cancelled') AS cancelled
FROM score_batch_items i LEFT JOIN score_requests r USING (request_id) WHERE i.batch_id = $1;
