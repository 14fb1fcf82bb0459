"""The schema's migrations: plain SQL files, each applied once, in order, in a transaction.

`NNNN_name.up.sql` and `.down.sql` in `sql/migrations/`. An advisory lock lets one process migrate
at a time; a checksum refuses a file that was edited after it had been applied.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from consumer.edges.postgres.connect import connection
from consumer.errors import ConfigError
from consumer.resources import resource

_LOCK = 715517000
_FILE = re.compile(r"^(\d{4})_(\w+)\.up\.sql$")
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   char(64) NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema, with its way back."""

    version: int
    name: str
    up: str
    down: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.up.encode()).hexdigest()

    @property
    def title(self) -> str:
        return f"{self.version:04} {self.name}"

    @property
    def file(self) -> str:
        return f"{self.version:04}_{self.name}.up.sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A migration's state in a database; `applied_at` is None where it is still to come."""

    title: str
    applied_at: datetime | None


def shipped(folder: Path | None = None) -> tuple[Migration, ...]:
    """The migrations of this version of the product, in order."""
    folder = folder or resource("sql") / "migrations"
    found = [(path, match) for path in folder.iterdir() if (match := _FILE.match(path.name))]
    return tuple(
        Migration(
            version=int(match[1]),
            name=match[2],
            up=path.read_text(),
            down=path.with_name(path.name.replace(".up.sql", ".down.sql")).read_text(),
        )
        for path, match in sorted(found, key=lambda pair: pair[0].name)
    )


async def up(dsn: str) -> list[str]:
    """Applies what is missing; answers the titles of what was applied.

    Raises ConfigError where an applied migration was edited, NotReachable where Postgres is away.
    """
    async with _locked(dsn) as database:
        done = await _applied(database)
        _refuse_edited(done)
        missing = [m for m in shipped() if m.version not in done]
        for migration in missing:
            async with database.transaction():
                await database.execute(migration.up)
                await database.execute(
                    "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                    migration.version,
                    migration.name,
                    migration.checksum,
                )
        return [migration.title for migration in missing]


async def down(dsn: str, *, to: int) -> list[str]:
    """Takes back every migration above version `to`, the newest first; answers their titles."""
    async with _locked(dsn) as database:
        done = await _applied(database)
        undone = [m for m in reversed(shipped()) if m.version in done and m.version > to]
        for migration in undone:
            async with database.transaction():
                await database.execute(migration.down)
                await database.execute(
                    "DELETE FROM schema_migrations WHERE version = $1", migration.version
                )
        return [migration.title for migration in undone]


async def status(dsn: str) -> list[Applied]:
    """Every shipped migration and whether this database has it."""
    async with _locked(dsn) as database:
        done = await _applied(database)
        return [
            Applied(title=m.title, applied_at=done[m.version]["applied_at"])
            if m.version in done
            else Applied(title=m.title, applied_at=None)
            for m in shipped()
        ]


async def missing(pool: asyncpg.Pool[Any] | asyncpg.Connection[Any]) -> list[str]:
    """The titles of migrations that this database lacks; reads only, takes no lock."""
    if not await pool.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL"):
        return [migration.title for migration in shipped()]
    rows = await pool.fetch("SELECT version FROM schema_migrations")
    done = {row["version"] for row in rows}
    return [migration.title for migration in shipped() if migration.version not in done]


@asynccontextmanager
async def _locked(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connection(dsn) as database:
        await database.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await database.execute(_TABLE)
        yield database


async def _applied(database: asyncpg.Connection[Any]) -> dict[int, asyncpg.Record]:
    rows = await database.fetch("SELECT version, checksum, applied_at FROM schema_migrations")
    return {row["version"]: row for row in rows}


def _refuse_edited(done: dict[int, asyncpg.Record]) -> None:
    edited = [
        f"{m.file} was edited after it had been applied: put it back as it was, and write the "
        "change as a new migration"
        for m in shipped()
        if m.version in done and done[m.version]["checksum"] != m.checksum
    ]
    if edited:
        raise ConfigError(edited)
