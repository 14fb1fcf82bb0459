"""Whatever a session or a judge says, a verdict that was paid for can be stored."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from consumer.edges.history.tarsy_python_shape import Detail, parse, session
from consumer.edges.postgres.store import Store
from consumer.pipeline import score_session
from consumer.scoring.score import Score, new_score
from consumer.scoring.scorers.base import Subject
from consumer.scoring.session import Session
from consumer.scoring.text import short_name
from tests.integration.builders import (
    CRITERIA,
    PROFILE,
    begin,
    claim_one,
    fetch,
    migrated_database,
    opened_store,
    request,
)
from tests.support.servers import PostgresServer
from tests.unit.builders import about, answer, completion, criterion_answer, profile
from tests.unit.judges import ERRAND, FakeProvider, judge, member

LARGE = 2_000_000
CHANCE = random.Random(4711)
# Letters of four bytes each in UTF-8.
RARE = [chr(code) for code in range(0x20000, 0x2A6D6)]


def distinct(alphabet: str, length: int, between: str) -> str:
    """So many different words that nothing of them is spared in an index."""
    words = map("".join, itertools.product(alphabet, repeat=length))
    return between.join(itertools.islice(words, LARGE // (length + 1)))


# Each is as long as the History Service and judges may make a text, and longer than is kept.
HOSTILE = {
    "hexadecimal digits": f"{CHANCE.getrandbits(4 * LARGE):x}",
    "distinct words": distinct("abcdefghijklmnopqrstuvwxyz", 5, " "),
    "short words": distinct("abcdefghijklmnopqrstuvwxyz0123456789", 4, " "),
    "compounds": distinct("abcdefghijklmnopqrstuvwxyz", 5, "-"),
    "paths": distinct("abcdefghijklmnopqrstuvwxyz", 5, "/"),
    "hosts": distinct("abcdefghijklmnopqrstuvwxyz", 5, "."),
    "letters of four bytes": "".join(CHANCE.choices(RARE, k=LARGE // 4)),
    "words of four bytes": " ".join(CHANCE.choices(RARE, k=LARGE // 8)),
    "letters that grow when small": " ".join(f"\u0130{one}" for one in RARE),
    "emoji": "\U0001f600\U0001f9d1\u200d\U0001f680" * (LARGE // 16),
    "U+0000": "\0" * LARGE,
    "half surrogates": "\ud83d \udfff" * (LARGE // 8),
    "one blank": " ",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    async with migrated_database(postgres, migrated_template) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with opened_store(database) as opened:
        await opened.register_criteria(CRITERIA)
        yield opened


def hostile_session(text: str, session_id: str) -> Session:
    """As the History Service would tell it; JSON with half a surrogate pair is no session."""
    text = text.encode(errors="replace").decode()
    llm = {"model_name": text, "provider": text, "input_tokens": 2**53, "duration_ms": 10**30}
    call = {
        "server_name": text[:6000],
        "communication_type": "tool_call",
        "tool_name": text[:6000],
        "tool_arguments": {text[:6000]: [text[:6000], 10**300]},
        "tool_result": {"isError": True, "result": text},
        "error_message": text,
        "success": False,
        "duration_ms": 10**30,
    }
    stage = {
        "execution_id": text[:6000],
        "stage_name": text[:6000],
        "agent": text[:6000],
        "status": text[:6000],
        "llm_interactions": [{"id": "1", "timestamp_us": 10**30, "details": llm}],
        "mcp_communications": [{"id": text[:6000], "timestamp_us": 10**30, "details": call}] * 2,
    }
    detail = {
        "session_id": session_id,
        "status": "completed",
        "agent_type": text,
        "alert_type": text[:6000],
        "alert_data": {"alert": text[:6000]},
        "runbook_url": text[:6000],
        "final_analysis": text[:6000],
        "session_metadata": {"classification_label": text},
        "session_total_tokens": 2**53,
        "duration_ms": 2**53,
        "stages": [stage],
    }
    parsed = parse(Detail, json.dumps(detail).encode("utf-8"))
    return session(parsed, final_analysis=parsed.final_analysis, labels={})


def hostile_answer(text: str) -> dict[str, Any]:
    """The longest that a judge may say, and longer."""
    name = text[:255]
    quotes = [{"step": 1, "quote": text[:4000]}] * 3
    said = criterion_answer(20, evidence=quotes, reasoning=text)
    return answer(
        criteria={"logical_flow": said, "consistency": criterion_answer(5, reasoning=text)},
        score_reasoning=text,
        missing_tools=[{"tool_name": name, "rationale": text}],
        alternative_approaches=[{"name": name, "description": text, "steps": [text] * 2}],
        injection_suspected=True,
    )


async def judged(subject: Subject, text: str, **facts: Any) -> Score:
    """The score that a judge's hostile answer comes to."""
    said = completion(json.dumps(hostile_answer(text)), model=short_name(text))
    asked = member(FakeProvider([said]), context_window=10_000_000)
    by = profile(id=PROFILE)
    scored = await score_session(subject, by, judge(asked), ERRAND)
    return new_score(
        subject=subject,
        profile=by,
        criteria_hash=CRITERIA.hash,
        total=scored.total,
        judgement=scored.judgement,
        duration_ms=1,
        **facts,
    )


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_score_of_hostile_texts_is_stored(store: Store, database: str, kind: str) -> None:
    text = HOSTILE[kind]
    session_id = f"s-{list(HOSTILE).index(kind)}"
    await store.accept([request(session_id)], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    made = await judged(
        about(hostile_session(text, session_id)),
        text,
        score_id=claimed.request_id,
        request_id=claimed.request_id,
        triggered_by="tests",
    )

    await store.complete(claimed, made)

    (card,) = await fetch(database, "SELECT * FROM score_cards WHERE session_id = $1", session_id)
    for name in ("agent", "agent_model", "agent_provider", "classification_label"):
        assert len(card[name]) <= 255
        assert len(card[name]) == len(text) or card[name].endswith("\u2026")
    assert card["injection_suspected"]
