"""What fault tests share. Those that are not marked `ci_fault` run by `make faults` only."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from consumer.demo.servers import EmbeddedPostgres
from consumer.edges.postgres import migrations
from tests.support import stage as stages
from tests.support.apache_kafka import ApacheKafka
from tests.support.servers import KafkaProcess, KafkaServer
from tests.support.stage import Stage
from tests.support.stand_ins import stand_ins
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.topics import Topics

# A crash is over sooner: a lost lease, and a lost member of the consumer group.
LEASE_S = 2.0
SESSION_S = 3.0
# Servers start several times in a test, and the machine may be busy.
TIMEOUT_S = 300


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as long what no one marked as short enough for every run."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            if not item.get_closest_marker("ci_fault"):
                item.add_marker("long_fault")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def kills(pytestconfig: pytest.Config) -> int:
    """How many random kills a test makes."""
    return int(pytestconfig.getoption("--kills"))


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """A stage on which processes may be harmed."""
    return harmed(stage)


def harmed(stage: Stage) -> Stage:
    """The stage with failpoints allowed, and with crashes that are over soon."""
    stage.settings.update(
        run_mode="test",
        lease_seconds=LEASE_S,
        kafka_session_timeout_seconds=SESSION_S,
        # A request may lose many workers here; in production that many mean that it kills them.
        max_lost_leases=1000,
    )
    return stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A stage on servers of its own, which may be harmed. Its consumers reach them by proxies; the
    test itself goes straight to them.
    """

    stage: Stage
    kafka: ApacheKafka
    postgres: EmbeddedPostgres
    kafka_proxy: TcpProxy
    postgres_proxy: TcpProxy


@pytest.fixture(scope="session")
def harmed_postgres(servers_dir: Path) -> Iterator[EmbeddedPostgres]:
    """A database server that no other test uses."""
    with EmbeddedPostgres(servers_dir / "harmed-postgres") as process:
        yield process


@pytest_asyncio.fixture
async def arena(
    kafka: KafkaServer,
    kafka_process: KafkaProcess,
    topics: Topics,
    harmed_postgres: EmbeddedPostgres,
) -> AsyncIterator[Arena]:
    """See Arena. Servers that a test left dead are started again for the next one."""
    if not isinstance(kafka_process, ApacheKafka):
        pytest.skip(f"{kafka.kind} forgets its records when it is killed")
    harmed_postgres.start()
    database_url = await _own_database(harmed_postgres)
    with stages.scratch() as folder:
        async with (
            stand_ins() as services,
            tcp_proxy(kafka_process.behind_proxy, port=kafka_process.proxy_port) as to_kafka,
            tcp_proxy(harmed_postgres.port) as to_postgres,
        ):
            made = Stage(
                kafka=kafka,
                topics=topics,
                database_url=database_url,
                stand_ins=services,
                folder=folder,
            )
            made.settings.update(
                kafka_bootstrap_servers=to_kafka.address,
                database_url=database_url.replace(
                    f":{harmed_postgres.port}/", f":{to_postgres.port}/"
                ),
            )
            yield Arena(
                stage=harmed(made),
                kafka=kafka_process,
                postgres=harmed_postgres,
                kafka_proxy=to_kafka,
                postgres_proxy=to_postgres,
            )


async def _own_database(server: EmbeddedPostgres) -> str:
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    url = urlunsplit(urlsplit(server.dsn)._replace(path=f"/{name}"))
    await migrations.up(url)
    return url
