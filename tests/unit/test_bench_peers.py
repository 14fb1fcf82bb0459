"""What `make bench-peers` counts, and what its judge answers: a comparison must not flatter."""

from __future__ import annotations

import json
from typing import Any

from tests.bench import graded
from tests.bench.peers.running import Outcome, outcome
from tests.bench.peers.task import Row, Task, about

SESSION = 17
GRADE = graded.grade(SESSION)
SHAPE = {
    "properties": {
        "label": {"type": "string", "enum": [str(grade) for grade in range(11)]},
        "score": {"type": "number"},
        "why": {"type": "string"},
    }
}


def task(count: int) -> Task:
    return Task(url="", model="", prompt="", first=0, count=count, slots=1, retries=0)


def asked(**shape: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Judge [b-{SESSION}]."}]
    return graded.message(json.dumps({"messages": messages, **shape}).encode())


def test_only_the_sessions_own_grade_and_explanation_count_as_scored() -> None:
    rows = [
        Row(number=0, grade=graded.grade(0), about=0),
        Row(number=1, grade=graded.grade(1) + 1, about=1),
        Row(number=2, grade=graded.grade(2), about=3),
        Row(number=3, error="429"),
        Row(number=4),
        Row(number=5, grade=float("nan"), about=5),
    ]
    assert outcome(task(7), rows) == Outcome(scored=1, wrong=2, failed=1, missing=3)


def test_the_judge_answers_by_the_schema_that_is_asked_for() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SHAPE}}
    answer = json.loads(asked(response_format=schema)["content"])
    assert (answer["label"], answer["score"], about(answer["why"])) == (str(GRADE), GRADE, SESSION)


def test_the_judge_calls_the_tool_that_it_is_given() -> None:
    tool = {"type": "function", "function": {"name": "grade", "parameters": SHAPE}}
    (call,) = asked(tools=[tool])["tool_calls"]
    assert call["function"]["name"] == "grade"
    assert json.loads(call["function"]["arguments"])["label"] == str(GRADE)


def test_the_judge_answers_json_where_no_shape_is_told() -> None:
    answer = json.loads(asked()["content"])
    assert (answer["score"], about(answer["reason"])) == (GRADE, SESSION)
