"""Commands about many requests: what became of them, and asking anew for those that failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consumer.cli.base import (
    EXIT_PROBLEM,
    Json,
    Since,
    app,
    producing,
    settings_now,
    tell,
    wait_for,
    when,
    with_store,
)
from consumer.error_codes import ErrorCode, FailedState, State
from consumer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from consumer.edges.postgres.listing import StoredRequests, Wanted
    from consumer.edges.postgres.store import Store
    from consumer.events import ScoreRequested

# Of what is finished, where nothing says since when: the table may reach back for years.
RECENT = timedelta(days=1)
# What a script gets of a request. No message: it may have words of the session.
SHOWN = (
    *("request_id", "session_id", "profile_id", "state", "error_code", "attempt", "priority"),
    *("force_rescore", "triggered_by", "received_at", "started_at", "finished_at", "score_id"),
    "asked_anew_as",
)

Code = Annotated[
    list[ErrorCode] | None,
    typer.Option(metavar="CODE", help="Only with this error code, such as history_unavailable."),
]
Until = Annotated[str | None, typer.Option(help="Before: as --since.")]
Session = Annotated[str | None, typer.Option(help="Only of this session, of any time.")]


@app.command()
def requests(
    state: Annotated[
        list[State] | None,
        typer.Option(metavar="STATE", help=f"Only in this state: {', '.join(State)}."),
    ] = None,
    code: Code = None,
    since: Annotated[
        str | None,
        typer.Option(help="Not before: 90m, 12h, 7d ago, or a date and time; else 1d."),
    ] = None,
    until: Until = None,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")] = 100,
    as_json: Json = False,
) -> None:
    """List score requests, the newest first, and how many there are by state and error code.

    What is finished counts by the time of its end, all else by its arrival; what waits is listed
    however old it is, unless --since is given. `--state` and `--code` may be repeated.

    Example: `score-consumer requests --state failed --code history_unavailable --since 1h`
    """
    wanted = _wanted([*(state or State)], code, since, until, session)

    async def look(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        known = _stored(store)
        rows = await known.listed(wanted, limit=limit)
        return rows, await known.counts(wanted)

    rows, counts = wait_for(with_store(look))
    more = sum(count["requests"] for count in counts) - len(rows)
    if as_json:
        tell([{name: row[name] for name in SHOWN} for row in rows], as_json)
        if more > 0:
            typer.echo(f"{more} more fit: --limit", err=True)
        return
    from consumer import terminal

    if not rows:
        typer.echo("none fits" if since or session else "none fits; of what is finished, for a day")
        return
    terminal.OUT.print(terminal.listed_table(rows), "")
    terminal.OUT.print(terminal.codes_table(counts, more))


@app.command()
def retry(
    request_ids: Annotated[
        list[UUID] | None, typer.Argument(help="These requests, instead of a filter.")
    ] = None,
    state: Annotated[
        list[FailedState] | None,
        typer.Option(
            metavar="STATE", help=f"Which ended so: {', '.join(FailedState)}; else failed."
        ),
    ] = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")] = 10_000,
    rate: Annotated[float, typer.Option(min=0.1, help="So many a second.")] = 50.0,
    triggered_by: Annotated[str, typer.Option(help="Who asks.")] = "cli",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask anew for requests that ended without a score: what `requests` lists for such a filter.

    Each keeps its session, profile, priority and force_rescore, and gets a new id that comes of the
    former one: retried twice, it is asked for once. What was asked for anew since is left out. Of
    what ended more than a day ago, --since has to say so.

    Example: `score-consumer retry --code history_unavailable --since 2h --dry-run`. Exits with 1
    where something could not be asked for.
    """
    filters = (state, code, since, until, session)
    if bool(request_ids) == any(filters):
        raise ConfigError(["retry: give request ids, or a filter: --code, --since, --session, ..."])
    wanted = _wanted([*(state or [FailedState.FAILED])], code, since, until, session)

    async def look(store: Store) -> list[dict[str, Any]]:
        if request_ids:
            return await _stored(store).listed(_these(request_ids), limit=len(request_ids))
        return await _stored(store).listed(wanted, limit=limit, not_anew=True)

    rows = wait_for(with_store(look))
    choices = [_choice(row, triggered_by) for row in rows]
    unknown = set(request_ids or ()) - {row["request_id"] for row in rows}
    choices += [_Choice(former=former, obstacle="unknown", wrong=True) for former in unknown]
    going = [choice.anew for choice in choices if choice.anew]
    if going and not dry_run:
        _publish(going, rate)
    _tell_retry(choices, dry_run, as_json)
    if len(rows) == limit:
        typer.echo("these are as many as --limit lets: there may be more", err=True)
    if any(choice.wrong for choice in choices):
        raise SystemExit(EXIT_PROBLEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What is to become of a request: asked for `anew`, unless there is an `obstacle`."""

    former: UUID
    anew: ScoreRequested | None = None
    obstacle: str | None = None
    wrong: bool = False  # asked for nothing, although it should be

    def row(self) -> dict[str, Any]:
        return {
            "request_id": str(self.former),
            "session_id": self.anew and self.anew.session_id,
            "asked_anew_as": self.anew and str(self.anew.request_id),
            "obstacle": self.obstacle,
        }


def _choice(row: Mapping[str, Any], triggered_by: str) -> _Choice:
    from pydantic import ValidationError

    from consumer.events import asked_anew
    from consumer.scoring.profile import describe

    former = row["request_id"]
    if row["state"] not in set(FailedState):
        told = f"is {row['state']}; only what ended without a score is asked for again"
        return _Choice(former=former, obstacle=told, wrong=True)
    if row["asked_anew_as"]:
        return _Choice(former=former, obstacle=f"asked anew already, as {row['asked_anew_as']}")
    try:
        return _Choice(former=former, anew=asked_anew(row, triggered_by=triggered_by))
    except ValidationError as error:  # accepted by a version that took more
        told = "; ".join(describe(problem) for problem in error.errors())
        return _Choice(former=former, obstacle=told, wrong=True)


def _publish(going: Sequence[ScoreRequested], rate: float) -> None:
    from consumer import requesting

    settings = settings_now()
    turns: list[int] = []

    async def send() -> None:
        async with producing(settings) as producer:
            await requesting.publish(
                going,
                producer=producer,
                topic=settings.topic_score_requested,
                source=f"{settings.event_source}/cli",
                pace=requesting.Pace(rate),
                sent=turns.append,
            )

    wait_for(send(), saying=lambda: f"asked anew {sum(turns)} of {len(going)}")


def _tell_retry(choices: Sequence[_Choice], dry_run: bool, as_json: bool) -> None:
    going = [choice.row() for choice in choices if choice.anew]
    left = [choice.row() for choice in choices if not choice.anew]
    done = "would be asked anew" if dry_run else "asked anew"
    lines = [f"{row['session_id']}  {row['request_id']}" for row in going] if dry_run else []
    lines += [f"{len(going)} {done}, {len(left)} left"]
    lines += [f"  {row['request_id']}: {row['obstacle']}" for row in left]
    if not choices:
        lines = ["nothing to ask anew: none fits that was not asked anew already"]
    tell({"dry_run": dry_run, "asked": going, "left": left}, as_json, lines=lines)


def _wanted(
    states: Sequence[str],
    codes: Sequence[str] | None,
    since: str | None,
    until: str | None,
    session: str | None,
) -> Wanted:
    from consumer.edges.postgres.listing import Wanted

    begin = when("--since", since)
    recent = None if session else datetime.now(UTC) - RECENT
    return Wanted(
        states=states,
        codes=codes or None,
        since=begin or recent,
        arrived=begin,
        until=when("--until", until),
        session_id=session,
    )


def _these(request_ids: Sequence[UUID]) -> Wanted:
    from consumer.edges.postgres.listing import Wanted

    return Wanted(states=list(State), request_ids=request_ids)


def _stored(store: Store) -> StoredRequests:
    from consumer.edges.postgres.listing import StoredRequests

    return StoredRequests(store.pool, where=store.where)
