"""What other teams read: JSON Schemas, examples and an AsyncAPI document, made from `events.py`.

files            all of it, in memory
write, drift     `schemas/` is made from it, and CI sees where they differ
release          what is published now becomes the baseline in `schemas/released/`
compatibility    what would break somebody who relies on that baseline
breaking         the rules of that, for two JSON Schemas
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import yaml

from consumer.events import (
    ALL,
    DLQ_TYPE,
    OUTGOING,
    SESSION_ID_PATTERN,
    ErrorCode,
    Event,
    FailedState,
    GateOutcome,
    JudgeUse,
    QualityRisk,
    ScoreCompleted,
    ScoredSession,
    ScoreFailed,
    ScoreOverridden,
    ScoreRequested,
    json_schema,
)

# Of the contracts as a whole, as AsyncAPI tells it. Each event has a major version of its own.
VERSION = "1.0.0"
RELEASED = "released"
# In the folder, and written by hand.
_NOT_OURS = ("README.md",)
_MADE_BY = "# Made by `score-consumer schemas --write`; changes here are lost.\n"

# JSON Schema, or a part of one.
Schema = Mapping[str, Any]
_T = TypeVar("_T")


def files() -> dict[str, str]:
    """Relative path to text of every generated file. The same models always give the same text."""
    schemas = {schema_name(event): _json(json_schema(event)) for event in ALL}
    examples = {
        f"examples/{event.type}.v{event.version}/{name}.json": _json(_as_sent(event))
        for name, event in _examples()
    }
    asyncapi = yaml.safe_dump(_asyncapi(), sort_keys=False, width=100, allow_unicode=True)
    return {**schemas, **examples, "asyncapi.yaml": _MADE_BY + asyncapi}


def schema_name(event: type[Event] | Event) -> str:
    """The file of an event's JSON Schema; also its `$id`, and `ce_dataschema`."""
    return f"{event.type}.v{event.version}.schema.json"


# ── the folder ──────────────────────────────────────────────────────────────


def write(folder: Path) -> None:
    """Writes every generated file. Deletes nothing: `drift` names what is superfluous."""
    _write(folder, files())


def drift(folder: Path) -> list[str]:
    """One line for each generated file that is missing, differs or is superfluous; in order.

    The released baseline is not looked at: see `compatibility`.
    """
    wanted, found = files(), _found(folder)
    return [
        f"{name}: {_drift(wanted.get(name), found.get(name))}"
        for name in sorted(wanted.keys() | found.keys())
        if _bytes(wanted.get(name)) != found.get(name)
    ]


def release(folder: Path) -> None:
    """Makes the current schemas the baseline. Schemas of former major versions stay in it."""
    _write(folder / RELEASED, {schema_name(event): _json(json_schema(event)) for event in ALL})


def compatibility(folder: Path) -> list[str]:
    """One line for each way in which the models break the released baseline; none if they don't.

    An event whose major version was raised may differ as it likes. An event never released is a
    line too: without a baseline nothing would be checked.
    """
    released = dict(_released(folder / RELEASED))
    current = {event.type: event for event in ALL}
    problems = [
        f"{event.type}: has no released baseline in {RELEASED}/"
        for event in ALL
        if not any(type_ == event.type for type_, _ in released)
    ]
    for (type_, version), schema in released.items():
        found = _breaks(current.get(type_), version, schema)
        problems += [f"{type_} v{version}: {problem}" for problem in found]
    return problems


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _found(folder: Path) -> dict[str, bytes]:
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in paths.items()
        if name.parts[0] != RELEASED and name.as_posix() not in _NOT_OURS
    }


def _drift(wanted: str | None, found: bytes | None) -> str:
    if found is None:
        return "missing"
    return "superfluous: no model makes it" if wanted is None else "differs from the models"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _released(folder: Path) -> Iterator[tuple[tuple[str, int], Schema]]:
    """(type, major version) and schema of everything ever released."""
    for path in sorted(folder.glob("*.v*.schema.json")):
        type_, _, version = path.name.removesuffix(".schema.json").rpartition(".v")
        yield (type_, int(version)), json.loads(path.read_bytes())


