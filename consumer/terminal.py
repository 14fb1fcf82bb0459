"""What people see in a terminal. Colours follow the bands; a pipe gets the same words."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from consumer.desk import DeskScore
from consumer.scoring.aggregate import band

COLOURS = {
    "near-perfect": "bright_green",
    "good": "green",
    "adequate": "yellow",
    "weak": "dark_orange",
    "failed": "red",
}
BAR_CELLS = 20
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
            table.add_row(line["id"], "", Text(f"n/a: {line['not_applicable']}", style="dim"))
        else:
            table.add_row(line["id"], bar(score), f"{score:g}")
    return table


def desk_report(score: DeskScore) -> RenderableType:
    """One file's report."""
    if score.total is None:
        return Text.assemble((score.file, "bold"), "  ", (score.error or "", "red"))
    title = Text.assemble(
        (score.session_id or score.file, "bold"), "  ", score_text(score.total.total)
    )
    lines = [
        {"id": c.id, "score": c.score, "not_applicable": c.not_applicable}
        for c in score.total.breakdown
    ]
    parts: list[RenderableType] = [title, breakdown(lines)]
    if score.total.risk:
        parts.append(Text(f"quality risk: {', '.join(score.total.risk)}", style="red"))
    return Group(*parts, "")


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
            escape(row["triggered_by"]),
            escape(why),
        )
    return table


def score_card(row: Mapping[str, Any]) -> Panel:
    """One score with its reasons."""
    cost = row["judge_cost_usd"]
    judge = (
        "none (rules only)"
        if row["judge_model"] is None
        else f"{row['judge_provider']} / {row['judge_model']}, "
        f"{row['judge_input_tokens']} + {row['judge_output_tokens']} tokens, "
        + ("cost unknown" if cost is None else f"${cost:.4f}")
    )
    parts: list[RenderableType] = [
        score_text(row["total_score"]),
        Text(f"profile   {row['judge_profile_id']} v{row['judge_profile_version']}"),
        Text(f"criteria  {row['criteria_hash']}"),
        Text(f"judge     {judge}"),
        Text(
            f"scored    {row['scored_at']:%Y-%m-%d %H:%M:%S} UTC, confidence {row['confidence']:g}"
        ),
        "",
        breakdown(row["score_details"]),
    ]
    if row["quality_risk"]:
        parts.append(Text(f"quality risk: {', '.join(row['quality_risk'])}", style="red"))
    if row["injection_suspected"]:
        parts.append(Text("the judge suspects an injection in the session", style="red"))
    if row["score_reasoning"]:
        parts += ["", Text(row["score_reasoning"])]
    parts += list(_missing_tools(row)) + list(_approaches(row))
    return Panel(Group(*parts), title=escape(row["session_id"]), title_align="left")


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
