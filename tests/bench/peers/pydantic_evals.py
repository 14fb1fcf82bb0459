"""pydantic-evals: GEval over a Dataset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import GEval
from tenacity import stop_after_attempt, wait_exponential

from tests.bench.peers.task import Row, Task, about, perform, told


def judge(task: Task) -> Iterator[Row]:
    report = asyncio.run(_evaluate(task))
    for case in report.cases:
        yield _row(case)
    for failure in report.failures:
        yield Row(number=int(failure.name), error=told(failure.error_message))


async def _evaluate(task: Task) -> Any:
    client = AsyncOpenAI(base_url=task.url, api_key="none")
    grader = GEval(
        criteria="How well the agent did.",
        evaluation_steps=["Follow the instructions in the output."],
        score_range=(0, 10),
        model=OpenAIChatModel(task.model, provider=OpenAIProvider(openai_client=client)),
        evaluation_name="quality",
    )
    dataset: Any = Dataset(
        name="sessions",
        cases=[Case(name=str(number), inputs=number) for number in task.numbers],
        evaluators=[grader],
    )
    retry = {
        "stop": stop_after_attempt(task.retries + 1),
        "wait": wait_exponential(multiplier=1, min=1, max=10),
        "reraise": True,
    }
    return await dataset.evaluate(
        task.text, max_concurrency=task.slots, progress=False, retry_evaluators=retry
    )


def _row(case: Any) -> Row:
    number = int(case.name)
    if case.evaluator_failures:
        return Row(number=number, error=told(case.evaluator_failures[0].error_message))
    found = case.scores["quality"]
    return Row(number=number, grade=found.value, about=about(found.reason))


if __name__ == "__main__":
    perform(judge, "pydantic-evals", "pydantic-ai-slim", "openai")
