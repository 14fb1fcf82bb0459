"""Commands about requests and what became of them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from consumer.cli.base import (
    LONG_PATIENCE_S,
    Json,
    after,
    app,
    fail,
    producing,
    settings_now,
    tell,
    wait_for,
    with_store,
)
from consumer.errors import ConfigError
from consumer.files import MIB, read_all, read_bytes

if TYPE_CHECKING:
    from consumer.edges.postgres.store import Store
    from consumer.settings import Settings

PRUNE_BATCH = 1000
# A million session ids, and some.
MAX_FILE_BYTES = 64 * MIB


@app.command()
def publish(
    sessions: Annotated[list[str] | None, typer.Argument(help="Session ids.")] = None,
    file: Annotated[
        str | None,
        typer.Option(help="Lines of session ids, or of score.requested data as JSON; - for stdin."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Score again even where a score exists.")] = False,
    profile: Annotated[str | None, typer.Option(help="Score by this profile.")] = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="9 first.")] = 5,
    triggered_by: Annotated[str, typer.Option(help="Who asks.")] = "cli",
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Completed sessions of History, as a batch.")
    ] = False,
    since: Annotated[
        datetime | None, typer.Option(help="With --from-history: started at or after (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="With --from-history: started at or before (UTC).")
    ] = None,
    alert_type: Annotated[str | None, typer.Option(help="With --from-history.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="With --from-history: as its list tells it, or as a score does."),
    ] = None,
    band: Annotated[
        list[str] | None,
        typer.Option(help="With --from-history: whose score is in this band; may be repeated."),
    ] = None,
    not_current: Annotated[
        bool,
        typer.Option("--not-current", help="With --from-history: not scored under these criteria."),
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="With --from-history: requests a second.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --from-history: how many, and the cost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask for scores: publish score.requested, and wait until Kafka has acknowledged it.

    Examples: `score-consumer publish my-session --priority 9`;
    `score-consumer publish --from-history --since 2026-11-01 --not-current --dry-run`
    """
    from consumer import requesting

    selection = {
        "start": since and since.replace(tzinfo=UTC),
        "end": until and until.replace(tzinfo=UTC),
        "alert_type": alert_type,
        "agent": agent,
        "bands": tuple(band or ()),
        "not_current": not_current,
    }
    if from_history:
        from consumer.cli import history

        if sessions or file is not None:
            raise ConfigError(["--from-history: give neither session ids nor --file with it"])
        how = history.How(
            profile_id=profile,
            force_rescore=force,
            priority=priority,
            per_second=rate,
            created_by=triggered_by,
        )
        history.publish(selection, how, dry_run=dry_run, as_json=as_json)
        return
    if any(selection.values()) or rate is not None or dry_run:
        raise ConfigError(["filters, --rate and --dry-run are for --from-history"])
    settings = settings_now()
    requests = _requests(
        sessions or [],
        file,
        {
            "force_rescore": force,
            "profile_id": profile,
            "priority": priority,
            "triggered_by": triggered_by,
        },
    )
    requests = requesting.with_ids(requests)
    wait_for(_publish(settings, requests), saying=lambda: "waiting for Kafka")
    sent = [{"session_id": r.session_id, "request_id": str(r.request_id)} for r in requests]
    lines = [f"requested {s['session_id']}  {s['request_id']}" for s in sent]
    with after(f"{len(sent)} request(s) were published"):
        tell(sent, as_json, lines=lines)


def _requests(sessions: list[str], file: str | None, defaults: dict[str, Any]) -> list[Any]:
    from pydantic import ValidationError

    from consumer import requesting
    from consumer.events import ScoreRequested
    from consumer.scoring.profile import describe

    if not sessions and file is None:
        raise ConfigError(["give session ids, or --file"])
    problems: list[str] = []
    requests = []
    for session in sessions:
        try:
            requests.append(ScoreRequested.model_validate({"session_id": session, **defaults}))
        except ValidationError as error:
            problems += [describe(problem) for problem in error.errors()]
    if problems:
        raise ConfigError(problems)
    if file is not None:
        try:
            if file == "-":
                content = read_all(sys.stdin.buffer, MAX_FILE_BYTES)
            else:
                content = read_bytes(Path(file), MAX_FILE_BYTES)
        except OSError as error:
            raise ConfigError([f"--file: {file}: {error.strerror}"]) from error
        requests += requesting.read_requests(content)
    return requests


