"""`score-consumer`: every command. Imports wait until their command runs: --help must be quick."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from uuid import UUID

import typer

from consumer import __version__
from consumer.errors import ConfigError, NotReachable, ScoreConsumerError

if TYPE_CHECKING:
    from consumer.config import Config
    from consumer.edges.postgres.store import Store
    from consumer.scoring.profile import Profile
    from consumer.settings import Settings

app = typer.Typer(
    name="score-consumer",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Scores AI agent sessions: score requests in, scores and their events out.",
)
profiles_app = typer.Typer(no_args_is_help=True, help="Look at, check and store profiles.")
app.add_typer(profiles_app, name="profiles")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


EXIT_PROBLEM = 1
PRUNE_BATCH = 1000


class Direction(StrEnum):
    """Which way a migration goes."""

    UP = "up"
    DOWN = "down"
    STATUS = "status"


def main() -> None:
    """The command line. Errors of ours are told in words and end with exit code 1."""
    try:
        app()
    except ConfigError as error:
        _fail(f"Can't start; {len(error.problems)} thing(s) to mend:\n{error}")
    except ScoreConsumerError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader had enough. Python would complain once more while closing standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise SystemExit(EXIT_PROBLEM)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Scores AI agent sessions: score requests in, scores and their events out."""


@app.command()
def run(
    roles: Annotated[
        str, typer.Option(help="What this process does, separated by commas.")
    ] = "intake,worker,relay,api",
) -> None:
    """Run the consumer, all roles in one process unless told otherwise.

    Example: `score-consumer run --roles worker,api`
    """
    from consumer import app as application
    from consumer import logs

    settings, config, chosen = _checked(roles, application)
    logs.set_up(settings.log_level, settings.log_format)
    asyncio.run(application.run(settings, config, chosen))


def _checked(roles: str, application: Any) -> tuple[Settings, Config, Any]:
    """Settings, configuration and roles. Raises one ConfigError for all that is wrong in them."""
    from consumer import config
    from consumer.resources import resource

    folder = os.environ.get("SCORING_CONFIG_DIR") or resource("config")
    problems: list[str] = []
    found: list[Any] = []
    for load in (
        _settings,
        lambda: config.load(Path(folder), os.environ),
        lambda: _roles(roles, application),
    ):
        try:
            found.append(load())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    settings, loaded, chosen = found
    return settings, loaded, chosen


def _roles(text: str, application: Any) -> Any:
    known = [role.value for role in application.Role]
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigError([f"--roles: {text!r}; allowed are {', '.join(known)}"])
    return frozenset(application.Role(name) for name in names)


@app.command()
def migrate(
    direction: Annotated[Direction, typer.Argument(help="up, down or status.")] = Direction.UP,
    to: Annotated[int, typer.Option(help="With down: the version to go back to.")] = 0,
    as_json: Json = False,
) -> None:
    """Bring the database's schema up to date, take it back, or show where it is.

    Example: `DATABASE_URL=postgresql://... score-consumer migrate`
    """
    from consumer.edges.postgres import migrations

    dsn = _settings().database_url.get_secret_value()
    if direction is Direction.STATUS:
        states = asyncio.run(migrations.status(dsn))
        rows = [{"migration": s.title, "applied_at": s.applied_at} for s in states]
        _print(rows, as_json, lines=[f"{r['migration']}  {r['applied_at'] or '-'}" for r in rows])
        return
    work = migrations.up(dsn) if direction is Direction.UP else migrations.down(dsn, to=to)
    titles = asyncio.run(work)
    done = "applied" if direction is Direction.UP else "taken back"
    lines = [f"{done}: {title}" for title in titles] or ["nothing to do"]
    _print({done.replace(" ", "_"): titles}, as_json, lines=lines)


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
    as_json: Json = False,
) -> None:
    """Ask for scores: publish score.requested, and wait until Kafka has acknowledged it.

    Example: `score-consumer publish my-session --priority 9`
    """
    from consumer import requesting

    settings = _settings()
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
    asyncio.run(_publish(settings, requests))
    sent = [{"session_id": r.session_id, "request_id": str(r.request_id)} for r in requests]
    _print(sent, as_json, lines=[f"requested {s['session_id']}  {s['request_id']}" for s in sent])


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
    if file == "-":
        return requests + requesting.read_requests(sys.stdin)
    if file is not None:
        try:
            with Path(file).open(encoding="utf-8") as lines:
                return requests + requesting.read_requests(lines)
        except OSError as error:
            raise ConfigError([f"--file: {file}: {error.strerror}"]) from error
    return requests


