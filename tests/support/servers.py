"""Which Kafka and which PostgreSQL a test run gets: the first that is to be had.

Kafka: `KAFKA_BOOTSTRAP_SERVERS`, Docker, Apache Kafka by Maven, Tansu. PostgreSQL: `DATABASE_URL`,
Docker, the embedded one. Each server tells in `why` what was tried before it.

A run in several processes has one of each, see `shared`.
"""

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from consumer.demo.servers import EmbeddedKafka, EmbeddedPostgres, ServerError
from tests.support.apache_kafka import MAX_RECORD_BYTES, ApacheKafka

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

# Docker's client leaves a socket open when nobody answers; in a process of its own that is quiet.
_PING_DOCKER = """
from testcontainers.core.docker_client import DockerClient
DockerClient().client.ping()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaServer:
    """A broker for tests."""

    bootstrap: str
    kind: Literal["environment", "docker", "apache", "tansu"]
    idempotent: bool  # whether it takes an idempotent producer
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A PostgreSQL for tests, by the URL of a superuser or of a user who may create databases."""

    dsn: str
    kind: Literal["environment", "docker", "embedded"]
    why: str = ""


KafkaProcess = ApacheKafka | EmbeddedKafka

#: The kinds of broker that are ours to stop, kill and start again.
KAFKA_PROCESSES: dict[str, type[KafkaProcess]] = {"apache": ApacheKafka, "tansu": EmbeddedKafka}

Server = TypeVar("Server", KafkaServer, PostgresServer)
Candidate = Callable[[Path], AbstractContextManager[Server]]


@contextmanager
def kafka_server(data_dir: Path) -> Iterator[KafkaServer]:
    """The first Kafka to be had, running until the context ends; its files are in `data_dir`."""
    candidates = (_kafka_of_environment, _kafka_in_docker, _apache_kafka, _tansu)
    with ExitStack() as stack:
        yield _first(candidates, data_dir, stack)


@contextmanager
def postgres_server(data_dir: Path) -> Iterator[PostgresServer]:
    """The first PostgreSQL to be had, running until the context ends."""
    candidates = (_postgres_of_environment, _postgres_in_docker, _embedded_postgres)
    with ExitStack() as stack:
        yield _first(candidates, data_dir, stack)


@contextmanager
def shared(
    kind: type[Server], note: Path, start: Callable[[], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """The one server of all processes that pass the same `note`.

    Who asks first starts it and writes it down in `note`; at the end that one waits for all others
    before it ends the server. Using takes a shared lock, starting and ending an exclusive one.
    """
    with note.with_suffix(".lock").open("w") as lock:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if note.exists():
                yield kind(**json.loads(note.read_text()))
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Taking it let go of the shared one: another may have started the server meanwhile.
            if not note.exists():
                break
        with start() as server:
            note.write_text(json.dumps(asdict(server)))
            fcntl.flock(lock, fcntl.LOCK_SH)
            try:
                yield server
            finally:
                fcntl.flock(lock, fcntl.LOCK_EX)
                note.unlink()


def _first(candidates: Sequence[Candidate[Server]], data_dir: Path, stack: ExitStack) -> Server:
    tried: list[str] = []
    for candidate in candidates:
        try:
            server = stack.enter_context(candidate(data_dir))
        except ServerError as error:
            tried.append(str(error))
        else:
            return replace(server, why="; ".join(tried))
    raise ServerError("; ".join(tried))


@contextmanager
def _kafka_of_environment(_: Path) -> Iterator[KafkaServer]:
    bootstrap = _environment("KAFKA_BOOTSTRAP_SERVERS")
    yield KafkaServer(bootstrap=bootstrap, kind="environment", idempotent=True)


@contextmanager
def _postgres_of_environment(_: Path) -> Iterator[PostgresServer]:
    yield PostgresServer(dsn=_environment("DATABASE_URL"), kind="environment")


@contextmanager
def _kafka_in_docker(_: Path) -> Iterator[KafkaServer]:
    _require_docker()
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer().with_kraft()
    for name, value in {
        "KAFKA_MESSAGE_MAX_BYTES": MAX_RECORD_BYTES,
        "KAFKA_REPLICA_FETCH_MAX_BYTES": MAX_RECORD_BYTES,
        "KAFKA_NUM_PARTITIONS": 4,
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": 1,
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": 1,
    }.items():
        container.with_env(name, str(value))
    with _started(container):
        bootstrap = container.get_bootstrap_server()
        yield KafkaServer(bootstrap=bootstrap, kind="docker", idempotent=True)


@contextmanager
def _postgres_in_docker(_: Path) -> Iterator[PostgresServer]:
    _require_docker()
    from testcontainers.community.postgres import PostgresContainer

    container = PostgresContainer("postgres:18-alpine", driver=None)
    container.with_command("postgres -c fsync=off -c max_connections=250")
    with _started(container):
        yield PostgresServer(dsn=container.get_connection_url(), kind="docker")


@contextmanager
def _apache_kafka(data_dir: Path) -> Iterator[KafkaServer]:
    if missing := [name for name in ("java", "mvn") if not shutil.which(name)]:
        raise ServerError(f"{' and '.join(missing)} not installed")
    with ApacheKafka(data_dir / "apache") as process:
        yield KafkaServer(bootstrap=process.bootstrap, kind="apache", idempotent=True)


@contextmanager
def _tansu(data_dir: Path) -> Iterator[KafkaServer]:
    with EmbeddedKafka(data_dir / "tansu") as process:
        yield KafkaServer(bootstrap=process.bootstrap, kind="tansu", idempotent=False)


@contextmanager
def _embedded_postgres(data_dir: Path) -> Iterator[PostgresServer]:
    with EmbeddedPostgres(data_dir / "postgres") as process:
        yield PostgresServer(dsn=process.dsn, kind="embedded")


@contextmanager
def _started(container: "DockerContainer") -> Iterator[None]:
    try:
        container.start()
    except Exception as error:  # Docker's errors share no base class
        container.stop()
        raise ServerError(f"Docker: {error}") from error
    try:
        yield
    finally:
        container.stop()


def _environment(name: str) -> str:
    if value := os.environ.get(name):
        return value
    raise ServerError(f"{name} is not set")


@functools.cache
def _docker_answers() -> bool:
    ping = [sys.executable, "-c", _PING_DOCKER]
    try:
        return subprocess.run(ping, capture_output=True, timeout=10, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _require_docker() -> None:
    if not _docker_answers():
        raise ServerError("no Docker engine answers")
