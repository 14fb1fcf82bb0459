"""A stand-in for the judge LLM: prepared verdicts over OpenAI's chat completions API.

    POST /v1/chat/completions     the prepared verdict of the session the prompt is about
    GET  /v1/models               one model, which says that it is none
    GET  /calls                   how many completions were asked for

It doesn't read or judge anything. It finds out which sample session a prompt is about, looks up in
which step each prepared quote stands, and answers in the shape that the request's schema asks for.
About any other session it gives half of the points and says so. Any model name and key will do.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from consumer.demo.sample_sessions import SampleSession

Json = dict[str, Any]

MODEL = "stand-in-judge"
LABEL = f"{MODEL} (prepared verdicts, not a model)"
NO_VERDICT = "no prepared verdict for this session: half of the points, given without reading it"

# Asked for when a request carries no schema: those of the shipped alert-investigation profile.
DEFAULT_CRITERIA = ("logical_flow", "consistency", "tool_relevance", "synthesis_quality")
DEFAULT_MAX_POINTS = 25
BYTES_PER_TOKEN = 4


def app(sessions: Mapping[str, SampleSession], *, delay_seconds: float = 0.0) -> Starlette:
    """The stand-in, answering after `delay_seconds`.

    `app.state.calls` is the list of request bodies that were accepted, oldest first.
    """

    async def complete(request: Request) -> Response:
        body = await _body(request)
        prompt = _prompt(body)
        calls.append(body)
        await asyncio.sleep(delay_seconds)
        answer = json.dumps(_answer(sessions, prompt, _Wanted.parse(body)))
        return JSONResponse(_completion(len(calls), prompt, answer))

    async def models(_: Request) -> Response:
        entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": LABEL}
        return JSONResponse({"object": "list", "data": [entry]})

    async def count(_: Request) -> Response:
        return JSONResponse({"count": len(calls)})

    stand_in = Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
            Route("/calls", count),
        ],
        exception_handlers={HTTPException: _error},
    )
    calls: list[Json] = []
    stand_in.state.calls = calls
    return stand_in


# --- The request -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the request's schema asks for: maximum points by criterion id.

    `freeform` is a schema without criteria: total and breakdown instead.
    """

    max_points: dict[str, int]
    freeform: bool = False

    @classmethod
    def parse(cls, body: Json) -> Self:
        default = dict.fromkeys(DEFAULT_CRITERIA, DEFAULT_MAX_POINTS)
        match body.get("response_format"):
            case {"json_schema": {"schema": {"properties": dict(properties)} as schema}}:
                definitions = schema.get("$defs", {})
            case _:
                return cls(max_points=default)
        if "criteria" not in properties:
            return cls(max_points=default, freeform=True)
        criteria = _resolve(properties["criteria"], definitions)["properties"]
        return cls(
            max_points={
                name: _max_points(_resolve(criterion, definitions), definitions)
                for name, criterion in criteria.items()
            }
        )


def _max_points(criterion: Json, definitions: Json) -> int:
    score = _resolve(criterion["properties"]["score"], definitions)
    return max(map(int, score["enum"])) if "enum" in score else DEFAULT_MAX_POINTS


def _resolve(schema: Json, definitions: Json) -> Json:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return schema


async def _body(request: Request) -> Json:
    try:
        body = await request.json()
    except ValueError:
        raise HTTPException(400, "the body is not JSON") from None
    match body:
        case {"model": str(), "messages": [_, *_]} if not body.get("stream"):
            return dict(body)
        case {"stream": True}:
            raise HTTPException(400, "the stand-in does not stream")
        case _:
            raise HTTPException(400, "you must provide a model and at least one message")


def _prompt(body: Json) -> str:
    return "\n".join(text for message in body["messages"] for text in _texts(message))


def _texts(message: object) -> Iterator[str]:
    match message:
        case {"content": str(text)}:
            yield text
        case {"content": [*parts]}:
            yield from (part["text"] for part in parts if part.get("type") == "text")
        case _:
            raise HTTPException(400, "every message needs a content: a text or a list of parts")


