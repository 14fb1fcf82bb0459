"""PostgreSQL connections, and its errors as ours."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
from pydantic_core import to_json

from consumer.edges.tls import client_context, distrust
from consumer.errors import ConfigError, NotReachable

COMMAND_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
# Where a person waits: for a lock, and for a server that does not even end what takes too long.
LOCK_PATIENCE_S = 5.0
NETWORK_S = 2.0
# Between two statements of a transaction there is next to nothing to do. What a frozen or vanished
# process has locked shall not stay so: the server ends its transaction.
IDLE_LIMIT_S = 10.0
# That limit does not hold inside of a statement: asyncpg sends its parse and its execution apart.
# This one does; servers know it from version 17 on. A slow relay or report stays below it.
TRANSACTION_LIMIT_S = 60.0
HAS_TRANSACTION_LIMIT = 17
# A host that is gone answers nothing any more: the server finds out within a minute, not in hours.
_KEEPALIVE = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}

# What a server that is away, restarting, full or failing over makes asyncpg raise. It is the same
# to a caller where the server ended a statement or a transaction (a deadlock, a lost race,
# statement_timeout, an administrator's cancel): nothing was written, and it may be tried again.
UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that the server is just closing.
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    # Given back by a GRANT: a process that ended would need a hand, and others would not see why.
    asyncpg.InsufficientPrivilegeError,
    asyncpg.LockNotAvailableError,
    asyncpg.ObjectInUseError,
)
# A server that answers like this will not change its mind by waiting.
MISCONFIGURED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
# The parts of a DSN that name files, as libpq calls them.
SSL_FILES = {"sslrootcert": "cafile", "sslcert": "certfile", "sslkey": "keyfile"}


def place(dsn: str) -> str:
    """`host:port/database` of a DSN, for messages: no user, no password. Hosts may be several."""
    parts = urlsplit(dsn)
    hosts = (parts.netloc.rpartition("@")[2] or "localhost").split(",")
    return f"{','.join(map(_with_port, hosts))}{parts.path}"


def _with_port(host: str) -> str:
    return host if re.search(r":\d+$", host) else f"{host}:5432"


def _refuse_unusable_files(dsn: str) -> None:
    """Raises ConfigError. (What asyncpg raises, which reads them anew each time, names no file.)"""
    parameters = dict(parse_qsl(urlsplit(dsn).query))
    named = {SSL_FILES[name]: Path(parameters[name]) for name in SSL_FILES if name in parameters}
    try:
        if named:
            client_context(**named, key_password=parameters.get("sslpassword", ""))
    except ConfigError as error:
        raise ConfigError([f"DATABASE_URL: {problem}" for problem in error.problems]) from error


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raises NotReachable for every error that means that the server is away for now."""
    try:
        yield
    except asyncpg.DataError:
        raise  # an InterfaceError by birth, but no waiting makes such a value fit
    except MISCONFIGURED as error:
        raise ConfigError([f"DATABASE_URL: Postgres at {where} refuses us: {error}"]) from error
    except asyncpg.ClientConfigurationError as error:
        raise ConfigError([f"DATABASE_URL: {error}"]) from error
    except UNREACHABLE as error:
        if told := distrust(error):
            raise NotReachable(f"Postgres at {where}: {told}") from error
        reason = str(error) or type(error).__name__
        raise NotReachable(f"Postgres at {where} does not answer: {reason}") from error


async def _prepare(connection: asyncpg.Connection[Any]) -> None:
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_as_json, decoder=json.loads
    )


def _as_json(value: Any) -> str:
    """Several times quicker than json.dumps."""
    return to_json(value, inf_nan_mode="constants").decode()


async def _prepare_pooled(
    connection: asyncpg.Connection[Any], patience_s: float | None = None
) -> None:
    await _prepare(connection)
    limits = {"idle_in_transaction_session_timeout": int(IDLE_LIMIT_S * 1000), **_KEEPALIVE}
    if patience_s is not None:
        limits["statement_timeout"] = int(patience_s * 1000)
        limits["lock_timeout"] = int(min(patience_s, LOCK_PATIENCE_S) * 1000)
    if _has_transaction_limit(connection):
        limits["transaction_timeout"] = int(TRANSACTION_LIMIT_S * 1000)
    await connection.execute(";".join(f"SET {name} = {value}" for name, value in limits.items()))


def _has_transaction_limit(connection: asyncpg.Connection[Any]) -> bool:
    return connection.get_server_version().major >= HAS_TRANSACTION_LIMIT


def affected(status: str) -> int:
    """How many rows a statement wrote, of what PostgreSQL says of it ("INSERT 0 500")."""
    return int(status.rsplit(maxsplit=1)[-1])


def as_long_as_it_moves(connection: asyncpg.Connection[Any], idle_s: float) -> str:
    """SQL that lets the current transaction last however long, but never idle longer than that."""
    idle = f"SET LOCAL idle_in_transaction_session_timeout = {int(idle_s * 1000)}"
    whole = "; SET LOCAL transaction_timeout = 0" if _has_transaction_limit(connection) else ""
    return idle + whole


async def _leave_as_it_is(_: asyncpg.Connection[Any]) -> None:
    """Nothing of ours outlives a transaction: to reset a connection after each use would cost a
    round trip, for nothing. (A transaction left open is rolled back all the same.)
    """


async def open_pool(dsn: str, *, size: int, patience_s: float | None = None) -> asyncpg.Pool[Any]:
    """A pool of up to `size` connections. With `patience_s` the server ends each statement after
    that time, and its waiting for a lock before: somebody waits for the answer. Raises NotReachable
    or ConfigError.
    """
    _refuse_unusable_files(dsn)
    with translated(place(dsn)):
        return await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=size,
            init=partial(_prepare_pooled, patience_s=patience_s),
            reset=_leave_as_it_is,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S if patience_s is None else patience_s + NETWORK_S,
            server_settings={"application_name": "score-consumer"},
        )


@asynccontextmanager
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """One connection for one task. Raises NotReachable or ConfigError."""
    _refuse_unusable_files(dsn)
    with translated(place(dsn)):
        opened = await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S)
        try:
            await _prepare(opened)
            yield opened
        finally:
            await opened.close(timeout=CONNECT_TIMEOUT_S)
