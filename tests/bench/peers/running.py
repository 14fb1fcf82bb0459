"""One peer, run as a process of its own, and what became of each session that it was given."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.figures import steady
from tests.bench.graded import grade
from tests.bench.peers.task import Row, Task
from tests.bench.stand_in import Plan
from tests.bench.world import StandInProcess

RETRIES = 5
# A name that they know. deepeval asks it by a schema, as it does all newer ones, and others for the
# probabilities of tokens.
MODEL = "gpt-5-mini"
TIMEOUT_S = 300
# Their switches against telemetry and looking for news; how often deepeval tries in all.
ENVIRONMENT: Mapping[str, str] = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_RETRY_MAX_ATTEMPTS": str(RETRIES + 1),
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "RAGAS_DO_NOT_TRACK": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Sessions by what became of them: `failed` is told as an error, `missing` is not."""

    scored: int = 0
    failed: int = 0
    wrong: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over all sessions; `per_second` and `efficiency` are of its steady part."""

    outcome: Outcome
    per_second: float
    efficiency: float
    cpu_ms: float
    peak_mib: float
    took_s: float
    calls: int
    most_at_once: int
    versions: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


async def judged_by(
    name: str,
    stand_in: StandInProcess,
    plan: Plan,
    prompt: str,
    *,
    slots: int,
    count: int,
    python: Path,
) -> Pass:
    """This peer's pass. Raises RuntimeError where it breaks, TimeoutError where it does not end."""
    stand_in.follow(plan)
    task = Task(
        url=f"{stand_in.url}/graded/v1",
        model=MODEL,
        prompt=prompt,
        first=0,
        count=count,
        slots=slots,
        retries=RETRIES,
    )
    told = await _performed(name, task, python)
    stats = stand_in.stats()
    # The first is the one before it counts.
    per_second = steady(sorted(stats["graded_s"])[1:])
    return Pass(
        outcome=outcome(task, [Row(**row) for row in told["rows"]]),
        per_second=per_second,
        efficiency=per_second * stats["busy_s"] / stats["calls"] / slots,
        cpu_ms=told["cpu_s"] / count * 1000,
        peak_mib=told["peak_mib"],
        took_s=told["took_s"],
        calls=stats["calls"] - 1,
        most_at_once=stats["most_at_once"],
        versions=told["versions"],
        refused=tuple(told["refused"]),
    )


def outcome(task: Task, rows: list[Row]) -> Outcome:
    """What became of the sessions of this task. What no row tells of is missing."""
    found = {row.number: _kind(row) for row in rows}
    kinds = [found.get(number, "missing") for number in task.numbers]
    return Outcome(**{kind: kinds.count(kind) for kind in Outcome.__dataclass_fields__})


def _kind(row: Row) -> str:
    if row.error is not None:
        return "failed"
    if row.grade is None or math.isnan(row.grade):
        return "missing"
    right = row.grade == grade(row.number) and row.about == row.number
    return "scored" if right else "wrong"


async def _performed(name: str, task: Task, python: Path) -> dict[str, Any]:
    """What the peer reports."""
    with TemporaryDirectory(prefix="score-consumer-peer-") as home:
        async with _process(name, python, home) as process:
            told, said = await asyncio.wait_for(
                process.communicate(json.dumps(asdict(task)).encode()), TIMEOUT_S
            )
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}:\n{said.decode()[-2000:]}")
    return dict(json.loads(told))


@contextlib.asynccontextmanager
async def _process(name: str, python: Path, home: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The peer's process, in a folder of its own, gone at the end."""
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        f"tests.bench.peers.{name.replace('-', '_')}",
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(root), **ENVIRONMENT},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
