"""CloudEvents 1.0 on Kafka: reading requests as others send them.

Binary mode, structured mode and a bare JSON value without any header are all accepted.
Source: the Kafka protocol binding for CloudEvents, version 1.0.2.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from pydantic import ValidationError

from consumer.events import ID_NAMESPACE, ScoreRequested
from consumer.scoring.profile import describe

STRUCTURED = "application/cloudevents+json"
MAX_VALUE_BYTES = 1_048_576
# Source: W3C Trace Context; a tracestate of up to 512 characters must be carried.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A Kafka record as it came. `timestamp_ms` is None where the broker gave none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def time(self) -> datetime:
        """The record's timestamp; the epoch where there is none, or none a calendar has.

        Producers choose it: one that sends microseconds arrives some 50,000 years from now.
        """
        try:
            return _EPOCH + _MILLISECOND * (self.timestamp_ms or 0)
        except OverflowError:
            return _EPOCH


class UnreadableBatch(bytes):
    """In place of a record's value: a batch of records that can't be read, as Kafka has it.

    `first` and `last` are the offsets that it stands for; `why` is fit to be told.
    """

    first: int
    last: int
    why: str

    def __new__(cls, data: bytes, *, first: int, last: int, why: str) -> Self:
        batch = super().__new__(cls, data)
        batch.first, batch.last, batch.why = first, last, why
        return batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that can be accepted, with all its defaults filled in."""

    request_id: UUID
    event: ScoreRequested
    requested_at: datetime
    trace: Mapping[str, str]


class Unacceptable(ValueError):
    """A record that can never be accepted. `code` is the reason in one word."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def read_request(record: Record) -> Request:
    """The request in a record. Raises Unacceptable, and nothing else."""
    if record.value is None:
        raise Unacceptable("tombstone", "the record has no value")
    if isinstance(batch := record.value, UnreadableBatch):
        raise Unacceptable(
            "unreadable_batch",
            f"the records at offsets {batch.first} to {batch.last} can't be read: {batch.why}",
        )
    if len(record.value) > MAX_VALUE_BYTES:
        raise Unacceptable(
            "oversize", f"the value has {len(record.value)} bytes; {MAX_VALUE_BYTES} are allowed"
        )
    headers = _headers(record)
    if headers.get("content-type", "").lower().startswith(STRUCTURED):
        attributes, data = _structured(record.value)
    else:
        attributes = {n.removeprefix("ce_"): v for n, v in headers.items() if n.startswith("ce_")}
        data = record.value
    _refuse_other_types(attributes)
    event = _event(data)
    first = before_redrives(record)
    return Request(
        request_id=event.request_id or _derived_id(attributes, first),
        event=event,
        requested_at=_utc(event.requested_at) if event.requested_at else first.time,
        trace=trace_context({**attributes, **headers}),
    )


def before_redrives(record: Record) -> Record:
    """The record with the place and time that it had before `dlq redrive` sent it back.

    They stay what they were, so that a request without an id of its own gets the same one again.
    """
    headers = dict(record.headers)
    if "dlq_original_topic" not in headers:
        return record
    try:
        return replace(
            record,
            topic=(headers["dlq_original_topic"] or b"").decode(),
            partition=_number(headers["dlq_original_partition"]),
            offset=_number(headers["dlq_original_offset"]),
            timestamp_ms=_number(headers["dlq_original_timestamp"] or b"0") or None,
        )
    except (KeyError, ValueError):
        return record


def redrives(record: Record) -> int:
    """How often `dlq redrive` sent this record back; 0 where what it says is no number."""
    count = dict(record.headers).get("dlq_redrive_count")
    try:
        return _number(count) if count else 0
    except ValueError:
        return 0


def _number(text: bytes | None) -> int:
    """A number that fits Kafka's offsets and timestamps. Raises ValueError."""
    if not _NUMBER.fullmatch(text or b""):
        raise ValueError(f"{text!r} is no number")
    return int(text or b"")


def _headers(record: Record) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in record.headers:
        try:
            name.encode()  # a lone surrogate stands for a byte that is no text
            headers[name.lower()] = (value or b"").decode()
        except UnicodeError as error:
            raise Unacceptable("bad_header", f"header {name!r} is not UTF-8: {error}") from error
    return headers


def _structured(value: bytes) -> tuple[dict[str, str], bytes]:
    """The attributes and the data of a structured-mode event."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unacceptable("bad_json", f"the value is not JSON: {error}") from error
    if not isinstance(event, dict) or "data" not in event:
        raise Unacceptable("schema_invalid", "data: a structured CloudEvent needs it")
    attributes = {name: v for name, v in event.items() if isinstance(v, str)}
    return attributes, json.dumps(event["data"]).encode()


def _refuse_other_types(attributes: Mapping[str, str]) -> None:
    given = attributes.get("type", ScoreRequested.type)
    if given != ScoreRequested.type:
        raise Unacceptable(
            "schema_invalid", f"type: {given[:100]!r} is not {ScoreRequested.type!r}"
        )


def _event(data: bytes) -> ScoreRequested:
    try:
        return ScoreRequested.model_validate_json(data, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        code = "bad_json" if problems[0]["type"] == "json_invalid" else "schema_invalid"
        message = "; ".join(describe(problem)[:300] for problem in problems[:10])
        raise Unacceptable(code, message) from error


def _utc(time: datetime) -> datetime:
    """The same moment as it will be stored: in UTC the year 9999 may be over."""
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise Unacceptable(
            "schema_invalid", f"requested_at: {time.isoformat()} is no date in UTC"
        ) from error


def _derived_id(attributes: Mapping[str, str], record: Record) -> UUID:
    """The same event gives the same id, however often it is delivered.

    The timestamp tells records apart that have the same place in a topic made anew.
    """
    if attributes.get("source") and attributes.get("id"):
        # As JSON: both may hold spaces, and half a surrogate pair, which UTF-8 has no bytes for.
        name = f"event:{json.dumps([attributes['source'], attributes['id']])}"
    else:
        place = f"{record.topic}:{record.partition}:{record.offset}"
        name = f"record:{place}:{record.timestamp_ms}"
    return uuid.uuid5(ID_NAMESPACE, name)


def trace_context(values: Mapping[str, Any]) -> dict[str, str]:
    """The trace context, where it is one: it goes into every event that answers the request."""
    parent, state = values.get("traceparent", ""), values.get("tracestate", "")
    if not parent or not _TRACEPARENT.fullmatch(parent):
        return {}
    return {
        "traceparent": parent,
        **({"tracestate": state} if _TRACESTATE.fullmatch(state) else {}),
    }
