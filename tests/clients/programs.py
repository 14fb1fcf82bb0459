"""Kafka clients that others made, each in a small program of its own language.

A program is started with the broker's address. It reads commands as JSON lines, and answers each
by one line; bytes are base64, and what is null stays null. The programs are built once, into
`.cache/`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka import CACHE, POM, fetch_jars

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Fetching modules for the first time takes longest.
BUILD_TIMEOUT_S = 300
ANSWER_TIMEOUT_S = 90
MAX_LINE_BYTES = 64 * 1024 * 1024

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record without its place. To clients in C and Go a header's name is any bytes."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that a client read. `batches` are the codec and the count of records of each batch, as
    they lie on the broker: franz-go alone tells.
    """

    messages: Mapping[Place, Message]
    batches: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A running program. One command at a time."""

    name: str
    _process: Process

    async def produce(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        transaction: str = "",
    ) -> None:
        """Sends them idempotently, as one batch, and waits until the broker has them.

        In a transaction they are what the new transaction of this name begins with; see `end`.
        """
        records = [_encoded(message) for message in messages]
        await self._ask(
            do="produce",
            topic=topic,
            partition=partition,
            codec=codec,
            transaction=transaction,
            records=records,
        )

    async def end(self, transaction: str, *, commit: bool) -> None:
        """Commits or aborts the transaction."""
        await self._ask(do="end", transaction=transaction, commit=commit)

    async def read(self, *topics: str) -> Reading:
        """All that is committed in these topics."""
        answer = await self._ask(do="read", topics=topics)
        batches = [(batch["codec"], batch["records"]) for batch in answer.get("batches", ())]
        told = [(_place(record), _decoded(record)) for record in answer["records"]]
        messages = dict(told)
        assert len(messages) == len(told), f"{self.name} read a record twice"
        return Reading(messages=messages, batches=batches)

    async def _ask(self, **command: Any) -> dict[str, Any]:
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        told.write(json.dumps(command).encode() + b"\n")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = json.loads(await answers.readline() or '{"error": "it ended"}')
        assert not answer.get("error"), f"{self.name}: {command['do']}: {answer['error']}"
        return dict(answer)


@contextlib.asynccontextmanager
async def running(name: str, bootstrap: str) -> AsyncIterator[Client]:
    """The client of this name. Skips the test where its tools are not to be had."""
    command = await asyncio.to_thread(COMMANDS[name])
    process = await asyncio.create_subprocess_exec(
        *command, bootstrap, stdin=PIPE, stdout=PIPE, limit=MAX_LINE_BYTES
    )
    try:
        yield Client(name=name, _process=process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def _java() -> list[str]:
    _require("java", "javac", "mvn", why="install a JDK, 17 or later, and Maven")
    jars = f"{fetch_jars()}/*"

    def build(folder: Path) -> None:
        _run("javac", "-Xlint:all", "-Werror", "-cp", jars, "-d", str(folder), str(source))

    source = HERE / "Client.java"
    classes = _built("java", [source, POM], build)
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *quick, quiet, "-cp", f"{classes}:{jars}", "Client"]


def _librdkafka() -> list[str]:
    return [sys.executable, str(HERE / "librdkafka.py")]


def _franz() -> list[str]:
    _require("go", why="install Go: `go` has to be on the PATH")
    module = HERE / "franz"
    sources = [module / name for name in ("go.mod", "go.sum", "main.go")]

    def build(folder: Path) -> None:
        _run("go", "build", "-buildvcs=false", "-o", str(folder / "client"), ".", cwd=module)

    return [str(_built("franz", sources, build, fetch=lambda: _fetch_modules(module)) / "client")]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "java": _java,
    "librdkafka": _librdkafka,
    "franz-go": _franz,
}


def _fetch_modules(module: Path) -> None:
    try:
        _run("go", "mod", "download", cwd=module)
    except AssertionError as error:
        pytest.skip(f"the modules of the Go client can't be fetched: {error}")


def _require(*programs: str, why: str) -> None:
    if missing := [program for program in programs if not shutil.which(program)]:
        pytest.skip(f"{' and '.join(missing)} not installed: {why}")


def _built(
    name: str,
    sources: Sequence[Path],
    build: Callable[[Path], None],
    *,
    fetch: Callable[[], None] = lambda: None,
) -> Path:
    """The folder of what `build` made of these sources, made once."""
    content = b"".join(source.read_bytes() for source in sources)
    built = CACHE / f"client-{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    if built.exists():
        return built
    fetch()
    CACHE.mkdir(exist_ok=True)
    # Built aside and renamed: a run that is interrupted leaves nothing half-built.
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        aside = Path(unfinished, "built")
        aside.mkdir()
        build(aside)
        try:
            aside.rename(built)
        except OSError:
            if not built.exists():  # else another test process was faster
                raise
    return built


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-2000:]}"


def _encoded(message: Message) -> dict[str, Any]:
    headers = [[_text(name), _text(value)] for name, value in message.headers]
    return {"key": _text(message.key), "value": _text(message.value), "headers": headers}


def _decoded(record: Mapping[str, Any]) -> Message:
    headers = ((_bytes(name) or b"", _bytes(value)) for name, value in record["headers"])
    return Message(key=_bytes(record["key"]), value=_bytes(record["value"]), headers=tuple(headers))


def _place(record: Mapping[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
