"""`score-consumer run` as tests need it: with roles of its own, and watched as it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM, Signals
from typing import cast

from consumer.demo.world import ConsumerProcess
from tests.support.forked import Forked, Streams


class Replica(ConsumerProcess):
    """One process of the consumer. `roles` as `--roles` takes them; none: all."""

    # It gets ready when its servers are there, which a test may have taken away for minutes.
    start_timeout = 400.0

    def __init__(self, data_dir: Path, environment: Mapping[str, str], *, roles: str = "") -> None:
        super().__init__(data_dir, environment)
        self._roles = roles

    def _command(self) -> list[str]:
        return [*super()._command(), *(["--roles", self._roles] if self._roles else [])]

    async def ended(self, timeout_s: float = 30) -> int:
        """The exit code of a process that ends by itself. Raises TimeoutError."""
        process = self._process
        assert process is not None
        async with asyncio.timeout(timeout_s):
            while process.poll() is None:
                await asyncio.sleep(0.02)
        return process.returncode

    async def terminate(self, timeout_s: float = 40) -> int:
        """SIGTERM, and the exit code it ends with."""
        self._signal(SIGTERM)
        return await self.ended(timeout_s)

    async def logged(self, text: str, timeout_s: float = 30) -> None:
        """Waits until the process has said this."""
        async with asyncio.timeout(timeout_s):
            while not self.log.exists() or text not in self.log.read_text():
                await asyncio.sleep(0.05)

    def freeze(self) -> None:
        """SIGSTOP: the process keeps its connections, and does nothing until `thaw`."""
        self._signal(SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, where the process is still there."""
        if self.pid:
            self._signal(SIGCONT)

    def _signal(self, sign: Signals) -> None:
        assert self.pid, "the process does not run"
        os.kill(self.pid, sign)


class ForkedReplica(Replica):
    """The same without the second that importing the product takes; see `forked`."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = ["run", *(["--roles", self._roles] if self._roles else [])]
        streams = Streams(stdout=self.log, stderr=self.log)
        forked = Forked(command, self._environment, streams, cwd=self.data_dir)
        return cast("subprocess.Popen[bytes]", forked)
