"""Reports as people see them in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from pydantic import BaseModel
from rich.console import RenderableType
from rich.table import Table

from consumer.analytics import reports
from consumer.analytics.bootstrap import Interval
from consumer.plaintext import Text, plain
from consumer.terminal import COLOURS, wasted

BANDS = ("failed", "weak", "adequate", "good", "near_perfect")
SHARE_CELLS = 20
NOTHING = Text("nothing in these days", style="dim")

Lines = Iterable[RenderableType]


@singledispatch
def shown(report: BaseModel) -> Lines:
    """What is printed of a report."""
    raise TypeError(f"{type(report).__name__} has no table")


def mixture(report: BaseModel) -> Lines:
    """What is to be said of a report whose scores do not compare."""
    for profile in getattr(report, "mixed", ()):
        versions = ", ".join(map(str, profile.profile_versions))
        yield Text(
            f"mixes {profile.criteria_hashes} criteria of {plain(profile.profile)} (version "
            f"{versions}): limit by --criteria or --profile-version; see report criteria",
            style="yellow",
        )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table | Text:
    """Numbers to the right. What others named is told as plain text."""
    told = [[_cell(value) for value in row] for row in rows]
    if not told:
        return NOTHING
    table = Table(title=title)
    for name, value in zip(columns, told[0], strict=True):
        table.add_column(name, justify="left" if isinstance(value, Text) else "right")
    for row in told:
        table.add_row(*row)
    return table


def _cell(value: Any) -> RenderableType:
    if value is None:
        return "-"
    if isinstance(value, Text):
        return value
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else Text(plain(str(value)))


def _period(report: Any) -> str:
    return f"{report.from_} to {report.to}"


def _usd(value: float | None) -> Text:
    return Text("-" if value is None else f"${value:.4f}")


def _percent(share: float | None) -> Text:
    return Text("-" if share is None else f"{share:.1%}")


def _of(value: float | None, interval: Interval | None, form: Callable[[float], str]) -> Text:
    """A figure with its interval below."""
    if value is None:
        return Text("-")
    within = f"\n{form(interval.low)}-{form(interval.high)}" if interval else ""
    return Text(f"{form(value)}{within}")


@shown.register
def _(report: reports.Trend) -> Lines:
    columns = (
        "day",
        "scores",
        "average",
        "without overrides",
        *BANDS,
        "disqualified",
        "gate failed",
    )
    rows = [
        (
            *(d.day, d.scores, d.average_score, d.average_stored_score, *_bands(d)),
            *(d.disqualified, d.gate_failed),
        )
        for d in report.days
    ]
    yield _table(f"Trend, {_period(report)}", columns, rows)


def _bands(bands: reports.Bands) -> tuple[int, ...]:
    return tuple(getattr(bands, name) for name in BANDS)


@shown.register
def _(report: reports.Distribution) -> Lines:
    rows = []
    for name in BANDS:
        count, stored = getattr(report.bands, name), getattr(report.stored_bands, name)
        share = count / report.scores if report.scores else 0.0
        bar = Text("█" * round(SHARE_CELLS * share), style=COLOURS[name.replace("_", "-")])
        rows.append((name, count, _percent(share), bar, stored))
    columns = ("band", "scores", "share", "", "without overrides")
    yield _table(f"Distribution, {_period(report)}", columns, rows if report.scores else [])
    yield (
        f"{report.scores} counted, {report.overridden} of them overridden; apart: "
        f"{report.disqualified} disqualified, {report.gate_failed} failed a gate"
    )
    lines = [
        (c.profile, c.criterion, c.scores, c.average_score, *_bands(c), c.not_applicable)
        for c in report.criteria
    ]
    names = ("profile", "criterion", "scores", "average", *BANDS, "not applicable")
    yield _table("By criterion", names, lines)


@shown.register
def _(report: reports.MissingTools) -> Lines:
    columns = (
        *("tool", "scores", "share", "exists, unused", "exists, used"),
        *("does not exist", "unknown", "agents", "last"),
    )
    rows = [
        (
            *(t.tool_name, t.scores, _percent(t.share), t.exists_unused, t.exists_used),
            *(t.does_not_exist, t.unknown, t.agents, t.last_day),
        )
        for t in report.tools
    ]
    yield _table(f"Missing tools, {_period(report)}, {report.judged} judged scores", columns, rows)


@shown.register
def _(report: reports.Approaches) -> Lines:
    columns = ("approach", "scores", "steps", "last", "for example")
    rows = [
        (a.name, a.scores, a.average_steps, a.last_day, a.example_score_id)
        for a in report.approaches
    ]
    yield _table(f"Alternative approaches, {_period(report)}", columns, rows)


@shown.register
def _(report: reports.CriteriaHistory) -> Lines:
    columns = ("profile", "criteria", "now", "scores", "current", "first", "last")
    rows = [
        (
            *(c.profile, c.criteria_hash[:12], c.is_current, c.scores, c.current_scores),
            *(f"{c.first_scored_at:%Y-%m-%d %H:%M}", f"{c.last_scored_at:%Y-%m-%d %H:%M}"),
        )
        for c in report.criteria
    ]
    yield _table(f"Criteria, {_period(report)}", columns, rows)
    for profile in report.profiles:
        yield (
            f"{profile.profile}: {_percent(profile.share)} of {profile.current_scores} current "
            "scores are under the criteria of now"
        )


@shown.register
def _(report: reports.ModelComparison) -> Lines:
    columns = (
        *("model", "runs", "score", "median", "cost", "tokens", "seconds", "score per dollar"),
        *("apart", ""),
    )
    rows = [
        (
            f"{m.provider or '-'}/{m.model or '-'}",
            m.n,
            _of(m.average_score, m.average_score_95, "{:.1f}".format),
            _of(m.median_score, m.median_score_95, "{:.0f}".format),
            _of(m.average_cost_usd, m.average_cost_usd_95, "${:.4f}".format),
            _of(m.average_tokens, m.average_tokens_95, "{:.0f}".format),
            _of(m.average_duration_ms, m.average_duration_ms_95, lambda ms: f"{ms / 1000:.1f}"),
            _of(m.score_per_dollar, m.score_per_dollar_95, "{:.0f}".format),
            m.disqualified + m.gate_failed,
            Text("low n", style="yellow") if m.low_n else Text(""),
        )
        for m in report.models
    ]
    yield _table(f"Models, {_period(report)}, with 95 % intervals", columns, rows)
    if report.compared < report.runs:
        yield f"the newest {report.compared} of {report.runs} runs, since {report.since:%Y-%m-%d}"


@shown.register
def _(report: reports.Tools) -> Lines:
    columns = ("agent", "v", "sessions", "calls", "actions", "failed", "", "effectiveness")
    rows = [
        (
            *(a.agent, a.scoring_version, a.sessions, a.calls, a.actions),
            *(a.failed, _percent(a.failed_share), a.average_effectiveness),
        )
        for a in report.agents
    ]
    yield _table(f"Tool calls by scoring version (v), {_period(report)}", columns, rows)
    columns = ("agent", "v", "corrected", "repeated", "not cited", "wasted", "tokens", "USD")
    became = [
        (
            *(a.agent, a.scoring_version, a.corrections, a.repeated, a.not_cited),
            *(a.wasted, a.wasted_tokens, _usd(a.wasted_cost_usd)),
        )
        for a in report.agents
    ]
    if became:
        yield _table("What became of them", columns, became)
    if report.note:
        yield Text(report.note, style="dim")


@shown.register
def _(report: reports.Cost) -> Lines:
    columns = ("day", "provider", "model", "scores", "input tokens", "output tokens", "USD")
    rows = [
        (c.day, c.provider, c.model, c.scores, c.input_tokens, c.output_tokens, _usd(c.cost_usd))
        for c in report.lines
    ]
    yield _table(f"Judges, {_period(report)}", columns, rows)
    yield f"${report.cost_usd:.4f} in all; of {report.cost_unknown} score(s) the cost is unknown"
    booked = [(b.day, b.provider, _usd(b.spent_usd), _usd(b.cap_usd)) for b in report.booked]
    if booked:
        yield _table("As booked", ("day", "provider", "spent", "cap"), booked)


@shown.register
def _(report: reports.AgreementReport) -> Lines:
    rows = [(name, *counts) for name, counts in zip(report.bands, report.table, strict=True)]
    columns = ("total, override:", *report.bands)
    title = f"Judge and human, {_period(report)}"
    yield _table(f"{title}: {report.n} override(s)", columns, rows if report.n else [])
    if report.low_n:
        yield Text("too few to conclude anything", style="yellow")
    figures = (
        ("mean absolute error", report.mean_absolute_error, report.mean_absolute_error_95),
        ("override less total", report.bias, report.bias_95),
        ("quadratic-weighted kappa", report.kappa, report.kappa_95),
    )
    for name, value, interval in figures:
        within = f" ({interval.low:.2f} to {interval.high:.2f})" if interval else ""
        yield f"{name} {'-' if value is None else f'{value:.2f}'}{within}"


def session_tools(session: str, report: Mapping[str, Any]) -> Lines:
    """One session's tool report."""
    yield Text.assemble(
        (plain(session), "bold"),
        f": {report['calls']} call(s), effectiveness {report['effectiveness']}",
    )
    columns = ("finding", "call", "tool", "")
    rows = [
        *(("failed", c["call_id"], c["tool"], c["error"]) for c in report["failed"]),
        *(
            ("corrected", c["failed_call_id"], c["call_id"], c["kind"])
            for c in report["corrections"]
        ),
        *(
            ("repeated", ", ".join(c["call_ids"]), c["tool_name"], f"{c['param_similarity']:.2f}")
            for c in report["repeated"]
        ),
        *(("wasted", c["call_id"], c["tool"], c["reason"]) for c in wasted(report)),
        *(("not cited", c["call_id"], c["tool"], "") for c in report.get("not_cited", ())),
    ]
    if rows:
        yield _table("Findings", columns, rows)
    if len(wasted(report)) < len(report["wasted"]):
        yield Text(reports.WASTE_OF_VERSION_1, style="dim")
    if report["unused_tools"]:
        yield Text(f"available, but unused: {plain(', '.join(report['unused_tools']))}")