def _breaks(event: type[Event] | None, version: int, schema: Schema) -> list[str]:
    if event is None:
        return ["is released, and is no longer among the events"]
    if event.version < version:
        return [f"is released, and the models are back at v{event.version}"]
    if event.version > version:
        return []
    return breaking(schema, json_schema(event), incoming=event not in OUTGOING)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# ── what is breaking ────────────────────────────────────────────────────────

_ALTERNATIVES = ("anyOf", "oneOf")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
# Restrictions that can't be ordered: another one may refuse what this one allowed.
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "contentEncoding", "contentMediaType")
_STRUCTURE = ("$ref", "type", "enum", "const", "properties", "required", "items")
# They tell people something, and change no document. `default` is looked at on its own.
_ANNOTATIONS = (
    "$schema",
    "$id",
    "$defs",
    "$comment",
    "title",
    "description",
    "examples",
    "deprecated",
    "default",
    "readOnly",
    "writeOnly",
    "discriminator",
)
_UNDERSTOOD = frozenset(
    {
        *_ALTERNATIVES,
        *_LOWER,
        *_UPPER,
        *_EXACT,
        *_STRUCTURE,
        *_ANNOTATIONS,
        "additionalProperties",
    }
)


def breaking(old: Schema, new: Schema, *, incoming: bool) -> list[str]:
    """What in `new` breaks those who rely on `old`, one line each; none if nothing does.

    In every event, a field must not be removed, and none may become required: writers of requests
    don't send it, and readers of our events still find older ones without it in the topic.

    In requests (`incoming`), whatever was accepted must be accepted still, and mean the same: no
    type or enum value may go, no bound, pattern or format may get narrower, no default may change.

    In events we send it is the other way round: nothing may come that readers never saw. No type
    or enum value may be added (readers make closed types of both), no bound, pattern or format may
    get wider, and what was always sent must be sent always.

    Everything else is compatible: new optional fields, texts for people, and a restriction that
    gets wider in requests or narrower in events. JSON Schema that these rules don't know breaks as
    soon as it changes.
    """
    return _Comparison(old, new, incoming=incoming).schemas(old, new, "")