async def _publish(settings: Settings, requests: list[Any]) -> None:
    from consumer import requesting
    from consumer.edges.kafka import Producer

    producer = Producer(
        settings.kafka_bootstrap_servers,
        idempotent=settings.kafka_enable_idempotence,
        options={"client_id": "score-consumer-cli"},
    )
    try:
        await requesting.publish(
            requests,
            producer=producer,
            topic=settings.topic_score_requested,
            source=f"{settings.event_source}/cli",
        )
    finally:
        await producer.close()


@app.command()
def status(as_json: Json = False) -> None:
    """Show how many requests are in which state, and what waits.

    Example: `score-consumer status --json`
    """
    from dataclasses import asdict

    async def look(store: Store) -> dict[str, Any]:
        backlog = await store.backlog(1_000_000)
        return {"requests": await store.counts(), "backlog": asdict(backlog)}

    found = asyncio.run(_with_store(look))
    if as_json:
        _print(found, as_json)
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

    found = asyncio.run(_with_store(look))
    if as_json:
        _print(found, as_json)
    else:
        from consumer import terminal

        if found["requests"]:
            terminal.OUT.print(terminal.requests_table(found["requests"]))
        for score in found["scores"]:
            terminal.OUT.print(terminal.score_card(score))
    if not found["requests"]:
        _fail(f"session {session!r} was never requested")


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

    cancelled = asyncio.run(_with_store(end))
    _print({"cancelled": cancelled}, as_json, lines=["cancelled"] if cancelled else [])
    if not cancelled:
        _fail(f"request {request} is unknown or finished already")


@app.command()
def prune(
    older_than: Annotated[int, typer.Option(min=1, help="Days since a request was finished.")],
    as_json: Json = False,
) -> None:
    """Delete old finished requests, in batches. Scores are kept.

    Example: `score-consumer prune --older-than 90`
    """

    async def delete(store: Store) -> int:
        total = 0
        while deleted := await store.prune(older_than_days=older_than, batch=PRUNE_BATCH):
            total += deleted
        return total

    deleted = asyncio.run(_with_store(delete))
    _print({"deleted": deleted}, as_json, lines=[f"{deleted} finished request(s) deleted"])


