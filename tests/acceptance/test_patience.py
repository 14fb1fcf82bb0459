"""No command hangs in silence: not at a lock, and not where a server says nothing any more."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from consumer.demo.servers import HOST
from tests.support.stage import CliResult, Stage
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

LOCK = "LOCK TABLE score_requests, session_scores IN ACCESS EXCLUSIVE MODE"
WAITING = """SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'"""


async def test_a_command_that_meets_a_lock_says_so_and_ends(stage: Stage) -> None:
    commands = (
        ("status",),
        ("show", "s-one"),
        ("requests", "--state", "failed"),
        ("retry", "--since", "1h"),
        ("cancel", str(uuid4())),
        ("prune", "--older-than", "30"),
        ("report", "trend"),
    )
    async with locked(stage.database_url):
        ended = await asyncio.gather(*(stage.cli(*arguments) for arguments in commands))
    for arguments, result in zip(commands, ended, strict=True):
        assert result.code == 1, arguments
        for part in ("`score-consumer check` tells who holds a lock", "(3 s)"):
            assert part in result.err, (arguments, result.err)
        # On a busy machine the statement's limit may come first.
        assert re.search(r"lock timeout \(limit: 5 s\)|TimeoutError", result.err), result.err
        assert "Traceback" not in result.err


async def test_a_server_that_says_nothing_is_waited_for_aloud_and_not_for_ever(
    stage: Stage,
) -> None:
    async with silent() as nobody, to_postgres(stage) as (proxy, behind):
        frozen = asyncio.create_task(freeze_midway(stage, proxy, behind))
        away = stage.database_url.replace(urlsplit(stage.database_url).netloc, f"u:p@{nobody}")
        ended = await asyncio.gather(
            frozen,
            *(stage.cli(name, database_url=away) for name in ("status", "check", "migrate")),
            *(
                stage.cli(*arguments, kafka_bootstrap_servers=nobody)
                for arguments in (("publish", "s-one"), ("dlq", "list"), ("dlq", "redrive"))
            ),
        )
        for result in ended:
            assert result.code == 1
            assert "(3 s)" in result.err, "something is said meanwhile"
            assert "does not answer" in result.out + result.err
            assert "Traceback" not in result.err
            assert "never retrieved" not in result.err


async def freeze_midway(stage: Stage, proxy: TcpProxy, behind: str) -> CliResult:
    """`status`, whose server stops while it is at it."""
    async with locked(stage.database_url):
        asking = asyncio.create_task(stage.cli("status", database_url=behind))
        async with asyncio.timeout(30):
            while not await stage.rows(WAITING):
                await asyncio.sleep(0.05)
        proxy.half_open()
        return await asking


@contextlib.asynccontextmanager
async def locked(dsn: str) -> AsyncIterator[None]:
    holder = await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.execute(LOCK)
            yield
    finally:
        await holder.close()


@contextlib.asynccontextmanager
async def to_postgres(stage: Stage) -> AsyncIterator[tuple[TcpProxy, str]]:
    """A proxy, and the database's URL by way of it."""
    url = urlsplit(stage.database_url)
    async with tcp_proxy(url.port or 5432) as proxy:
        access = url.netloc.rpartition("@")[0]
        yield proxy, url._replace(netloc=f"{access}@{proxy.address}").geturl()


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """host:port of a server that takes every connection, and says nothing."""
    opened: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: opened.append(writer), HOST, 0)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        for writer in opened:
            writer.close()
        server.close()
