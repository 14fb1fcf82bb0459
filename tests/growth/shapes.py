"""What strangers may send, made to be slow: each a function of its size in bytes, about."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from consumer.api.limits import MAX_BODY_BYTES
from consumer.cloudevents import MAX_VALUE_BYTES, Record
from consumer.edges.judge.base import MAX_ANSWER_BYTES
from consumer.scoring.profile import Profile
from consumer.scoring.session import Session
from consumer.settings import Settings
from tests.growth import steps
from tests.growth.measure import Step
from tests.growth.sessions import SESSIONS
from tests.growth.texts import TEXTS, Text, again, numbered
from tests.unit import builders

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MAX_SESSION_BYTES = Settings.model_fields["history_max_bytes"].default
# What a broker takes of one record, headers and key included, unless it is set to take more.
MAX_RECORD_BYTES = MAX_VALUE_BYTES
# Rows of an export that are made at a time, and what one score may hold of a judge's answer.
MAX_CARD_BYTES = MAX_ANSWER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`quick`: up to which size `make test` tries it; `most`: what is let in."""

    name: str
    make: Callable[[int], Any]
    steps: Mapping[str, Step]
    quick: int
    most: int


# --- Records -----------------------------------------------------------------------------------

_STRUCTURED = [("content-type", b"application/cloudevents+json")]


def _record(value: bytes = b'{"session_id":"s"}', headers: Any = (), key: bytes = b"") -> Record:
    place = {"topic": "score.requested", "partition": 0, "offset": 1, "timestamp_ms": 1}
    return Record(value=value, headers=list(headers), key=key, **place)  # type: ignore[arg-type]


