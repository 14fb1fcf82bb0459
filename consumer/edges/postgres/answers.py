"""Requests and scores as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from consumer.edges.postgres.store import Store
from consumer.edges.postgres.tables import Tables

Row = Mapping[str, Any]


class StoredAnswers(Tables):
    """See api.ports.Answers."""

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str, store: Store) -> None:
        super().__init__(pool, where=where)
        self._store = store

    async def request(self, request_id: UUID) -> Row | None:
        """One request."""
        return await self._one("request_by_id", request_id)

    async def last_request(self, session_id: str) -> Row | None:
        """The session's newest request."""
        return await self._one("last_request", session_id)

    async def score(self, score_id: UUID) -> Row | None:
        """One score, in full."""
        return await self._one("shown_score", score_id)

    async def current_score(self, session_id: str, profile_id: str | None) -> Row | None:
        """The session's current score by this profile; without one the newest by any."""
        return await self._one("shown_current_score", session_id, profile_id)

    async def scores(self, session_id: str, *, before: datetime | None, limit: int) -> list[Row]:
        """The session's scores, current and former, the newest first."""
        found = await self._fetch("shown_scores", session_id, before, limit)
        return [dict(row) for row in found]

    async def cancel(self, request_id: UUID, *, by: str) -> bool:
        """See Store.cancel."""
        return await self._store.cancel(request_id, by=by)
