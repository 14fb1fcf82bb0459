"""One request at a time, and none at all: added latency, start, memory at rest."""

from __future__ import annotations

import asyncio
import json
import sys
from compileall import compile_dir
from pathlib import Path
from time import monotonic
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from consumer import __file__ as package
from tests.bench.figures import Figure, percentile
from tests.bench.stand_in import Plan
from tests.bench.world import World, rss_mib
from tests.support.stage import Stage

JUDGE_S = 0.05
REQUESTS, WARM = 80, 5
P50_MARK_MS, P99_MARK_MS = 25, 100
READY_MARK_S, HELP_MARK_S, RSS_MARK_MIB = 2.0, 0.4, 120
REST_S = 5


async def latency(world: World) -> list[Figure]:
    """From sending a request to its score.completed, without what History and judge took."""
    middle, late, services = [], [], []
    for _ in range(world.rounds):
        world.stand_in.follow(Plan(mean_s=JUDGE_S, cv=0))
        async with world.judged(64) as stage, stage.consumer():
            taken = await _taken_ms(stage, world.amount(REQUESTS) + WARM)
        stats = world.stand_in.stats()
        services.append(stats["taken_s"] / stats["calls"] * 1000)
        own = [ms - services[-1] for ms in taken[WARM:]]
        middle.append(percentile(own, 0.5))
        late.append(percentile(own, 0.99))
    note = f"History and judge took {max(services):.1f} ms at most; the judge was to take 50"
    return [
        Figure(
            name="added latency, p50",
            unit="ms",
            values=middle,
            mark=P50_MARK_MS,
            better="less",
            note=note,
        ),
        Figure(name="added latency, p99", unit="ms", values=late, mark=P99_MARK_MS, better="less"),
    ]


async def _taken_ms(stage: Stage, count: int) -> list[float]:
    """What each of so many requests took, one after the other."""
    consumer = AIOKafkaConsumer(
        stage.topics.completed,
        bootstrap_servers=stage.kafka.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    producer = AIOKafkaProducer(bootstrap_servers=stage.kafka.bootstrap)
    await asyncio.gather(consumer.start(), producer.start())
    taken = []
    try:
        for number in range(count):
            request = {"session_id": f"b-{number}", "request_id": str(uuid4())}
            began = monotonic()
            await producer.send(stage.topics.requested, json.dumps(request).encode())
            await consumer.getone()
            taken.append((monotonic() - began) * 1000)
            await asyncio.sleep(0.02)
    finally:
        await asyncio.gather(consumer.stop(), producer.stop())
    return taken


async def start(world: World) -> list[Figure]:
    """How soon it tells its help, how soon it is ready, and what it holds when it has no work."""
    compile_dir(Path(package).parent, quiet=1)  # as whoever installs it has it
    helps, readies, rests = [], [], []
    for _ in range(world.rounds):
        helps.append(await _help_s())
        async with world.judged(64) as stage:
            process = stage.process()
            began = monotonic()
            await asyncio.to_thread(process.start)
            readies.append(monotonic() - began)
            await asyncio.sleep(REST_S)
            rests.append(rss_mib(process))
            await asyncio.to_thread(process.stop)
    return [
        Figure(name="--help", unit="s", values=helps, mark=HELP_MARK_S, better="less"),
        Figure(name="run to ready", unit="s", values=readies, mark=READY_MARK_S, better="less"),
        Figure(name="memory at rest", unit="MiB", values=rests, mark=RSS_MARK_MIB, better="less"),
    ]


async def _help_s() -> float:
    began = monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "consumer.cli", "--help", stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    return monotonic() - began
