"""ragas: a NumericMetric in an experiment, as its documentation advises since 0.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from openai import AsyncOpenAI
from ragas import Dataset, experiment
from ragas.llms import llm_factory
from ragas.metrics import NumericMetric

from tests.bench.peers.task import Row, Task, about, perform


def judge(task: Task) -> Iterator[Row]:
    for row in asyncio.run(_experiment(task)):
        yield Row(number=row["number"], grade=row["grade"], about=about(row["reason"]))


async def _experiment(task: Task) -> Any:
    client = AsyncOpenAI(base_url=task.url, api_key="none", max_retries=task.retries)
    llm = llm_factory(task.model, client=client)
    metric = NumericMetric(name="quality", prompt="{session}", allowed_values=(0, 10))
    slots = asyncio.Semaphore(task.slots)

    async def score(row: dict[str, Any]) -> dict[str, Any]:
        async with slots:
            found = await metric.ascore(session=task.text(row["number"]), llm=llm)
        return {"number": row["number"], "grade": found.value, "reason": found.reason}

    rows = [{"number": number} for number in task.numbers]
    dataset = Dataset(name="sessions", backend="inmemory", data=rows)
    return await experiment(backend="inmemory")(score).arun(dataset, name="run")


if __name__ == "__main__":
    perform(judge, "ragas", "instructor", "openai")
