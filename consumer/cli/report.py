"""Commands that tell what many scores tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consumer.analytics.selection import NAMES_DAYS, Availability, Selection, days
from consumer.cli.base import Json, app, config_now, fail, tell, wait_for, with_store

if TYPE_CHECKING:
    from pydantic import BaseModel

    from consumer.edges.postgres.analytics import StoredAnalytics
    from consumer.edges.postgres.store import Store

report_app = typer.Typer(
    no_args_is_help=True,
    help="Look at many scores: `docs/analytics.md` tells what each figure means.",
)
app.add_typer(report_app, name="report")

_DAY = ["%Y-%m-%d"]
From = Annotated[
    datetime | None,
    typer.Option("--from", formats=_DAY, help="First UTC day; thirty days up to the last."),
]
To = Annotated[datetime | None, typer.Option("--to", formats=_DAY, help="Last UTC day; today.")]
ProfileOf = Annotated[str | None, typer.Option("--profile", help="Only scores by this profile.")]
Label = Annotated[str | None, typer.Option(help="Only sessions with this label.")]
Agent = Annotated[str | None, typer.Option(help="Only sessions of this agent.")]
Model = Annotated[str | None, typer.Option(help="Only sessions whose agent used this model.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="The most frequent so many.")]

Report = Callable[["StoredAnalytics", Selection], Awaitable["BaseModel"]]


def _report(
    make: Report,
    as_json: bool,
    first: datetime | None,
    last: datetime | None,
    *,
    at_most: int | None = None,
    **same: str | None,
) -> None:
    """Makes the report and tells it."""
    try:
        begin, end = days(
            first.date() if first else None,
            last.date() if last else None,
            today=datetime.now(UTC).date(),
            at_most=at_most,
        )
    except ValueError as error:
        fail(str(error))
    wanted = Selection(first=begin, last=end, **same)

    async def look(store: Store) -> BaseModel:
        from consumer.edges.postgres.analytics import StoredAnalytics

        return await make(StoredAnalytics(store.pool, where=store.where), wanted)

    _tell(wait_for(with_store(look)), as_json)


def _tell(made: BaseModel, as_json: bool) -> None:
    if as_json:
        tell(made.model_dump(mode="json", by_alias=True), as_json)
        return
    from consumer import report_tables, terminal

    for part in report_tables.shown(made):
        terminal.OUT.print(part)


@report_app.command()
def trend(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Average scores and bands by day.

    Example: `score-consumer report trend --from 2026-03-01 --label alert`
    """
    from consumer.analytics import reports

    _report(
        reports.trend, as_json, first, last, profile=profile, label=label, agent=agent, model=model
    )


@report_app.command()
def distribution(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Scores by band, in all and by criterion.

    Example: `score-consumer report distribution --profile alert-investigation`
    """
    from consumer.analytics import reports

    make = reports.distribution
    _report(make, as_json, first, last, profile=profile, label=label, agent=agent, model=model)


@report_app.command("missing-tools")
def missing_tools(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    availability: Annotated[
        Availability | None, typer.Option(help="Only tools that were so available.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Tools that judges missed, the most often named first; of 92 days at most.

    Example: `score-consumer report missing-tools --availability does_not_exist`
    """
    from consumer.analytics import reports

    async def make(figures: StoredAnalytics, wanted: Selection) -> BaseModel:
        return await reports.missing_tools(figures, wanted, limit=limit, availability=availability)

    same = {"profile": profile, "label": label, "agent": agent, "model": model}
    _report(make, as_json, first, last, at_most=NAMES_DAYS, **same)


@report_app.command()
def approaches(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Alternative approaches, the most often named first; of 92 days at most.

    Example: `score-consumer report approaches --agent triage`
    """
    from consumer.analytics import reports

    async def make(figures: StoredAnalytics, wanted: Selection) -> BaseModel:
        return await reports.approaches(figures, wanted, limit=limit)

    same = {"profile": profile, "label": label, "agent": agent, "model": model}
    _report(make, as_json, first, last, at_most=NAMES_DAYS, **same)


@report_app.command()
def criteria(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Which criteria scores were made by, and which share of them is up to date.

    Example: `score-consumer report criteria --from 2026-01-01`
    """
    from consumer import logs
    from consumer.analytics import reports

    logs.set_up("WARNING", "console")
    current = wait_for(with_store(_hashes))

    async def make(figures: StoredAnalytics, wanted: Selection) -> BaseModel:
        return await reports.criteria(figures, wanted, current=current)

    _report(make, as_json, first, last, profile=profile, label=label, agent=agent, model=model)


async def _hashes(store: Store) -> dict[str, str]:
    """What each profile is scored by now: as configured here, and as activated over HTTP."""
    from consumer.edges.postgres.profiles import StoredProfiles
    from consumer.judges import open_judge, prices
    from consumer.profiles import ProfileBook

    config = config_now()
    stored = StoredProfiles(store.pool, where=store.where)
    async with open_judge(config, prices(config)) as judge:
        book = ProfileBook(config.profiles, judge, activations=stored, kept=store)
        await book.refresh_now()
        return {name: book.hash_of(name) or "" for name in book.ids}


@report_app.command()
def models(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Agents' models compared, with 95 % intervals. Give a label: other work does not compare.

    Example: `score-consumer report models --label alert`
    """
    from consumer.analytics import reports

    _report(
        reports.models, as_json, first, last, profile=profile, label=label, agent=agent, model=model
    )


@report_app.command()
def tools(
    session: Annotated[
        str | None, typer.Argument(help="A session's own report, instead of all by agent.")
    ] = None,
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """What became of agents' tool calls, or of one session's.

    Example: `score-consumer report tools --agent triage`. Exits with 1 where the session has none.
    """
    from consumer.analytics import reports

    if session is not None:
        _session_tools(session, as_json)
        return
    _report(
        reports.tools, as_json, first, last, profile=profile, label=label, agent=agent, model=model
    )


def _session_tools(session: str, as_json: bool) -> None:
    async def look(store: Store) -> dict[str, Any] | None:
        from consumer.edges.postgres.analytics import StoredAnalytics

        return await StoredAnalytics(store.pool, where=store.where).session_tools(session)

    found = wait_for(with_store(look))
    if found is None or found["tool_report"] is None:
        fail(f"session {session!r} has no score with a tool report")
    if as_json:
        tell({"session_id": session, **found}, as_json)
        return
    from consumer import report_tables, terminal

    for part in report_tables.session_tools(session, found["tool_report"]):
        terminal.OUT.print(part)


@report_app.command()
def cost(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """What judges cost, by day and model.

    Example: `score-consumer report cost --from 2026-03-01 --to 2026-03-31`
    """
    from consumer.analytics import reports

    _report(
        reports.cost, as_json, first, last, profile=profile, label=label, agent=agent, model=model
    )


@report_app.command()
def agreement(
    first: From = None,
    last: To = None,
    profile: ProfileOf = None,
    label: Label = None,
    agent: Agent = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Judge against human: how near totals are to overrides of these days.

    Example: `score-consumer report agreement --profile alert-investigation`
    """
    from consumer.analytics import reports

    make = reports.judge_and_human
    _report(make, as_json, first, last, profile=profile, label=label, agent=agent, model=model)
