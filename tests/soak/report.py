"""What a soak came to, for people and for programs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tests.soak.run import Kill, Sample, Soak
from tests.soak.world import LEASE_S
from tests.support import promises
from tests.support.promises import Seen

RECOVERY_S = LEASE_S + 2.0
# A process that has just started says nothing about leaks.
GROWN_UP_S = 20.0


def broken_promises(soak: Soak, seen: Seen) -> list[str]:
    """A judge may be asked once each time that a request is claimed, once more for each time that
    it was cut off meanwhile (its answer never came), and no more.
    """
    judge = [kill.at for kill in soak.kills if kill.kind == "judge"]
    cuts = [datetime.fromtimestamp(soak.began_at + at, UTC) for at in judge]
    tries: Counter[str] = Counter()
    for row in seen.requests.values():
        tries[row["session_id"]] += max(row["attempt"] - 1, 0)
        if (first := row["started_at"]) and (last := row["finished_at"]):
            tries[row["session_id"]] += sum(first <= cut <= last for cut in cuts)
    return promises.problems(seen, crashes=0, tries=tries)


def report(soak: Soak, seen: Seen, broken: Sequence[str], seconds: float) -> dict[str, Any]:
    """All numbers of a run, fit for JSON."""
    answers = seen.answers
    needed = sum(score["judge_samples"] for score in seen.scores)
    accepted = {promises.asked_id(raw) for raw in seen.asked.values()}
    consumers = [kill for kill in soak.kills if kill.kind == "consumer"]
    return {
        "seconds": round(seconds),
        "kills": dict(Counter(kill.kind for kill in soak.kills)),
        "kills_total": len(soak.kills),
        "restarts": dict(soak.restarts),
        "ended_by_themselves": soak.exits,
        "requests": len(accepted),
        "completed": sum(e.topic == seen.topics.completed for a in answers.values() for e in a),
        "failed": dict(_failures(seen)),
        "lost": len([r for r in accepted if r is not None and not answers.get(r)]),
        "answered_twice": sum(len(found) > 1 for found in answers.values()),
        "scores": len(seen.scores),
        "scored_twice": len(seen.scores) - len({s["request_id"] for s in seen.scores}),
        "events_sent_again": seen.repeats,
        "judge_calls": seen.judge_calls.total(),
        "judge_calls_beyond_need": seen.judge_calls.total() - needed,
        "lost_leases": sum(row["lost_leases"] for row in seen.requests.values()),
        "first_score_after_any_kill_s": _spread([k.first_score_s for k in soak.kills]),
        "first_score_after_consumer_kill_s": _spread([k.first_score_s for k in consumers]),
        "taken_over_s": _spread([k.taken_over_s for k in consumers if k.held]),
        "away_s": {
            kind: _spread([k.away_s for k in soak.kills if k.kind == kind])
            for kind in sorted({k.kind for k in soak.kills})
        },
        "promised_recovery_s": RECOVERY_S,
        "memory_and_files": _resources(soak.samples),
        "broken_promises": list(broken),
        "notes": soak.notes,
        "every_kill": [_rounded(kill) for kill in soak.kills],
        "every_sample": [asdict(sample) for sample in soak.samples],
    }


def _failures(seen: Seen) -> Counter[str]:
    return Counter(
        event.data["error_code"] for event in seen.events if event.topic == seen.topics.failed
    )


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return {
        "count": len(known),
        "median": round(statistics.median(known), 2),
        "p95": round(known[min(len(known) - 1, int(0.95 * len(known)))], 2),
        "max": round(known[-1], 2),
    }


def _rounded(kill: Kill) -> dict[str, Any]:
    return {
        name: round(value, 2) if isinstance(value, float) else value
        for name, value in asdict(kill).items()
    }


def _resources(samples: Sequence[Sample]) -> dict[str, Any]:
    """Over all processes old enough: the first and the last quarter of the run, and the peak."""
    grown = [sample for sample in samples if sample.age_s >= GROWN_UP_S] or list(samples)
    if not grown:
        return {}
    quarter = max(1, len(grown) // 4)
    return {
        "samples": len(grown),
        "rss_mib": _trend([s.rss_mib for s in grown], quarter),
        "open_files": _trend([s.files for s in grown], quarter),
        "oldest_process_s": max(sample.age_s for sample in samples),
    }


def _trend(values: Sequence[float], quarter: int) -> dict[str, float]:
    return {
        "first_quarter": round(statistics.mean(values[:quarter]), 1),
        "last_quarter": round(statistics.mean(values[-quarter:]), 1),
        "peak": max(values),
    }


def markdown(result: dict[str, Any]) -> str:
    """The report for people."""
    rows = [
        ("Kills", f"{result['kills_total']} in {result['seconds']} s: {_list(result['kills'])}"),
        ("Requests accepted", result["requests"]),
        ("Answers", f"{result['completed']} completed; failed: {_list(result['failed']) or 0}"),
        ("Lost", result["lost"]),
        ("Answered twice", result["answered_twice"]),
        ("Scored twice", result["scored_twice"]),
        ("Events sent again, under the same `ce_id`", result["events_sent_again"]),
        ("Judge calls", result["judge_calls"]),
        ("... beyond the needed ones", result["judge_calls_beyond_need"]),
        ("Leases lost", result["lost_leases"]),
        ("Processes that ended by themselves", len(result["ended_by_themselves"])),
        ("First new score after a kill", _times(result["first_score_after_any_kill_s"])),
        ("... of a consumer", _times(result["first_score_after_consumer_kill_s"])),
        ("A dead consumer's requests answered by others", _times(result["taken_over_s"])),
        *((f"Away: {kind}", _times(spread)) for kind, spread in result["away_s"].items()),
        ("Memory of a consumer (MiB)", _list(result["memory_and_files"].get("rss_mib", {}))),
        ("Open files of a consumer", _list(result["memory_and_files"].get("open_files", {}))),
        ("Broken promises", len(result["broken_promises"])),
    ]
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    lines += [f"- {problem}" for problem in result["broken_promises"][:50]]
    lines += [f"- {text}" for text in [*result["ended_by_themselves"], *result["notes"]]]
    return "\n".join(lines)


def _list(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _times(spread: dict[str, float] | None) -> str:
    if spread is None:
        return "-"
    return f"median {spread['median']} s, p95 {spread['p95']} s, max {spread['max']} s"
