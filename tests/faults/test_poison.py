"""Records that nobody can accept, and work that could block other work."""

import asyncio
import json
from dataclasses import dataclass
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from starlette.responses import PlainTextResponse, Response

from tests.support import promises
from tests.support.asking import add_sessions, ask_all, ask_each
from tests.support.stage import Stage

LARGE = 20 * 1024 * 1024
FINISHED = "SELECT count(*) FROM score_requests WHERE finished_at IS NOT NULL"
GOOD_ONES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it stands in Kafka."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


async def send_raw(producer: AIOKafkaProducer, topic: str, record: Record) -> None:
    """Sends what aiokafka's `send` refuses to: no value, no key, a null header."""
    batch = producer.create_batch()
    batch.append(key=record.key, value=record.value, timestamp=None, headers=list(record.headers))
    batch.close()
    await (await producer.send_batch(batch, topic, partition=0))


def _request(session_id: str) -> bytes:
    return json.dumps({"session_id": session_id, "request_id": str(uuid4())}).encode()


@pytest.mark.ci_fault
async def test_poison_between_good_requests(stage: Stage) -> None:
    """Each goes to the dead letters as it is, with its reason; the others are scored."""
    strange = add_sessions(stage, 2)
    poison = {
        "bad_json": Record(value=b"{not json", headers=(("note", None),)),
        "bad_header": Record(value=_request("s-0"), headers=(("ce_id", b"\xff\xfe"),)),
        "tombstone": Record(value=None, key=b"\xff\xfe\x00"),
        "schema_invalid": Record(value=b'{"session_id": 7}'),
        "oversize": Record(value=b'"' + b"x" * LARGE + b'"'),
    }
    odd = [Record(value=_request(s), key=b"\xff\xfe", headers=(("note", None),)) for s in strange]
    async with stage.consumer():
        await ask_all(stage, GOOD_ONES)
        async with stage.producer() as producer:
            for record in [*poison.values(), *odd]:
                await send_raw(producer, stage.topics.requested, record)
        await ask_all(stage, GOOD_ONES)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) == len(poison))
        seen = await promises.kept(stage)
    assert len(seen.scores) == 2 * GOOD_ONES + len(odd), "a null header or a binary key is no harm"
    reasons = {e.headers["dlq_error_code"]: e.raw for e in stage.events[stage.topics.dlq]}
    assert {code: (raw.key, raw.value) for code, raw in reasons.items()} == {
        code: (record.key, record.value) for code, record in poison.items()
    }


async def test_flood_of_dead_letters(stage: Stage) -> None:
    """Each becomes a dead letter; good ones among them and behind them are scored, and nothing has
    to be done by hand.
    """
    async with stage.consumer(intake_batch_records=50) as process:
        await ask_all(stage, GOOD_ONES)
        for _ in range(3):
            await stage.send(*[b"not json"] * 300)
            await ask_all(stage, GOOD_ONES)
        await stage.until(lambda: "partition_flooded" in process.log.read_text())
        await stage.until(lambda: len(places(stage)) == 900)
        seen = await promises.kept(stage)
    assert len(seen.letters) == 900
    assert len(seen.scores) == 4 * GOOD_ONES


def places(stage: Stage) -> set[tuple[str, str]]:
    """Where the dead letters so far came from."""
    return {
        (event.headers["dlq_original_partition"], event.headers["dlq_original_offset"])
        for event in stage.events[stage.topics.dlq]
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", [1_000, 10_000])
async def test_a_slow_session_before_many_fast_ones(stage: Stage, many: int) -> None:
    """It takes one slot and no more: the fast ones are all answered before it."""
    slow, enough = stage.stand_ins.add("s-slow"), asyncio.Event()

    async def slowly() -> Response:
        await enough.wait()
        return PlainTextResponse("now you may", status_code=500)

    stage.stand_ins.judge_faults.forever[slow] = slowly
    fast = add_sessions(stage, many, "simple")
    async with stage.consumer(request_deadline_seconds=900, worker_slots=8):
        await ask_each(stage, [slow])
        await ask_each(stage, fast)
        while (await stage.rows(FINISHED))[0]["count"] < many:
            await asyncio.sleep(0.5)
        assert not await stage.rows(f"{FINISHED} AND session_id = $1 HAVING count(*) > 0", slow)
        del stage.stand_ins.judge_faults.forever[slow]
        enough.set()
        # It is asked again each time that a call has taken too long.
        seen = await promises.kept(stage, tries={slow: 9})
    assert len(seen.scores) == many + 1
