"""`make bench`: what the consumer does on this machine, against the marks it is to reach."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic

from rich.console import Console

from tests.bench import alone, flow, held, judged, ruled
from tests.bench.figures import Figure, report, shown
from tests.bench.machine import machine
from tests.bench.world import Size, World, world

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
    "memory": held.judged,
}

SIZES = {
    "quick": "once each, a fifth of the work",
    "full": "10 000 requests beside the long one, 100 000 for the memory: 40 minutes more",
}


async def run(names: list[str], *, size: Size, say: Callable[[str], None]) -> list[Figure]:
    """Runs these benchmarks one after the other."""
    figures: list[Figure] = []
    async with world(size=size) as around:
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
    sizes = parser.add_mutually_exclusive_group()
    sizes.set_defaults(size="usual")
    for size, told in SIZES.items():
        sizes.add_argument(f"--{size}", dest="size", action="store_const", const=size, help=told)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SUITE):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(SUITE)}")
    out = Console()
    about = machine()
    names = arguments.names or list(SUITE)
    figures = asyncio.run(run(names, size=arguments.size, say=out.print))
    report(figures, out, arguments.json, machine=about, size=arguments.size)
    sys.exit(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    main()
