"""Score requests by state, error code, time and session: what a person looks for, and asks anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consumer.edges.postgres.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which requests; None: whatever it is. What is finished counts by its end, from `since` on,
    all else by its arrival, from `arrived` on; both before `until`.
    """

    states: Sequence[str]
    codes: Sequence[str] | None = None
    since: datetime | None = None
    arrived: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    request_ids: Sequence[UUID] | None = None


class StoredRequests(Tables):
    """Looks requests up. Each carries `asked_anew_as`: the newest later request for the same."""

    @property
    def _counted(self) -> str:
        found, by = self._sql["listed_requests"], "state, error_code"
        return f"SELECT {by}, count(*) AS requests FROM ({found}) f GROUP BY {by} ORDER BY 3 DESC"  # noqa: S608

    async def listed(
        self, wanted: Wanted, *, limit: int, not_anew: bool = False
    ) -> list[dict[str, Any]]:
        """Up to so many, the newest first; `not_anew`: only what was not asked for anew since."""
        rows = await self._fetch("listed_requests", *_arguments(wanted), limit, not_anew)
        return [dict(row) for row in rows]

    async def counts(self, wanted: Wanted) -> list[dict[str, Any]]:
        """How many there are by state and code, the most frequent first."""
        async with self._connection() as connection:
            rows = await connection.fetch(self._counted, *_arguments(wanted), None, False)
        return [dict(row) for row in rows]


def _arguments(wanted: Wanted) -> tuple[Any, ...]:
    return (
        wanted.states,
        wanted.codes,
        wanted.since,
        wanted.arrived,
        wanted.until,
        wanted.session_id,
        wanted.request_ids,
    )
