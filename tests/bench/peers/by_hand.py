"""No library: the OpenAI client in a loop. What a judge's latency and one process leave to all."""

from __future__ import annotations

import asyncio
import json

from openai import AsyncOpenAI, OpenAIError

from tests.bench.peers.task import Row, Task, about, perform, told


def judge(task: Task) -> list[Row]:
    return asyncio.run(_judge(task))


async def _judge(task: Task) -> list[Row]:
    slots = asyncio.Semaphore(task.slots)
    async with AsyncOpenAI(base_url=task.url, api_key="none", max_retries=task.retries) as client:

        async def row(number: int) -> Row:
            async with slots:
                return await _row(client, task, number)

        return await asyncio.gather(*(row(number) for number in task.numbers))


async def _row(client: AsyncOpenAI, task: Task, number: int) -> Row:
    try:
        answer = await client.chat.completions.create(
            model=task.model, messages=[{"role": "user", "content": task.text(number)}]
        )
        found = json.loads(answer.choices[0].message.content or "")
    except (OpenAIError, ValueError) as error:
        return Row(number=number, error=told(error))
    return Row(number=number, grade=found["score"], about=about(found["reason"]))


if __name__ == "__main__":
    perform(judge, "openai")
