"""`make bench`: what the consumer does on this machine, against the marks it is to reach."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic

from rich.console import Console

from tests.bench import alone, flow, judged, ruled
from tests.bench.figures import Figure, report, shown
from tests.bench.machine import machine
from tests.bench.world import World, world

Benchmark = Callable[[World], Awaitable[list[Figure]]]

SUITE: Mapping[str, Benchmark] = {
    "start": alone.start,
    "latency": alone.latency,
    "intake": flow.intake,
    "relay": flow.relay,
    "rules": ruled.rules,
    "slots": judged.slots,
    "most-slots": judged.most_slots,
    "faults": judged.faults,
    "head-of-line": judged.head_of_line,
    "replicas": judged.replicas,
    "growth": ruled.growth,
}


async def run(names: list[str], *, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    """Runs these benchmarks one after the other."""
    figures: list[Figure] = []
    async with world(quick=quick) as around:
        for name in names:
            began = monotonic()
            found = await SUITE[name](around)
            figures += found
            told = "; ".join(f"{f.name}: {shown(f.median)} {f.unit}".strip() for f in found)
            say(f"{name} ({monotonic() - began:.0f} s): {told}")
    return figures


def main() -> None:
    """Prints a table; writes JSON where told."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(SUITE)}")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--quick", action="store_true", help="once each, a fifth of the work")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SUITE):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(SUITE)}")
    out = Console()
    about = machine()
    names = arguments.names or list(SUITE)
    figures = asyncio.run(run(names, quick=arguments.quick, say=out.print))
    report(figures, out, arguments.json, machine=about, quick=arguments.quick)
    sys.exit(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    main()
