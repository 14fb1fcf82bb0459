"""Who stops in the middle of his work keeps nobody from going on."""

import asyncio

import asyncpg
import pytest

from consumer.edges.postgres import connect
from consumer.errors import NotReachable

TABLE = "CREATE TABLE held (id int); INSERT INTO held VALUES (1)"
LOCK = "SELECT id FROM held FOR UPDATE"


@pytest.mark.parametrize("inside_of_a_statement", [False, True])
async def test_a_lock_does_not_outlive_the_one_who_stopped_with_it(
    database: str, monkeypatch: pytest.MonkeyPatch, *, inside_of_a_statement: bool
) -> None:
    monkeypatch.setattr(connect, "IDLE_LIMIT_S", 0.5)
    monkeypatch.setattr(connect, "TRANSACTION_LIMIT_S", 1.0)
    pool = await connect.open_pool(database, size=1)
    other = await asyncpg.connect(database)
    holds, free = asyncio.Event(), asyncio.Event()
    try:
        if (
            inside_of_a_statement
            and other.get_server_version().major < connect.HAS_TRANSACTION_LIMIT
        ):
            pytest.skip("this server has no limit for a whole transaction")
        await other.execute(TABLE)
        stopped = asyncio.create_task(_stop_with_a_lock(pool, holds, free, inside_of_a_statement))
        await holds.wait()
        async with asyncio.timeout(10):
            assert await other.fetchval(LOCK) == 1
        free.set()
        with pytest.raises(NotReachable):
            await stopped
    finally:
        await other.close()
        pool.terminate()


# What ends a statement or a transaction that would do as well a moment later.
@pytest.mark.parametrize(
    "code",
    ["40000", "40001", "40P01", "53100", "53300", "55006", "55P03", "57014", "57P05", "58030"],
)
async def test_what_passes_by_itself_is_waited_for(database: str, code: str) -> None:
    pool = await connect.open_pool(database, size=1)
    try:
        with pytest.raises(NotReachable), connect.translated("here"):
            await pool.execute(f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")
    finally:
        pool.terminate()


async def _stop_with_a_lock(
    pool: "asyncpg.Pool[asyncpg.Record]",
    holds: asyncio.Event,
    free: asyncio.Event,
    inside_of_a_statement: bool,
) -> None:
    with connect.translated("here"):
        async with pool.acquire() as connection, connection.transaction():
            await connection.fetchval(LOCK)
            if inside_of_a_statement:
                await connection.prepare("SELECT 1")  # parsed, and not executed
            holds.set()
            await free.wait()
            await connection.fetchval("SELECT 1")
