"""Every metric, each with its meaning. Times are seconds; names follow Prometheus' conventions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from time import perf_counter

from prometheus_client import Counter, Gauge, Histogram

from consumer.error_codes import ErrorCode
from consumer.errors import HistoryUnavailable

# Calls take from a tenth of a second (a cached answer) to five minutes (a long session).
CALL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
# From "at once" to "someone should have been woken long ago".
AGE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

LOG_LINES_DROPPED = Counter(
    "scoring_log_lines_dropped", "Log lines that nobody read, and that are lost"
)
REQUESTS_RECEIVED = Counter(
    "scoring_requests_received_total",
    "Records read from score.requested, by what became of them: accepted, duplicate, rejected.",
    ["result"],
)
REQUESTS_FINISHED = Counter(
    "scoring_requests_finished_total",
    "Requests answered, by outcome: completed, reused, or the error code of score.failed.",
    ["outcome"],
)
REQUESTS_GIVEN_UP = Counter(
    "scoring_requests_given_up_total",
    "Requests that this process ended because too many workers in a row were lost while at them.",
)
REQUESTS_RETRIED = Counter(
    "scoring_requests_retried_total",
    "Attempts that ended in trouble that may pass, by error code; the request waits for another.",
    ["error_code"],
)
REQUESTS_HELD = Counter(
    "scoring_requests_held_total",
    "Requests put back, no attempt counted, because their judge is left alone.",
)
REQUEST_SECONDS = Histogram(
    "scoring_request_seconds",
    "From receiving a request to its answer being stored, waiting included.",
    buckets=AGE_BUCKETS,
)
REQUESTS_LATE = Counter(
    "scoring_requests_late_total", "Requests answered later than OBJECTIVE_SECONDS after receiving."
)
OBJECTIVE = Gauge(
    "scoring_objective_ratio",
    "Share of requests that is to be answered with a score (`answered`), and in time (`in_time`).",
    ["objective"],
)
PIPELINE_SECONDS = Histogram(
    "scoring_pipeline_seconds",
    "One attempt: session, rules, judge, transaction.",
    buckets=CALL_BUCKETS,
)
REQUESTS_PENDING = Gauge(
    "scoring_requests_pending",
    "Requests waiting in the database, all replicas; counted up to the high-water mark plus one.",
)
REQUESTS_IN_PROGRESS = Gauge(
    "scoring_requests_in_progress", "Requests under a lease in the database, all replicas."
)
OLDEST_PENDING_SECONDS = Gauge(
    "scoring_requests_oldest_pending_seconds", "Age of the oldest request that waits. Scale on it."
)
SLOTS = Gauge(
    "scoring_worker_slots",
    "Requests that this process may have under way at a time: WORKER_SLOTS and half as many again.",
)
SLOTS_BUSY = Gauge("scoring_worker_slots_busy", "Requests that this process has under way.")
SESSION_BYTES = Gauge(
    "scoring_session_bytes", "Bytes of the sessions that this process has under way."
)
SESSIONS_WAITING = Gauge(
    "scoring_sessions_waiting",
    "Requests under way whose session is not read for now, as there is no room for it.",
)
LEASES_LOST = Counter(
    "scoring_leases_lost_total",
    "Requests that this process had to drop because their lease was no longer its own.",
)
LEASES_FREED = Counter(
    "scoring_leases_freed_total",
    "Requests of vanished workers that this process gave back to the queue.",
)

SCORES = Histogram(
    "scoring_score",
    "Total scores of new scores, by profile.",
    ["profile"],
    buckets=(10, 20, 30, 40, 44, 50, 59, 65, 70, 74, 80, 85, 89, 95, 100),
)
QUALITY_RISKS = Counter(
    "scoring_quality_risks_total", "quality_risk events, by profile.", ["profile"]
)

HISTORY_SECONDS = Histogram(
    "scoring_history_call_seconds",
    "Calls of the History Service, by result: ok or the error's class.",
    ["result"],
    buckets=CALL_BUCKETS,
)
JUDGE_SECONDS = Histogram(
    "scoring_judge_call_seconds",
    "Calls of the judge, by provider and result: ok or the error's class. Retries count each.",
    ["provider", "result"],
    buckets=CALL_BUCKETS,
)
JUDGE_BREAKER = Gauge(
    "scoring_judge_breaker_state",
    "The provider's circuit breaker in this process: 0 closed, 1 half-open, 2 open.",
    ["provider"],
)
JUDGE_BREAKER_OPENED = Counter(
    "scoring_judge_breaker_opened_total", "Times that the circuit breaker opened.", ["provider"]
)
JUDGE_LAST_ERROR = Gauge(
    "scoring_judge_last_error",
    "1 for the class of the last error that counted against the circuit breaker.",
    ["provider", "error"],
)
JUDGE_CONCURRENCY = Gauge(
    "scoring_judge_concurrency_limit", "Calls at a time that this process makes.", ["provider"]
)
JUDGE_IN_FLIGHT = Gauge("scoring_judge_in_flight", "Calls under way.", ["provider"])
JUDGE_WAITING = Gauge(
    "scoring_judge_waiting",
    "Calls that wait, by what for: slot (concurrency), requests or tokens (a minute's limit).",
    ["provider", "limit"],
)
JUDGE_RATE_LEFT = Gauge(
    "scoring_judge_rate_available",
    "What of a minute's limit may pass at once, requests or tokens; below 0 it is a debt.",
    ["provider", "limit"],
)
JUDGE_SPENT = Gauge(
    "scoring_judge_spend_usd",
    "USD of this UTC day over all replicas, by kind: spent, reserved, cap.",
    ["provider", "kind"],
)
JUDGE_BUDGET_EXHAUSTED = Counter(
    "scoring_judge_budget_exhausted_total", "Calls not made because of the spend cap.", ["provider"]
)
JUDGE_ELIDED = Counter(
    "scoring_judge_elided_total", "Prompts that were shortened to fit the model's context."
)
JUDGE_TOKENS = Counter(
    "scoring_judge_tokens_total",
    "Tokens of judge calls, by direction: input, output.",
    ["direction"],
)
JUDGE_COST = Counter("scoring_judge_cost_usd_total", "USD of judge calls whose price is known.")
JUDGE_UNPRICED = Counter(
    "scoring_judge_unpriced_total", "Answers whose cost is unknown: the model has no price."
)
JUDGE_INVALID = Counter(
    "scoring_judge_invalid_answers_total",
    "Judge answers that did not pass the checks; each was asked for again or ended the request.",
    ["provider"],
)

DLQ_RECORDS = Counter(
    "scoring_dlq_records_total", "Records that could not be accepted, by reason.", ["reason"]
)
DLQ_REDRIVEN = Counter(
    "scoring_dlq_redriven_total", "Dead letters that `dlq redrive` sent back and intake read again."
)
DLQ_SHORTENED = Counter(
    "scoring_dlq_shortened_total", "Dead letters that Kafka took only without their whole value."
)
INTAKE_PAUSED = Gauge(
    "scoring_intake_paused", "1 while intake leaves requests in Kafka: the backlog is too high."
)
INTAKE_FLOODED = Gauge(
    "scoring_intake_flooded_partitions",
    "Partitions that this process takes few records from, as most of them can't be accepted.",
)
INTAKE_BATCH = Histogram(
    "scoring_intake_batch_records",
    "Records in one batch.",
    buckets=(1, 10, 50, 100, 250, 500, 1000),
)
INTAKE_BATCH_SECONDS = Histogram(
    "scoring_intake_batch_seconds",
    "From reading a batch to its commit, database trouble included.",
    buckets=AGE_BUCKETS,
)

INTAKE_LAG = Gauge(
    "scoring_intake_lag_records",
    "Records in the partitions of this process that it has not read yet; NaN where Kafka does not "
    "tell.",
)

OUTBOX_PENDING = Gauge("scoring_outbox_pending", "Events not yet acknowledged by Kafka.")
OUTBOX_OLDEST_SECONDS = Gauge(
    "scoring_outbox_oldest_seconds", "Age of the oldest event not yet acknowledged by Kafka."
)
EVENTS_SENT = Counter(
    "scoring_events_sent_total", "Events acknowledged by Kafka, by type.", ["type"]
)
EVENTS_SEND_ERRORS = Counter(
    "scoring_events_send_errors_total", "Events that Kafka did not take; they are sent again."
)
EVENTS_REFUSED = Gauge(
    "scoring_events_refused",
    "Events in the outbox that Kafka refuses as too large; they are tried again now and then.",
)

# From a lookup by key to a report over a million scores.
HTTP_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 10, 60)
HTTP_REQUESTS = Counter(
    "scoring_http_requests_total",
    "Calls of the API, by the template of the route, method and status.",
    ["route", "method", "status"],
)
HTTP_SECONDS = Histogram(
    "scoring_http_request_seconds",
    "Until the API's answer began; those that wait for a score included.",
    ["route", "method"],
    buckets=HTTP_BUCKETS,
)

HTTP_CLOSED = Counter(
    "scoring_http_connections_closed_total",
    "Connections closed before their time, by why: head, body (did not come in time), "
    "unread (the answer); of too many: crowded (no whole request was sent), busy (all others are "
    "at work: 503), refused (at once).",
    ["why"],
)
HTTP_LISTENERS = Gauge(
    "scoring_http_listeners", "Clients that follow this process' live events now."
)
HTTP_LISTENERS_REFUSED = Counter(
    "scoring_http_listeners_refused_total", "Clients that found too many others following them."
)

BATCHES = Gauge("scoring_batches_running", "Batches that this process works on now.")
BATCH_REQUESTS = Counter(
    "scoring_batch_requests_total", "Requests of batches that Kafka has acknowledged."
)

READY = Gauge(
    "scoring_ready",
    "1 where this process can use what it needs, 0 where not, by part: postgres (its reads), "
    "postgres_writes, kafka (in the consumer group), history (as its last call found), "
    "judge:PROVIDER (breaker closed), api, process (not stopping).",
    ["part"],
)
FIGURES_AGE_SECONDS = Gauge(
    "scoring_figures_age_seconds",
    "Seconds since the figures of the queue, the outbox and the day's money were read; older than "
    "10 s they are NaN.",
)
CLOCK_SKEW_SECONDS = Gauge(
    "scoring_clock_skew_seconds", "By how much this process' clock is ahead of PostgreSQL's."
)
LOOP_AGE_SECONDS = Gauge(
    "scoring_loop_age_seconds", "Seconds since a loop last showed that it is alive.", ["loop"]
)
SERVER_UNREACHABLE = Counter(
    "scoring_server_unreachable_total",
    "Times that a loop found a server away; server: postgres or kafka.",
    ["loop", "server"],
)


REPLICAS_WANTED = Gauge(
    "scoring_replicas_wanted", "Processes that there should be at least: REPLICAS_WANTED."
)

# A failure that is the first of its kind shall be an increase, too.
for _outcome in ("completed", "reused", *ErrorCode):
    REQUESTS_FINISHED.labels(_outcome)


def forget_figures() -> None:
    """Marks what the database tells as unknown: a figure is never its last value."""
    for figure in (
        REQUESTS_PENDING,
        REQUESTS_IN_PROGRESS,
        OLDEST_PENDING_SECONDS,
        OUTBOX_PENDING,
        OUTBOX_OLDEST_SECONDS,
    ):
        figure.set(nan)
    JUDGE_SPENT.clear()


_last_errors: dict[str, str] = {}


def tell_last_error(provider: str, error: str) -> None:
    """The class of error that takes the place of the one before."""
    if before := _last_errors.get(provider):
        JUDGE_LAST_ERROR.remove(provider, before)
    _last_errors[provider] = error
    JUDGE_LAST_ERROR.labels(provider, error).set(1)


@contextmanager
def judge_call(provider: str) -> Iterator[None]:
    """Measures one judge call under its result."""
    started = perf_counter()
    result = "cancelled"
    try:
        yield
        result = "ok"
    except Exception as error:
        result = type(error).__name__
        raise
    finally:
        JUDGE_SECONDS.labels(provider, result).observe(perf_counter() - started)


@contextmanager
def history_call() -> Iterator[None]:
    """Measures one History call under its result."""
    started = perf_counter()
    result = "cancelled"
    try:
        yield
        result = "ok"
    except Exception as error:
        result = type(error).__name__
        raise
    finally:
        HISTORY_SECONDS.labels(result).observe(perf_counter() - started)
        if result != "cancelled":
            READY.labels("history").set(result != HistoryUnavailable.__name__)
