"""What all commands share."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from consumer.errors import ConfigError, NotReachable, OutputLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from consumer.config import Config
    from consumer.edges.kafka import Producer
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
Since = Annotated[
    str | None, typer.Option(help="Not before: 90m, 12h, 7d ago, or a date and time.")
]

T = TypeVar("T")

EXIT_PROBLEM = 1
EXIT_CANNOT_TELL = 3  # after 2, a usage error: there is nothing to compare with
# What a statement may take where a person waits for it, and where much is looked at.
PATIENCE_S = 10.0
LONG_PATIENCE_S = 30.0
SAY_EVERY_S = 3


def fail(message: str, code: int = EXIT_PROBLEM) -> NoReturn:
    """Says what is wrong, in red on standard error, and exits."""
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise SystemExit(code)


def wait_for(work: Coroutine[Any, Any, T], *, saying: Callable[[], str] | None = None) -> T:
    """What the coroutine answers; `saying` is what to tell meanwhile, time and again. The event
    loop is imported not before it is needed.
    """
    import asyncio

    async def told() -> T:
        async with saying_still(saying or (lambda: "")):
            return await work

    return asyncio.run(told() if saying else work)


@asynccontextmanager
async def saying_still(what: Callable[[], str]) -> AsyncIterator[None]:
    """Says this on standard error every few seconds: no command waits in silence."""
    import asyncio

    async def say() -> None:
        for seconds in itertools.count(SAY_EVERY_S, SAY_EVERY_S):
            await asyncio.sleep(SAY_EVERY_S)
            typer.echo(f"{what()} ({seconds} s)", err=True)

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()


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


def checked(name: str, read: Callable[[str], T], text: str) -> T:
    """What `read` makes of an option's or argument's text. Raises ConfigError."""
    try:
        return read(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError([f"{name}: {error}"]) from error


def when(name: str, text: str | None) -> datetime | None:
    """The moment that an option names; None where it was not given. Raises ConfigError."""
    now = datetime.now(UTC)
    return None if text is None else checked(name, lambda said: moment(said, now), text)


def moment(text: str, now: datetime) -> datetime:
    """`90m`, `12h`, `7d` before now, or a date and time as ISO 8601 (UTC unless it says otherwise).

    Raises ValueError.
    """
    units = {"m": 60, "h": 3600, "d": 86_400}
    if text[-1:] in units and text[:-1].isdecimal():
        return datetime.fromtimestamp(now.timestamp() - int(text[:-1]) * units[text[-1]], UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time such as 12h, 7d or 2026-03-01T12:30") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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


async def with_store(
    look: Any, *, patience_s: float = PATIENCE_S, saying: Callable[[], str] | None = None
) -> Any:
    """What `look` answers, asked of the store; each statement may take so long. `saying`: what to
    tell meanwhile. Raises NotReachable, ConfigError.
    """
    from consumer.edges.postgres import migrations
    from consumer.edges.postgres.connect import open_pool, place, translated
    from consumer.edges.postgres.store import Store
    from consumer.outgoing import Addresses

    settings = settings_now()
    dsn = settings.database_url.get_secret_value()
    async with saying_still(saying or (lambda: f"waiting for Postgres at {place(dsn)}")):
        pool = await open_pool(dsn, size=2, patience_s=patience_s)
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
        except NotReachable as error:
            _hush()
            raise NotReachable(f"{error}{_hint(error, patience_s)}") from error
        finally:
            pool.terminate()


def _hush() -> None:
    """What asyncpg leaves behind of a connection that is cut would be told beside the error."""
    import asyncio

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)


def _hint(error: NotReachable, patience_s: float) -> str:
    from asyncpg import LockNotAvailableError, QueryCanceledError

    from consumer.edges.postgres.connect import LOCK_PATIENCE_S

    if isinstance(error.__cause__, LockNotAvailableError):
        limit_s = min(patience_s, LOCK_PATIENCE_S)
    elif isinstance(error.__cause__, QueryCanceledError | TimeoutError):
        limit_s = patience_s
    else:
        return ""
    return f" (limit: {limit_s:g} s). `score-consumer check` tells who holds a lock"


@asynccontextmanager
async def producing(settings: Settings) -> AsyncIterator[Producer]:
    """A producer to ask with."""
    from consumer.brokers import kafka_security
    from consumer.edges.kafka import Producer

    producer = Producer(
        settings.kafka_bootstrap_servers,
        idempotent=settings.kafka_enable_idempotence,
        options={"client_id": "score-consumer-cli", **kafka_security(settings).options},
    )
    try:
        yield producer
    finally:
        await producer.close()


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
