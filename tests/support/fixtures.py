"""Fixtures for tests on a real broker and a real database.

The servers start once a run, when the first test asks for one; all of xdist's workers share them.
Each test gets topics and a database of its own, so that tests run in any order and side by side.
A test that stops or kills its broker takes `kafka_process`, and gets one that no other test uses.
"""

import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
import structlog
from aiokafka.admin import AIOKafkaAdminClient

from consumer.demo.servers import ServerError, create_topics
from consumer.logs import ONLY_ERRORS, QUIET
from tests.support import stage as stages
from tests.support.servers import (
    KAFKA_PROCESSES,
    KafkaProcess,
    KafkaServer,
    PostgresServer,
    kafka_server,
    postgres_server,
    shared,
)
from tests.support.stand_ins import stand_ins
from tests.support.topics import Topics

_SERVERS = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Makes room for the names of the servers that this run starts."""
    config.stash[_SERVERS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tells xdist, if this is one of its workers, which servers it used."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["servers"] = session.config.stash[_SERVERS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hears the same from a worker of xdist; one that crashed says nothing."""
    node.config.stash[_SERVERS].update(getattr(node, "workeroutput", {}).get("servers", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Says which broker and database the tests ran on; nothing if none was asked for."""
    for name, server in config.stash[_SERVERS].items():
        terminalreporter.write_line(f"{name}: {server}")


@pytest.fixture(scope="session")
def servers_dir() -> Iterator[Path]:
    """A folder for the files of servers, gone after the session.

    Not pytest's own: that one is closed to other users, and PostgreSQL runs as one of them when
    the tests run as root.
    """
    with tempfile.TemporaryDirectory(prefix="score-consumer-tests-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def run_dir(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run have in common, and no other run has."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(pytestconfig, "workerinput") else own


@pytest.fixture(scope="session")
def shared_kafka(
    servers_dir: Path, run_dir: Path, pytestconfig: pytest.Config
) -> Iterator[KafkaServer]:
    """The run's broker."""
    start = partial(kafka_server, servers_dir)
    with shared(KafkaServer, run_dir / "kafka", start) as server:
        pytestconfig.stash[_SERVERS]["kafka"] = _label(server)
        yield server


@pytest.fixture(scope="session")
def postgres(
    servers_dir: Path, run_dir: Path, pytestconfig: pytest.Config
) -> Iterator[PostgresServer]:
    """The run's PostgreSQL. For tables of your own take `database`."""
    start = partial(postgres_server, servers_dir)
    with shared(PostgresServer, run_dir / "postgres", start) as server:
        pytestconfig.stash[_SERVERS]["postgres"] = _label(server)
        yield server


@pytest.fixture(scope="session")
def harmed_kafka(shared_kafka: KafkaServer, servers_dir: Path) -> Iterator[KafkaProcess]:
    """A broker like the run's, for tests that stop or kill it; see `kafka_process`."""
    if shared_kafka.kind not in KAFKA_PROCESSES:
        pytest.skip(f"{shared_kafka.kind}: not ours to stop")
    with KAFKA_PROCESSES[shared_kafka.kind](servers_dir / "harmed") as process:
        yield process


@pytest.fixture
def kafka_process(harmed_kafka: KafkaProcess) -> KafkaProcess:
    """The process of the test's broker, to be stopped and killed: no other test uses it meanwhile.

    The next test's fixtures start it again. Skips the test if there is none that is ours.
    """
    try:
        harmed_kafka.start()
    except ServerError:  # it did not get over what was done to it; a new process does
        harmed_kafka.start()
    return harmed_kafka


@pytest.fixture
def kafka(request: pytest.FixtureRequest, shared_kafka: KafkaServer) -> KafkaServer:
    """The test's broker: the run's one unless the test takes `kafka_process`."""
    if "kafka_process" not in request.fixturenames:
        return shared_kafka
    process = request.getfixturevalue("kafka_process")
    return replace(shared_kafka, bootstrap=process.bootstrap)


@pytest.fixture
def idempotent_kafka(kafka: KafkaServer) -> KafkaServer:
    """The test's broker if it takes idempotent producers, else the test is skipped."""
    if not kafka.idempotent:
        pytest.skip(f"{kafka.kind} has no idempotent producer ({kafka.why})")
    return kafka


@pytest_asyncio.fixture
async def topics(kafka: KafkaServer, shared_kafka: KafkaServer) -> AsyncIterator[Topics]:
    """Topics of the test's own, deleted afterwards."""
    test = uuid4().hex[:12]
    names = Topics(
        requested=f"{test}.score.requested",
        completed=f"{test}.score.completed",
        quality_risk=f"{test}.quality_risk",
        failed=f"{test}.score.failed",
        overridden=f"{test}.score.overridden",
        dlq=f"{test}.score.requested.dlq",
    )
    await create_topics(kafka.bootstrap, astuple(names))
    yield names
    if kafka is shared_kafka:  # the other one may be dead by now
        async with _kafka_admin(kafka) as admin:
            await admin.delete_topics(list(astuple(names)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template(postgres: PostgresServer) -> AsyncIterator[str]:
    """Name of a database with all migrations, made once a process; `database` clones it."""
    # Not at the top: tests that need no database shall not depend on its code.
    from consumer.edges.postgres import migrations

    async with _fresh_database(postgres, "template") as name:
        await migrations.up(_dsn(postgres, name))
        yield name


@pytest_asyncio.fixture
async def database(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    """URL of an empty, migrated database of the test's own, dropped afterwards."""
    async with _fresh_database(postgres, "test", f"TEMPLATE {migrated_template}") as name:
        yield _dsn(postgres, name)


@contextlib.asynccontextmanager
async def _fresh_database(
    postgres: PostgresServer, prefix: str, options: str = ""
) -> AsyncIterator[str]:
    name = f"{prefix}_{uuid4().hex}"
    await _execute(postgres, f"CREATE DATABASE {name} {options}")
    try:
        yield name
    finally:
        await _execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(postgres: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _kafka_admin(kafka: KafkaServer) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def _dsn(postgres: PostgresServer, database: str) -> str:
    return urlunsplit(urlsplit(postgres.dsn)._replace(path=f"/{database}"))


def _label(server: KafkaServer | PostgresServer) -> str:
    return f"{server.kind} ({server.why})" if server.why else server.kind


@pytest_asyncio.fixture
async def stage(kafka: KafkaServer, topics: Topics, database: str) -> AsyncIterator[stages.Stage]:
    """The product's whole surroundings, for one test."""
    with stages.scratch() as folder:
        async with stand_ins() as services:
            made = stages.Stage(
                kafka=kafka,
                topics=topics,
                database_url=database,
                stand_ins=services,
                folder=folder,
            )
            async with stages.following(made):
                yield made


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Leaves logging as it was: other tests share it, and a captured stream is closed by then."""
    root = logging.getLogger()
    names = ("", *QUIET, *ONLY_ERRORS)
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    configured = structlog.get_config().copy() if structlog.is_configured() else None
    yield
    root.handlers = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    structlog.reset_defaults()
    if configured is not None:
        structlog.configure(**configured)
    structlog.contextvars.clear_contextvars()
