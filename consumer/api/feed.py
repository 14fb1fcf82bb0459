"""What happens, to everyone who listens: one reader a process, and a bounded queue a listener.

Each listener can go on where it stopped, in any process: a change has the same id everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from consumer import metrics
from consumer.loops import Backoff, Heartbeat
from consumer.ports import Change, Changes, Cursor
from consumer.together import let_others

EVERY_S = 0.5
KEEP_ALIVE_S = 15.0
PAGE = 50
# So many changes are sent as one piece: each piece takes a turn of the event loop.
PIECE = 100
# Each costs a fraction of a millisecond for every page of changes, which is not there for scoring.
MAX_LISTENERS = 256
# Who has so many changes to fetch reads too slowly, and is sent away; it may come back by id.
MAX_QUEUED = 20_000


@dataclass(slots=True, eq=False)
class _Listener:
    """Somebody's queue. Closed: nothing comes any more."""

    waiting: deque[Change] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def push(self, changes: Sequence[Change]) -> None:
        if len(self.waiting) + len(changes) > MAX_QUEUED:
            self.close()
        else:
            self.waiting.extend(changes)
            self.woken.set()

    def take(self) -> list[Change]:
        """What is sent next."""
        return [self.waiting.popleft() for _ in range(min(PIECE, len(self.waiting)))]

    def close(self) -> None:
        self.closed = True
        self.woken.set()


class Feed:
    """Reads only while somebody listens."""

    def __init__(self, changes: Changes, *, every_s: float = EVERY_S) -> None:
        self.changes = changes
        self._every_s = every_s
        self._listeners: set[_Listener] = set()
        self._wanted = asyncio.Event()
        self._reading = asyncio.Event()
        self._stopped = False

    @property
    def full(self) -> bool:
        """Whether nobody else may listen now."""
        return len(self._listeners) >= MAX_LISTENERS

    async def run(self, stop: asyncio.Event) -> None:
        """Reads until stopped; then all listeners end."""
        backoff = Backoff("feed", Heartbeat("feed", limit_s=60), stop)
        ending = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                wanted = asyncio.create_task(self._wanted.wait())
                await asyncio.wait({wanted, ending}, return_when=asyncio.FIRST_COMPLETED)
                wanted.cancel()
                async with backoff.bear():
                    await self._read(stop)
        finally:
            ending.cancel()
            self._stopped = True
            self._reading.set()
            for listener in self._listeners:
                listener.close()

    async def _read(self, stop: asyncio.Event) -> None:
        """From now on, as long as somebody listens."""
        place = await self.changes.now()
        self._reading.set()
        try:
            while self._listeners and not stop.is_set():
                place = await self._pass_on(place)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await stop.wait()
        finally:
            # A gap in reading is one for those who listen: they come back by their ids.
            for listener in self._listeners:
                listener.close()
            self._reading.clear()
            self._wanted.clear()

    async def _pass_on(self, place: Cursor) -> Cursor:
        while changes := await self.changes.after(place, PAGE):
            place = changes[-1].at
            for listener in tuple(self._listeners):
                listener.push(changes)
                await let_others()  # else all of them send in one turn of the event loop
        return place

    async def listen(self, after: Cursor) -> AsyncGenerator[Sequence[Change]]:
        """All changes after this place as they happen; an empty piece now and then, where there are
        none.

        Ends where we stop, where the database was away, where the listener is too slow, and where
        so many came at once that some must go.
        """
        if self.full:
            return
        listener = _Listener()
        with self._listening(listener):
            # In this order nothing is missed: what was passed on before is read here.
            await self._reading.wait()
            async for piece in self._past(after, listener):
                after = piece[-1].at
                yield piece
            while True:
                while taken := listener.take():
                    if new := [change for change in taken if change.at > after]:
                        yield new
                    await let_others()
                if listener.closed or self._stopped:
                    return
                listener.woken.clear()
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await listener.woken.wait()
                except TimeoutError:
                    yield ()

    async def _past(self, after: Cursor, listener: _Listener) -> AsyncIterator[Sequence[Change]]:
        """What is there already."""
        while not listener.closed and (changes := await self.changes.after(after, PAGE)):
            after = changes[-1].at
            for start in range(0, len(changes), PIECE):
                yield changes[start : start + PIECE]
                await let_others()

    @contextlib.contextmanager
    def _listening(self, listener: _Listener) -> Iterator[None]:
        self._listeners.add(listener)
        self._wanted.set()
        metrics.HTTP_LISTENERS.inc()
        try:
            yield
        finally:
            self._listeners.discard(listener)
            metrics.HTTP_LISTENERS.dec()
