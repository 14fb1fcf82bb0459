"""What people see in a terminal. Colours follow the bands; a pipe gets the same words."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import mean, median
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress import track
from rich.table import Table

from consumer.error_codes import FailedState
from consumer.plaintext import Text, plain
from consumer.scoring.aggregate import BANDS, Total, band
from consumer.scoring.gates import GateResult
from consumer.scoring.judgement import Judgement, Sample, total_cost_usd
from consumer.scoring.profile import Profile
from consumer.scoring.scorers.base import Place
from consumer.scoring.tool_report import ToolReport

if TYPE_CHECKING:
    from consumer.checks import Check
    from consumer.desk import DeskScore
    from consumer.replay import Again, Replayed

COLOURS = {
    "near-perfect": "bright_green",
    "good": "green",
    "adequate": "yellow",
    "weak": "dark_orange",
    "failed": "red",
}
BAR_CELLS = 20
MAX_SHOWN = 5
EVIDENCE_CHARACTERS = 200
SHOW_PROGRESS_FROM = 5
T = TypeVar("T")
# A pipe has no width of its own; this one holds the longest session id that people use.
PIPE_WIDTH = 140
OUT = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def score_text(total: int) -> Text:
    """`88 good`, in its band's colour."""
    name = band(total)
    return Text(f"{total:>3} {name}", style=COLOURS[name])


def bar(score: float, *, top: float = 100) -> Text:
    """A bar of twenty cells, full at `top`."""
    filled = round(BAR_CELLS * min(1.0, max(0.0, score / top)))
    return Text("█" * filled + "░" * (BAR_CELLS - filled), style=COLOURS[band(round(score))])


