"""The History Service and the judge as tests need them: good by default, bad where told.

Both speak HTTP and count what they are asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer.demo import history_service, judge_stand_in, sample_sessions
from consumer.demo.sample_sessions import SampleSession
from consumer.demo.world import served

Fault = Callable[[], Awaitable[Response]]


def answer(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Fault:
    """A fault that answers at once."""

    async def respond() -> Response:
        if isinstance(body, str):
            return PlainTextResponse(body, status_code=status, headers=headers)
        return JSONResponse(body or {"detail": "fault"}, status_code=status, headers=headers)

    return respond


def hang(seconds: float = 3600) -> Fault:
    """A fault that does not answer."""

    async def respond() -> Response:
        await asyncio.sleep(seconds)
        return PlainTextResponse("too late", status_code=500)

    return respond


def completion(content: str | None, *, finish: str = "stop", refusal: str | None = None) -> Fault:
    """A chat completion with this content."""
    return answer(
        200,
        {
            "model": "scripted-judge",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content, "refusal": refusal},
                    "finish_reason": finish,
                }
            ],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
        },
    )


@cache
def _samples() -> Mapping[str, SampleSession]:
    """The demo's sessions, read once: many of a test's are copies of them."""
    return sample_sessions.load()


@dataclass(slots=True)
class Faults:
    """What goes wrong next, by session; each is used once, the last one for ever if `forever`; and
    `always`, with every other one.
    """

    queued: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    forever: dict[str, Fault] = field(default_factory=dict)
    always: Fault | None = None

    def next(self, session_id: str) -> Fault | None:
        if self.queued[session_id]:
            return self.queued[session_id].pop(0)
        return self.forever.get(session_id, self.always)


@dataclass(slots=True)
class StandIns:
    """The two services; sessions are copies of the demo's, under any id."""

    sessions: dict[str, SampleSession] = field(default_factory=dict)
    history_faults: Faults = field(default_factory=Faults)
    judge_faults: Faults = field(default_factory=Faults)
    history_calls: Counter[str] = field(default_factory=Counter)
    judge_calls: Counter[str] = field(default_factory=Counter)
    judge_under_way: int = 0
    judge_most_at_once: int = 0
    history_delay_s: float = 0.0
    judge_delay_s: float = 0.0
    prompts: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    # What the History Service was told by whom it is asked, by session.
    traceparents: dict[str, str | None] = field(default_factory=dict)
    history_url: str = ""
    judge_url: str = ""

    def add(self, session_id: str, case: str = "good", **changes: Any) -> str:
        """A session like the demo's of this case; `changes` replace fields of its detail."""
        sample = next(s for s in _samples().values() if s.case == case)
        detail = copy.deepcopy(dict(sample.detail))
        detail["session_id"] = session_id
        # The judge stand-in tells sessions apart by their alert; ours is named for the session.
        detail["alert_data"] = {**detail["alert_data"], "test_session": f"[{session_id}]"}
        detail.update(changes)
        final = {**sample.final, "session_id": session_id}
        self.sessions[session_id] = SampleSession(
            session_id=session_id,
            case=sample.case,
            title=sample.title,
            detail=detail,
            final=final,
            verdict=sample.verdict,
        )
        return session_id

    def session_in(self, text: str) -> str | None:
        """Which session a prompt is about."""
        return next((s for s in self.sessions if f"[{s}]" in text), None)


class _History:
    def __init__(self, stand_ins: StandIns, app: ASGIApp) -> None:
        self._stand_ins, self._app = stand_ins, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = scope["path"].removeprefix("/api/v1/history/sessions/").split("/")[0]
        self._stand_ins.history_calls[session_id] += 1
        self._stand_ins.traceparents[session_id] = Headers(scope=scope).get("traceparent")
        await asyncio.sleep(self._stand_ins.history_delay_s)
        if fault := self._stand_ins.history_faults.next(session_id):
            await (await fault())(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Judge:
    """Counts and keeps what it is asked; answers by the script, else as the demo's judge does."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins
        self._good = judge_stand_in.app(_samples())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await Request(scope, receive).body()
        body = json.loads(raw)
        session_id = self._stand_ins.session_in(body["messages"][0]["content"]) or "unknown"
        self._stand_ins.judge_calls[session_id] += 1
        self._stand_ins.prompts[session_id].append(body)
        async with self._under_way():
            await asyncio.sleep(self._stand_ins.judge_delay_s)
        if fault := self._stand_ins.judge_faults.next(session_id):
            await (await fault())(scope, receive, send)
            return

        async def again() -> Message:
            return {"type": "http.request", "body": raw, "more_body": False}

        await self._good(scope, again, send)

    @contextlib.asynccontextmanager
    async def _under_way(self) -> AsyncIterator[None]:
        told = self._stand_ins
        told.judge_under_way += 1
        told.judge_most_at_once = max(told.judge_most_at_once, told.judge_under_way)
        try:
            yield
        finally:
            told.judge_under_way -= 1


@contextlib.asynccontextmanager
async def stand_ins(both: StandIns | None = None) -> AsyncIterator[StandIns]:
    """Both services on free ports."""
    both = both or StandIns()
    history = _History(both, history_service.app(both.sessions))
    async with served(history) as history_url, served(_Judge(both)) as judge_url:
        both.history_url, both.judge_url = history_url, judge_url
        yield both
