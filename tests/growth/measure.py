"""How the work of a step grows with the size of its input: CPU of this thread, as ratios."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from time import thread_time
from typing import Any

# n log n takes 8 to 11 times as long for 8 times as much, quadratic work 64 times. What no longer
# fits the processor's caches, which others use as well, takes a few times as long beside that.
TIMES = 8
MOST, MOST_OF_MUCH = TIMES * 2.5, TIMES * 4.0
MUCH_BYTES = 1_000_000
# Below this a step's time is noise; a ratio to it is smaller than the true one, never larger.
LEAST_S = 0.002
TRIES = 3

# What a step makes is there for those after it, under the step's name.
Made = dict[str, Any]
Step = Callable[[Made], Any]


def seconds(make: Callable[[], Any], steps: Mapping[str, Step], tries: int = 1) -> dict[str, float]:
    """CPU seconds of each step, the least of some tries. `make` is not counted."""
    best: dict[str, float] = {}
    with _uncollected():
        for _ in range(tries):
            made: Made = {"input": make()}
            for name, step in steps.items():
                started = thread_time()
                made[name] = step(made)
                taken = thread_time() - started
                best[name] = min(taken, best.get(name, taken))
    return best


def too_fast(
    make: Callable[[int], Any], steps: Mapping[str, Step], largest: int
) -> dict[str, tuple[float, float]]:
    """The steps that grow faster than n log n: seconds of an eighth, and of all of it.

    What looks too fast is measured again: another process may have taken the caches.
    """
    most = MOST if largest < MUCH_BYTES else MOST_OF_MUCH
    small = seconds(lambda: make(largest // TIMES), steps, TRIES)
    large = dict.fromkeys(steps, inf)
    found: dict[str, tuple[float, float]] = {}
    for _ in range(2 * TRIES):
        again = seconds(lambda: make(largest), steps)
        large = {name: min(large[name], again[name]) for name in steps}
        found = {
            name: (small[name], large[name])
            for name in steps
            if large[name] > most * max(small[name], LEAST_S)
        }
        if not found:
            break
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """The collector's own work grows with all that the process has made."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