@app.command()
def score(
    files: Annotated[list[Path], typer.Argument(help="Session files (JSON).")],
    profile: Annotated[
        str, typer.Option(help="A profile's id, or a profile file.")
    ] = "efficiency-simple",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="PROFILE_A PROFILE_B", help="Show how two profiles differ."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score session files by a profile's rules: no Kafka, no Postgres, no provider.

    A file holds what the History Service answers for a session, or `{"detail": ..., "final": ...}`.
    What the judge would score is left out.

    Example: `score-consumer score session.json --profile efficiency-simple`
    """
    from consumer import config, desk, terminal
    from consumer.edges.prices import PriceList

    problems: list[str] = []
    folder = _settings().scoring_config_dir
    names = compare or (profile,)
    found = [config.desk_profile(name, folder, problems) for name in names]
    profiles = [chosen for chosen in found if chosen is not None]
    problems += [
        f"profile {p.id}: it has no rule scorer and no gate; rules alone can't score it"
        for p in profiles
        if not p.gates and not any(c.by_rules for c in p.criteria)
    ]
    if problems:
        raise ConfigError(problems)
    labels, prices = config.load_labels(folder), PriceList()
    scores: list[desk.DeskScore] = []
    for path in terminal.progress(files, "scoring", quiet=as_json):
        scores += desk.score_file(path, profiles, labels, prices)
    if as_json:
        _print([terminal.desk_json(item) for item in scores], as_json)
    elif compare:
        terminal.OUT.print(terminal.comparison(scores, *(p.id for p in profiles)))
    else:
        terminal.print_desk(scores)
    if any(item.total is None for item in scores):
        raise SystemExit(EXIT_PROBLEM)


@profiles_app.command("list")
def profiles_list(as_json: Json = False) -> None:
    """List the configured profiles.

    Example: `score-consumer profiles list`
    """
    from consumer import config, terminal

    problems: list[str] = []
    found = config.load_profiles(_settings().scoring_config_dir / "profiles", problems)
    if problems:
        raise ConfigError(problems)
    if as_json:
        _print([p.model_dump(mode="json", include=_LISTED) for p in found], as_json)
    else:
        terminal.OUT.print(terminal.profiles_table(found))


@profiles_app.command("show")
def profiles_show(profile: Annotated[str, typer.Argument(help="Id or file.")]) -> None:
    """Show a profile with all its defaults, as JSON.

    Example: `score-consumer profiles show alert-investigation`
    """
    _print(_one_profile(profile).model_dump(mode="json"), True)


@profiles_app.command("check")
def profiles_check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Profile files; none: the configured ones.")
    ] = None,
) -> None:
    """Check profiles: every problem is told, with its file, its key and what is allowed.

    Example: `score-consumer profiles check my-profile.yaml`
    """
    from consumer import config

    problems: list[str] = []
    if files:
        found = [p for p in (config.load_profile(path, problems) for path in files) if p]
    else:
        folder = _settings().scoring_config_dir / "profiles"
        found = list(config.load_profiles(folder, problems))
    if problems:
        raise ConfigError(problems)
    for checked in found:
        typer.echo(f"{checked.id} v{checked.version}: fine")


@profiles_app.command("apply")
def profiles_apply(
    profile: Annotated[str, typer.Argument(help="Id or file.")],
    by: Annotated[str, typer.Option(help="Who applies it.")] = "cli",
) -> None:
    """Store a profile's version in the database; a changed body under a stored version is refused.

    Example: `score-consumer profiles apply my-profile.yaml`
    """
    chosen = _one_profile(profile)

    async def keep(store: Store) -> bool:
        return await store.register_profile(chosen, by=by)

    if not asyncio.run(_with_store(keep)):
        _fail(
            f"profile {chosen.id}: version {chosen.version} is stored with other content: "
            "raise the version"
        )
    typer.echo(f"{chosen.id} v{chosen.version} is stored")


_LISTED = {"id", "version", "name", "match_labels", "method"}


def _one_profile(name: str) -> Profile:
    from consumer import config

    problems: list[str] = []
    found = config.desk_profile(name, _settings().scoring_config_dir, problems)
    if found is None:
        raise ConfigError(problems)
    return found


@app.command()
def schemas(
    write: Annotated[bool, typer.Option("--write", help="Write the files.")] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Take today's schemas as published.")
    ] = False,
) -> None:
    """Check the event schemas against the code, or write them.

    Example: `score-consumer schemas --write`. Without an option it exits with 1 where they differ.
    """
    from consumer import contracts
    from consumer.resources import resource

    folder = resource("schemas")
    if write:
        contracts.write(folder)
    if release:
        contracts.release(folder)
    problems = [*contracts.drift(folder), *contracts.compatibility(folder)]
    if problems:
        _fail("\n".join(problems))
    typer.echo("schemas match the code and break no published reader")


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End when every request is answered.")
    ] = False,
) -> None:
    """Show everything at work on this machine: embedded Kafka and Postgres, sample sessions.

    Example: `score-consumer demo --once`
    """
    try:
        from consumer.demo import show as demo_show
    except ImportError as error:
        raise ConfigError(
            [f"the demo needs `pip install 'score-consumer[demo]'`: {error}"]
        ) from error
    raise SystemExit(asyncio.run(demo_show.run(once=once)))


def _settings() -> Settings:
    from consumer.settings import load_settings

    return load_settings()


async def _with_store(look: Any) -> Any:
    """What `look` answers, asked of the store."""
    from consumer.edges.postgres import migrations
    from consumer.edges.postgres.connect import open_pool, place, translated
    from consumer.edges.postgres.store import Store
    from consumer.outgoing import Addresses

    settings = _settings()
    dsn = settings.database_url.get_secret_value()
    pool = await open_pool(dsn, size=2)
    try:
        with translated(place(dsn)):
            missing = await migrations.missing(pool)
        if missing:
            raise NotReachable(
                f"the schema at {place(dsn)} lacks {', '.join(missing)}: "
                "run `score-consumer migrate`"
            )
        addresses = Addresses(source=settings.event_source, topics=settings.topics)
        return await look(Store(pool, where=place(dsn), addresses=addresses))
    finally:
        pool.terminate()


def _print(value: Any, as_json: bool, *, lines: list[str] | None = None) -> None:
    if as_json:
        typer.echo(json.dumps(value, default=str, indent=2))
    else:
        for line in lines or []:
            typer.echo(line)


if __name__ == "__main__":
    main()
