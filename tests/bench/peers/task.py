"""What each peer is given to do, and how what it made of it is told.

A peer is a process of its own in its own environment: it has nothing but the standard library and
itself. It reads a Task as JSON, judges, and prints a Report as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from time import monotonic
from typing import Any, TextIO

from tests.bench.memory import peak_mib

MARK = "[b-@@]"
_MARKED = re.compile(r"\[b-(\d+)\]")
_HERE = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Sessions to judge: `prompt` holds MARK in place of the session's own.

    `slots` is how many at a time, `retries` how often a call may be tried again.
    """

    url: str
    model: str
    prompt: str
    first: int
    count: int
    slots: int
    retries: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.count)

    def text(self, number: int) -> str:
        return self.prompt.replace(MARK, f"[b-{number}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a peer says of one session. `about` is the session that its explanation names."""

    number: int
    grade: float | None = None
    about: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a peer made of its task; CPU of its process and of those that it started."""

    rows: Sequence[Row]
    took_s: float
    cpu_s: float
    peak_mib: float
    versions: dict[str, str]
    # Who it wanted to talk to beyond this machine, and was not let.
    refused: Sequence[str]


def about(explanation: str | None) -> int | None:
    """The session whose mark stands first in this text."""
    found = _MARKED.search(explanation or "")
    return int(found[1]) if found else None


def told(error: BaseException | str) -> str:
    """An error in one line that says that there is one."""
    return str(error)[:200] or type(error).__name__


def perform(judge: Callable[[Task], Iterable[Row]], *packages: str) -> None:
    """Judges one session first, so that what is imported late does not count; then the task."""
    refused = _stay_here()
    task = Task(**json.load(sys.stdin))
    with _quiet() as out:
        list(judge(replace(task, first=task.first + task.count, count=1)))
        began, before = monotonic(), _cpu_s()
        rows = list(judge(task))
        report = Report(
            rows=rows,
            took_s=monotonic() - began,
            cpu_s=_cpu_s() - before,
            peak_mib=peak_mib(),
            versions={name: version(name) for name in packages},
            refused=sorted(refused),
        )
        out.write(json.dumps(asdict(report)))


def _cpu_s() -> float:
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@contextlib.contextmanager
def _quiet() -> Iterator[TextIO]:
    """What libraries print goes to stderr; yields where the report goes."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        yield out


def _stay_here() -> set[str]:
    """Refuses every connection beyond this machine; tells whose it refused."""
    refused: set[str] = set()

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = args[0]
        elif event == "socket.connect" and isinstance(args[1], tuple):
            host = args[1][0]
        else:
            return
        if host not in _HERE:
            refused.add(str(host))
            raise PermissionError(f"{host} is not this machine")

    sys.addaudithook(watch)
    return refused
