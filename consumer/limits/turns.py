"""First come, first served. Waiting can be cancelled at any moment, and nothing gets lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turns:
    """A queue in front of something of which there may not be enough. Only its head is served,
    so that who wants much is not starved by those who want little.
    """

    def __init__(self) -> None:
        # In the order of arrival, each with how it takes what it waits for.
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, take: Callable[[], bool], give_back: Callable[[], None]) -> None:
        """Returns when everyone before has been served and `take` answered True.

        `take` takes all and answers True, or takes nothing and answers False. Where the wait is
        cancelled after it took, `give_back` is called.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = take
        self.serve()
        try:
            await turn  # does not give up control where it was served at once
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(turn, None)
            else:  # cancelled between being served and waking up
                give_back()
            self.serve()
            raise

    def serve(self) -> None:
        """Serves whom it can; to be called whenever more may have become free."""
        while self._waiting:
            turn, take = next(iter(self._waiting.items()))
            if not turn.cancelled():
                if not take():
                    return
                turn.set_result(None)
            del self._waiting[turn]
