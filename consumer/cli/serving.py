"""Commands that run the consumer and prepare for it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consumer import __version__
from consumer.cli.base import (
    Json,
    app,
    config_now,
    fail,
    rest_the_collector,
    settings_now,
    spare_the_collector,
    tell,
    wait_for,
)
from consumer.errors import ConfigError

if TYPE_CHECKING:
    from consumer.config import Config
    from consumer.settings import Settings


class Direction(StrEnum):
    """Which way a migration goes."""

    UP = "up"
    DOWN = "down"
    STATUS = "status"


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
    rest_the_collector()
    from consumer import app as application
    from consumer import logs

    settings, config, chosen = _checked(roles, application)
    handler = logs.NeverBlocking(sys.stderr.fileno())
    logs.set_up(settings.log_level, settings.log_format, handler=handler)
    spare_the_collector()
    wait_for(application.run(settings, config, chosen))


def _checked(roles: str, application: Any) -> tuple[Settings, Config, Any]:
    """Settings, configuration and roles. Raises one ConfigError for all that is wrong in them."""
    problems: list[str] = []
    found: list[Any] = []
    for load in (
        settings_now,
        config_now,
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
    to: Annotated[
        int | None,
        typer.Option(min=0, help="With down: the version to go back to; 0: nothing is left."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring the database's schema up to date, take it back, or show where it is. What a migration
    added is deleted with it, with all that it holds.

    Example: `DATABASE_URL=postgresql://... score-consumer migrate`
    """
    from consumer.edges.postgres import migrations
    from consumer.edges.postgres.connect import place

    dsn = settings_now().database_url.get_secret_value()

    def still() -> str:
        return f"waiting for Postgres at {place(dsn)}, or for another who migrates"

    if direction is Direction.STATUS:
        states = wait_for(migrations.status(dsn), saying=still)
        rows = [{"migration": s.title, "applied_at": s.applied_at} for s in states]
        tell(rows, as_json, lines=[f"{r['migration']}  {r['applied_at'] or '-'}" for r in rows])
        return
    if direction is Direction.UP:
        titles = wait_for(migrations.up(dsn), saying=still)
    elif to is None:
        raise ConfigError(["down: say how far by --to; all scores are deleted with --to 0"])
    else:
        titles = wait_for(migrations.down(dsn, to=to), saying=still)
    done = "applied" if direction is Direction.UP else "taken back"
    lines = [f"{done}: {title}" for title in titles] or ["nothing to do"]
    tell({done.replace(" ", "_"): titles}, as_json, lines=lines)


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
        fail("\n".join(problems))
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
    raise SystemExit(wait_for(demo_show.run(once=once)))


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Who has it.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, score, override or admin; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer token for the HTTP API, and the entry of API_TOKENS that lets it in.

    Example: `score-consumer token dashboard --scope read --scope score`. It is shown once.
    """
    import hashlib
    import secrets

    from consumer.api.tokens import parse_tokens

    secret = secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    setting = f"{name}:{'+'.join(scope or ['read'])}:{digest}"
    try:
        parse_tokens(setting)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    lines = [f"token    {secret}", f"setting  {setting}"]
    tell({"token": secret, "setting": setting}, as_json, lines=lines)
