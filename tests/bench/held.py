"""If the memory of a process stays flat: after many requests, over that after the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Figure
from tests.bench.stand_in import Plan
from tests.bench.world import World, answered, ask, rss_mib
from tests.support.stage import Stage

MARK = 0.10
SLOTS = 64
# The first requests fill caches and pools.
WARM_JUDGED, JUDGED, JUDGED_IN_FULL = 500, 2000, 50_000
MEAN_S = 0.2


async def judged(world: World) -> list[Figure]:
    """With a judge and prompts of 100 kB, as many at a time as there is CPU for."""
    world.stand_in.follow(Plan(mean_s=MEAN_S))
    count = world.amount(JUDGED, full=JUDGED_IN_FULL)
    async with world.judged(SLOTS) as stage:
        await ask(stage, range(WARM_JUDGED + count))
        memory = await held_mib(stage, thirds(WARM_JUDGED, count))
    name = f"memory after {count:,} judged requests over {WARM_JUDGED}".replace(",", " ")
    return [growth(name, memory)]


def thirds(first: int, more: int) -> list[int]:
    """The first so many, and after each third of more."""
    return [first + more * part // 3 for part in range(4)]


async def held_mib(stage: Stage, counts: Sequence[int]) -> list[float]:
    """MiB of a new process once so many requests are answered, for each of these."""
    async with stage.consumer() as process:
        memory = []
        for count in counts:
            await answered(stage, count, timeout_s=900, every_s=1)
            memory.append(rss_mib(process))
    return memory


def growth(name: str, memory: Sequence[float]) -> Figure:
    """The last of these over the first."""
    return Figure(
        name=name,
        unit="",
        values=[memory[-1] / memory[0] - 1],
        mark=MARK,
        better="less",
        note=", ".join(f"{rss:.0f}" for rss in memory) + " MiB",
    )
