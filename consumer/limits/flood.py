"""How fast a source may be read that sends mostly what can't be accepted."""

from __future__ import annotations

from collections import deque

# The share is judged once this many records have been seen, among the last WINDOW ones.
ENOUGH_RECORDS = 100
WINDOW = 1000
# Without an invalid record for so long a flood is over, however few valid ones came.
OVER_AFTER_S = 60.0
# Of a flooded source: a dead letter each is bearable so, and what comes behind is reached in time.
RECORDS_PER_S = 100.0


class Flood:
    """What one source sent of late. `limit` (0-1): above this share of invalid records it is
    flooded, until enough valid ones came.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._invalid = 0

    @property
    def share(self) -> float:
        """How much of the recent records was invalid, 0-1."""
        return self._invalid / max(1, len(self._recent))

    @property
    def flooded(self) -> bool:
        return len(self._recent) >= ENOUGH_RECORDS and self.share > self._limit

    def add(self, *, valid: int, invalid: int) -> float:
        """Counts a batch; returns for how many seconds nothing more is to be taken."""
        for one in [False] * valid + [True] * invalid:
            if len(self._recent) == WINDOW:
                self._invalid -= self._recent[0]
            self._recent.append(one)
            self._invalid += one
        return (valid + invalid) / RECORDS_PER_S if self.flooded else 0.0

    def forget(self) -> None:
        """Begins anew."""
        self._recent.clear()
        self._invalid = 0
