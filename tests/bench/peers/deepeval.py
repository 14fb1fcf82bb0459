"""deepeval: GEval by evaluate()."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
from deepeval.metrics import GEval
from deepeval.models import OpenAIModel
from deepeval.test_case import LLMTestCase, SingleTurnParams
from openai import DefaultAsyncHttpxClient

from tests.bench.peers.task import Row, Task, about, perform, told


def judge(task: Task) -> Iterator[Row]:
    client = DefaultAsyncHttpxClient()
    model = OpenAIModel(
        model=task.model, base_url=task.url, api_key="none", async_http_client=client
    )
    metric = GEval(
        name="quality",
        model=model,
        evaluation_steps=["Follow the instructions in the actual output."],
        evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT],
    )
    found = evaluate(
        [
            LLMTestCase(name=str(number), input="a session", actual_output=task.text(number))
            for number in task.numbers
        ],
        [metric],
        async_config=AsyncConfig(max_concurrent=task.slots, throttle_value=0),
        error_config=ErrorConfig(ignore_errors=True),
        cache_config=CacheConfig(write_cache=False),
        display_config=DisplayConfig(
            show_indicator=False, print_results=False, inspect_after_run=False
        ),
    )
    for result in found.test_results:
        yield from (_row(int(result.name), data) for data in result.metrics_data or ())


def _row(number: int, data: Any) -> Row:
    """GEval divides its grade of 0 to 10 by ten."""
    grade = None if data.score is None else round(data.score * 10, 6)
    error = told(data.error) if data.error else None
    return Row(number=number, grade=grade, about=about(data.reason), error=error)


if __name__ == "__main__":
    perform(judge, "deepeval", "openai")
