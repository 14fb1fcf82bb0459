"""openevals: create_async_llm_as_judge, so many of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI
from openevals.llm import create_async_llm_as_judge

from tests.bench.peers.task import Row, Task, about, perform, told


def judge(task: Task) -> list[Row]:
    return asyncio.run(_judge(task))


async def _judge(task: Task) -> list[Row]:
    evaluator = create_async_llm_as_judge(
        prompt="{outputs}",
        judge=AsyncOpenAI(base_url=task.url, api_key="none", max_retries=task.retries),
        model=task.model,
        feedback_key="quality",
        choices=[float(grade) for grade in range(11)],
    )
    slots = asyncio.Semaphore(task.slots)

    async def row(number: int) -> Row:
        async with slots:
            return await _row(evaluator, number, task.text(number))

    return await asyncio.gather(*(row(number) for number in task.numbers))


async def _row(evaluator: Callable[..., Awaitable[Any]], number: int, text: str) -> Row:
    try:
        found = await evaluator(outputs=text)
    except Exception as error:  # noqa: BLE001 - whatever it is, the session has no grade
        return Row(number=number, error=told(error))
    return Row(number=number, grade=found["score"], about=about(found["comment"]))


if __name__ == "__main__":
    perform(judge, "openevals", "openai")
