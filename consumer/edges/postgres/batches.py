"""Batches: what they are to do, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from asyncpg import Record

from consumer.batches import Batch, Known, NewBatch, Selection, State, request_id
from consumer.edges.postgres.tables import Tables

Row = Mapping[str, Any]


class StoredBatches(Tables):
    """See batches.Batches and api.ports.Batches."""

    async def create(self, new: NewBatch) -> UUID:
        """Stores a batch; somebody will work on it."""
        batch_id = uuid4()
        selection = new.selection and new.selection.model_dump(mode="json", exclude_defaults=True)
        async with self._transaction() as connection:
            await connection.execute(
                self._sql["insert_batch"],
                batch_id,
                selection,
                new.profile_id,
                new.force_rescore,
                new.priority,
                new.per_second,
                new.created_by,
            )
            sessions = list(dict.fromkeys(new.sessions))
            ids = [request_id(batch_id, session) for session in sessions]
            await connection.execute(self._sql["insert_batch_items"], batch_id, sessions, ids)
        return batch_id

    async def batch(self, batch_id: UUID) -> Row | None:
        """One batch."""
        return await self._one("batch_by_id", batch_id)

    async def batches(self, *, before: datetime | None, limit: int) -> list[Row]:
        """Batches, the newest first."""
        return [dict(row) for row in await self._fetch("batches", before, limit)]

    async def progress(self, batch_id: UUID) -> Row:
        """How far it is."""
        (row,) = await self._fetch("batch_progress", batch_id)
        return dict(row)

    async def cancel(self, batch_id: UUID, *, by: str) -> bool:
        """Has it ended; False where there is nothing to end."""
        return bool(await self._fetch("cancel_batch", batch_id, by))

    # ── the runner's ────────────────────────────────────────────────────────

    async def claim(self, *, lease_s: float, only: UUID | None = None) -> Batch | None:
        """An unfinished batch that nobody works on."""
        found = await self._fetch("claim_batch", lease_s, only)
        return _batch(found[0]) if found else None

    async def renew(self, batch: Batch, *, lease_s: float) -> bool:
        """Keeps the lease."""
        return bool(await self._fetch("renew_batch", batch.batch_id, batch.lease_token, lease_s))

    async def release(self, batch: Batch) -> None:
        """Lets others go on."""
        await self._fetch("release_batch", batch.batch_id, batch.lease_token)

    async def add_items(self, batch: Batch, items: Mapping[str, UUID], *, lease_s: float) -> bool:
        """More sessions with their request ids; what is there already stays."""
        return await self._under_lease(
            batch, lease_s, "insert_batch_items", list(items), list(items.values())
        )

    async def listed(self, batch: Batch) -> bool:
        """All sessions are there: on to publishing."""
        return bool(await self._fetch("batch_listed", batch.batch_id, batch.lease_token))

    async def next_items(self, batch: Batch, count: int) -> dict[str, UUID]:
        """Sessions not published yet."""
        found = await self._fetch("next_batch_items", batch.batch_id, count)
        return {row["session_id"]: row["request_id"] for row in found}

    async def published(self, batch: Batch, sessions: Iterable[str], *, lease_s: float) -> bool:
        """Kafka has acknowledged these. Noted in any case: a cancellation must find them."""
        await self._fetch("batch_items_published", batch.batch_id, list(sessions))
        return await self.renew(batch, lease_s=lease_s)

    async def finish(self, batch: Batch, state: State, *, message: str | None = None) -> bool:
        """The end."""
        found = await self._fetch("finish_batch", batch.batch_id, batch.lease_token, state, message)
        return bool(found)

    async def unanswered(self, batch: Batch, count: int) -> tuple[list[UUID], bool]:
        """Requests of the batch that wait, and whether others are not yet through Kafka."""
        waiting = await self._fetch("batch_waiting", batch.batch_id, count)
        (row,) = await self._fetch("batch_on_its_way", batch.batch_id)
        return [found["request_id"] for found in waiting], bool(row[0])

    async def known(self, session_ids: Sequence[str]) -> list[Known]:
        """The current scores of these sessions."""
        return [Known(**dict(row)) for row in await self._fetch("batch_known", list(session_ids))]

    async def mean_usd(self, profile_id: str, criteria_hash: str) -> float | None:
        """What the latest scores under these criteria cost on average; None: there are none."""
        (row,) = await self._fetch("batch_mean_usd", profile_id, criteria_hash)
        return None if row["usd"] is None else float(row["usd"])

    async def _under_lease(self, batch: Batch, lease_s: float, name: str, *args: Any) -> bool:
        async with self._transaction() as connection:
            if not await connection.fetch(
                self._sql["renew_batch"], batch.batch_id, batch.lease_token, lease_s
            ):
                return False
            await connection.execute(self._sql[name], batch.batch_id, *args)
        return True


def _batch(row: Record) -> Batch:
    names = set(Batch.__slots__) - {"selection"}
    selection = row["selection"]
    return Batch(
        **{name: row[name] for name in names},
        selection=None if selection is None else Selection.model_validate(selection),
    )
