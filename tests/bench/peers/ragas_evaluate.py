"""ragas: its evaluate(), which 0.4 still has and calls deprecated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from openai import AsyncOpenAI
from ragas import EvaluationDataset, SingleTurnSample, aevaluate
from ragas.llms import llm_factory
from ragas.metrics import SimpleCriteriaScore
from ragas.run_config import RunConfig

from tests.bench.peers.task import Row, Task, perform


def judge(task: Task) -> Iterator[Row]:
    found = asyncio.run(_evaluate(task))
    for number, grade in zip(task.numbers, found, strict=True):
        # The metric answers no reason: the session is known by its place alone.
        yield Row(number=number, grade=grade, about=number)


async def _evaluate(task: Task) -> list[float]:
    client = AsyncOpenAI(base_url=task.url, api_key="none", max_retries=task.retries)
    metric = SimpleCriteriaScore(name="quality", definition="How well the agent did, 0 to 10.")
    samples = [SingleTurnSample(response=task.text(number)) for number in task.numbers]
    found = await aevaluate(
        EvaluationDataset(samples=samples),
        [metric],
        llm=llm_factory(task.model, client=client),
        run_config=RunConfig(max_workers=task.slots, max_retries=task.retries),
        show_progress=False,
    )
    return list(found["quality"])


if __name__ == "__main__":
    perform(judge, "ragas", "instructor", "openai")
