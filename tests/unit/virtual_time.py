"""asyncio in virtual time: hours of waiting in milliseconds, and the same each time."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class _Selector(selectors.DefaultSelector):
    """Where the loop would wait for its next timer, time passes instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everyone waits, and no timer will wake anyone"
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose `time` moves only while all its tasks wait."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def one_pass(self) -> None:
        """Runs what is ready now, once; what that makes ready waits for the next pass."""
        self.call_soon(self.stop)
        self.run_forever()

    def settle(self) -> None:
        """Runs until nobody can go on without time passing."""
        for _ in range(10):
            self.one_pass()


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test in virtual time, from 0 on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        in_virtual_time(test(*args, **kwargs))

    return run
