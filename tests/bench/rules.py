"""How fast the rules are: parse, all scorers, gates, tool report; one core, no server.

`make bench-rules` prints sessions a second over real sessions, and how time grows with the size
of a session. Figures are medians of several rounds; the growth is a ratio within one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, cycle, pairwise
from pathlib import Path
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from consumer import config
from consumer.cli.base import spare_the_collector
from consumer.demo import sample_sessions
from consumer.edges.history.tarsy_python_shape import Detail, parse, session
from consumer.edges.prices import PriceList
from consumer.pipeline import session_cost_usd, session_price
from consumer.resources import resource
from consumer.scoring.aggregate import aggregate, look
from consumer.scoring.profile import Profile, parse_profile
from consumer.scoring.scorers import SCORERS
from consumer.scoring.scorers.base import subject
from consumer.scoring.session import Session, ToolCall
from consumer.scoring.tool_report import tool_report

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "sessions"
SIZES_KB = (10, 100, 1000, 10_000)
ROUNDS = 5
PASSES = 10
LARGE_CALLS = 5000
PRICES = PriceList()


def every_scorer() -> Profile:
    """One profile of all rule scorers and gates, with the parameters that shipped profiles use."""
    shipped = config.load_profiles(resource("config") / "profiles", [])
    gates = [gate.model_dump() for profile in shipped for gate in profile.gates]
    params: dict[str, Any] = {gate["check"]: gate["params"] for gate in gates}
    for use in (use for profile in shipped for c in profile.criteria for use in c.uses):
        params.setdefault(use.scorer, use.params)
    criteria = [
        {"id": name, "weight": 1, "scorer": name, "params": params.get(name, {})}
        for name in SCORERS
    ]
    base = {"id": "all", "version": 1, "match_labels": ["*"], "method": "two_tier"}
    return parse_profile({**base, "criteria": criteria, "gates": gates})


def bodies() -> list[bytes]:
    """Real sessions where they are here, else the demo's, as the History Service sends them."""
    if SHARED.exists():
        details = [json.loads(f.read_bytes())["detail"] for f in sorted(SHARED.glob("*.json"))]
    else:
        details = [sample.detail for sample in sample_sessions.load().values()]
    return [json.dumps(detail).encode() for detail in details]


def of_size(kilobytes: int) -> bytes:
    """A session of about this size: one stage of the demo's, with tool calls of the same kind."""
    sample = next(s for s in sample_sessions.load().values() if s.case == "good")
    detail = json.loads(json.dumps(sample.detail))
    stage = {**detail["stages"][0], "chronological_interactions": [], "llm_interactions": []}
    told = [c for c in stage["mcp_communications"] if c["details"]["tool_name"]]
    detail["stages"] = [{**stage, "mcp_communications": []}]
    detail |= {"session_level_interactions": [], "chain_definition": None}
    length = len(json.dumps(detail))
    calls = detail["stages"][0]["mcp_communications"]
    for n, call in zip(count(), cycle(told), strict=False):
        details = {**call["details"], "tool_arguments": {"n": n}}
        more = {**call, "id": f"{call['id']}-{n}", "details": details}
        length += len(json.dumps(more)) + 2
        if length > kilobytes * 1000:
            return json.dumps(detail).encode()
        calls.append(more)
    raise AssertionError("cycle ended")


def score(body: bytes, profile: Profile) -> None:
    """All that is done for a session without a judge."""
    detail = parse(Detail, body)
    found = session(detail, final_analysis=detail.final_analysis, labels={})
    price, cost = session_price(found, PRICES), session_cost_usd(found, PRICES)
    aggregate(profile, look(profile, subject(found, price=price, cost_usd=cost)), None)


def seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """CPU seconds of each round, after one that does not count."""
    work()
    taken = []
    for _ in range(rounds):
        started = process_time()
        work()
        taken.append(process_time() - started)
    return taken


def throughput(profile: Profile, rounds: int) -> dict[str, Any]:
    """Rounds of half a second: a single pass is over before a busy host shows that it is one."""
    sessions = bodies()

    def work() -> None:
        for body in sessions * PASSES:
            score(body, profile)

    spare_the_collector()  # as `run` and `score` do
    rates = [len(sessions) * PASSES / taken for taken in seconds(work, rounds)]
    return {
        "sessions": len(sessions),
        "mean_kb": round(statistics.mean(map(len, sessions)) / 1000),
        "per_second": spread(rates),
    }


def growth(profile: Profile, rounds: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for size in SIZES_KB:
        body = of_size(size)
        taken = statistics.median(seconds(partial(score, body, profile), rounds))
        rows.append({"kb": len(body) / 1000, "ms": taken * 1000})
    for before, row in pairwise(rows):
        # 1.0: exactly linear from the size before to this one.
        row["growth"] = (row["ms"] / before["ms"]) / (row["kb"] / before["kb"])
    return rows


def large_report(rounds: int) -> dict[str, Any]:
    """The tool report alone, of a session with many calls and large results."""
    line = "pod-{0} on node/worker-{1} is running, value={2}.{1} ip=10.0.{1}.7\n"
    calls = [
        ToolCall(
            id=str(n),
            server="kubernetes",
            tool=f"tool-{n % 20}",
            arguments={"name": f"pod-{n}"},
            result="".join(line.format(n * 200 + k, k, n % 97) for k in range(200))[:10_000],
            failure=None,
            error=None,
            duration_ms=None,
            at_us=n,
        )
        for n in range(LARGE_CALLS)
    ]
    run = large_session(calls)
    taken = statistics.median(seconds(lambda: tool_report(run, lambda *_: None), rounds))
    megabytes = sum(len(call.result) for call in calls) / 1e6
    return {"calls": len(calls), "mb": megabytes, "seconds": taken}


def large_session(calls: list[ToolCall]) -> Session:
    """The demo's session with these calls in its place."""
    detail = parse(Detail, of_size(min(SIZES_KB)))
    run = session(detail, final_analysis="pod-12 is broken", labels={})
    return replace(run, stages=(replace(run.stages[0], steps=tuple(calls)),))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main() -> None:
    """Prints tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    profile = every_scorer()
    result = {
        "scorers": len(SCORERS),
        "throughput": throughput(profile, arguments.rounds),
        "growth": growth(profile, arguments.rounds),
        "large_report": large_report(min(3, arguments.rounds)),
    }
    if arguments.json:
        json.dump(result, sys.stdout, indent=2)
    else:
        show(result)


def show(result: dict[str, Any]) -> None:
    out, speed = Console(), result["throughput"]
    rate = speed["per_second"]
    out.print(
        f"{speed['sessions']} sessions of {speed['mean_kb']} KB on average, {result['scorers']} "
        f"scorers: {rate['median']:.0f} sessions/s ({rate['min']:.0f} to {rate['max']:.0f})"
    )
    table = Table("KB", "ms", "growth (1 is linear)", title="Time by size of a session")
    for row in result["growth"]:
        table.add_row(f"{row['kb']:.0f}", f"{row['ms']:.1f}", f"{row.get('growth', 1):.2f}")
    out.print(table)
    report = result["large_report"]
    out.print(
        f"Tool report of {report['calls']} calls with {report['mb']:.0f} MB of results: "
        f"{report['seconds']:.2f} s CPU"
    )


if __name__ == "__main__":
    main()
