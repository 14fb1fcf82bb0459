"""PostgreSQL connections, and its errors as ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from consumer.errors import ConfigError, NotReachable

COMMAND_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0

# What a server that is away, restarting, full or failing over makes asyncpg raise. A deadlock or a
# serialization failure is the same to a caller: the transaction is gone, and may be tried again.
UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that the server is just closing.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.ReadOnlySQLTransactionError,
)
# A server that answers like this will not change its mind by waiting.
MISCONFIGURED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


def place(dsn: str) -> str:
    """`host:port/database` of a DSN, for messages: no user, no password."""
    parts = urlsplit(dsn)
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raises NotReachable for every error that means that the server is away for now."""
    try:
        yield
    except asyncpg.DataError:
        raise  # an InterfaceError by birth, but no waiting makes such a value fit
    except MISCONFIGURED as error:
        raise ConfigError([f"DATABASE_URL: Postgres at {where} refuses us: {error}"]) from error
    except UNREACHABLE as error:
        reason = str(error) or type(error).__name__
        raise NotReachable(f"Postgres at {where} does not answer: {reason}") from error


async def _prepare(connection: asyncpg.Connection[Any]) -> None:
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
    )


async def open_pool(dsn: str, *, size: int) -> asyncpg.Pool[Any]:
    """A pool of up to `size` connections. Raises NotReachable or ConfigError."""
    with translated(place(dsn)):
        return await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=size,
            init=_prepare,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings={"application_name": "score-consumer"},
        )


@asynccontextmanager
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """One connection for one task. Raises NotReachable or ConfigError."""
    with translated(place(dsn)):
        opened = await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S)
        try:
            await _prepare(opened)
            yield opened
        finally:
            await opened.close(timeout=CONNECT_TIMEOUT_S)