async def _publish(settings: Settings, requests: list[Any]) -> None:
    from consumer import requesting

    async with producing(settings) as producer:
        await requesting.publish(
            requests,
            producer=producer,
            topic=settings.topic_score_requested,
            source=f"{settings.event_source}/cli",
        )


@app.command()
def status(as_json: Json = False) -> None:
    """Show how many requests are in which state, and what waits.

    Example: `score-consumer status --json`
    """
    from dataclasses import asdict

    async def look(store: Store) -> dict[str, Any]:
        backlog = await store.backlog(1_000_000)
        return {"requests": await store.counts(), "backlog": asdict(backlog)}

    found = wait_for(with_store(look))
    if as_json:
        tell(found, as_json)
        return
    from consumer import terminal

    terminal.OUT.print(terminal.counts_table(found["requests"]))
    backlog = found["backlog"]
    terminal.OUT.print(
        f"oldest pending {backlog['oldest_pending_s']:.1f} s, "
        f"outbox {backlog['outbox']} event(s), oldest {backlog['oldest_outbox_s']:.1f} s"
    )


@app.command()
def show(
    session: Annotated[str, typer.Argument(help="Session id.")], as_json: Json = False
) -> None:
    """Show a session's requests and its current scores, with reasons.

    Example: `score-consumer show my-session`. Exits with 1 where the session was never requested.
    """

    async def look(store: Store) -> dict[str, Any]:
        return {
            "requests": await store.session_requests(session),
            "scores": await store.session_scores(session),
        }

    found = wait_for(with_store(look))
    if as_json:
        tell(found, as_json)
    else:
        from consumer import terminal

        if found["requests"]:
            terminal.OUT.print(terminal.requests_table(found["requests"]))
        for score in found["scores"]:
            terminal.OUT.print(terminal.score_card(score))
    if not found["requests"]:
        fail(f"session {session!r} was never requested")


@app.command()
def cancel(
    request: Annotated[UUID, typer.Argument(help="Request id.")],
    by: Annotated[str, typer.Option(help="Who cancels.")] = "cli",
    as_json: Json = False,
) -> None:
    """Cancel a request that is not finished: it is answered with score.failed, state cancelled.

    Example: `score-consumer cancel 7f1c9a52-...`. Exits with 1 where there is nothing to cancel.
    """

    async def end(store: Store) -> bool:
        return await store.cancel(request, by=by)

    cancelled = wait_for(with_store(end))
    tell({"cancelled": cancelled}, as_json, lines=["cancelled"] if cancelled else [])
    if not cancelled:
        fail(f"request {request} is unknown or finished already")


@app.command()
def prune(
    older_than: Annotated[
        int | None, typer.Option(min=1, help="Days since a request was finished.")
    ] = None,
    inputs_older_than: Annotated[
        int | None,
        typer.Option(min=1, help="Days since a judge was sent a request: no replay after that."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete old finished requests and the accounts of old days, in batches. Scores are kept.

    Example: `score-consumer prune --older-than 90 --inputs-older-than 365`
    """
    if older_than is None and inputs_older_than is None:
        raise ConfigError(["prune: give --older-than, --inputs-older-than or both, in days"])

    deleted = {"deleted": 0, "spend": 0, "inputs": 0}

    async def delete(store: Store) -> None:
        from consumer.edges.postgres.spend import Spend

        spend = Spend(store.pool, where=store.where)
        for what, delete, days in (
            ("deleted", store.prune, older_than),
            ("spend", spend.prune, older_than),
            ("inputs", store.prune_inputs, inputs_older_than),
        ):
            while days is not None and (
                batch := await delete(older_than_days=days, batch=PRUNE_BATCH)
            ):
                deleted[what] += batch

    pruning = with_store(
        delete,
        patience_s=LONG_PATIENCE_S,
        saying=lambda: f"deleted {sum(deleted.values())} row(s) so far",
    )
    wait_for(pruning)
    lines = [
        f"{deleted['deleted']} finished request(s) deleted",
        f"{deleted['spend']} row(s) about what judges cost deleted",
        f"{deleted['inputs']} content(s) of what judges were sent deleted",
    ]
    tell(deleted, as_json, lines=lines)
