"""How long it takes to make a long session's prompt fit, by the size and the kind of session.

`python -m tests.bench.elision` prints CPU seconds of the quickest round, and the memory that `fit`
took at its peak as a multiple of the session. One core, no server.
"""

from __future__ import annotations

import argparse
import base64
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from time import process_time

from rich.console import Console
from rich.table import Table

from consumer.scoring.elision import DoesNotFit, Fitted, fit
from consumer.scoring.session import Session, Step
from tests.unit.builders import TEMPLATE, about, message, profile, session, tool_call

SIZES = (100_000, 1_000_000, 20_000_000)
# What a judge with a context of 128,000 tokens has left for a prompt.
BUDGET_TOKENS = 100_000
ROUNDS = 3
LINE = '2026-03-01 12:00:00 INFO pod "miner-{n}" took {n} ms to answer GET /pool/{n}\n'
FOREIGN_LINE = "2026-03-01 12:00:00 INFO Größe von „miner-{n}“: {n} 文字列を処理しました 🚀\n"
ERROR_LINE = "2026-03-01 12:00:00 ERROR miner-{n}: connection to pool {n} refused\n"


def lines(line: str, size: int, *, first: int = 0) -> str:
    """Numbered lines of about so many bytes."""
    count = max(1, size // len(line.encode()))
    return "".join([line.replace("{n}", str(first + n)) for n in range(count)])


def turns(size: int, count: int, result: Callable[[int, int], str]) -> Iterator[Step]:
    """So many turns of a thought and a tool call; `result` makes the n-th of so many bytes."""
    for n in range(count):
        yield message(f"Thought: turn {n}. I look further.\nAction: logs.search")
        yield tool_call("search", id=f"call-{n}", arguments={"n": n}, result=result(n, size))


def many_results(size: int) -> Iterator[Step]:
    yield from turns(size // 200, 200, lambda n, s: lines(LINE, s, first=n * s))


def many_steps(size: int) -> Iterator[Step]:
    """As long as agents' sessions get: each step costs room that nothing can take away."""
    count = min(size // 2000, 500)
    yield from turns(size // count, count, lambda n, s: lines(LINE, s, first=n * s))


def one_huge_result(size: int) -> Iterator[Step]:
    yield from turns(size, 1, lambda _, s: lines(LINE, s))


def identical_results(size: int) -> Iterator[Step]:
    same = lines(LINE, size // 200)
    yield from turns(size // 200, 200, lambda _n, _s: same)


def base64_blobs(size: int) -> Iterator[Step]:
    random = Random(1)
    yield from turns(
        size // 50,
        50,
        lambda n, s: f"image {n}: {base64.b64encode(random.randbytes(s * 3 // 4)).decode()} done",
    )


def other_scripts(size: int) -> Iterator[Step]:
    yield from turns(size // 100, 100, lambda n, s: lines(FOREIGN_LINE, s, first=n * s))


def only_errors(size: int) -> Iterator[Step]:
    yield from turns(size // 100, 100, lambda n, s: lines(ERROR_LINE, s, first=n * s))


def one_line_of_json(size: int) -> Iterator[Step]:
    item = '{"kind": "Event", "type": "Warning", "message": "failed to pull {n}"}, '
    yield from turns(size // 20, 20, lambda n, s: lines(item, s, first=n * s))


def long_messages(size: int) -> Iterator[Step]:
    """Nothing but what the agent said: it shrinks on the last rung only."""
    for n in range(200):
        yield message(f"Thought: turn {n}.\n" + lines(LINE, size // 200, first=n * size))


def only_decisions(size: int) -> Iterator[Step]:
    """All of it must be shown, so that it can't fit."""
    for n in range(200):
        yield message(lines("Thought: the next one is {n}\n", size // 200, first=n * size))


SHAPES = (
    many_results,
    many_steps,
    one_huge_result,
    identical_results,
    base64_blobs,
    other_scripts,
    only_errors,
    one_line_of_json,
    long_messages,
    only_decisions,
)


def long_session(shape: Callable[[int], Iterator[Step]], size: int) -> Session:
    """A session of this shape and about so many bytes, with the question and the answer."""
    question = message("Investigate the alert.", role="user")
    answer = message("Thought: I know enough.\nFinal Answer: The pod mines.")
    return session(question, *shape(size), answer)


def fitted(run: Session, budget_tokens: int = BUDGET_TOKENS) -> Fitted | None:
    """The fitted prompt; None where it does not fit."""
    looked_at = about(session(), session=run)
    try:
        return fit(TEMPLATE, looked_at, profile(), nonce="5ec2e7", budget_tokens=budget_tokens)
    except DoesNotFit:
        return None


def cpu_seconds(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return process_time() - started


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    table = Table(
        "session", "KB", "CPU s", "memory", "rungs", "prompt KB", title="Fitting a prompt"
    )
    for shape in SHAPES:
        for size in SIZES:
            run = long_session(shape, size)
            work = partial(fitted, run)
            taken = min(cpu_seconds(work) for _ in range(rounds))
            memory = peak_bytes(work) / size
            found = fitted(run)
            table.add_row(
                shape.__name__,
                str(size // 1000),
                f"{taken:.3f}",
                f"{memory:.1f}x",
                "does not fit" if found is None else _rungs(found),
                "" if found is None else str(len(found.prompt.encode()) // 1000),
            )
    Console().print(table)


def _rungs(found: Fitted) -> str:
    return ", ".join(found.elision.strategy) if found.elision else "none"


if __name__ == "__main__":
    main()
