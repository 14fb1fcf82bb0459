"""Reading requests: everything that others may send is accepted, or refused for a stated reason."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.cloudevents import MAX_VALUE_BYTES, Record, Request, Unacceptable, read_request

Headers = list[tuple[str, bytes | None]]

BARE = b'{"session_id":"s1"}'
STRUCTURED: Headers = [("content-type", b"application/cloudevents+json")]
CE_HEADERS: Headers = [
    ("content-type", b"application/json"),
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/dashboard"),
    ("ce_type", b"score.requested"),
]
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CODES = {"tombstone", "oversize", "bad_json", "schema_invalid", "bad_header"}
UTC_2026 = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def record(value: bytes | None = BARE, headers: Headers | None = None, **place: Any) -> Record:
    at: dict[str, Any] = {"topic": "score.requested", "partition": 0, "offset": 0, "key": None}
    at["timestamp_ms"] = round(UTC_2026.timestamp() * 1000)
    return Record(value=value, headers=headers or [], **{**at, **place})


def structured(**event: Any) -> Record:
    return record(json.dumps(event).encode(), STRUCTURED)


def request(**fields: Any) -> Record:
    return record(json.dumps({"session_id": "s1", **fields}).encode())


def refusal(bad: Record) -> Unacceptable:
    with pytest.raises(Unacceptable) as caught:
        read_request(bad)
    return caught.value


# ── forms ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "form",
    [
        record(BARE),
        record(BARE, CE_HEADERS),
        record(BARE, [("CE_Type", b"score.requested"), ("Content-Type", b"application/json")]),
        structured(type="score.requested", id="1", source="/x", data={"session_id": "s1"}),
        structured(data={"session_id": "s1"}),
        record(
            b'{"data":{"session_id":"s1"}}',
            [("Content-Type", b"application/CloudEvents+JSON; charset=UTF-8")],
        ),
    ],
    ids=["bare", "binary", "binary-upper", "structured", "structured-bare", "structured-upper"],
)
def test_every_form_is_accepted(form: Record) -> None:
    assert read_request(form).event.session_id == "s1"


def test_defaults() -> None:
    got = read_request(record())
    assert got.requested_at == UTC_2026
    assert got.trace == {}
    event = got.event
    assert (event.force_rescore, event.profile_id, event.triggered_by, event.priority) == (
        False, None, "api-client", 5,
    )  # fmt: skip


def test_what_the_sender_says_wins() -> None:
    request_id = uuid.uuid4()
    got = read_request(
        request(
            request_id=str(request_id),
            force_rescore=True,
            profile_id="p",
            triggered_by="alice",
            priority=9,
            requested_at="2025-12-31T23:00:00-01:00",
        )
    )
    assert got.request_id == request_id
    assert got.requested_at == datetime(2026, 1, 1, tzinfo=UTC)
    event = got.event
    assert (event.force_rescore, event.profile_id, event.triggered_by, event.priority) == (
        True, "p", "alice", 9,
    )  # fmt: skip


def test_unknown_fields_are_ignored() -> None:
    assert read_request(request(field_of_tomorrow=[1])).event == read_request(record()).event


@pytest.mark.parametrize("timestamp_ms", [None, 0, 1_767_605_400_000_000, 2**63 - 1, -(2**63)])
def test_a_timestamp_beyond_any_calendar_is_none(timestamp_ms: int | None) -> None:
    got = read_request(record(timestamp_ms=timestamp_ms))
    assert got.requested_at == datetime(1970, 1, 1, tzinfo=UTC)


# ── request_id ──────────────────────────────────────────────────────────────


def id_of(form: Record) -> uuid.UUID:
    return read_request(form).request_id


def binary(source: bytes | None, id_: bytes | None, **place: Any) -> Record:
    return record(BARE, [("ce_source", source), ("ce_id", id_)], **place)


def test_an_event_has_the_same_request_id_wherever_it_is_read() -> None:
    there = {"partition": 3, "offset": 7, "timestamp_ms": 1}
    assert id_of(binary(b"a", b"1")) == id_of(binary(b"a", b"1", **there))
    assert id_of(binary(b"a", b"1")) == id_of(
        structured(source="a", id="1", data={"session_id": "s1"})
    )


def test_other_events_have_other_request_ids() -> None:
    pairs = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a b", b"c"), (b"a", b"b c")]
    assert len({id_of(binary(*pair)) for pair in pairs}) == len(pairs)


def test_a_record_without_event_id_is_known_by_its_place() -> None:
    places: list[dict[str, Any]] = [
        {},
        {"partition": 1},
        {"offset": 1},
        {"topic": "other"},
        {"timestamp_ms": 1},
    ]
    ids = [id_of(record(**place)) for place in places]
    assert len(set(ids)) == len(places)
    assert ids == [id_of(record(**place)) for place in places]


@pytest.mark.parametrize(("source", "id_"), [(b"a", None), (None, b"1"), (b"", b"1"), (b"a", b"")])
def test_half_an_event_id_is_none(source: bytes | None, id_: bytes | None) -> None:
    assert id_of(binary(source, id_)) == id_of(record())


def test_request_ids_never_change() -> None:
    """They tell duplicates across releases: another derivation would score sessions again."""
    assert str(id_of(binary(b"/dashboard", b"1"))) == "eb6b8523-b54e-5bb7-9fd5-a8ce6b487b07"
    assert str(id_of(record())) == "956b1eb3-7ef4-5b21-8c30-b6c9b271fc9d"


# ── trace context ───────────────────────────────────────────────────────────


def traced(parent: str, state: str | None = None, prefix: str = "") -> dict[str, str]:
    headers: Headers = [(f"{prefix}traceparent", parent.encode())]
    headers += [(f"{prefix}tracestate", state.encode())] if state is not None else []
    return dict(read_request(record(BARE, headers)).trace)


@pytest.mark.parametrize("prefix", ["", "ce_"])
def test_the_trace_is_carried(prefix: str) -> None:
    assert traced(PARENT, prefix=prefix) == {"traceparent": PARENT}
    assert traced(PARENT, "a=1,b=2", prefix) == {"traceparent": PARENT, "tracestate": "a=1,b=2"}


def test_the_trace_of_a_structured_event_is_carried() -> None:
    got = read_request(structured(traceparent=PARENT, tracestate="a=1", data={"session_id": "s"}))
    assert got.trace == {"traceparent": PARENT, "tracestate": "a=1"}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "garbage",
        PARENT.upper(),
        PARENT + "\n",
        PARENT + "-00",
        "ff" + PARENT[2:],
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
    ],
)
def test_a_malformed_trace_is_dropped(parent: str) -> None:
    assert traced(parent, "a=1") == {}


@pytest.mark.parametrize("state", ["", "a=1\n", "a=\x00", "a=é", "a" * 513])
def test_a_malformed_tracestate_is_dropped_alone(state: str) -> None:
    assert traced(PARENT, state) == {"traceparent": PARENT}
    assert traced(PARENT, "a" * 512)["tracestate"] == "a" * 512


# ── refusals ────────────────────────────────────────────────────────────────

REFUSED: list[tuple[str, str, Record, str]] = [
    ("tombstone", "tombstone", record(None), "no value"),
    ("oversize", "oversize", record(b" " * (MAX_VALUE_BYTES + 1)), "1048577 bytes"),
    ("empty", "bad_json", record(b""), "Invalid JSON"),
    ("no JSON", "bad_json", record(b"session s1"), "Invalid JSON"),
    ("no UTF-8", "bad_json", record(b'{"session_id":"\xff"}'), "Invalid JSON"),
    ("half a surrogate pair", "bad_json", record(b'{"session_id":"\\ud800"}'), "Invalid JSON"),
    ("endless number", "bad_json", record(b"1" * 10_000), "Invalid JSON"),
    ("abyss", "bad_json", record(b"[" * 100_000), "Invalid JSON"),
    ("structured, no JSON", "bad_json", record(b"{", STRUCTURED), "not JSON"),
    ("structured, no UTF-8", "bad_json", record(b'"\xff"', STRUCTURED), "not JSON"),
    ("structured abyss", "bad_json", record(b"[" * 100_000, STRUCTURED), "not JSON"),
    ("structured without data", "schema_invalid", structured(type="score.requested"), "data"),
    ("structured list", "schema_invalid", record(b"[]", STRUCTURED), "data"),
    ("structured, data a string", "schema_invalid", structured(data="s1"), "object"),
    ("structured, other type", "schema_invalid", structured(type="t", data={}), "type: 't'"),
    ("other type", "schema_invalid", record(BARE, [("ce_type", b"t")]), "type: 't'"),
    ("list", "schema_invalid", record(b"[]"), "object"),
    ("null", "schema_invalid", record(b"null"), "object"),
    ("no session", "schema_invalid", record(b"{}"), "session_id: Field required"),
    ("session not a string", "schema_invalid", request(session_id=1), "session_id:"),
    ("empty session", "schema_invalid", request(session_id=""), "session_id:"),
    ("session with a space", "schema_invalid", request(session_id="a b"), "session_id:"),
    ("session with a newline", "schema_invalid", request(session_id="a\n"), "session_id:"),
    ("session too long", "schema_invalid", request(session_id="a" * 129), "session_id:"),
    ("request_id", "schema_invalid", request(request_id="7"), "request_id:"),
    ("priority 10", "schema_invalid", request(priority=10), "priority:"),
    ("priority -1", "schema_invalid", request(priority=-1), "priority:"),
    ("priority 1.5", "schema_invalid", request(priority=1.5), "priority:"),
    ("force_rescore", "schema_invalid", request(force_rescore="maybe"), "force_rescore:"),
    ("profile_id empty", "schema_invalid", request(profile_id=""), "profile_id:"),
    ("profile_id NUL", "schema_invalid", request(profile_id="a\0"), "profile_id:"),
    ("triggered_by NUL", "schema_invalid", request(triggered_by="a\0b"), "triggered_by:"),
    ("triggered_by long", "schema_invalid", request(triggered_by="a" * 256), "triggered_by:"),
    ("triggered_by null", "schema_invalid", request(triggered_by=None), "triggered_by:"),
    ("no zone", "schema_invalid", request(requested_at="2026-01-05T09:30:00"), "requested_at:"),
    (
        "after time",
        "schema_invalid",
        request(requested_at="9999-12-31T23:59:59-01:00"),
        "requested_at:",
    ),
    (
        "before time",
        "schema_invalid",
        request(requested_at="0001-01-01T00:00:00+01:00"),
        "requested_at:",
    ),
    ("header value", "bad_header", record(BARE, [("x", b"\xff")]), "'x' is not UTF-8"),
    ("ce header", "bad_header", record(BARE, [("ce_id", b"\xc3\x28")]), "'ce_id' is not UTF-8"),
]


@pytest.mark.parametrize(
    ("code", "bad", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused(code: str, bad: Record, says: str) -> None:
    error = refusal(bad)
    assert error.code == code
    assert says in str(error)


def test_every_code_is_reached() -> None:
    assert {case[1] for case in REFUSED} == CODES


def test_as_large_as_allowed() -> None:
    assert read_request(record(BARE.ljust(MAX_VALUE_BYTES))).event.session_id == "s1"


def test_every_problem_is_named() -> None:
    message = str(refusal(request(session_id="a b", priority=10)))
    assert "session_id:" in message
    assert "priority:" in message


@pytest.mark.parametrize("value", ["y" * 1_000_000, ["y"] * 200_000], ids=["text", "list"])
def test_a_refusal_does_not_repeat_the_record(value: Any) -> None:
    assert len(str(refusal(request(session_id=value)))) < 1000


# ── anything at all ─────────────────────────────────────────────────────────

# With half surrogate pairs: JSON can escape them, UTF-8 can't hold them.
ANY_TEXT = st.text(st.characters(), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=8,
)
TIMES = st.datetimes(timezones=st.timezones()).map(datetime.isoformat)
DATA = st.fixed_dictionaries(
    {"session_id": st.sampled_from(["s1", "a b"]) | ANY_JSON},
    optional={
        "request_id": st.uuids().map(str) | ANY_JSON,
        "force_rescore": st.booleans() | ANY_JSON,
        "profile_id": ANY_TEXT | ANY_JSON,
        "triggered_by": ANY_TEXT | ANY_JSON,
        "priority": st.integers(0, 9) | ANY_JSON,
        "requested_at": TIMES | ANY_JSON,
    },
)
EVENT = st.fixed_dictionaries(
    {"data": DATA | ANY_JSON},
    optional={
        "type": st.just("score.requested") | ANY_JSON,
        "source": ANY_TEXT | ANY_JSON,
        "id": ANY_TEXT | ANY_JSON,
        "traceparent": st.just(PARENT) | ANY_JSON,
        "tracestate": ANY_TEXT | ANY_JSON,
    },
)
VALUES = st.none() | st.binary() | st.builds(lambda v: json.dumps(v).encode(), DATA | EVENT)
# aiokafka gives header names as text.
NAMES = (
    st.sampled_from(["content-type", "ce_id", "ce_source", "ce_type", "traceparent", "tracestate"])
    | st.text()
)
CONTENTS = (
    st.none()
    | st.binary()
    | st.text().map(str.encode)
    | st.sampled_from([b"application/cloudevents+json", b"score.requested", PARENT.encode()])
)
HEADERS = st.lists(st.tuples(NAMES, CONTENTS), max_size=4)


def records(values: st.SearchStrategy[Any], headers: st.SearchStrategy[Any]) -> Any:
    return st.builds(
        Record,
        topic=st.just("score.requested"),
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
        key=st.none() | st.binary(),
        value=values,
        headers=headers,
    )


# Left to chance, hardly a record would be good enough to get past the first check.
GOOD = st.fixed_dictionaries(
    {"session_id": st.just("s1")},
    optional={"requested_at": TIMES, "triggered_by": ANY_TEXT, "priority": st.integers(0, 10)},
)
GOOD_EVENT = st.fixed_dictionaries(
    {"data": GOOD}, optional={"source": ANY_TEXT, "id": ANY_TEXT, "tracestate": ANY_TEXT}
)
TEXTS = st.lists(
    st.tuples(st.sampled_from(["ce_id", "ce_source", "tracestate"]), st.text().map(str.encode)),
    max_size=3,
)
RECORDS = st.one_of(
    records(VALUES, HEADERS),
    records(VALUES, HEADERS.map(lambda more: STRUCTURED + more)),
    records(GOOD.map(json.dumps).map(str.encode), TEXTS),
    records(GOOD_EVENT.map(json.dumps).map(str.encode), st.just(STRUCTURED)),
)


@given(RECORDS)
@settings(max_examples=500, deadline=None)
@example(structured(source="\ud800", id="1", data={"session_id": "s1"}))
@example(record(timestamp_ms=2**63 - 1))
@example(request(requested_at="9999-12-31T23:59:59-01:00"))
def test_any_record_is_a_request_or_refused(anything: Record) -> None:
    outcome = outcome_of(anything)
    if isinstance(outcome, Unacceptable):
        assert outcome.code in CODES
        assert str(outcome).encode()
    else:
        assert_storable(outcome)


def outcome_of(anything: Record) -> Request | Unacceptable:
    try:
        return read_request(anything)
    except Unacceptable as error:
        return error


def assert_storable(got: Request) -> None:
    """PostgreSQL takes no U+0000 and no half surrogate pair, and stores times in UTC."""
    texts = [got.event.session_id, got.event.profile_id or "", got.event.triggered_by]
    assert all("\0" not in text and text.encode() is not None for text in texts)
    assert got.requested_at.astimezone(UTC).tzinfo is UTC
    assert got.trace.keys() <= {"traceparent", "tracestate"}
    assert all(text.isascii() and text.isprintable() for text in got.trace.values())
