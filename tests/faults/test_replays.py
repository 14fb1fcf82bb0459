"""What Kafka delivers again, and what people send again, is answered once."""

import asyncio
import json
import random
from collections.abc import Mapping
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.support import promises
from tests.support.asking import add_sessions, ask_all
from tests.support.stage import Stage

REQUESTS = 20


async def test_the_same_event_twice_and_in_another_order(stage: Stage) -> None:
    """Under one request id, wherever it arrives, it is one request with one answer."""
    chance = random.Random(7)
    requests = [
        json.dumps({"session_id": session_id, "request_id": str(uuid4())}).encode()
        for session_id in add_sessions(stage, REQUESTS)
    ]
    records = requests * 3
    chance.shuffle(records)
    async with stage.consumer(), stage.consumer():
        async with stage.producer() as producer:
            for record in records:
                place = chance.randrange(promises.PARTITIONS)
                await producer.send_and_wait(stage.topics.requested, record, partition=place)
        seen = await promises.kept(stage)
    assert len(seen.asked) == 3 * REQUESTS
    assert len(seen.requests) == len(seen.scores) == stage.stand_ins.judge_calls.total() == REQUESTS
    assert seen.repeats == 0


@pytest.mark.ci_fault
async def test_offsets_reset_to_0(stage: Stage) -> None:
    """Everything is read again; nothing is asked, stored or sent again."""
    async with stage.consumer():
        await ask_all(stage, REQUESTS)
        await stage.send(b"not json")
        await stage.until(lambda: stage.events[stage.topics.dlq])
        before = await promises.kept(stage)
    await _go_on(stage, dict.fromkeys(range(promises.PARTITIONS), 0))
    async with stage.consumer():
        async with asyncio.timeout(30):
            while await promises.committed(stage) != before.committed:
                await asyncio.sleep(0.2)
        after = await promises.kept(stage)
    assert after.requests == before.requests
    assert after.scores == before.scores
    assert (len(after.events), after.repeats) == (len(before.events), 0)
    assert after.judge_calls == before.judge_calls


async def _go_on(stage: Stage, offsets: Mapping[int, int]) -> None:
    """The group, which has no member now, goes on at these offsets, by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=stage.kafka.bootstrap, group_id=stage.group_id, enable_auto_commit=False
    )
    try:
        await consumer.start()
        places = {TopicPartition(stage.topics.requested, n): at for n, at in offsets.items()}
        consumer.assign(list(places))
        await consumer.commit(places)
    finally:
        await consumer.stop()


async def test_redriven_twice(stage: Stage) -> None:
    """What a former version refused is sent back by two people at once: it gets one answer."""
    (session_id,) = add_sessions(stage, 1)
    value = json.dumps({"session_id": session_id, "request_id": str(uuid4())}).encode()
    await _refused_by_a_former_version(stage, value)
    for _ in range(2):
        done = await stage.cli("dlq", "redrive", "--json")
        assert done.code == 0, done.err
    async with stage.consumer():
        seen = await promises.kept(stage)
        assert len(seen.asked) == 3, "the record, and twice the same again"
        assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 1
        done = await stage.cli("dlq", "redrive", "--json")
        assert done.code == 0, done.err
        assert len((await promises.kept(stage)).asked) == 3, "it is accepted: not sent any more"


async def _refused_by_a_former_version(stage: Stage, value: bytes) -> None:
    """The record, acknowledged, and its dead letter."""
    async with stage.producer() as producer:
        sent = await producer.send_and_wait(stage.topics.requested, value, partition=0)
        about = {
            "dlq_original_topic": stage.topics.requested,
            "dlq_original_partition": "0",
            "dlq_original_offset": str(sent.offset),
            "dlq_original_timestamp": str(sent.timestamp),
            "dlq_error_code": "schema_invalid",
            "dlq_redrive_count": "0",
        }
        headers = [(name, text.encode()) for name, text in about.items()]
        await producer.send_and_wait(stage.topics.dlq, value, headers=headers)
    await _go_on(stage, {0: sent.offset + 1})


async def test_redriven_again_and_again_in_vain(stage: Stage) -> None:
    """What is still invalid comes back each time, counted, and disturbs nobody."""
    async with stage.consumer():
        await stage.send(b"not json")
        for times in (1, 2, 3):
            await stage.until(lambda wanted=times: len(stage.events[stage.topics.dlq]) == wanted)
            done = await stage.cli("dlq", "redrive", "--force")
            assert done.code == 0, done.err
        await ask_all(stage, 3)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) == 4)
        seen = await promises.kept(stage)
    assert sorted(redrives for _, _, redrives in seen.letters) == [0, 1, 2, 3]
    assert len(seen.scores) == 3