class _Comparison:
    """Two schemas, walked side by side. Paths are like `session.model`, `reasons[]`, `scores.*`."""

    def __init__(self, old: Schema, new: Schema, *, incoming: bool) -> None:
        self._old, self._new = old, new
        self._incoming = incoming
        self._defs_differ = old.get("$defs") != new.get("$defs")
        # What is being compared just now: a schema may contain itself.
        self._open: set[str] = set()

    def schemas(self, old: Schema | bool, new: Schema | bool, path: str) -> list[str]:
        """Every alternative of the one that must be covered has to fit one of the other's."""
        narrow, wide = self._turned(
            list(_alternatives(old, self._old)), list(_alternatives(new, self._new))
        )
        unfit = "{} is no longer accepted" if self._incoming else "may be {} now"
        problems: list[str] = []
        for one in narrow:
            fits = [self._fit(one, other, path) for other in wide if _covers(other, one)]
            best: list[str] = min(fits or [[_at(path) + unfit.format(_kind(one))]], key=len)
            problems += best
        return problems

    def _turned(self, old: _T, new: _T) -> tuple[_T, _T]:
        """What must fit, and what it must fit into; given these, the old and the new again."""
        return (old, new) if self._incoming else (new, old)

    def _fit(self, narrow: Schema, wide: Schema, path: str) -> list[str]:
        pair = json.dumps([narrow, wide], sort_keys=True)
        if pair in self._open:
            return []
        self._open.add(pair)
        old, new = self._turned(narrow, wide)
        problems = [
            *self._values(narrow, wide, path),
            *self._restrictions(old, new, path),
            *self._unknown(old, new, path),
            *self._fields(old, new, path),
            *self._contents(old, new, path),
        ]
        self._open.remove(pair)
        return problems

    def _values(self, narrow: Schema, wide: Schema, path: str) -> Iterator[str]:
        these, those = _values(narrow), _values(wide)
        if those is None:
            return
        if these is None:
            change = "limited to" if self._incoming else "no longer limited to"
            yield f"{_at(path)}{change} {', '.join(those)}"
            return
        change = "is no longer accepted" if self._incoming else "is new"
        yield from (f"{_at(path)}value {value} {change}" for value in these if value not in those)

    def _restrictions(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        narrow, wide = self._turned(old, new)
        for keyword in (*_LOWER, *_UPPER, *_EXACT):
            if keyword in wide and not _as_tight(keyword, narrow.get(keyword), wide[keyword]):
                yield f"{_at(path)}{keyword} {_change(old, new, keyword)}"

    def _unknown(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        for keyword in sorted((old.keys() | new.keys()) - _UNDERSTOOD):
            if old.get(keyword) != new.get(keyword) or self._defs_differ:
                yield f"{_at(path)}{keyword} or what it refers to changed, and may break anything"

    def _fields(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        always, must = set(old.get("required", ())), set(new.get("required", ()))
        for name, field in before.items():
            where = _join(path, name)
            if name not in after:
                yield f"{where}: removed"
                continue
            if not self._incoming and name in always - must:
                yield f"{where}: no longer required"
            if self._incoming and name not in always | must:
                yield from _default(field, after[name], where)
            yield from self.schemas(field, after[name], where)
        yield from (f"{_join(path, name)}: newly required" for name in sorted(must - always))

    def _contents(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        """What lists and maps hold; by JSON Schema anything, where nothing is said."""
        for keyword, where in (("items", f"{path}[]"), ("additionalProperties", _join(path, "*"))):
            if keyword in old or keyword in new:
                before, after = old.get(keyword, True), new.get(keyword, True)
                yield from self.schemas(before, after, where)


def _alternatives(schema: Schema | bool, root: Schema) -> Iterator[Schema]:
    """The schemas one of which a document must fit, each of one type; none where nothing fits."""
    if isinstance(schema, bool):
        yield from [{}] if schema else []
        return
    if "$ref" in schema:
        yield from _alternatives(_merged(schema, "$ref", _target(schema["$ref"], root)), root)
        return
    for keyword in _ALTERNATIVES:
        if keyword in schema:
            for one in schema[keyword]:
                yield from _alternatives(_merged(schema, keyword, one), root)
            return
    types = schema.get("type")
    yield from ({**schema, "type": t} for t in types) if isinstance(types, list) else [schema]


def _merged(schema: Schema, keyword: str, part: Schema) -> Schema:
    """The part, with what stands beside the keyword that led to it."""
    return {**{k: v for k, v in schema.items() if k != keyword}, **part}


def _target(ref: str, root: Schema) -> Schema:
    """What a reference within the document leads to. Raises KeyError where that is nothing."""
    node = root
    for part in ref.split("/")[1:]:
        node = node[part]
    return node


def _covers(wide: Schema, narrow: Schema) -> bool:
    """Whether the one's type includes the other's; every integer is a number."""
    types = (wide.get("type"), narrow.get("type"))
    return types[0] in {None, types[1]} or types == ("number", "integer")


def _as_tight(keyword: str, narrow: Any, wide: Any) -> bool:
    """Whether this restriction, if any, refuses all that the wide one refuses."""
    if narrow is None:
        return False
    if keyword in _EXACT:
        return bool(narrow == wide)
    return bool(narrow >= wide if keyword in _LOWER else narrow <= wide)


def _values(schema: Schema) -> list[str] | None:
    """The values it is limited to, as JSON; None where it isn't."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else [json.dumps(value) for value in values]


def _default(old: Schema, new: Schema, where: str) -> Iterator[str]:
    if json.dumps(old.get("default")) != json.dumps(new.get("default")):
        yield f"{where}: default {_change(old, new, 'default')}"


def _change(old: Schema, new: Schema, keyword: str) -> str:
    before, after = (json.dumps(s[keyword]) if keyword in s else "none" for s in (old, new))
    return f"changed from {before} to {after}"


def _kind(schema: Schema) -> str:
    return str(schema.get("type", "any type"))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str) -> str:
    return f"{path}: " if path else ""


# ── examples ────────────────────────────────────────────────────────────────

_REQUEST_ID = UUID("4f6f0f5e-3c0b-4a39-9a53-0d2b4a1c7e01")
_SCORE_ID = UUID("a3d1c5b2-71f4-5c1e-8e0a-6b9a54d2f310")
_SESSION_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
_CRITERIA_HASH = "8d0c3a5b1f7e42964c8be05d7a31f9265e4b80c7d2136fa94b7e1c0d5a682f93"


def _examples() -> Iterable[tuple[str, Event]]:
    """Name and event; the names are unique within an event type."""
    return [
        ("minimal", ScoreRequested(session_id=_SESSION_ID)),
        ("full", _full_request()),
        ("new", _new_score()),
        ("reused", _reused_score()),
        ("rules-only", _rules_only_score()),
        ("below-threshold", _below_threshold()),
        ("judge-unavailable", _judge_unavailable()),
        ("no-matching-profile", _no_matching_profile()),
        ("lowered", _lowered()),
    ]


def _as_sent(event: Event) -> Any:
    """A request says only what its sender cares for; our own events say everything."""
    return json.loads(event.model_dump_json(exclude_unset=isinstance(event, ScoreRequested)))


def _at_minute(minute: int, second: int = 0) -> datetime:
    return datetime(2026, 1, 5, 9, minute, second, tzinfo=UTC)


def _full_request() -> ScoreRequested:
    return ScoreRequested(
        session_id=_SESSION_ID,
        request_id=_REQUEST_ID,
        force_rescore=True,
        profile_id="alert-investigation",
        triggered_by="alice@example.com",
        priority=9,
        requested_at=_at_minute(30),
    )


def _new_score() -> ScoreCompleted:
    return ScoreCompleted(
        request_id=_REQUEST_ID,
        score_id=_SCORE_ID,
        session_id=_SESSION_ID,
        total_score=79,
        score_breakdown={
            "logical_flow": 80,
            "consistency": 72,
            "tool_relevance": 88,
            "synthesis_quality": 76,
        },
        confidence=0.6,
        gate=GateOutcome(passed=True),
        disqualified=False,
        disqualifier_triggered=None,
        quality_risk=False,
        quality_risk_threshold=40,
        judge_profile_id="alert-investigation",
        judge_profile_version=1,
        criteria_hash=_CRITERIA_HASH,
        method="llm",
        judge=JudgeUse(
            provider="anthropic",
            model="claude-sonnet-4-5",
            samples=1,
            input_tokens=18_412,
            output_tokens=1_206,
            cost_usd=0.073326,
        ),
        session=_session(label="investigation"),
        missing_tools_count=1,
        alternative_approaches_count=2,
        tool_effectiveness=None,
        reused=False,
        triggered_by="alice@example.com",
        scored_at=_at_minute(30, 14),
        duration_ms=13_480,
    )


def _reused_score() -> ScoreCompleted:
    """The same score answers somebody else's request."""
    changes = {
        "request_id": UUID("c2b7d9d0-5a5e-4f0e-8f43-91f4c8f5b602"),
        "triggered_by": "api-client",
        "reused": True,
    }
    return _new_score().model_copy(update=changes)


def _rules_only_score() -> ScoreCompleted:
    changes = {
        "request_id": UUID("e0a4c1f7-2b9d-4d6e-b1c8-7f3a5e9d0403"),
        "score_id": UUID("5b0e7f92-0c3d-5e48-9f16-d8c2a7b4e611"),
        "session_id": "routine-2026-01-05.17",
        "total_score": 80,
        "score_breakdown": {"response_time": 90.0, "token_efficiency": 60.0, "tool_count": 80.0},
        "confidence": 0.9,
        "judge_profile_id": "efficiency-simple",
        "criteria_hash": "1b6e0f84c2d95a737e4f8a20bd61c3950f7d2e48a96b3c14e58d7f02c9a1b643",
        "method": "heuristic",
        "judge": JudgeUse(
            provider=None, model=None, samples=0, input_tokens=0, output_tokens=0, cost_usd=None
        ),
        "session": _session(label="simple"),
        "missing_tools_count": 0,
        "alternative_approaches_count": 0,
        "triggered_by": "api-client",
        "duration_ms": 212,
    }
    return _new_score().model_copy(update=changes)


def _session(*, label: str) -> ScoredSession:
    return ScoredSession(
        agent="KubernetesAgent",
        model="gemini-2.5-pro",
        provider="google",
        classification_label=label,
        total_tokens=9_450,
        cost_usd=0.0213,
        duration_ms=13_000,
    )


def _below_threshold() -> QualityRisk:
    return QualityRisk(
        request_id=UUID("9d8e3b61-4c7f-4b02-a6d5-2e1f0c9b8704"),
        score_id=UUID("d47a2c90-86e1-5b3f-a05d-3c9e8f1b7212"),
        session_id="8f14e45f-ceea-467f-a0b1-6c1d2e3f4a05",
        agent="KubernetesAgent",
        total_score=31,
        threshold=40,
        reasons=("below_threshold",),
        weakest_criteria=("synthesis_quality", "logical_flow", "consistency"),
        failed_gates=(),
        judge_profile_id="alert-investigation",
        criteria_hash=_CRITERIA_HASH,
        scored_at=_at_minute(42, 7),
    )


def _judge_unavailable() -> ScoreFailed:
    return ScoreFailed(
        request_id=UUID("17c5f0ab-6d3e-4e94-8b2a-f90d1e7c3505"),
        session_id=_SESSION_ID,
        state=FailedState.FAILED,
        error_code=ErrorCode.JUDGE_UNAVAILABLE,
        message="judge anthropic answers 529",
        attempts=12,
        failed_at=_at_minute(51),
        triggered_by="alice@example.com",
    )


def _no_matching_profile() -> ScoreFailed:
    return ScoreFailed(
        request_id=UUID("b8216d4e-9f50-4c7a-91e3-05a7d2c8f606"),
        session_id="routine-2026-01-05.18",
        state=FailedState.SKIPPED,
        error_code=ErrorCode.NO_MATCHING_PROFILE,
        message="no profile covers label 'chat'; there are: alert-investigation, efficiency-simple",
        attempts=1,
        failed_at=_at_minute(52, 3),
        triggered_by="api-client",
    )


def _lowered() -> ScoreOverridden:
    return ScoreOverridden(
        score_id=_SCORE_ID,
        session_id=_SESSION_ID,
        total_score=79,
        override_score=55,
        annotator="bob@example.com",
        reason="The pod was deleted before anybody verified that it was mining.",
        overridden_at=_at_minute(58, 30),
    )


# ── AsyncAPI ────────────────────────────────────────────────────────────────

_STRUCTURED = "ScoreRequestedStructured"
_DEAD_LETTER = "DeadLetter"
_ABOUT = (
    "Score requests in, scores out. Topic names are settings; these are the defaults. "
    "Events are CloudEvents 1.0, sent in binary mode. Readers ignore unknown fields, and recognise "
    "duplicates by ce_id: the same event always carries the same one."
)
_CE_HEADERS = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": {"type": "string", "minLength": 1},
    "ce_source": {"type": "string", "minLength": 1},
    "ce_type": {"type": "string"},
    "ce_time": {"type": "string", "format": "date-time"},
    "ce_subject": {"type": "string", "description": "The session_id."},
    "ce_dataschema": {"type": "string", "description": "The JSON Schema's file name."},
}
_TRACE_HEADERS = {
    "traceparent": {"type": "string", "description": "W3C Trace Context, as the request had it."},
    "tracestate": {"type": "string", "description": "W3C Trace Context, as the request had it."},
}
_DLQ_HEADERS = {
    "dlq_original_topic": "Where the record was.",
    "dlq_original_partition": "Where the record was.",
    "dlq_original_offset": "Where the record was.",
    "dlq_original_timestamp": "Milliseconds since 1970; empty where the record had none.",
    "dlq_consumer_group": "Who could not accept it.",
    "dlq_error_code": "tombstone, oversize, bad_json, schema_invalid or bad_header.",
    "dlq_error_message": "What is wrong with it.",
    "dlq_failed_at": "When, RFC 3339.",
    "dlq_app_version": "Which version of the consumer could not accept it.",
    "dlq_redrive_count": "How often it was sent back and came here again.",
}


def _asyncapi() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Score consumer", "version": VERSION, "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": {
                **{event.__name__: _message(event) for event in ALL},
                _STRUCTURED: _structured_message(),
                _DEAD_LETTER: _dead_letter(),
            },
            "schemas": {
                "CloudEventHeaders": {
                    "type": "object",
                    "properties": {**_CE_HEADERS, **_TRACE_HEADERS},
                },
                "DeadLetterHeaders": _dead_letter_headers(),
            },
        },
    }


