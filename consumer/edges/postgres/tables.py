"""What every group of queries needs: the pool, the named statements, connections, transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

import asyncpg

from consumer.edges.postgres.connect import translated
from consumer.edges.postgres.store import load_queries
from consumer.resources import resource

# Whoever asks over HTTP does not wait longer for a connection.
ACQUIRE_S = 5.0


@cache
def queries() -> dict[str, str]:
    """The statements of sql/queries.sql by name."""
    return load_queries((resource("sql") / "queries.sql").read_text())


class Tables:
    """Base of all that asks over HTTP's own pool. Everything raises NotReachable."""

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str) -> None:
        self._pool = pool
        self._where = where
        self._sql = queries()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        with translated(self._where):
            async with self._pool.acquire(timeout=ACQUIRE_S) as connection:
                yield cast("asyncpg.Connection[Any]", connection)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """The server ends it when it idles for longer than `connect.IDLE_LIMIT_S`."""
        async with self._connection() as connection, connection.transaction():
            yield connection

    async def _fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            return await connection.fetch(self._sql[name], *args)

    async def _one(self, name: str, *args: Any) -> dict[str, Any] | None:
        found = await self._fetch(name, *args)
        return dict(found[0]) if found else None
