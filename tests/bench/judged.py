"""How fast it is where the judge decides: slots, faults, one long session, several processes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise

from tests.bench.figures import Figure, percentile
from tests.bench.memory import peak_mib
from tests.bench.stand_in import Plan
from tests.bench.world import Finished, World, answered, ask, cpu_s, outcome

MEAN_S = 1.0
SLOTS = {64: 0.97, 128: 0.95, 256: 0.90}
TRIED_SLOTS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768)
KEPT = 0.8
# The steady part is 80 % of them. Fewer flatter: what was made ready at first is then a good part.
ROUNDS_OF_SLOTS = 10
CPU_MARK_MS = 3.4
_FAILED = """
SELECT session_id, error_code, error_message FROM score_requests
WHERE error_code IS NOT NULL LIMIT 5
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one process made of a load."""

    finished: Finished
    cpu_ms: float
    peak_mib: float
    mean_s: float
    calls: int
    most_at_once: int

    def efficiency(self, slots: int) -> float:
        return self.finished.per_second() * self.mean_s / slots


async def load(
    world: World, slots: int, count: int, plan: Plan, *, warm: bool = False, **settings: object
) -> Load:
    """One process, so many slots, so many requests that are all there at once.

    Where it is to be warm, one request before them costs nothing.
    """
    world.stand_in.follow(plan)
    async with world.judged(slots, **settings) as stage, stage.consumer() as process:
        if warm:
            await ask(stage, [count])
            await answered(stage, 1)
        before = cpu_s(process)
        await ask(stage, range(count))
        await answered(stage, count + warm)
        cpu = cpu_s(process) - before
        peak = peak_mib(process.pid or "")
        finished = await outcome(stage)
        failed = await stage.rows(_FAILED)
    stats = world.stand_in.stats()
    if finished.wrong() or finished.states != {"completed": count + warm}:
        reasons = [dict(row) for row in failed]
        raise AssertionError(f"{finished.wrong()} wrong, {finished.states}; {reasons}")
    return Load(
        finished=finished,
        cpu_ms=cpu / count * 1000,
        peak_mib=peak,
        mean_s=stats["busy_s"] / stats["calls"],
        calls=stats["calls"],
        most_at_once=stats["most_at_once"],
    )


async def slots(world: World) -> list[Figure]:
    """Scores a second over what so many calls at a time could bring, and what they cost."""
    figures = []
    for concurrency, mark in SLOTS.items():
        count = world.amount(concurrency * ROUNDS_OF_SLOTS)
        loads = [
            await load(world, concurrency, count, Plan(mean_s=MEAN_S)) for _ in range(world.rounds)
        ]
        figures.append(
            Figure(
                name=f"slot efficiency, {concurrency} slots",
                unit="",
                values=[made.efficiency(concurrency) for made in loads],
                mark=mark,
                note=f"at most {max(made.most_at_once for made in loads)} calls at a time",
            )
        )
        figures.append(
            Figure(
                name=f"CPU a score with judge, {concurrency} slots",
                unit="ms",
                values=[made.cpu_ms for made in loads],
                mark=CPU_MARK_MS if concurrency == 64 else None,
                better="less",
            )
        )
    return figures


async def most_slots(world: World) -> list[Figure]:
    """The largest number of slots in one process that is still worth it."""
    kept, told = 0, []
    for concurrency in TRIED_SLOTS:
        made = await load(world, concurrency, world.amount(concurrency * 8), Plan(mean_s=MEAN_S))
        efficiency = made.efficiency(concurrency)
        told.append(f"{concurrency}: {efficiency:.2f}, {made.finished.per_second():.0f}/s")
        if efficiency < KEPT:
            break
        kept = concurrency
    note = "; ".join(told)
    return [Figure(name=f"slots that keep {KEPT}", unit="slots", values=[kept], note=note)]


async def faults(world: World) -> list[Figure]:
    """A tenth is turned away, a twentieth breaks, a twentieth is cut off: all are scored."""
    plan = Plan(mean_s=MEAN_S, rate_limited=0.10, broken=0.05, truncated=0.05)
    concurrency = 64
    count = world.amount(concurrency * 8)
    loads = [await load(world, concurrency, count, plan) for _ in range(world.rounds)]
    return [
        Figure(
            name=f"slot efficiency under faults, {concurrency} slots",
            unit="",
            values=[made.efficiency(concurrency) for made in loads],
            mark=0.70,
            note=f"{loads[0].calls / count:.2f} calls a score; none wrong, none missing",
        )
    ]


async def head_of_line(world: World) -> list[Figure]:
    """How much longer the others take (99th percentile) beside one session of 30 s: against the
    mean of the same without it, right before and right after, as a host's speed changes by minutes.
    """
    count, slots = world.amount(1000, full=10_000), 64
    plain, beside = [await _others_p99(world, count, slots, slow=-1)], []
    for _ in range(world.rounds):
        beside.append(await _others_p99(world, count, slots, slow=0))
        plain.append(await _others_p99(world, count, slots, slow=-1))
    around = [sum(pair) / 2 for pair in pairwise(plain)]
    ratios = [one / other - 1 for one, other in zip(beside, around, strict=True)]
    note = f"{sum(plain) / len(plain) * 1000:.0f} ms from claim to score without it"
    return [
        Figure(
            name="others' p99 beside a 30 s session",
            unit="",
            values=ratios,
            mark=0.05,
            better="less",
            note=note,
        )
    ]


async def _others_p99(world: World, count: int, slots: int, *, slow: int) -> float:
    plan = Plan(mean_s=0.2, cv=0, prompt_kb=20, slow=slow, slow_s=30)
    made = await load(world, slots, count, plan)
    pairs = zip(made.finished.started_s, made.finished.finished_s, strict=True)
    taken = sorted(end - start for start, end in pairs)
    return percentile(taken[:-1] if slow >= 0 else taken, 0.99)


async def replicas(world: World) -> list[Figure]:
    """Two processes against one, where the judge decides."""
    slots, ratios = 32, []
    for _ in range(world.rounds):
        one, two = [await _processes(world, slots, count) for count in (1, 2)]
        ratios.append(two / one)
    return [Figure(name="2 processes over 1, 32 slots each", unit="x", values=ratios, mark=1.8)]


async def _processes(world: World, slots: int, processes: int) -> float:
    world.stand_in.follow(Plan(mean_s=MEAN_S))
    count = world.amount(slots * processes * 7)
    async with world.judged(slots) as stage, contextlib.AsyncExitStack() as stack:
        for _ in range(processes):
            await stack.enter_async_context(stage.consumer())
        await ask(stage, range(count))
        await answered(stage, count)
        return (await outcome(stage)).per_second()
