"""What happened lately, in one order for all processes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from asyncpg import Record

from consumer.edges.postgres.connect import affected
from consumer.edges.postgres.tables import Tables
from consumer.ports import Change, Cursor

PRUNE_BATCH = 5000


class StoredChanges(Tables):
    """See api.feed.Changes."""

    async def now(self) -> Cursor:
        """A place behind all that can be read by now."""
        (row,) = await self._fetch("live_now")
        return Cursor(int(row["xmin"]) - 1, 2**63 - 1, 0)

    async def missed(self, after: Cursor) -> bool:
        """Whether something after this place is no longer kept, or the place is not of here."""
        found = await self._fetch("live_missed", str(after.xid), after.seq)
        return bool(found and found[0][0])

    async def after(self, place: Cursor, limit: int) -> list[Change]:
        """The next changes: those of up to `limit` statements."""
        rows = await self._fetch("live_page", str(place.xid), place.seq, place.n, limit)
        return [_change(row) for row in rows]

    async def prune(self) -> int:
        """Deletes some of what is older than an hour; answers how much."""
        async with self._connection() as connection:
            done = await connection.execute(self._sql["prune_live"], PRUNE_BATCH)
        return affected(done)


def _change(row: Record) -> Change:
    at = Cursor(int(row["xid"]), row["seq"], row["n"])
    data = _request(row) if row["kind"] == "request" else _override(row)
    text = json.dumps(data, default=_text, separators=(",", ":"))
    return Change(
        at=at,
        # A request may be deleted (prune) before its change is read; nobody asks for that one.
        session_id=row["session_id"] or "",
        text=f"id: {at}\nevent: {row['kind']}\ndata: {text}\n\n".encode(),
    )


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _request(row: Record) -> dict[str, Any]:
    names = ("session_id", "profile_id", "triggered_by", "state", "at")
    # Of a request that is in another state by now, its error is that state's matter.
    more = ("error_code", "error_message")
    data = {"request_id": row["id"], **{name: row[name] for name in names}}
    data |= {name: row[name] for name in more if row[name] is not None}
    return data | _score(row)


def _override(row: Record) -> dict[str, Any]:
    names = ("session_id", "override_score", "annotator", "at")
    return {"override_id": row["id"], **{name: row[name] for name in names}} | _score(row)


def _score(row: Record) -> dict[str, Any]:
    names = ("score_id", "total_score", "judge_profile_id")
    return {name: row[name] for name in names} if row["score_id"] else {}
