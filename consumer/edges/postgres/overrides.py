"""Humans' scores beside the judge's. Append-only: the newest of a score counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from consumer import outgoing
from consumer.edges.postgres.store import Store
from consumer.edges.postgres.tables import Tables
from consumer.events import ScoreOverridden

Row = Mapping[str, Any]


class StoredOverrides(Tables):
    """See api.ports.Overrides."""

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str, store: Store) -> None:
        super().__init__(pool, where=where)
        self._store = store

    async def add(self, score_id: UUID, *, score: int, annotator: str, reason: str) -> Row | None:
        """The override, stored with its event; None where there is no such score."""
        async with self._transaction() as connection:
            row = await connection.fetchrow(
                self._sql["insert_override"], uuid4(), score_id, score, annotator, reason
            )
            if row is None:
                return None
            event = ScoreOverridden(
                score_id=score_id,
                session_id=row["session_id"],
                total_score=row["total_score"],
                override_score=row["override_score"],
                annotator=row["annotator"],
                reason=row["reason"],
                overridden_at=row["created_at"],
            )
            sent = outgoing.overridden(self._store.addresses, event, row["override_id"])
            await self._store.insert_outbox(connection, [sent])
        return dict(row)

    async def of(self, score_id: UUID) -> list[Row]:
        """A score's overrides, the newest first."""
        return [dict(row) for row in await self._fetch("overrides", score_id)]