def _headers(name: str, value: bytes) -> Callable[[int], Record]:
    length = len(name) + len(value)
    return lambda size: _record(headers=[(name.format(n), value) for n in range(size // length)])


def _value(text: Text, **fields: Any) -> Callable[[int], Record]:
    """A bare request with this text in a field."""
    return lambda size: _record(json.dumps({"session_id": text(size), **fields}).encode())


RECORDS: dict[str, Callable[[int], Record]] = {
    "headers": _headers("name-{:05}", b"x"),
    "equal headers": _headers("traceparent", b"00-x"),
    "attributes": _headers("ce_{:05}", b"x"),
    "bad headers": _headers("\udcff{:05}", b"\xff"),
    "redriven headers": _headers("dlq_original_topic", b"t"),
    "long key": lambda size: _record(key=b"k" * size),
    "long header": lambda size: _record(headers=[("tracestate", b"a=b," * (size // 4))]),
    "long trace": lambda size: _record(
        headers=[("traceparent", b"00-" + b"0" * 32 + b"-" + b"1" * size)]
    ),
    "other type": lambda size: _record(headers=[("ce_type", b"x" * size)]),
    "structured": lambda size: _record(
        json.dumps(
            {"data": {"session_id": "s"}, **{f"k{n}": "v" for n in range(size // 15)}}
        ).encode(),
        _STRUCTURED,
    ),
    "structured, deep": lambda size: _record(b'{"data":' * (size // 8), _STRUCTURED),
    "digits": lambda size: _record(b'{"session_id":"s","priority":' + b"1" * size + b"}"),
    "open objects": lambda size: _record(b'{"a":' * (size // 5)),
    "open lists": lambda size: _record(b"[" * size),
    "many keys": lambda size: _record(json.dumps({f"k{n}": n for n in range(size // 15)}).encode()),
    "equal keys": lambda size: _record(
        b'{"session_id":"s"' + b',"priority":1' * (size // 13) + b"}"
    ),
    "lines": lambda size: _record(b"\n" * size + b"x"),
    "long time": lambda size: _record(
        b'{"session_id":"s","requested_at":"2026-01-01T00:00:00.' + b"0" * size + b'Z"}'
    ),
    **{f"id: {name}": _value(TEXTS[name]) for name in ("letters", "colons", "accents")},
}


# --- A judge's answers -------------------------------------------------------------------------

_By = tuple[Profile, Session]
_REVIEW: _By = (builders.profile(), builders.session())
_FREE: _By = (builders.free_form_profile(), builders.session())


def _answers(text: Text, by: _By = _REVIEW) -> Callable[[int], tuple[_By, str]]:
    return lambda size: (by, text(size))


def _verdict(**parts: Callable[[int], Any]) -> Callable[[int], tuple[_By, str]]:
    """A verdict with these parts."""
    return lambda size: (_REVIEW, builders.answer_json(**{k: of(size) for k, of in parts.items()}))


def _criteria(evidence: list[Any]) -> dict[str, Any]:
    answer = builders.criterion_answer(5, evidence=evidence)
    return {"logical_flow": answer, "consistency": answer}


def _quotes(text: str, quote: str) -> Callable[[int], tuple[_By, str]]:
    """As many quotes as may be, of one huge step."""

    def made(size: int) -> tuple[_By, str]:
        run = builders.session(builders.message(text * (size // len(text))))
        evidence = [{"step": 1, "quote": f"{quote}{n}"} for n in range(50)]
        return (_REVIEW[0], run), builders.answer_json(criteria=_criteria(evidence))

    return made


def _missing_tools(size: int) -> tuple[_By, str]:
    """As many missing tools as may be, and as many available ones as there is room for."""
    names = [f"a.b{n}" for n in range(size // 30)]
    calls = (builders.tool_call(name) for name in names)
    run = builders.session(*calls, available_tools=builders.available(*names))
    tools = [{"tool_name": "x." * 120 + f"{n}", "rationale": ""} for n in range(50)]
    return (_REVIEW[0], run), builders.answer_json(missing_tools=tools)


def _free_form(size: int) -> tuple[_By, str]:
    points = {f"k{n}": n % 100 for n in range(size // 14)}
    return _FREE, json.dumps(builders.free_form_answer(score_breakdown=points))


_VERDICT = builders.answer_json()
JUDGES: dict[str, Callable[[int], tuple[_By, str]]] = {
    **{f"text: {name}": _answers(text) for name, text in TEXTS.items() if "{" in text(100)},
    "open verdicts": _answers(again('```json\n{"criteria":{')),
    "keys without end": _answers(again('{"')),
    "braces in strings": _answers(again('{"{":"{",')),
    "braces in and out of strings": _answers(again('":","', before='{"{')),
    "objects in strings": _answers(again('"{}":{},', before="{")),
    "an open list": _answers(again('{"a":1},', before='{"a":[')),
    "an open list of lists": _answers(again("[],", before='{"a":[')),
    "escapes in a string": _answers(again("\\n{", before='{"a":"')),
    "digits in an object": _answers(again("1", before='{"a":', after="}")),
    "blanks in an object": _answers(again(" ", before="{", after="}")),
    "blanks after it": _answers(again(" \n`", before=_VERDICT)),
    "lines before it": _answers(again("{\n", after=_VERDICT)),
    "verdicts": _answers(again(_VERDICT)),
    "verdicts in thoughts": _answers(again("<think>{" + _VERDICT)),
    "equal keys": _answers(again('"a":1,', before="{", after='"a":2}')),
    "pairs of keys": _answers(lambda size: "{" + numbered('"{0}":1,"{0}":2,')(size) + '"a":2}'),
    "keys with escapes": _answers(lambda size: "{" + numbered('"\\u0061{}":1,')(size) + '"a":2}'),
    "unknown keys": _answers(lambda size: "{" + numbered('"{}":1,')(size) + '"a":2}'),
    "a long key": _answers(again("k", before='{"', after='":1}')),
    "unknown criteria": _verdict(
        criteria=lambda size: {f"c{n}": builders.criterion_answer() for n in range(size // 90)}
    ),
    "broken criteria": _verdict(criteria=lambda size: {f"c{n}": {} for n in range(size // 10)}),
    "evidence": _verdict(
        criteria=lambda size: _criteria([{"step": 1, "quote": "x"}] * (size // 50))
    ),
    "steps that are none": _verdict(
        criteria=lambda size: (
            _criteria([{"step": 10**size, "quote": "x"}] * 20)
            if size < 4000
            else _criteria([{"step": 10**4000, "quote": "x"}] * min(50, size // 8000))
        )
    ),
    "reasoning": _verdict(score_reasoning=lambda size: "why " * (size // 4)),
    "approaches": _verdict(
        alternative_approaches=lambda size: (
            [{"name": "a", "description": "", "steps": ["x" * (size // 150)] * 50}] * 3
        )
    ),
    "quotes of a long step": _quotes("error in pod \u00e9 ", "error in pod \u00e9 x"),
    "short quotes of a long step": _quotes("\u200b\u00e9 ", "\u00e9"),
    "quotes that nearly fit": _quotes("a", "a" * 3000 + "b"),
    "missing tools": _missing_tools,
    "free form": _free_form,
}


# --- Profiles ----------------------------------------------------------------------------------


def _profiles(item: Callable[[int], Any], **parts: Any) -> Callable[[int], bytes]:
    """A profile by rules, with as many criteria as there is room for."""

    def made(size: int) -> bytes:
        number = size // (len(json.dumps(item(10**4))) + 2)
        criteria = [item(n) for n in range(number)] or [builders.ruled()]
        raw = builders.raw_profile(method="heuristic", criteria=criteria, **parts)
        return json.dumps(raw).encode()

    return made


def _params(scorer: str, item: Callable[[int], Any], key: str) -> Callable[[int], bytes]:
    """A profile of one criterion, whose parameter has as many items as there is room for."""

    def made(size: int) -> bytes:
        number = size // (len(json.dumps(item(10**4))) + 2)
        criterion = builders.ruled(scorer, params={key: [item(n) for n in range(number)]})
        return json.dumps(builders.raw_profile(method="heuristic", criteria=[criterion])).encode()

    return made


def _with(**parts: Callable[[int], Any]) -> Callable[[int], bytes]:
    def made(size: int) -> bytes:
        own = {key: of(size) for key, of in parts.items()}
        raw = {"method": "heuristic", "criteria": [builders.ruled()], **own}
        return json.dumps(builders.raw_profile(**raw)).encode()

    return made


PROFILES: dict[str, Callable[[int], bytes]] = {
    "criteria": _profiles(lambda n: builders.ruled("tool_count", id=f"c{n}")),
    "weights": _profiles(lambda n: builders.ruled("tool_count", id=f"c{n}", weight=1 + n / 7919)),
    "equal criteria": _profiles(lambda n: builders.ruled("tool_count", id="c")),
    "pairs of criteria": _profiles(lambda n: builders.ruled("tool_count", id=f"c{n // 2}")),
    "broken criteria": _profiles(lambda n: {"id": f"c{n}"}),
    "unknown scorers": _profiles(lambda n: builders.ruled(f"x{n}")),
    "unknown keys": _with(params=lambda size: 1, x=lambda size: "y" * size),
    "many unknown keys": lambda size: json.dumps(
        builders.raw_profile(**{f"k{n}": n for n in range(size // 15)})
    ).encode(),
    "gates": _with(
        gates=lambda size: [builders.gated(id=f"g{n}") for n in range(size // 60)],
        method=lambda size: "two_tier",
    ),
    "equal gates": _with(gates=lambda size: [builders.gated() for n in range(size // 60)]),
    "labels": _with(match_labels=lambda size: [f"l{n}" for n in range(size // 10)]),
    "disqualifiers": _with(disqualifiers=lambda size: [f"d{n}" for n in range(size // 10)]),
    "patterns": _with(disqualifiers=lambda size: [f"pattern:d{n}" for n in range(size // 18)]),
    "dimensions": _params("coverage", lambda n: {"name": f"d{n}", "any_of": ["x"]}, "dimensions"),
    "keywords": _params("policy", lambda n: f"word {n}", "banned"),
    "patterns of keywords": _params("policy", lambda n: f"pattern:w{n}", "banned"),
    "broken keywords": _params("policy", lambda n: "*", "banned"),
    "broken patterns": _params("policy", lambda n: f"pattern:({n}", "banned"),
    "sections": _params("structure", lambda n: f"s{n}", "required_sections"),
    "scorers": _with(
        criteria=lambda size: [
            {"id": "c", "weight": 1, "scorers": [{"scorer": "tool_count"}] * (size // 26)}
        ]
    ),
    "judged": _with(
        method=lambda size: "llm",
        criteria=lambda size: [builders.judged(f"c{n}") for n in range(size // 45)],
    ),
    "seats": _with(
        judge=lambda size: {"panel": [{"provider": f"p{n}"} for n in range(size // 20)]}
    ),
    "deep": lambda size: (
        json.dumps(
            builders.raw_profile(
                criteria=[{"params": json.loads("[" * 90 + "1" * 4000 + "]" * 90)}]
            )
        ).encode()
        + b" " * size
    ),
}


# --- Bodies ------------------------------------------------------------------------------------

_BATCHES = "/api/v1/scoring/batches"
_SCORE = "/api/v1/scoring/sessions/s/score"


def _bodies(body: Callable[[int], bytes], path: str = _BATCHES) -> Callable[[int], Any]:
    return lambda size: (path, body(size))


BODIES: dict[str, Callable[[int], Any]] = {
    "sessions": _bodies(lambda size: json.dumps({"sessions": ["s"] * (size // 5)}).encode()),
    "wrong sessions": _bodies(
        lambda size: json.dumps({"sessions": ["/" * (size // 6000)] * 6000}).encode()
    ),
    "unknown keys": _bodies(
        lambda size: json.dumps({f"k{n}": n for n in range(size // 15)}).encode()
    ),
    "unknown keys of a score": _bodies(
        lambda size: json.dumps({f"k{n}": [n] for n in range(size // 17)}).encode(), _SCORE
    ),
    "deep": _bodies(lambda size: b'{"history":' + b"[" * size),
    "digits": _bodies(lambda size: b'{"priority":' + b"1" * size + b"}"),
    "text": _bodies(lambda size: b'{"profile_id":"' + b"x" * size + b'"}'),
    "lines": _bodies(lambda size: b"\n" * size + b"x"),
    "bands": _bodies(lambda size: json.dumps({"history": {"bands": ["x"] * (size // 5)}}).encode()),
    "no object": _bodies(lambda size: json.dumps([1] * (size // 3)).encode()),
}


# --- What is shown -----------------------------------------------------------------------------


def _card(**fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(steps.CARD_FIELDS)
    own = {"at": NOW, "state": "completed", "session_id": "s", "triggered_by": "t"}
    return {**row, **own, "request_id": "00000000-0000-4000-8000-000000000001", **fields}


EXPORTS: dict[str, Callable[[int], Any]] = {
    "cards": lambda size: [_card() for _ in range(size // 900)],
    "reasoning": lambda size: [_card(score_reasoning='="\n' * (size // 3))],
    "breakdown": lambda size: [_card(score_breakdown={f"k{n}": 1.5 for n in range(size // 13)})],
    "missing tools": lambda size: [_card(missing_tools=['"'] * (size // 5))],
}


def _shown(**fields: Any) -> dict[str, Any]:
    return {**steps.SHOWN, **fields}


def _reasoning(text: Text) -> Callable[[int], Any]:
    return lambda size: _shown(score_reasoning=text(size))


SHOWS: dict[str, Callable[[int], Any]] = {
    **{
        f"reasoning: {name}": _reasoning(text)
        for name, text in TEXTS.items()
        if name in {"letters", "words", "lines", "blanks", "without spaces", "accents", "emoji"}
    },
    "reasoning: tabs": _reasoning(again("a\t")),
    "breakdown": lambda size: _shown(
        score_details=[{"id": f"k{n}", "score": 5} for n in range(size // 14)]
    ),
    "flags": lambda size: _shown(
        injection_flags=[
            {"part": "step", "step": n, "kind": "x", "excerpt": "y"} for n in range(size // 40)
        ]
    ),
    "long tool": lambda size: _shown(
        missing_tools=[{"tool_name": "x", "availability": "unknown", "rationale": "y" * size}]
    ),
}


def _shapes(
    kind: str, makes: Mapping[str, Callable[[int], Any]], own: Mapping[str, Step], *sizes: int
) -> list[Shape]:
    quick, most = sizes
    return [
        Shape(name=f"{kind}: {name}", make=make, steps=own, quick=quick, most=most)
        for name, make in makes.items()
    ]


SHAPES = [
    *_shapes("record", RECORDS, steps.RECORD, 400_000, MAX_RECORD_BYTES),
    *_shapes("session", SESSIONS, steps.SESSION, 400_000, MAX_SESSION_BYTES),
    *_shapes("judge", JUDGES, steps.JUDGE, 200_000, MAX_ANSWER_BYTES),
    *_shapes("profile", PROFILES, steps.PROFILE, 100_000, MAX_BODY_BYTES),
    *_shapes("body", BODIES, steps.BODY, 400_000, MAX_BODY_BYTES),
    *_shapes("export", EXPORTS, steps.EXPORT, 400_000, MAX_CARD_BYTES),
    *_shapes("show", SHOWS, steps.SHOW, 100_000, MAX_CARD_BYTES),
]
