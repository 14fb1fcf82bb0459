"""What judges cost: a cap a day and provider that all replicas share.

Each method is one statement. The row of the day decides who gets what is left of it, and the row of
a reservation whether its money was given back or booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from typing import Any
from uuid import UUID

import asyncpg

from consumer.edges.postgres.connect import affected, translated
from consumer.edges.postgres.store import load_queries
from consumer.errors import LeaseLost
from consumer.resources import resource

# The tables' precision and their largest amount, see sql/migrations/0002_judge_spend.up.sql.
_UNIT = Decimal("1e-12")
_TOO_MUCH = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """A provider's UTC day in USD. `cap_usd` is None where nothing was asked for yet."""

    provider: str
    cap_usd: float | None
    spent_usd: float
    reserved_usd: float


class Spend:
    """Spent and reserved USD. Amounts are kept exactly, in steps of 10^-12 USD, rounded up.

    Every method raises NotReachable, and ValueError for an amount that is negative or no number.
    """

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str) -> None:
        self._pool = pool
        self._where = where
        self._sql = load_queries((resource("sql") / "queries.sql").read_text())

    async def reserve(
        self,
        *,
        provider: str,
        cap_usd: float,
        amount_usd: float,
        request_id: UUID,
        lease_token: UUID,
    ) -> UUID | None:
        """A reservation on today's (UTC) account; None where it would pass the cap.

        The cap is the caller's: a new one counts from the next reservation on. Raises LeaseLost,
        and then nothing was reserved. A lease that ends while we wait for the day's row is not
        noticed here; its reservation is released like any other.
        """
        cap = _exact(cap_usd, ROUND_DOWN)
        amount = _exact(amount_usd, ROUND_UP)
        (found,) = await self._fetch(
            "reserve_spend", provider, cap, amount, request_id, lease_token
        )
        if not found["leased"]:
            raise LeaseLost(str(request_id))
        reservation_id: UUID | None = found["reservation_id"]
        if reservation_id is None:
            await self._fetch("keep_cap", provider, cap)
        return reservation_id

    async def settle(self, reservation_id: UUID, spent_usd: float) -> None:
        """Books what was really spent, on the day of the reservation, and frees what was reserved.

        May be more than was reserved. Counts once, however often it is called (the first amount
        stays), and also where the reservation was released before. Raises LookupError for an
        unknown reservation: its money would be lost from the account.
        """
        ((known,),) = await self._fetch("settle_spend", reservation_id, _exact(spent_usd, ROUND_UP))
        if not known:
            raise LookupError(f"no judge reservation {reservation_id}")

    async def release_expired(self) -> int:
        """Frees what is reserved under leases that ended or ran out; answers how many those were.

        Whose lease ran out a moment ago may still renew it: free expired leases first.
        """
        ((released,),) = await self._fetch("release_reservations")
        return int(released)

    async def today(self, providers: Sequence[str]) -> list[DaySpend]:
        """Each provider's account of this UTC day; zeros where nothing happened yet."""
        found = await self._fetch("spend_today", list(providers))
        return [_day_spend(row) for row in found]

    async def prune(self, *, older_than_days: int, batch: int) -> int:
        """Deletes one batch of old reservations, and old days that have none; answers how many.

        What is still held is kept, with its day.
        """
        reservations = await self._delete("prune_reservations", older_than_days, batch)
        return reservations + await self._delete("prune_spend", older_than_days)

    async def _fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        with translated(self._where):
            async with self._pool.acquire(timeout=30) as connection:
                return await connection.fetch(self._sql[name], *args)

    async def _delete(self, name: str, *args: Any) -> int:
        with translated(self._where):
            async with self._pool.acquire(timeout=30) as connection:
                done = await connection.execute(self._sql[name], *args)
        return affected(done)


def _exact(usd: float, rounding: str) -> Decimal:
    """The amount that a float shows, not the binary fraction that it is. Raises ValueError."""
    if not 0 <= usd < _TOO_MUCH:  # nor is NaN
        raise ValueError(f"{usd} is no amount of USD")
    return Decimal(repr(usd)).quantize(_UNIT, rounding)


def _day_spend(row: asyncpg.Record) -> DaySpend:
    cap = row["cap_usd"]
    return DaySpend(
        provider=row["provider"],
        cap_usd=None if cap is None else float(cap),
        spent_usd=float(row["spent_usd"]),
        reserved_usd=float(row["reserved_usd"]),
    )
