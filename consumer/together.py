"""Tasks that share one thread: two things at once, and turns for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def let_others() -> None:
    """Everyone who is ready gets a turn. To be awaited between steps of about a millisecond: else a
    judge's slot stays empty until a whole session is read, looked through and written down.
    """
    await asyncio.sleep(0)


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """What both answer; `one` begins. Both end before a failure is told, that of `one` first."""
    done, also = await asyncio.gather(one, other, return_exceptions=True)
    if isinstance(done, BaseException):
        raise done
    if isinstance(also, BaseException):
        raise also
    return done, also
