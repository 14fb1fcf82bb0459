"""Room for what is large: so many bytes are held at a time, by all together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from consumer.limits.turns import Turns


class Room:
    """`capacity` bytes. What is larger than all of it takes all of it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._turns = Turns()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """How many wait for bytes to become free."""
        return len(self._turns)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place of no size yet; what it holds at the end becomes free."""
        place = Place(self)
        try:
            yield place
        finally:
            self._give_back(place.size)

    async def _take(self, size: int) -> int:
        wanted = self._most(size)
        await self._turns.wait(lambda: self._taken(wanted), lambda: self._give_back(wanted))
        return wanted

    def _most(self, size: int) -> int:
        return min(size, self._capacity)

    def _taken(self, size: int) -> bool:
        if self.taken + size > self._capacity:
            return False
        self.taken += size
        return True

    def _give_back(self, size: int) -> None:
        self.taken -= size
        self._turns.serve()


class Place:
    """What one of them holds: a part of its room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    async def resize(self, size: int) -> None:
        """Waits until there is room for so many bytes. What was held until then is given back
        before: so nobody waits for somebody who waits.
        """
        self.shrink(0)
        self.size = await self._room._take(size)  # noqa: SLF001

    def grow(self, size: int) -> bool:
        """Whether it holds so many bytes now; waits for nobody."""
        more = self._room._most(size) - self.size  # noqa: SLF001
        if more > 0 and (self._room.waiting or not self._room._taken(more)):  # noqa: SLF001
            return False
        self.size += max(0, more)
        return True

    def shrink(self, size: int) -> None:
        """What is more than so many bytes becomes free."""
        spare = max(0, self.size - size)
        self.size -= spare
        self._room._give_back(spare)  # noqa: SLF001
