"""Commands that tell what many scores tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import Parameter, Signature, getdoc, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from consumer.analytics.selection import NAMES_DAYS, Availability, Selection, days
from consumer.cli.base import (
    LONG_PATIENCE_S,
    Json,
    app,
    config_now,
    fail,
    tell,
    wait_for,
    with_store,
)

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
Limit = Annotated[int, typer.Option(min=1, max=1000, help="The most frequent so many.")]

Report = Callable[["StoredAnalytics", Selection], Awaitable["BaseModel"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options that all reports have: of which scores, and how it is told."""

    first: Annotated[
        datetime | None,
        typer.Option("--from", formats=_DAY, help="First UTC day; thirty days up to the last."),
    ] = None
    last: Annotated[
        datetime | None, typer.Option("--to", formats=_DAY, help="Last UTC day; today.")
    ] = None
    profile: Annotated[str | None, typer.Option(help="Only scores by this profile.")] = None
    label: Annotated[str | None, typer.Option(help="Only sessions with this label.")] = None
    agent: Annotated[str | None, typer.Option(help="Only sessions of this agent.")] = None
    model: Annotated[
        str | None, typer.Option(help="Only sessions whose agent used this model.")
    ] = None
    criteria: Annotated[
        str | None, typer.Option(help="Only scores under this criteria hash (report criteria).")
    ] = None
    profile_version: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 1, help="Only by this version of --profile.")
    ] = None
    as_json: Json = False

    def tell(self, make: Report, *, at_most: int | None = None) -> None:
        """Makes the report, of so many days at most, and tells it."""
        wanted = self._selection(at_most)

        async def look(store: Store) -> BaseModel:
            from consumer.edges.postgres.analytics import StoredAnalytics

            return await make(StoredAnalytics(store.pool, where=store.where), wanted)

        _tell(wait_for(with_store(look, patience_s=LONG_PATIENCE_S)), self.as_json)

    def _selection(self, at_most: int | None) -> Selection:
        given = [day.date() if day else None for day in (self.first, self.last)]
        try:
            first, last = days(*given, today=datetime.now(UTC).date(), at_most=at_most)
            return Selection(
                first=first,
                last=last,
                profile=self.profile,
                label=self.label,
                agent=self.agent,
                model=self.model,
                criteria_hash=self.criteria,
                profile_version=self.profile_version,
            )
        except ValueError as error:
            fail(str(error))


def _command(name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of `report` that is given `Wanted` first.

    typer reads a function's signature: this puts one together of the options of all reports and
    those of this one.
    """

    def registered(command: Callable[..., None]) -> Callable[..., None]:
        shared = _options(Wanted)
        _, *own = _options(command)

        def run(**given: Any) -> None:
            wanted = Wanted(**{option.name: given.pop(option.name) for option in shared})
            command(wanted, **given)

        run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in (*own, *shared)}
        report_app.command(name or command.__name__, help=getdoc(command))(run)
        return command

    return registered


def _options(function: Callable[..., object]) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [
        option.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[option.name])
        for option in signature(function).parameters.values()
    ]


def _tell(made: BaseModel, as_json: bool) -> None:
    if as_json:
        tell(made.model_dump(mode="json", by_alias=True), as_json)
        return
    from consumer import report_tables, terminal

    for part in (*report_tables.shown(made), *report_tables.mixture(made)):
        terminal.OUT.print(part)


@_command()
def trend(wanted: Wanted) -> None:
    """Average scores and bands by day.

    Example: `score-consumer report trend --from 2026-03-01 --label alert`
    """
    from consumer.analytics import reports

    wanted.tell(reports.trend)


@_command()
def distribution(wanted: Wanted) -> None:
    """Scores by band, in all and by criterion.

    Example: `score-consumer report distribution --profile alert-investigation`
    """
    from consumer.analytics import reports

    wanted.tell(reports.distribution)


@_command("missing-tools")
def missing_tools(
    wanted: Wanted,
    availability: Annotated[
        Availability | None, typer.Option(help="Only tools that were so available.")
    ] = None,
    limit: Limit = 20,
) -> None:
    """Tools that judges missed, the most often named first; of 92 days at most.

    Example: `score-consumer report missing-tools --availability does_not_exist`
    """
    from consumer.analytics import reports

    async def make(figures: StoredAnalytics, selection: Selection) -> BaseModel:
        return await reports.missing_tools(
            figures, selection, limit=limit, availability=availability
        )

    wanted.tell(make, at_most=NAMES_DAYS)


@_command()
def approaches(
    wanted: Wanted,
    limit: Limit = 20,
) -> None:
    """Alternative approaches, the most often named first; of 92 days at most.

    Example: `score-consumer report approaches --agent triage`
    """
    from consumer.analytics import reports

    async def make(figures: StoredAnalytics, selection: Selection) -> BaseModel:
        return await reports.approaches(figures, selection, limit=limit)

    wanted.tell(make, at_most=NAMES_DAYS)


@_command()
def criteria(wanted: Wanted) -> None:
    """Which criteria scores were made by, and which share of them is up to date.

    Example: `score-consumer report criteria --from 2026-01-01`
    """
    from consumer import logs
    from consumer.analytics import reports

    logs.set_up("WARNING", "console")
    current = wait_for(with_store(_hashes, patience_s=LONG_PATIENCE_S))

    async def make(figures: StoredAnalytics, selection: Selection) -> BaseModel:
        return await reports.criteria(figures, selection, current=current)

    wanted.tell(make)


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


@_command()
def models(wanted: Wanted) -> None:
    """Agents' models compared, with 95 % intervals. Give a label: other work does not compare.

    Example: `score-consumer report models --label alert`
    """
    from consumer.analytics import reports

    wanted.tell(reports.models)


@_command()
def tools(
    wanted: Wanted,
    session: Annotated[
        str | None, typer.Argument(help="A session's own report, instead of all by agent.")
    ] = None,
) -> None:
    """What became of agents' tool calls, or of one session's.

    Example: `score-consumer report tools --agent triage`. Exits with 1 where the session has none.
    """
    from consumer.analytics import reports

    if session is not None:
        _session_tools(session, wanted.as_json)
        return
    wanted.tell(reports.tools)


def _session_tools(session: str, as_json: bool) -> None:
    async def look(store: Store) -> dict[str, Any] | None:
        from consumer.edges.postgres.analytics import StoredAnalytics

        return await StoredAnalytics(store.pool, where=store.where).session_tools(session)

    found = wait_for(with_store(look, patience_s=LONG_PATIENCE_S))
    if found is None or found["tool_report"] is None:
        fail(f"session {session!r} has no score with a tool report")
    if as_json:
        tell({"session_id": session, **found}, as_json)
        return
    from consumer import report_tables, terminal

    for part in report_tables.session_tools(session, found["tool_report"]):
        terminal.OUT.print(part)


@_command()
def cost(wanted: Wanted) -> None:
    """What judges cost, by day and model.

    Example: `score-consumer report cost --from 2026-03-01 --to 2026-03-31`
    """
    from consumer.analytics import reports

    wanted.tell(reports.cost)


@_command()
def agreement(wanted: Wanted) -> None:
    """Judge against human: how near totals are to overrides of these days.

    Example: `score-consumer report agreement --profile alert-investigation`
    """
    from consumer.analytics import reports

    wanted.tell(reports.judge_and_human)
