"""`score-consumer` as processes of their own, without a second of imports for each.

A helper process has imported the product; each command is a fork of it. From then on it is a
process like any other: own environment, files, signals, exit code. That the program starts from
nothing as well is seen where tests start the demo, and in `tests/integration/test_security.py`.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOADED = ("consumer.app", "consumer.cli", "consumer.checks", "consumer.desk", "consumer.replay")
PR_SET_PDEATHSIG = 1

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(list(PRELOADED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The files that a process reads and writes."""

    stdin: Path = Path(os.devnull)
    stdout: Path
    stderr: Path


class Forked:
    """A running command; as much of `subprocess.Popen` as is needed here."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], streams: Streams, cwd: Path
    ) -> None:
        settings = (list(arguments), {**os.environ, **environment}, streams, cwd)
        # A daemon: whatever a test leaves behind ends with the tests.
        self._process: BaseProcess = _forks.Process(target=_command, args=settings, daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("score-consumer", timeout or 0)
        return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def run_command(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: str = "",
    stdout: Path | None = None,
) -> tuple[int, str, str]:
    """Runs `score-consumer` to its end: exit code, standard output, standard error.

    What is written to another `stdout` is not read.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, out, err = (Path(folder) / name for name in ("in", "out", "err"))
        given.write_text(stdin)
        out.touch()
        streams = Streams(stdin=given, stdout=stdout or out, stderr=err)
        running = Forked(arguments, environment, streams, cwd=Path.cwd())
        code = await asyncio.to_thread(running.wait)
        return code, out.read_text(), err.read_text()


def _command(
    arguments: list[str], environment: Mapping[str, str], streams: Streams, cwd: Path
) -> None:
    """Becomes `score-consumer` with these arguments."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    _open(streams)
    from consumer.cli import main

    sys.argv = ["score-consumer", *arguments]
    main()


def _open(streams: Streams) -> None:
    """Files in place of 0, 1 and 2, and of the objects that stand for them."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, (path, flags) in enumerate(
        [(streams.stdin, os.O_RDONLY), (streams.stdout, appending), (streams.stderr, appending)]
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False)
        for number, mode in enumerate(["r", "w", "w"])
    )
