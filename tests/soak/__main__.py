"""Kills random processes at random moments while requests keep coming, and tells what came of it.

Two replicas, Apache Kafka and PostgreSQL are killed by SIGKILL; judge and History Service are cut
off (they have to go on counting). Each comes back at once. At the end every promise is checked.
Ctrl-C (or SIGTERM) ends the killing; the report is of what was done until then.

    python -m tests.soak --kills 1000 --minutes 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tests.soak.report import broken_promises, markdown, report
from tests.soak.run import Soak
from tests.soak.world import world
from tests.support import promises

# After the last kill: until all that was asked for is answered.
SETTLE_S = 300.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--rate", type=float, default=8, help="requests a second")
    parser.add_argument("--judge-seconds", type=float, default=0.5, help="what a verdict takes")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments and victims")
    parser.add_argument("--out", type=Path, help="write report.md and report.json to this folder")
    return parser.parse_args()


async def soak(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Runs it; answers the report."""
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    console.print(f"starting Kafka, PostgreSQL and two consumers (seed {seed})")
    async with world(judge_s=options.judge_seconds) as made:
        running = Soak(world=made, rate=options.rate, chance=random.Random(seed))
        for sign in (SIGINT, SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, running.enough.set)
        stop_asking, stop_watching = asyncio.Event(), asyncio.Event()
        asking = asyncio.create_task(running.ask(stop_asking))
        watching = asyncio.create_task(running.watch(stop_watching))
        with _progress(console) as progress:
            showing = asyncio.create_task(_show(running, progress, options.kills))
            await running.kill(options.kills, options.minutes)
            stop_asking.set()
            running.notes += _troubles(await asyncio.gather(asking, return_exceptions=True))
            console.print("every server is back; waiting for the last answers")
            try:
                await promises.quiet(made.stage, timeout_s=SETTLE_S)
            except AssertionError as error:
                running.notes.append(str(error))
            stop_watching.set()
            running.notes += _troubles(await asyncio.gather(watching, return_exceptions=True))
            showing.cancel()
        seconds = running.now
        seen = await promises.look(made.stage)
        return {"seed": seed, **report(running, seen, broken_promises(running, seen), seconds)}


def _troubles(ends: Sequence[BaseException | None]) -> list[str]:
    return [f"the soak itself broke: {error!r}" for error in ends if error is not None]


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
    )


async def _show(running: Soak, progress: Progress, kills: int) -> None:
    """A bar, or a line a minute where nobody looks."""
    live = progress.console.is_terminal
    task = progress.add_task("kills", total=kills, figures="")
    while True:
        away = [victim.name for victim in running.world.victims if victim.away_since is not None]
        figures = (
            f"asked {running.asked}, answered {running.finished}, "
            f"waiting {running.waiting}, away: {', '.join(away) or 'none'}"
        )
        progress.update(task, completed=len(running.kills), figures=figures)
        if not live:
            progress.console.print(f"{running.now:.0f} s, {len(running.kills)} kills, {figures}")
        await asyncio.sleep(0.5 if live else 60)


def main() -> int:
    """0 where every promise was kept."""
    options = arguments()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the broker is meant to be away
    console = Console()
    result = asyncio.run(soak(options, console))
    text = markdown(result)
    console.print(text, markup=False)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "report.md").write_text(text + "\n")
        (options.out / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["broken_promises"] else 0


if __name__ == "__main__":
    sys.exit(main())
