"""Tasks that share one thread: two things at once, and turns for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")

# To look through a session of this size takes some milliseconds; one made to take long, a quarter
# of a second.
LARGE_BYTES = 200_000


async def let_others() -> None:
    """Everyone who is ready gets a turn. To be awaited between steps of about a millisecond: else a
    judge's slot stays empty until a whole session is read, looked through and written down.
    """
    await asyncio.sleep(0)


async def beside(size: int, work: Callable[..., A], *args: Any) -> A:
    """What the work answers, which is about a session of so many bytes. What takes long is done in
    a thread: leases are renewed and probes are answered meanwhile. The rest is done after others.
    """
    if size < LARGE_BYTES:
        await let_others()
        return work(*args)
    return await asyncio.to_thread(work, *args)


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """What both answer; `one` begins. Both end before a failure is told, that of `one` first."""
    done, also = await asyncio.gather(one, other, return_exceptions=True)
    if isinstance(done, BaseException):
        raise done
    if isinstance(also, BaseException):
        raise also
    return done, also
