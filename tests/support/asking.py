"""Asking for scores, a few or many, and waiting until the judge has heard of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from time import monotonic
from uuid import UUID, uuid4

from tests.support.stage import Stage


async def ask_all(stage: Stage, count: int, case: str = "good") -> list[UUID]:
    """Asks for this many sessions of their own."""
    return await ask_each(stage, add_sessions(stage, count, case))


async def ask_slowly(stage: Stage, count: int, *, rate: float) -> list[UUID]:
    """Asks for this many sessions of their own, so many a second."""
    return await ask_each(stage, add_sessions(stage, count), pause_s=1 / rate)


def add_sessions(stage: Stage, count: int, case: str = "good") -> list[str]:
    """So many sessions more, under ids that were not used before."""
    first = len(stage.stand_ins.sessions)
    return [stage.stand_ins.add(f"s-{first + number}", case) for number in range(count)]


async def ask_each(stage: Stage, sessions: Sequence[str], *, pause_s: float = 0) -> list[UUID]:
    """Asks for each of these sessions; returns when Kafka has acknowledged all of it."""
    asked: list[UUID] = []
    async with stage.producer() as producer:
        for session_id in sessions:
            request_id = uuid4()
            request = {"session_id": session_id, "request_id": str(request_id)}
            value = json.dumps(request).encode()
            await producer.send(stage.topics.requested, value)
            asked.append(request_id)
            if pause_s:
                await asyncio.sleep(pause_s)
        await producer.flush()
    return asked


async def judged(stage: Stage, count: int, timeout_s: float = 60) -> None:
    """Waits until the judge was asked this often."""
    deadline = monotonic() + timeout_s
    while (calls := stage.stand_ins.judge_calls.total()) < count:
        if monotonic() > deadline:
            states = await stage.rows("SELECT state, count(*) FROM score_requests GROUP BY 1")
            told = f"{calls} of {count} calls, {[tuple(row) for row in states]}"
            raise AssertionError(f"{told}\n{stage.last_words()}")
        await asyncio.sleep(0.02)