def _messages(topic: str) -> list[str]:
    """Names of the messages in a topic."""
    if topic == DLQ_TYPE:
        return [_DEAD_LETTER]
    names = [event.__name__ for event in ALL if event.type == topic]
    return [*names, _STRUCTURED] if topic == ScoreRequested.type else names


def _channels() -> dict[str, Any]:
    return {
        topic: {
            "address": topic,
            "messages": {name: _ref("components/messages", name) for name in _messages(topic)},
        }
        for topic in (*(event.type for event in ALL), DLQ_TYPE)
    }


def _operations() -> dict[str, Any]:
    """What the score consumer does, seen from itself."""
    sent = {f"send{event.__name__}": _operation("send", event.type) for event in OUTGOING}
    return {
        "receiveScoreRequested": _operation("receive", ScoreRequested.type),
        **sent,
        f"send{_DEAD_LETTER}": _operation("send", DLQ_TYPE),
    }


def _operation(action: str, topic: str) -> dict[str, Any]:
    messages = [_ref(f"channels/{topic}/messages", name) for name in _messages(topic)]
    return {"action": action, "channel": _ref("channels", topic), "messages": messages}


def _message(event: type[Event]) -> dict[str, Any]:
    return {
        "name": event.type,
        "title": event.__name__,
        "summary": inspect.getdoc(event),
        "contentType": "application/json",
        "headers": _headers(event),
        "payload": {"$ref": f"./{schema_name(event)}"},
        "bindings": _kafka_key(
            {"type": "string", "pattern": SESSION_ID_PATTERN, "description": "The session_id."}
        ),
    }


