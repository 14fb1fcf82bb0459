"""The checker of promises finds each broken one: else the fault tests would show nothing."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiokafka import ConsumerRecord

from tests.support.promises import Raw, Seen, Sent, problems
from tests.support.topics import Topics

TOPICS = Topics(
    requested="requested",
    completed="completed",
    quality_risk="risk",
    failed="failed",
    overridden="overridden",
    dlq="dlq",
)
SCORED, FAILED, SCORE = uuid4(), uuid4(), uuid4()


def raw(offset: int, value: bytes, **headers: str) -> Raw:
    return ConsumerRecord(
        topic=TOPICS.requested,
        partition=0,
        offset=offset,
        timestamp=0,
        timestamp_type=0,
        key=None,
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=len(value),
        headers=[(name, text.encode()) for name, text in headers.items()],
    )


def asked(offset: int, request_id: UUID) -> Raw:
    return raw(offset, json.dumps({"session_id": "s", "request_id": str(request_id)}).encode())


def letter() -> Raw:
    return raw(
        0, b"junk", dlq_original_partition="0", dlq_original_offset="2", dlq_redrive_count="0"
    )


def row(request_id: UUID, state: str, offset: int, **more: Any) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "session_id": f"session {offset}",
        "state": state,
        "score_id": None,
        "error_code": None,
        "source_topic": TOPICS.requested,
        "source_partition": 0,
        "source_offset": offset,
    } | more


def sent(topic: str, request_id: UUID, **data: Any) -> Sent:
    return Sent(
        ce_id=f"{topic}:{request_id}", topic=topic, request_id=request_id, data=data, times=1
    )


SCORE_ROW = {
    "score_id": SCORE,
    "request_id": SCORED,
    "session_id": "session 0",
    "judge_profile_id": "p",
    "is_current": True,
    "total_score": 40,
    "quality_risk": ["low"],
    "judge_samples": 1,
}
COMPLETED = sent(TOPICS.completed, SCORED, score_id=str(SCORE), total_score=40)
RISK = sent(TOPICS.quality_risk, SCORED, score_id=str(SCORE), total_score=40)
ENDED = sent(TOPICS.failed, FAILED, error_code="session_not_found")
GOOD: Any = Seen(
    topics=TOPICS,
    asked={(0, 0): asked(0, SCORED), (0, 1): asked(1, FAILED), (0, 2): raw(2, b"junk")},
    committed={0: 3},
    events=[COMPLETED, RISK, ENDED],
    letters={(0, 2, 0): [letter()]},
    requests={
        SCORED: row(SCORED, "completed", 0, score_id=SCORE),
        FAILED: row(FAILED, "failed", 1, error_code="session_not_found"),
    },
    scores=[SCORE_ROW],
    outbox=[],
    judge_calls=Counter({"session 0": 1}),
)


def without_row(seen: Seen) -> Seen:
    return replace(seen, requests={k: v for k, v in seen.requests.items() if k != FAILED})


BROKEN: dict[str, tuple[Callable[[Any], Seen], str]] = {
    "lost": (lambda s: replace(s, events=[COMPLETED, RISK]), "has 0 answers"),
    "two answers": (
        lambda s: replace(s, events=[*s.events, replace(ENDED, request_id=SCORED)]),
        "has 2 answers",
    ),
    "unfinished": (
        lambda s: replace(s, requests={**s.requests, SCORED: row(SCORED, "in_progress", 0)}),
        "still in_progress",
    ),
    "event without row": (without_row, "has an answer and no row"),
    "acknowledged too early": (without_row, "0:1 is acknowledged, and stored nowhere"),
    "two scores": (
        lambda s: replace(s, scores=[SCORE_ROW, SCORE_ROW | {"score_id": uuid4()}]),
        "has 2 scores",
    ),
    "orphan": (
        lambda s: replace(s, scores=[SCORE_ROW | {"request_id": FAILED}]),
        "belongs to no completed request",
    ),
    "no risk event": (lambda s: replace(s, events=[COMPLETED, ENDED]), "has 0 quality_risk events"),
    "another total": (
        lambda s: replace(s, scores=[SCORE_ROW | {"total_score": 41}]),
        "tells another total",
    ),
    "another reason": (
        lambda s: replace(s, events=[COMPLETED, RISK, replace(ENDED, data={"error_code": "x"})]),
        "has no row that says the same",
    ),
    "not sent": (lambda s: replace(s, outbox=[{}]), "still in the outbox"),
    "record vanished": (lambda s: replace(s, letters={}), "0:2 is neither a request nor a dead"),
    "wrong letter": (
        lambda s: replace(s, asked={**s.asked, (0, 2): raw(2, b"other")}),
        "is not the record that is there",
    ),
    "place made up": (
        lambda s: replace(s, asked={k: v for k, v in s.asked.items() if k != (0, 0)}),
        "says it came from (0, 0)",
    ),
    "one call too many": (
        lambda s: replace(s, judge_calls=Counter({"session 0": 2})),
        "asked 2 times about session 0; 1 are allowed",
    ),
}


def test_what_is_kept_is_no_problem() -> None:
    assert problems(GOOD, crashes=0, tries={}) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    harm, words = BROKEN[name]
    found = problems(harm(GOOD), crashes=0, tries={})
    assert any(words in problem for problem in found), found


def test_a_crash_and_a_faulty_judge_allow_more_calls() -> None:
    seen = replace(GOOD, judge_calls=Counter({"session 0": 3}))
    assert problems(seen, crashes=1, tries={}) != []
    assert problems(seen, crashes=1, tries={"session 0": 1}) == []