# --- The answer --------------------------------------------------------------------------------


def _answer(sessions: Mapping[str, SampleSession], prompt: str, wanted: _Wanted) -> Json:
    session = _session_of(sessions, prompt)
    steps = list(_numbered_steps(prompt))
    verdict = session.verdict if session and session.verdict else _neutral(steps, wanted)
    criteria = {
        name: _criterion(verdict["criteria"].get(name), steps, points)
        for name, points in wanted.max_points.items()
    }
    return _scores(criteria, freeform=wanted.freeform) | {
        name: value for name, value in verdict.items() if name != "criteria"
    }


def _session_of(sessions: Mapping[str, SampleSession], prompt: str) -> SampleSession | None:
    """The sample whose alert id the prompt names: an id survives any JSON encoding.

    Two ids mean that one session's text quotes another's, so neither is believed.
    """
    named = [s for s in sessions.values() if s.alert_id is not None and s.alert_id in prompt]
    return named[0] if len(named) == 1 else None


def _neutral(steps: list["_Step"], wanted: _Wanted) -> Json:
    quotes = [text[:80].strip() for step in steps for text in step.texts if len(text) >= 20][:1]
    return {
        "criteria": {
            name: {"evidence": quotes, "reasoning": NO_VERDICT, "score": points // 2}
            for name, points in wanted.max_points.items()
        },
        "score_reasoning": NO_VERDICT,
        "missing_tools": [],
        "alternative_approaches": [],
        "disqualified": False,
        "disqualifier_triggered": None,
        "injection_suspected": False,
    }


def _criterion(prepared: Json | None, steps: list["_Step"], max_points: int) -> Json:
    """One criterion's answer; a quote that stands in no step of the prompt is left out."""
    if prepared is None:
        return {"evidence": [], "reasoning": NO_VERDICT, "score": max_points // 2}
    return {
        "evidence": list(_located(prepared["evidence"], steps)),
        "reasoning": prepared["reasoning"],
        "score": min(prepared["score"], max_points),
    }


def _located(quotes: Iterable[str], steps: list["_Step"]) -> Iterator[Json]:
    for quote in quotes:
        found = (s.number for s in steps if any(_fold(quote) in text for text in s.texts))
        if (number := next(found, None)) is not None:
            yield {"step": number, "quote": quote}


def _scores(criteria: dict[str, Json], *, freeform: bool) -> Json:
    if not freeform:
        return {"criteria": criteria}
    breakdown = {name: criterion["score"] for name, criterion in criteria.items()}
    return {"score_breakdown": breakdown, "total_score": sum(breakdown.values())}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A numbered line of the transcript and its texts, whitespace folded."""

    number: int
    texts: tuple[str, ...]


def _numbered_steps(prompt: str) -> Iterator[_Step]:
    # Not splitlines(): it would also split at U+2028 and the like, which JSON allows in a string.
    for line in prompt.split("\n"):
        if not line.startswith('{"step"'):
            continue
        try:
            parsed = json.loads(line)
        except ValueError:
            continue
        if isinstance(number := parsed["step"], int):
            yield _Step(number=number, texts=tuple(map(_fold, _strings(parsed))))


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for nested in value.values():
                yield from _strings(nested)
        case list():
            for nested in value:
                yield from _strings(nested)


def _fold(text: str) -> str:
    return " ".join(text.split())


# --- The response ------------------------------------------------------------------------------


def _completion(number: int, prompt: str, answer: str) -> Json:
    read = len(prompt.encode()) // BYTES_PER_TOKEN
    written = len(answer.encode()) // BYTES_PER_TOKEN
    return {
        "id": f"chatcmpl-stand-in-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": LABEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": answer, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        },
    }


async def _error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "invalid_request_error"
    body = {"message": error.detail, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": body}, status_code=error.status_code)
