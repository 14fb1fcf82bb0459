"""Migrations against a real server: what is applied, once, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from consumer.demo.servers import HOST, free_port
from consumer.edges.postgres import migrations
from consumer.edges.postgres.connect import open_pool
from consumer.errors import ConfigError, NotReachable
from consumer.resources import resource
from tests.integration.builders import execute, fetch, value
from tests.support.servers import PostgresServer

TITLES = [migration.title for migration in migrations.shipped()]

# All that a migration can leave behind: tables, views, indexes, sequences, functions, triggers.
OBJECTS = """
SELECT c.relname AS name FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'schema_migrations%'
UNION ALL
SELECT concat(p.proname, ' ', md5(p.prosrc)) FROM pg_proc p
WHERE p.pronamespace = 'public'::regnamespace
UNION ALL
SELECT t.tgname FROM pg_trigger t WHERE NOT t.tgisinternal
UNION ALL
SELECT concat(c.conname, ' ', pg_get_constraintdef(c.oid)) FROM pg_constraint c
WHERE c.connamespace = 'public'::regnamespace AND c.conname NOT LIKE 'schema_migrations%'
UNION ALL
SELECT concat(c.relname, '.', a.attname, ' ', a.attstorage) FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    AND NOT a.attisdropped AND c.relname NOT LIKE 'schema_migrations%'
ORDER BY 1
"""


def with_parts(dsn: str, **parts: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(**parts))


@pytest_asyncio.fixture
async def empty(postgres: PostgresServer) -> AsyncIterator[str]:
    """URL of a database without any table."""
    name = f"empty_{uuid4().hex}"
    await execute(postgres.dsn, f"CREATE DATABASE {name}")
    yield with_parts(postgres.dsn, path=f"/{name}")
    await execute(postgres.dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def test_up_applies_everything_once(empty: str) -> None:
    assert await migrations.up(empty) == TITLES
    before = await fetch(empty, "SELECT * FROM schema_migrations ORDER BY version")

    assert await migrations.up(empty) == []

    assert await fetch(empty, "SELECT * FROM schema_migrations ORDER BY version") == before
    assert [f"{row['version']:04} {row['name']}" for row in before] == TITLES


async def test_down_takes_everything_back_and_up_brings_it_again(empty: str) -> None:
    await migrations.up(empty)
    complete = await fetch(empty, OBJECTS)
    assert {"name": "score_requests"} in complete

    assert await migrations.down(empty, to=0) == TITLES[::-1]
    assert await fetch(empty, OBJECTS) == []
    assert await value(empty, "SELECT count(*) FROM schema_migrations") == 0

    assert await migrations.up(empty) == TITLES
    assert await fetch(empty, OBJECTS) == complete


async def test_down_stops_at_the_wanted_version(empty: str) -> None:
    await migrations.up(empty)

    assert await migrations.down(empty, to=len(TITLES)) == []

    assert await value(empty, "SELECT count(*) FROM schema_migrations") == len(TITLES)


@pytest.mark.parametrize("version", range(1, len(TITLES)))
async def test_each_migration_takes_back_its_own_and_nothing_else(
    empty: str, tmp_path: Path, version: int
) -> None:
    folder = tmp_path / "sql" / "migrations"
    folder.mkdir(parents=True)
    for file in (resource("sql") / "migrations").iterdir():
        if int(file.name[:4]) <= version:
            shutil.copy(file, folder)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(migrations, "resource", lambda name: tmp_path / name)
        assert await migrations.up(empty) == TITLES[:version]
    before = await fetch(empty, OBJECTS)

    assert await migrations.up(empty) == TITLES[version:]
    assert {"name": "score_requests"} in before
    assert await fetch(empty, OBJECTS) != before
    assert await migrations.down(empty, to=version) == TITLES[version:][::-1]

    assert await fetch(empty, OBJECTS) == before


async def test_status_tells_what_is_applied_and_when(empty: str) -> None:
    before = await migrations.status(empty)
    await migrations.up(empty)
    after = await migrations.status(empty)

    assert [(one.title, one.applied_at) for one in before] == [(title, None) for title in TITLES]
    stored = await fetch(empty, "SELECT applied_at FROM schema_migrations ORDER BY version")
    assert [one.title for one in after] == TITLES
    assert [one.applied_at for one in after] == [row["applied_at"] for row in stored]


async def test_of_many_at_once_one_applies_and_the_others_wait(empty: str) -> None:
    applied = await asyncio.gather(*(migrations.up(empty) for _ in range(4)))

    assert sorted(applied, key=len) == [[], [], [], TITLES]
    assert await value(empty, "SELECT count(*) FROM schema_migrations") == len(TITLES)


async def test_up_waits_for_whoever_migrates_now(empty: str) -> None:
    other = await asyncpg.connect(empty)
    await other.execute("SELECT pg_advisory_lock($1)", migrations._LOCK)

    waiting = asyncio.create_task(migrations.up(empty))
    await asyncio.sleep(0.3)
    assert await value(empty, "SELECT to_regclass('score_requests') IS NULL")

    await other.close()
    assert await waiting == TITLES


async def test_an_edited_applied_migration_is_refused(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrations.up(empty)
    shutil.copytree(resource("sql"), tmp_path / "sql")
    edited = next((tmp_path / "sql" / "migrations").glob("0001_*.up.sql"))
    edited.write_text(edited.read_text() + "\nCREATE TABLE sneaked_in ();\n")
    monkeypatch.setattr(migrations, "resource", lambda name: tmp_path / name)

    with pytest.raises(ConfigError) as refused:
        await migrations.up(empty)

    assert edited.name in str(refused.value)
    assert await value(empty, "SELECT to_regclass('sneaked_in') IS NULL")


async def test_a_migration_that_fails_leaves_nothing(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(resource("sql"), tmp_path / "sql")
    folder = tmp_path / "sql" / "migrations"
    (folder / "9999_broken.up.sql").write_text("CREATE TABLE half (); SELECT 1 / 0;")
    (folder / "9999_broken.down.sql").write_text("DROP TABLE half;")
    monkeypatch.setattr(migrations, "resource", lambda name: tmp_path / name)

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrations.up(empty)

    assert await value(empty, "SELECT to_regclass('half') IS NULL")
    assert [one.title for one in await migrations.status(empty) if not one.applied_at] == [
        "9999 broken"
    ]


async def test_missing_names_what_this_database_lacks(empty: str) -> None:
    pool = await open_pool(empty, size=1)
    try:
        assert await migrations.missing(pool) == TITLES
        assert await value(empty, "SELECT to_regclass('schema_migrations') IS NULL")
        await migrations.up(empty)
        assert await migrations.missing(pool) == []
        await migrations.down(empty, to=0)
        assert await migrations.missing(pool) == TITLES
    finally:
        await pool.close()


async def test_a_server_that_is_away_is_not_reachable() -> None:
    port = free_port()
    dsn = f"postgresql://someone:sesame@{HOST}:{port}/scores"

    for attempt in (migrations.up(dsn), migrations.status(dsn), open_pool(dsn, size=1)):
        with pytest.raises(NotReachable) as away:
            await attempt

        assert f"{HOST}:{port}/scores" in str(away.value)
        assert "sesame" not in str(away.value)


async def test_a_wrong_password_is_a_config_error_without_the_password(database: str) -> None:
    parts = urlsplit(database)
    if await _is_trusted(database):
        pytest.skip("this server asks for no password")
    dsn = with_parts(
        database, netloc=f"{parts.username}:open%20sesame@{parts.hostname}:{parts.port}"
    )

    for attempt in (migrations.up(dsn), open_pool(dsn, size=1)):
        with pytest.raises(ConfigError) as refused:
            await attempt

        assert f"{parts.hostname}:{parts.port}" in str(refused.value)
        assert "DATABASE_URL" in str(refused.value)
        assert "sesame" not in str(refused.value)


async def test_an_unknown_database_is_a_config_error_without_the_password(database: str) -> None:
    parts = urlsplit(database)
    dsn = with_parts(database, path="/nowhere_to_be_found")

    for attempt in (migrations.up(dsn), open_pool(dsn, size=1)):
        with pytest.raises(ConfigError) as refused:
            await attempt

        assert "nowhere_to_be_found" in str(refused.value)
        assert quote(parts.password or "no password") not in str(refused.value)


async def _is_trusted(dsn: str) -> bool:
    parts = urlsplit(dsn)
    try:
        await execute(
            with_parts(dsn, netloc=f"{parts.username}:x@{parts.hostname}:{parts.port}"), ""
        )
    except asyncpg.InvalidAuthorizationSpecificationError:
        return False
    return True


async def test_down_keeps_what_gives_waiters_their_answer_while_it_is_needed(empty: str) -> None:
    await migrations.up(empty)
    await execute(
        empty,
        "INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority,"
        " requested_at, waiters_left) VALUES (gen_random_uuid(), 's', false, 't', 5, now(), true)",
    )

    with pytest.raises(asyncpg.RaiseError, match="run a worker of this version"):
        await migrations.down(empty, to=9)

    await execute(empty, "UPDATE score_requests SET waiters_left = false")
    await migrations.down(empty, to=9)


async def test_kept_figures_are_of_their_scoring_version_after_down_and_up(empty: str) -> None:
    await migrations.up(empty)
    await execute(empty, "INSERT INTO rollup_days VALUES ('2026-01-01', now())")
    await execute(
        empty,
        "INSERT INTO tool_use_rollup SELECT '2026-01-01', 'p', 'l', 'a', 'm', 1, 1, 0, 0, 0, 0, 0,"
        " 0, 0, 100, 'h', 1, 2, 1, 0",
    )
    assert await value(empty, "SELECT scoring_version FROM tool_use_figures") == 2

    await migrations.down(empty, to=12)
    await migrations.up(empty)

    # Counted from the scores, of which there are none, and not taken for another version's.
    assert await fetch(empty, "SELECT * FROM tool_use_figures") == []
    assert await value(empty, "SELECT count(*) FROM rollup_days WHERE rolled_up_at IS NULL") == 1
