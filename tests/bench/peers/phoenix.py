"""arize-phoenix-evals: a classifier over a data frame."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pandas as pd
from phoenix.evals import LLM, async_evaluate_dataframe, create_classifier

from tests.bench.peers.task import Row, Task, about, perform, told


def judge(task: Task) -> Iterator[Row]:
    llm = LLM(
        provider="openai",
        model=task.model,
        base_url=task.url,
        api_key="none",
        initial_per_second_request_rate=1000,
    )
    grader = create_classifier(
        name="quality",
        prompt_template="{session}",
        llm=llm,
        choices={str(grade): grade for grade in range(11)},
    )
    asked = pd.DataFrame({"session": [task.text(number) for number in task.numbers]})
    evaluated = async_evaluate_dataframe(
        dataframe=asked,
        evaluators=[grader],
        concurrency=task.slots,
        max_retries=task.retries,
        exit_on_error=False,
        hide_tqdm_bar=True,
    )
    found = asyncio.run(evaluated)
    scores, details = found["quality_score"], found["quality_execution_details"]
    for number, score, detail in zip(task.numbers, scores, details, strict=True):
        yield _row(number, score, detail)


def _row(number: int, score: Any, detail: Any) -> Row:
    if not score:
        wrong = detail["exceptions"] or detail["status"] != "COMPLETED"
        return Row(number=number, error=told(str(detail)) if wrong else None)
    return Row(number=number, grade=score["score"], about=about(score["explanation"]))


if __name__ == "__main__":
    perform(judge, "arize-phoenix-evals", "openai")