def _headers(event: type[Event]) -> dict[str, Any]:
    """Of a request none is needed; our own events have them all."""
    own: dict[str, Any] = {"ce_type": {"const": event.type}}
    if event is ScoreRequested:
        return {"type": "object", "allOf": [_headers_ref()], "properties": own}
    own["ce_dataschema"] = {"const": schema_name(event)}
    required = list(_CE_HEADERS)
    return {"type": "object", "allOf": [_headers_ref()], "properties": own, "required": required}


def _structured_message() -> dict[str, Any]:
    """The other form in which CloudEvents tools send a request; bare JSON is the third."""
    attributes = {name: {"type": "string"} for name in ("specversion", "id", "source")}
    return {
        "name": ScoreRequested.type,
        "title": _STRUCTURED,
        "summary": "A request as a CloudEvent in structured mode.",
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "properties": {
                **attributes,
                "type": {"const": ScoreRequested.type},
                "data": {"$ref": f"./{schema_name(ScoreRequested)}"},
            },
            "required": ["data"],
        },
    }


def _dead_letter() -> dict[str, Any]:
    return {
        "name": DLQ_TYPE,
        "title": _DEAD_LETTER,
        "summary": "A record that can never be accepted; its key, value and headers unchanged.",
        "contentType": "application/octet-stream",
        "headers": _ref("components/schemas", "DeadLetterHeaders"),
        "payload": {"description": "The record's value, byte for byte; none for a tombstone."},
        "bindings": _kafka_key({"description": "The record's key, byte for byte."}),
    }


def _dead_letter_headers() -> dict[str, Any]:
    texts = {name: {"type": "string", "description": text} for name, text in _DLQ_HEADERS.items()}
    return {"type": "object", "properties": texts, "required": list(texts)}


def _kafka_key(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"kafka": {"key": dict(schema), "bindingVersion": "0.5.0"}}


def _ref(where: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/{where}/{name}"}


def _headers_ref() -> dict[str, str]:
    return _ref("components/schemas", "CloudEventHeaders")
