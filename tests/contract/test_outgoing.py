"""What is sent: events that fit their schemas, and dead letters that lose nothing."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer import __version__, contracts, outgoing
from consumer.cloudevents import Record, Unacceptable, read_request
from consumer.error_codes import ErrorCode, FailedState, failed_state
from consumer.events import ALL, OUTGOING, Event
from consumer.intake import IntakeSettings, dead_letter
from consumer.outgoing import Addresses, Asked, OutboxRow, sent_header, stored_header
from consumer.pipeline import Failed
from consumer.scoring.aggregate import RiskReason
from consumer.scoring.score import JudgeUsage, Score, SessionFacts
from tests.contract.schema_files import event_validator, header_validator
from tests.unit.builders import score

AT = datetime(2026, 1, 5, 9, 30, 14, tzinfo=UTC)
ADDRESSES = Addresses(
    source="/score-consumer", topics={event.type: f"prod.{event.type}" for event in ALL}
)
ASKED = Asked(request_id=UUID(int=1), session_id="s1", triggered_by="alice", attempts=2, trace={})
JUDGED = score(
    score_id=UUID(int=2),
    request_id=UUID(int=1),
    criteria_hash="0" * 64,
    total_score=31,
    breakdown={"logical_flow": 20, "consistency": 42.0},
    risk=("below_threshold",),
    weakest=("logical_flow", "consistency"),
    judge=JudgeUsage(
        provider="p", model="m", samples=1, input_tokens=10, output_tokens=2, cost_usd=0.01
    ),
    facts=SessionFacts(
        agent="KubernetesAgent",
        model="m",
        provider="p",
        classification_label="x",
        total_tokens=100,
        cost_usd=0.02,
        duration_ms=13_000,
    ),
    triggered_by="alice",
    duration_ms=900,
    scored_at=AT,
)
BY_RULES = replace(
    JUDGED,
    method="heuristic",
    judge=JudgeUsage(),
    facts=replace(
        JUDGED.facts, model=None, provider=None, total_tokens=None, cost_usd=None, duration_ms=None
    ),
)


def risk_of(score: Score) -> OutboxRow:
    row = outgoing.quality_risk(ADDRESSES, ASKED, score)
    assert row is not None
    return row


def failure(code: ErrorCode) -> OutboxRow:
    return outgoing.failed(ADDRESSES, ASKED, Failed(code, "why"), AT)


def payload_of(row: OutboxRow) -> Any:
    assert row.payload is not None
    return json.loads(row.payload)


def headers_of(row: OutboxRow) -> dict[str, str]:
    """As Kafka gives them to a reader."""
    sent = [sent_header(stored) for stored in json.loads(json.dumps(row.headers))]
    return {name: (value or b"").decode() for name, value in sent}


ROWS = {
    "judged": outgoing.completed(ADDRESSES, ASKED, JUDGED, reused=False),
    "reused": outgoing.completed(ADDRESSES, ASKED, JUDGED, reused=True),
    "by rules": outgoing.completed(ADDRESSES, ASKED, BY_RULES, reused=False),
    "risk": risk_of(JUDGED),
    **{str(code): failure(code) for code in ErrorCode},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_events_fit_their_schema(row: OutboxRow) -> None:
    event = event_of(row)
    data = payload_of(row)
    event_validator(event).validate(data)
    assert data.keys() == event.model_fields.keys()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_events_are_cloud_events_in_binary_mode(row: OutboxRow) -> None:
    headers = headers_of(row)
    header_validator(event_of(row).__name__).validate(headers)
    assert headers == {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": str(row.event_id),
        "ce_source": "/score-consumer",
        "ce_type": row.type,
        "ce_time": "2026-01-05T09:30:14+00:00",
        "ce_subject": "s1",
        "ce_dataschema": contracts.schema_name(event_of(row)),
    }
    assert (row.topic, row.key) == (f"prod.{row.type}", b"s1")


def event_of(row: OutboxRow) -> type[Event]:
    return next(event for event in OUTGOING if event.type == row.type)


def test_the_trace_goes_into_every_answer() -> None:
    trace = {"traceparent": "00-1-2-01", "tracestate": "a=1"}
    asked = replace(ASKED, trace=trace)
    rows = [
        outgoing.completed(ADDRESSES, asked, JUDGED, reused=False),
        outgoing.quality_risk(ADDRESSES, asked, JUDGED),
        outgoing.failed(ADDRESSES, asked, Failed(ErrorCode.JUDGE_REFUSED, "no"), AT),
    ]
    assert all(row and trace.items() <= headers_of(row).items() for row in rows)


# ── ids ─────────────────────────────────────────────────────────────────────


def test_the_same_answer_has_the_same_id() -> None:
    again = outgoing.completed(ADDRESSES, replace(ASKED, attempts=3), JUDGED, reused=False)
    assert again == ROWS["judged"]


def test_each_type_of_answer_has_an_id_of_its_own() -> None:
    rows = (ROWS["judged"], ROWS["risk"], ROWS["judge_refused"])
    assert len({row.event_id for row in rows}) == 3


def test_each_request_is_answered_under_an_id_of_its_own() -> None:
    other = replace(ASKED, request_id=uuid4())
    row = outgoing.completed(ADDRESSES, other, JUDGED, reused=True)
    assert row.event_id != ROWS["judged"].event_id
    assert payload_of(row)["reused"] is True
    assert payload_of(row)["request_id"] == str(other.request_id)
    assert payload_of(row)["score_id"] == str(JUDGED.score_id)


def test_event_ids_never_change() -> None:
    """Readers tell duplicates by them, across a restart with a newer release too."""
    assert str(ROWS["judged"].event_id) == "329f2f37-7fb1-5caa-abda-6a9cb6526661"


# ── what events say ─────────────────────────────────────────────────────────


def test_a_failure_never_looks_like_a_score() -> None:
    for code in ErrorCode:
        data = payload_of(failure(code))
        assert not [name for name in data if "score" in name]
        assert (data["error_code"], data["state"]) == (code, failed_state(code))
    assert failed_state(ErrorCode.SCORING_DISABLED) is FailedState.SKIPPED
    assert failed_state(ErrorCode.CANCELLED) is FailedState.CANCELLED
    assert failed_state(ErrorCode.JUDGE_REFUSED) is FailedState.FAILED


def test_unknown_is_null_and_never_zero() -> None:
    data = payload_of(ROWS["by rules"])
    assert [data["judge"][name] for name in ("provider", "model", "cost_usd")] == [None] * 3
    assert [data["session"][name] for name in ("total_tokens", "cost_usd")] == [None] * 2


def test_a_score_at_no_risk_warns_nobody() -> None:
    fine = replace(JUDGED, risk=())
    assert outgoing.quality_risk(ADDRESSES, ASKED, fine) is None
    assert not payload_of(outgoing.completed(ADDRESSES, ASKED, fine, reused=False))["quality_risk"]


def test_a_risk_says_why() -> None:
    reasons: tuple[RiskReason, ...] = ("below_threshold", "disqualified")
    data = payload_of(risk_of(replace(JUDGED, risk=reasons)))
    event_validator(event_of(ROWS["risk"])).validate(data)
    assert data["reasons"] == list(reasons)
    assert data["weakest_criteria"] == ["logical_flow", "consistency"]
    assert (data["total_score"], data["threshold"]) == (31, 40)


def test_a_score_is_not_published_before_it_is_stored() -> None:
    with pytest.raises(ValueError, match="stored"):
        outgoing.completed(ADDRESSES, ASKED, replace(JUDGED, scored_at=None), reused=False)


# ── headers in the outbox ───────────────────────────────────────────────────

NAMES = st.text()
VALUES = (
    st.sampled_from([None, b"\0", b'{"base64":"AA=="}']) | st.binary() | st.text().map(str.encode)
)


@given(NAMES, VALUES)
@settings(deadline=None)
def test_headers_come_out_of_the_outbox_as_they_went_in(name: str, value: bytes | None) -> None:
    stored = json.dumps(stored_header(name, value))
    assert "\\u0000" not in stored.replace("\\\\", ""), "jsonb can't hold it"
    assert sent_header(json.loads(stored)) == (name, value)


def test_text_is_stored_as_text() -> None:
    assert stored_header("ce_source", "/é".encode()) == ["ce_source", "/é"]
    assert stored_header("a\0", b"\xff") == [{"base64": "YQA="}, {"base64": "/w=="}]


# ── dead letters ────────────────────────────────────────────────────────────

INTAKE = IntakeSettings(
    bootstrap="",
    topic="score.requested",
    dlq_topic="prod.dlq",
    group_id="score-consumer",
    batch_records=1,
    high_water=1,
    invalid_share=1,
    stale_after_s=1,
    session_timeout_s=1,
)
POISON = Record(
    topic="score.requested",
    partition=3,
    offset=41,
    timestamp_ms=1_767_605_400_000,
    key=b"\xff\0",
    value=b"\xfe not JSON \0",
    headers=[
        ("ce_id", b"1"),
        ("x", b"\xff\0"),
        ("x", b"again"),
        ("nul\0", b"\0"),
        ("empty", None),
    ],
)


def letter_of(record: Record) -> OutboxRow:
    with pytest.raises(Unacceptable) as caught:
        read_request(record)
    return dead_letter(record, caught.value, INTAKE, AT)


def sent(row: OutboxRow) -> list[tuple[str, bytes | None]]:
    return [sent_header(stored) for stored in json.loads(json.dumps(row.headers))]


def test_a_dead_letter_is_the_record_unchanged() -> None:
    row = letter_of(POISON)
    assert (row.topic, row.key, row.payload) == ("prod.dlq", POISON.key, POISON.value)
    assert sent(row)[: len(POISON.headers)] == POISON.headers


def test_a_dead_letter_says_where_it_came_from_and_why() -> None:
    said = sent(letter_of(POISON))[len(POISON.headers) :]
    about = {name: (value or b"").decode() for name, value in said}
    header_validator("DeadLetter").validate(about)
    assert "'x' is not UTF-8" in about.pop("dlq_error_message")
    assert about == {
        "dlq_original_topic": "score.requested",
        "dlq_original_partition": "3",
        "dlq_original_offset": "41",
        "dlq_original_timestamp": "1767605400000",
        "dlq_consumer_group": "score-consumer",
        "dlq_error_code": "bad_header",
        "dlq_failed_at": "2026-01-05T09:30:14+00:00",
        "dlq_app_version": __version__,
        "dlq_redrive_count": "0",
    }


def test_a_tombstone_stays_one() -> None:
    row = letter_of(replace(POISON, value=None, headers=[]))
    assert row.payload is None
    assert dict(sent(row))["dlq_error_code"] == b"tombstone"


def test_a_redriven_letter_tells_its_last_death_and_its_first_place() -> None:
    first = letter_of(POISON)
    redriven = [
        (name, b"1" if name == "dlq_redrive_count" else value) for name, value in sent(first)
    ]
    names = [name for name, _ in redriven]
    second = letter_of(replace(POISON, offset=99, headers=redriven))
    assert [name for name, _ in sent(second)] == names
    assert dict(sent(second))["dlq_redrive_count"] == b"1"
    assert dict(sent(second))["dlq_original_offset"] == str(POISON.offset).encode()
    assert second.event_id != first.event_id


def test_each_record_dies_under_an_id_of_its_own() -> None:
    ids = {letter_of(replace(POISON, offset=offset)).event_id for offset in (1, 2)}
    assert len(ids) == 2
    assert letter_of(POISON).event_id == letter_of(POISON).event_id


@given(
    headers=st.lists(st.tuples(NAMES, st.none() | st.binary()), max_size=4),
    message=st.text(max_size=2000),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
)
@settings(deadline=None)
def test_any_record_can_be_a_dead_letter(
    headers: list[tuple[str, bytes | None]],
    message: str,
    key: bytes | None,
    value: bytes | None,
) -> None:
    record = replace(POISON, headers=headers, key=key, value=value)
    row = dead_letter(record, Unacceptable("bad_header", message), INTAKE, AT)
    own = [(name, v) for name, v in headers if not name.startswith("dlq_")]
    assert (row.key, row.payload) == (key, value)
    assert sent(row)[: len(own)] == own
    assert all(name.startswith("dlq_") for name, _ in sent(row)[len(own) :])