def breakdown(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Criteria as bars; what did not apply says why."""
    table = Table.grid(padding=(0, 2))
    for line in lines:
        score = line["score"]
        if score is None:
            table.add_row(Text(line["id"]), "", Text(f"n/a: {line['not_applicable']}", style="dim"))
        else:
            table.add_row(Text(line["id"]), bar(score), f"{score:g}")
    return table


def progress(items: Sequence[T], what: str, *, quiet: bool) -> Iterable[T]:
    """The items, with a bar on standard error while they are gone through."""
    console = Console(stderr=True)
    hidden = quiet or len(items) < SHOW_PROGRESS_FROM or not console.is_terminal
    return track(items, description=what, console=console, disable=hidden, transient=True)


def print_desk(scores: Sequence[DeskScore]) -> None:
    """Every report, and a summary of more than one."""
    for score in scores:
        OUT.print(desk_report(score))
    if len(scores) > 1:
        OUT.print(summary(scores))


def desk_report(score: DeskScore) -> RenderableType:
    """One file's report: total, criteria as bars, gates, tool report."""
    if score.total is None or score.subject is None:
        return Text.assemble((score.name, "bold"), "  ", (score.error or "", "red"))
    total = score.total
    lines = [
        {"id": c.id, "score": c.score, "not_applicable": c.not_applicable} for c in total.breakdown
    ]
    parts: list[RenderableType] = [
        Text.assemble((score.name, "bold"), "  ", score_text(total.total)),
        breakdown(lines),
        *_places(total),
        *_gates(total.gates),
        *_tool_report(score.subject.report),
    ]
    if score.judgement is not None:
        parts += _judgement(score.judgement)
    if total.disqualifier:
        parts.append(Text(f"disqualified: {total.disqualifier}", style="red"))
    if total.risk:
        parts.append(Text(f"quality risk: {', '.join(total.risk)}", style="red"))
    return _group([*parts, ""])


def _group(parts: Iterable[RenderableType]) -> Group:
    """One below the other. Line by line: rich takes quadratic time for a text of many lines."""
    return Group(*(line for part in parts for line in _lines(part)))


def _lines(part: RenderableType) -> Iterable[RenderableType]:
    return part.split("\n", allow_blank=True) if isinstance(part, Text) else [part]


def _judgement(judgement: Judgement) -> Iterable[RenderableType]:
    """What the judge said, and what its quotes are worth."""
    verdict = judgement.verdict
    lines = [
        {"id": i, "reasoning": c.reasoning, "evidence": [asdict(e) for e in c.evidence]}
        for i, c in verdict.criteria.items()
    ]
    yield from _evidence(lines, suspicious=())
    yield Text(f"\n{verdict.reasoning}")
    cost = total_cost_usd(judgement.samples)
    told = "cost unknown" if cost is None else f"${cost:.4f}"
    yield Text(f"judge: {len(judgement.samples)} sample(s), {told}", style="dim")


def _places(total: Total) -> Iterable[RenderableType]:
    """What cost points, where it stands."""
    for line in total.breakdown:
        for place in line.places:
            yield Text(f"  {line.id}: {_place(place)}", style="dim")


def _place(place: Place) -> str:
    return f"step {place.step}: {place.excerpt}" if place.step else f"…{place.excerpt}…"


def _gates(gates: Sequence[GateResult]) -> Iterable[RenderableType]:
    for gate in gates:
        mark, colour = ("passed", "green") if gate.passed else ("failed", "red")
        yield Text.assemble("gate ", (gate.id, "bold"), " ", (mark, colour), f": {gate.message}")
        for place in gate.places:
            yield Text(f"  {_place(place)}", style="dim")


def _tool_report(report: ToolReport) -> Iterable[RenderableType]:
    wasted = [call.cost_usd for call in report.wasted]
    known = [cost for cost in wasted if cost is not None]
    cost = f", ${sum(known):.4f}" if known and len(known) == len(wasted) else ""
    tokens = sum(call.tokens for call in report.wasted)
    yield Text(
        f"tools: {report.calls} calls ({report.actions} actions), {len(report.failed)} failed, "
        f"{len(report.corrections)} corrected, {len(report.repeated)} repeated, "
        f"{len(report.wasted)} wasted (~{tokens} tokens{cost}), "
        f"{len(report.unused_tools)} available unused; effectiveness {report.effectiveness}"
    )
    for call in report.failed[:MAX_SHOWN]:
        yield Text(f"  failed ({call.failure}) {call.tool}: {call.error[:100]}", style="dim")
    for repeat in report.repeated[:MAX_SHOWN]:
        yield Text(
            f"  repeated {repeat.tool_name}: {len(repeat.call_ids)} calls, "
            f"similarity {repeat.param_similarity:.2f}",
            style="dim",
        )
    for waste in report.wasted[:MAX_SHOWN]:
        yield Text(f"  wasted ({waste.reason}) {waste.tool}: ~{waste.tokens} tokens", style="dim")
    for uncited in report.not_cited[:MAX_SHOWN]:
        yield Text(f"  not cited {uncited.tool}: nothing of its result is taken up", style="dim")


def summary(scores: Sequence[DeskScore]) -> Table:
    """How many scores lie in each band, and their mean and median."""
    totals = [score.total.total for score in scores if score.total]
    table = Table("band", "sessions", "", title="Distribution")
    for _, name in BANDS:
        count = sum(band(total) == name for total in totals)
        share = 100 * count / len(totals) if totals else 0
        table.add_row(Text(name, style=COLOURS[name]), str(count), bar(share))
    if totals:
        table.caption = (
            f"{len(totals)} scored, mean {mean(totals):.1f}, median {median(totals):g}, "
            f"{min(totals)} to {max(totals)}; {len(scores) - len(totals)} not scored"
        )
    return table


def comparison(scores: Sequence[DeskScore], one: str, other: str) -> Table:
    """How two profiles score the same files; the difference is the second minus the first."""
    by_file: dict[str, dict[str, DeskScore]] = {}
    for score in scores:
        by_file.setdefault(score.file, {})[score.profile] = score
    table = Table("session", one, other, "difference", title="Two profiles")
    differences = []
    for pair in by_file.values():
        first, second = pair[one], pair[other]
        if first.total is None or second.total is None:
            table.add_row(Text(first.name), *(_or_error(score) for score in (first, second)), "")
            continue
        difference = second.total.total - first.total.total
        differences.append(difference)
        cells = (score_text(first.total.total), score_text(second.total.total))
        table.add_row(Text(first.name), *cells, f"{difference:+d}")
    if differences:
        table.caption = f"mean difference {mean(differences):+.1f} over {len(differences)} sessions"
    return table


def _or_error(score: DeskScore) -> Text:
    return score_text(score.total.total) if score.total else Text(score.error or "", style="red")


def desk_json(item: DeskScore) -> dict[str, Any]:
    """One file's score for scripts."""
    base = {"file": item.file, "profile": item.profile, "session_id": None, "error": item.error}
    if item.total is None or item.subject is None:
        return base | {"total_score": None}
    total = item.total
    return base | {
        "session_id": item.subject.session.id,
        "total_score": total.total,
        "ranking": total.ranking,
        "band": band(total.total),
        "score_breakdown": total.scores,
        "not_applicable": {c.id: c.not_applicable for c in total.breakdown if c.not_applicable},
        "places": {c.id: [asdict(p) for p in c.places] for c in total.breakdown if c.places},
        "confidence": total.confidence,
        "gates": [asdict(gate) for gate in total.gates],
        "disqualifier_triggered": total.disqualifier,
        "quality_risk": list(total.risk),
        "tool_report": asdict(item.subject.report),
        "judgement": None if item.judgement is None else _judgement_json(item.judgement),
    }


def _judgement_json(judgement: Judgement) -> dict[str, Any]:
    return {
        "samples": [_sample_json(sample) for sample in judgement.samples],
        "totals": list(judgement.totals),
        "cost_usd": total_cost_usd(judgement.samples),
    }


def _sample_json(sample: Sample) -> dict[str, Any]:
    fields = asdict(sample)
    del fields["request"]
    return {**fields, "request_sha256": sample.request.sha256}


def check_line(made: Check) -> RenderableType:
    """What was tried, what became of it, and how long that took where it took long."""
    mark, colour = ("ok    ", "green") if made.ok else ("wrong ", "red")
    took = f" ({made.seconds:.0f} s)" if made.seconds >= 1 else ""
    return Text.assemble((mark, colour), (made.name, "bold"), f": {made.told}{took}")


def replay_line(sample: Replayed) -> RenderableType:
    """Whether a request was rebuilt as it was."""
    mark, colour = ("matches", "green") if sample.matches else ("differs", "red")
    size = len(sample.request or b"")
    return Text.assemble(
        (f"{sample.sample['provider']} / {sample.sample['asked_model']}", "bold"),
        f": {size} bytes, SHA-256 {sample.rebuilt_sha256} ",
        (mark, colour),
    )


def changes_table(again: Again) -> Table:
    """What a judge gave then and gives now."""
    table = Table("criterion", "then", "now", "", title="Asked again")
    for name, then, now in again.changes:
        moved = f"{now - then:+d}" if then is not None and now is not None else ""
        cells = ("-" if points is None else str(points) for points in (then, now))
        table.add_row(Text(name), *cells, moved)
    return table


def profiles_table(profiles: Sequence[Profile]) -> Table:
    """The profiles, one a line."""
    table = Table("id", "version", "method", "labels", "criteria", "gates", title="Profiles")
    for profile in profiles:
        table.add_row(
            profile.id,
            str(profile.version),
            profile.method,
            escape(", ".join(profile.match_labels)),
            ", ".join(c.id for c in profile.criteria),
            ", ".join(g.id for g in profile.gates),
        )
    return table


def counts_table(counts: Mapping[str, int]) -> Table:
    """Requests by state."""
    table = Table("state", "requests", title="Score requests")
    for state, number in counts.items():
        table.add_row(state, str(number))
    return table


def requests_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A session's requests."""
    table = Table(
        "request", "state", "attempts", "received", "triggered by", "why", title="Requests"
    )
    for row in rows:
        why = row["error_code"] or ""
        if row["error_message"]:
            why = f"{why}: {row['error_message']}"
        table.add_row(
            str(row["request_id"]),
            row["state"],
            str(row["attempt"]),
            f"{row['received_at']:%Y-%m-%d %H:%M:%S}",
            escape(plain(row["triggered_by"])),
            escape(plain(why)),
        )
    return table


def listed_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Many sessions' requests, two lines each: when, how it stands and why, of what."""
    table = Table("at (UTC)", "state, code", "session, request", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        settled = row["state"] in set(FailedState) and row["asked_anew_as"]
        state = f"{row['state']}, asked anew" if settled else row["state"]
        table.add_row(
            f"{row['at']:%m-%d %H:%M:%S}",
            Text(f"{state}\n{row['error_code'] or ''}"),
            Text(f"{row['session_id']}\n{row['request_id']}", overflow="fold"),
        )
    table.columns[2].max_width = 36  # with it, all fits 80
    return table


def codes_table(counts: Iterable[Mapping[str, Any]], more: int) -> Table:
    """How many requests there are by state and error code."""
    table = Table("state", "code", "requests", box=None, padding=(0, 2, 0, 0))
    for row in counts:
        table.add_row(row["state"], row["error_code"] or "", str(row["requests"]))
    if more > 0:
        table.caption = f"{more} more fit than are listed: --limit"
    return table


def score_card(row: Mapping[str, Any]) -> Panel:
    """One score with its reasons."""
    parts: list[RenderableType] = [
        score_text(row["total_score"]),
        Text(f"score     {row['score_id']}"),
        Text(f"profile   {row['judge_profile_id']} v{row['judge_profile_version']}"),
        Text(f"criteria  {row['criteria_hash']}"),
        Text(f"judge     {_judge(row)}"),
        *(Text(f"sample    {_sample(sample)}") for sample in row["samples"]),
        Text(
            f"scored    {row['scored_at']:%Y-%m-%d %H:%M:%S} UTC, confidence {row['confidence']:g}"
        ),
        "",
        breakdown(row["score_details"]),
        *_stored_gates(row),
        *_warnings(row),
        *_evidence(row["score_details"], suspicious=_suspicious_steps(row)),
    ]
    if row["score_reasoning"]:
        parts += ["", Text(row["score_reasoning"])]
    parts += list(_missing_tools(row)) + list(_approaches(row))
    return Panel(_group(parts), title=escape(row["session_id"]), title_align="left")


def _judge(row: Mapping[str, Any]) -> str:
    if row["judge_model"] is None:
        return f"not asked: {row['judge_skipped']}" if row["judge_skipped"] else "none (rules only)"
    cost = row["judge_cost_usd"]
    samples = f" ({row['judge_samples']} samples)" if row["judge_samples"] > 1 else ""
    return (
        f"{row['judge_provider']} / {row['judge_model']}{samples}, "
        f"{row['judge_input_tokens']} + {row['judge_output_tokens']} tokens, "
        + ("cost unknown" if cost is None else f"${cost:.4f}")
    )


def _sample(sample: Mapping[str, Any]) -> str:
    """What a judge was really asked with, and who answered; a former program stored less."""
    asked = f"{sample['provider']} / {sample['asked_model']}"
    if "temperature" in sample:
        set_to = sample["temperature"]
        asked += f", temperature {'not sent' if set_to is None else format(set_to, 'g')}"
    by = f" ({sample['fingerprint']})" if sample.get("fingerprint") else ""
    return f"{sample['total']}: {asked}; {sample['model']}{by} answered"


def _stored_gates(row: Mapping[str, Any]) -> Iterable[RenderableType]:
    for gate in row["gate"]["results"]:
        mark, colour = ("passed", "green") if gate["passed"] else ("failed", "red")
        yield Text.assemble(f"gate {gate['id']} ", (mark, colour), f": {gate['message']}")
    if report := row["tool_report"]:
        yield Text(
            f"tools: {report['calls']} calls, {len(report['failed'])} failed, "
            f"{len(wasted(report))} wasted; effectiveness {report['effectiveness']}"
        )


def wasted(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a stored tool report calls wasted, without what only scoring version 1 called so."""
    return [call for call in report["wasted"] if call["reason"] != "unreferenced"]


def _warnings(row: Mapping[str, Any]) -> Iterable[RenderableType]:
    if row["disqualified"]:
        yield Text(f"disqualified: {row['disqualifier_triggered']}", style="red")
    if row["quality_risk"]:
        yield Text(f"quality risk: {', '.join(row['quality_risk'])}", style="red")
    if row["injection_suspected"]:
        yield Text("the judge suspects an injection in the session", style="red")
    for flag in row["injection_flags"][:MAX_SHOWN]:
        yield _flag(flag)
    if elision := row["elision"]:
        rungs = ", ".join(elision["strategy"])
        shortened = f"the judge saw {elision['ratio']:.0%} less than all of it ({rungs})"
        yield Text(shortened, style="yellow")


def _flag(flag: Mapping[str, Any]) -> Text:
    where = f"step {flag['step']}" if flag["step"] else flag["part"].replace("_", " ")
    return Text(f"suspicious ({flag['kind']}) in {where}: {flag['excerpt']}", style="yellow")


def _suspicious_steps(row: Mapping[str, Any]) -> set[int]:
    return {flag["step"] for flag in row["injection_flags"] if flag["step"] is not None}


def _evidence(
    details: Iterable[Mapping[str, Any]], *, suspicious: Collection[int]
) -> Iterable[RenderableType]:
    """What the judge quoted: ✓ stands in that step, ✗ does not, ! the step is suspicious."""
    for line in details:
        if "evidence" not in line:
            continue
        yield Text.assemble("\n", (line["id"], "bold"), f": {line['reasoning']}")
        for quote in line["evidence"]:
            yield _quote(quote, suspicious=quote["step"] in suspicious)


def _quote(quote: Mapping[str, Any], *, suspicious: bool) -> RenderableType:
    mark, colour = ("✓", "green") if quote["verified"] else ("✗ not in this step", "red")
    if suspicious:
        mark, colour = f"! {mark}", "yellow"
    words = f" step {quote['step']}: {quote['quote'][:EVIDENCE_CHARACTERS]}"
    return Text.assemble("  ", (mark, colour), words)


def _missing_tools(row: Mapping[str, Any]) -> Iterable[RenderableType]:
    if row["missing_tools"]:
        yield Text("\nMissing tools", style="bold")
    for tool in row["missing_tools"]:
        yield Text(f"- {tool['tool_name']} ({tool['availability']}): {tool['rationale']}")


def _approaches(row: Mapping[str, Any]) -> Iterable[RenderableType]:
    if row["alternative_approaches"]:
        yield Text("\nAlternative approaches", style="bold")
    for approach in row["alternative_approaches"]:
        yield Text(f"- {approach['name']}: {approach['description']}")
        for number, step in enumerate(approach["steps"], start=1):
            yield Text(f"    {number}. {step}")
