"""What all commands share."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from consumer.errors import NotReachable, OutputLost

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from consumer.config import Config
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

T = TypeVar("T")

EXIT_PROBLEM = 1


def fail(message: str) -> NoReturn:
    """Says what is wrong, in red on standard error, and exits with 1."""
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise SystemExit(EXIT_PROBLEM)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine answers. Its event loop is imported not before it is needed."""
    import asyncio

    return asyncio.run(work)


# A session becomes thousands of objects, few of them in cycles: by default the collector would look
# for those dozens of times for each session.
_NEW_OBJECTS = 50_000


def rest_the_collector() -> None:
    """Until what stays is loaded: the collector would look through all of it, time and again."""
    import gc

    gc.disable()


def spare_the_collector() -> None:
    """What is loaded by now stays, and need not be looked through again and again."""
    import gc

    gc.enable()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


def settings_now() -> Settings:
    """The settings. Raises ConfigError."""
    from consumer.settings import load_settings

    return load_settings()


def config_now(more_profiles: Sequence[Profile] = ()) -> Config:
    """The configuration files, and the judges of these profiles too. Raises ConfigError."""
    from consumer import config
    from consumer.resources import resource

    folder = os.environ.get("SCORING_CONFIG_DIR") or resource("config")
    return config.load(Path(folder), os.environ, more_profiles=more_profiles)


async def with_store(look: Any) -> Any:
    """What `look` answers, asked of the store."""
    from consumer.edges.postgres import migrations
    from consumer.edges.postgres.connect import open_pool, place, translated
    from consumer.edges.postgres.store import Store
    from consumer.outgoing import Addresses

    settings = settings_now()
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


@contextmanager
def after(done: str) -> Iterator[None]:
    """Where what follows can't be told, at least says what was done."""
    try:
        yield
    except OutputLost as error:
        if error.nobody_reads:
            raise
        raise OutputLost(f"{error}; {done}", nobody_reads=False) from error


def tell(value: Any, as_json: bool, *, lines: list[str] | None = None) -> None:
    """The value as JSON, or these lines."""
    if as_json:
        typer.echo(json.dumps(value, default=str, indent=2))
    else:
        for line in lines or []:
            typer.echo(line)
