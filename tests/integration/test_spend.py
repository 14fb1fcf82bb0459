"""Money in the tables: never more reserved than the cap leaves, never lost, never booked twice."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from consumer.edges.postgres.connect import open_pool, place
from consumer.edges.postgres.spend import DaySpend, Spend
from consumer.edges.postgres.store import Store
from consumer.error_codes import ErrorCode
from consumer.errors import LeaseLost, NotReachable
from consumer.pipeline import Failed
from consumer.ports import ClaimedRequest
from tests.integration.builders import (
    claim,
    claim_one,
    emptied,
    execute,
    fetch,
    migrated_database,
    opened_store,
    request,
    until_blocked,
    value,
)
from tests.support.servers import PostgresServer

CAP_USD = 1.0
TODAY = "(now() AT TIME ZONE 'UTC')::date"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_database(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    async with migrated_database(postgres, migrated_template) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def database(module_database: str) -> str:
    await execute(module_database, "DELETE FROM judge_reservations; DELETE FROM judge_spend")
    return await emptied(module_database)


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with opened_store(database) as opened:
        yield opened


@pytest_asyncio.fixture
async def spend(database: str) -> AsyncIterator[Spend]:
    async with opened_spend(database) as opened:
        yield opened


@pytest_asyncio.fixture
async def claimed(store: Store) -> ClaimedRequest:
    """A request under a lease."""
    await store.accept([request()], [])
    return await claim_one(store)


@contextlib.asynccontextmanager
async def opened_spend(dsn: str, *, size: int = 8) -> AsyncIterator[Spend]:
    """The accounts as one replica sees them."""
    pool = await open_pool(dsn, size=size)
    try:
        yield Spend(pool, where=place(dsn))
    finally:
        pool.terminate()


async def reserve(
    spend: Spend,
    claimed: ClaimedRequest,
    amount_usd: float,
    *,
    cap_usd: float = CAP_USD,
    provider: str = "openai",
) -> UUID | None:
    return await spend.reserve(
        provider=provider,
        cap_usd=cap_usd,
        amount_usd=amount_usd,
        request_id=claimed.request_id,
        lease_token=claimed.lease_token,
    )


async def reserved(spend: Spend, claimed: ClaimedRequest, amount_usd: float, **how: Any) -> UUID:
    """A reservation that has to succeed."""
    made = await reserve(spend, claimed, amount_usd, **how)
    assert made
    return made


async def account(dsn: str, provider: str = "openai", day: str = TODAY) -> tuple[Decimal, ...]:
    """(cap, spent, reserved) as stored."""
    (row,) = await fetch(
        dsn,
        "SELECT cap_usd, spent_usd, reserved_usd FROM judge_spend "  # noqa: S608
        f"WHERE provider = $1 AND day = {day}",
        provider,
    )
    return tuple(row.values())


def usd(*amounts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, amounts))


async def expire(dsn: str, *requests: ClaimedRequest) -> None:
    """Their leases have run out, and nobody has looked yet."""
    await execute(
        dsn,
        "UPDATE score_requests SET lease_expires_at = now() - interval '1 s' "
        "WHERE request_id = ANY($1)",
        [one.request_id for one in requests],
    )


# ── reserving ───────────────────────────────────────────────────────────────


async def test_what_fits_exactly_is_reserved_and_not_a_step_more(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    assert await reserve(spend, claimed, 0.1, cap_usd=0.3)
    assert await reserve(spend, claimed, 0.200000000001, cap_usd=0.3) is None
    assert await reserve(spend, claimed, 0.2, cap_usd=0.3)  # 0.1 + 0.2 > 0.3 in floats
    assert await reserve(spend, claimed, 1e-12, cap_usd=0.3) is None

    assert await account(database) == usd("0.3", "0", "0.3")
    assert await value(database, "SELECT count(*) FROM judge_reservations") == 2


async def test_an_amount_over_the_whole_cap_is_refused_on_an_untouched_day(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    assert await reserve(spend, claimed, 1.5) is None

    assert await account(database) == usd("1", "0", "0")
    assert await value(database, "SELECT count(*) FROM judge_reservations") == 0


async def test_a_cap_of_nothing_lets_only_free_calls_through(
    spend: Spend, claimed: ClaimedRequest
) -> None:
    assert await reserve(spend, claimed, 1e-9, cap_usd=0) is None
    assert await reserve(spend, claimed, 0, cap_usd=0)


async def test_a_reservation_knows_for_whom_it_is(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    made = await reserved(spend, claimed, 0.25)

    (row,) = await fetch(
        database,
        f"SELECT *, day = {TODAY} AS of_today FROM judge_reservations",  # noqa: S608
    )
    assert row["of_today"]
    assert (row["reservation_id"], row["provider"], row["amount_usd"]) == (
        made,
        "openai",
        Decimal("0.25"),
    )
    assert (row["request_id"], row["lease_token"]) == (claimed.request_id, claimed.lease_token)
    assert (row["released_at"], row["settled_at"], row["spent_usd"]) == (None, None, None)


async def test_a_cap_changed_during_the_day_counts_from_the_next_reservation(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    await reserved(spend, claimed, 0.6)

    assert await reserve(spend, claimed, 0.1, cap_usd=0.5) is None
    assert await account(database) == usd("0.5", "0", "0.6")  # whoever looks sees why
    assert await reserve(spend, claimed, 1.4, cap_usd=2.0)
    assert await account(database) == usd("2", "0", "2")


async def test_providers_have_accounts_of_their_own(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    await reserved(spend, claimed, 1.0)

    assert await reserve(spend, claimed, 1.0, provider="gemini")
    assert await reserve(spend, claimed, 0.1) is None


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
async def test_the_day_is_utc_wherever_the_database_is(
    claimed: ClaimedRequest, database: str, zone: str
) -> None:
    """At any time one of the two zones has another day than UTC."""
    name = urlsplit(database).path[1:]
    await execute(database, f"ALTER DATABASE {name} SET timezone TO '{zone}'")
    try:
        async with opened_spend(database) as spend:
            await reserved(spend, claimed, 0.25)
            (today,) = await spend.today(["openai"])
    finally:
        await execute(database, f"ALTER DATABASE {name} RESET timezone")

    assert today.reserved_usd == 0.25
    assert await account(database) == usd("1", "0", "0.25")


async def test_yesterdays_account_is_closed_but_for_what_was_reserved_on_it(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    late = await reserved(spend, claimed, 0.9)
    # A day passes: what there is of today is now yesterday's.
    await execute(
        database,
        """
        INSERT INTO judge_spend (day, provider, cap_usd, spent_usd, reserved_usd)
        SELECT day - 1, provider, cap_usd, 0.1, reserved_usd FROM judge_spend;
        UPDATE judge_reservations SET day = day - 1;
        DELETE FROM judge_spend WHERE spent_usd = 0;
        """,
    )

    (before,) = await spend.today(["openai"])
    assert (before.cap_usd, before.spent_usd, before.reserved_usd) == (None, 0, 0)
    assert await reserve(spend, claimed, 1.0)
    await spend.settle(late, 0.4)

    assert await account(database) == usd("1", "0", "1")
    assert await account(database, day=f"{TODAY} - 1") == usd("1", "0.5", "0")


async def test_without_the_lease_nothing_is_reserved(
    spend: Spend, store: Store, claimed: ClaimedRequest, database: str
) -> None:
    await expire(database, claimed)
    assert await reserve(spend, claimed, 0)  # nobody has taken it: we may still renew it
    await store.free_expired()
    with pytest.raises(LeaseLost):
        await reserve(spend, claimed, 0.1)

    again = await claim_one(store)
    with pytest.raises(LeaseLost):
        await reserve(spend, claimed, 0.1)
    with pytest.raises(LeaseLost):  # and this is not "no room"
        await reserve(spend, claimed, 7.0)
    assert await reserve(spend, again, 0.1)

    await store.end(again, Failed(ErrorCode.HISTORY_INVALID, "no use"))
    with pytest.raises(LeaseLost):
        await reserve(spend, again, 0.1)
    assert await account(database) == usd("1", "0", "0.1")


@pytest.mark.parametrize("amount", [-0.01, math.nan, math.inf, 1e12])
async def test_what_is_no_amount_is_refused(
    spend: Spend, claimed: ClaimedRequest, database: str, amount: float
) -> None:
    made = await reserved(spend, claimed, 0.5)

    with pytest.raises(ValueError, match="no amount"):
        await reserve(spend, claimed, amount)
    with pytest.raises(ValueError, match="no amount"):
        await reserve(spend, claimed, 0.1, cap_usd=amount)
    with pytest.raises(ValueError, match="no amount"):
        await spend.settle(made, amount)

    assert await account(database) == usd("1", "0", "0.5")


@pytest.mark.parametrize("wrong", ["-1", "'NaN'"])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("judge_spend", "cap_usd"),
        ("judge_spend", "spent_usd"),
        ("judge_spend", "reserved_usd"),
        ("judge_reservations", "amount_usd"),
        ("judge_reservations", "settled_at = now(), spent_usd"),
    ],
)
async def test_the_tables_refuse_it_too(
    spend: Spend, claimed: ClaimedRequest, database: str, table: str, column: str, wrong: str
) -> None:
    await reserved(spend, claimed, 0.5)

    with pytest.raises(asyncpg.CheckViolationError):
        await execute(database, f"UPDATE {table} SET {column} = {wrong}")  # noqa: S608


# ── settling ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spent", ["0", "0.000123", "0.5", "1.75"])
async def test_what_was_spent_is_booked_as_it_was(
    spend: Spend, claimed: ClaimedRequest, database: str, spent: str
) -> None:
    other = await reserved(spend, claimed, 0.25)
    made = await reserved(spend, claimed, 0.5)

    await spend.settle(made, float(spent))

    assert await account(database) == usd("1", spent, "0.25")
    await spend.settle(other, 0)
    room = max(1 - Decimal(spent), Decimal(0))
    assert await reserve(spend, claimed, float(room) + 1e-9) is None
    assert bool(await reserve(spend, claimed, float(room))) == (Decimal(spent) <= 1)


async def test_amounts_count_as_they_read_and_what_does_not_fit_rounds_up(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    for _ in range(10):
        await spend.settle(await reserved(spend, claimed, 0.1), 0.1)
    assert await account(database) == usd("1", "1", "0")

    await spend.settle(await reserved(spend, claimed, 1e-13, cap_usd=2.0), 1.00000000000049e-3)
    assert await account(database) == usd("2", "1.001000000001", "0")


async def test_settling_twice_counts_once(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    made = await reserved(spend, claimed, 0.5)

    await asyncio.gather(*(spend.settle(made, 0.2) for _ in range(8)))
    await spend.settle(made, 0.9)

    assert await account(database) == usd("1", "0.2", "0")


async def test_money_for_an_unknown_reservation_is_an_error(spend: Spend, database: str) -> None:
    unknown = uuid4()

    with pytest.raises(LookupError, match=str(unknown)):
        await spend.settle(unknown, 0.1)

    assert await value(database, "SELECT count(*) FROM judge_spend") == 0


# ── releasing ───────────────────────────────────────────────────────────────


async def test_a_crashed_workers_reservation_is_released_when_its_lease_runs_out_and_not_before(
    spend: Spend, store: Store, database: str
) -> None:
    await store.accept([request("s1"), request("s2")], [])
    crashed, alive = await claim(store, 2)
    await store.renew([crashed], lease_s=0.5)
    await reserved(spend, crashed, 0.5)
    await reserved(spend, alive, 0.25)

    assert await spend.release_expired() == 0
    assert await account(database) == usd("1", "0", "0.75")
    await asyncio.sleep(0.6)
    assert await spend.release_expired() == 1
    assert await spend.release_expired() == 0

    assert await account(database) == usd("1", "0", "0.25")
    assert await reserve(spend, alive, 0.75)


@pytest.mark.parametrize("end", ["freed", "claimed again", "put back", "ended", "pruned"])
async def test_a_reservation_ends_with_its_lease_however_that_ends(
    spend: Spend, store: Store, claimed: ClaimedRequest, database: str, end: str
) -> None:
    await reserved(spend, claimed, 0.5)
    if end == "put back":
        await store.put_back(claimed, after_s=0)
    elif end == "ended":
        await store.end(claimed, Failed(ErrorCode.HISTORY_INVALID, "no use"))
    elif end == "pruned":
        await execute(database, "DELETE FROM score_requests")
    else:
        await expire(database, claimed)
        await store.free_expired()
    if end == "claimed again":
        await reserved(spend, await claim_one(store), 0.125)  # another lease, and it stays

    assert await spend.release_expired() == 1

    left = "0.125" if end == "claimed again" else "0"
    assert await account(database) == usd("1", "0", left)


async def test_what_was_spent_under_a_lost_lease_counts_all_the_same(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    made = await reserved(spend, claimed, 0.5)
    await expire(database, claimed)
    await spend.release_expired()

    await spend.settle(made, 0.3)
    await spend.settle(made, 0.3)

    assert await spend.release_expired() == 0
    assert await account(database) == usd("1", "0.3", "0")


async def test_a_settled_reservation_is_not_released_again(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    await spend.settle(await reserved(spend, claimed, 0.5), 0.5)
    await reserved(spend, claimed, 0.5)
    await expire(database, claimed)

    assert await spend.release_expired() == 1

    assert await account(database) == usd("1", "0.5", "0")


@pytest.mark.parametrize("first", ["settle", "release"])
async def test_settling_and_releasing_at_once_gives_back_once(
    spend: Spend, claimed: ClaimedRequest, database: str, first: str
) -> None:
    """Both orders, each made certain by a day that both have to wait for."""
    made = await reserved(spend, claimed, 0.5)
    await reserved(spend, claimed, 0.25, provider="gemini")
    await expire(database, claimed)
    blocker = await asyncpg.connect(database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("SELECT FROM judge_spend FOR UPDATE")
    steps = {"settle": spend.settle(made, 0.2), "release": spend.release_expired()}
    tasks = []
    for name in (first, *(steps.keys() - {first})):
        tasks.append(asyncio.create_task(steps[name]))
        await until_blocked(database, len(tasks))

    await transaction.rollback()
    await blocker.close()
    results = await asyncio.gather(*tasks)

    # Settling waits for a release under way; a release leaves out what is being settled.
    assert (1 if first == "settle" else 2) in results
    assert await account(database) == usd("1", "0.2", "0")
    assert await account(database, "gemini") == usd("1", "0", "0")


# ── many at once ────────────────────────────────────────────────────────────

REPLICAS = 4
REQUESTS = 200
CALLS = 3
PROVIDERS = ("openai", "gemini", "anthropic")

# All that must be true of every snapshot, for every account.
BOOKS = """
SELECT s.provider, s.cap_usd, s.spent_usd, s.reserved_usd,
    coalesce(sum(r.amount_usd) FILTER (WHERE r.released_at IS NULL AND r.settled_at IS NULL), 0)
        AS held_usd,
    coalesce(sum(r.spent_usd), 0) AS settled_usd
FROM judge_spend s LEFT JOIN judge_reservations r USING (day, provider)
GROUP BY s.day, s.provider
"""


class Ledger:
    """What the tests' workers believe to have reserved and spent."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.crashed: list[ClaimedRequest] = []
        self.spent = dict.fromkeys(PROVIDERS, Decimal(0))

    async def work(self, spend: Spend, claimed: ClaimedRequest) -> None:
        """A request's calls to the judge, one after the other; one in twenty crashes."""
        for _ in range(CALLS):
            provider = random.choice(PROVIDERS)
            amount = round(random.uniform(0.0001, 0.05), 9)
            made = await reserve(spend, claimed, amount, provider=provider)
            if made is None:
                self.calls["refused"] += 1
                continue
            await asyncio.sleep(random.uniform(0, 0.02))
            if random.random() < 0.05:
                self.crashed.append(claimed)
                return
            spent = round(amount * random.choice([0, 0.3, 0.9, 1]), 12)
            # A worker that got no answer settles again, here even at the same time.
            again = random.choice([1, 1, 2])
            await asyncio.gather(*(spend.settle(made, spent) for _ in range(again)))
            self.spent[provider] += Decimal(repr(spent))
            self.calls["settled"] += 1


async def watch(dsn: str) -> int:
    """Checks the books as often as it can, until it is cancelled."""
    connection = await asyncpg.connect(dsn)
    looks = 0
    try:
        while True:
            for row in await connection.fetch(BOOKS):
                assert row["spent_usd"] + row["reserved_usd"] <= row["cap_usd"], row
                assert row["reserved_usd"] == row["held_usd"], row
                assert row["spent_usd"] == row["settled_usd"], row
            looks += 1
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        return looks
    finally:
        connection.terminate()


async def test_no_crowd_of_replicas_ever_passes_the_cap_or_loses_a_cent(
    store: Store, database: str
) -> None:
    await store.accept([request(f"s{number}") for number in range(REQUESTS)], [])
    leased = await claim(store, REQUESTS)
    ledger = Ledger()
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(opened_spend(database)) for _ in range(REPLICAS)
        ]
        watching = asyncio.create_task(watch(database))
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(leased):
                group.create_task(ledger.work(replicas[number % REPLICAS], one))
            for replica in replicas:
                group.create_task(replica.release_expired())  # no lease has ended yet
        watching.cancel()
        looks = await watching

        crashed = {one.request_id: one for one in ledger.crashed}
        held = await value(database, "SELECT sum(reserved_usd) FROM judge_spend")
        await expire(database, *crashed.values())
        released = await asyncio.gather(*(one.release_expired() for one in replicas * 3))

    assert min(ledger.calls["refused"], ledger.calls["settled"], len(crashed), looks) > 0
    assert held > 0
    assert sum(released) == len(crashed)
    for row in await fetch(database, BOOKS):
        assert row["reserved_usd"] == row["held_usd"] == 0
        assert row["spent_usd"] == row["settled_usd"] == ledger.spent[row["provider"]]
        assert row["spent_usd"] <= row["cap_usd"]


async def test_reserving_settling_and_releasing_do_not_wait_for_each_other_in_a_circle(
    store: Store, database: str
) -> None:
    """A deadlock would be a NotReachable."""
    providers = [f"provider-{number}" for number in range(12)]
    await store.accept([request(f"s{number}") for number in range(40)], [])
    lost, kept = await claim(store, 20), await claim(store, 20)
    await execute(
        database,
        f"INSERT INTO judge_spend SELECT {TODAY}, p, 100 FROM unnest($1::text[]) p",  # noqa: S608
        random.sample(providers, len(providers)),
    )
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(opened_spend(database)) for _ in range(REPLICAS)
        ]

        async def call(one: ClaimedRequest, provider: str) -> UUID:
            spend = random.choice(replicas)
            return await reserved(spend, one, 0.01, cap_usd=100, provider=provider)

        made = await asyncio.gather(*(call(one, p) for one in lost for p in providers))
        await expire(database, *lost)
        late = random.sample(made, 60)
        await asyncio.gather(
            *(replica.release_expired() for replica in replicas * 4),
            *(random.choice(replicas).settle(one, 0.02) for one in late),
            *(call(one, random.choice(providers)) for one in kept),
        )

    (row,) = await fetch(
        database,
        "SELECT sum(spent_usd) AS spent, sum(reserved_usd) AS reserved FROM judge_spend",
    )
    assert (row["spent"], row["reserved"]) == usd("1.2", "0.2")


# ── looking and pruning ─────────────────────────────────────────────────────


async def test_today_tells_of_every_provider_that_is_asked_for(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    await spend.settle(await reserved(spend, claimed, 0.5), 0.125)
    await reserved(spend, claimed, 0.25)
    await reserved(spend, claimed, 0.5, provider="not asked for")
    await execute(
        database,
        f"INSERT INTO judge_spend VALUES ({TODAY} - 1, 'openai', 9, 9, 9)",  # noqa: S608
    )

    found = await spend.today(["openai", "gemini"])

    assert sorted(found, key=lambda one: one.provider) == [
        DaySpend(provider="gemini", cap_usd=None, spent_usd=0, reserved_usd=0),
        DaySpend(provider="openai", cap_usd=1.0, spent_usd=0.125, reserved_usd=0.25),
    ]


async def test_prune_deletes_old_reservations_and_days_in_batches_but_none_that_is_held(
    spend: Spend, claimed: ClaimedRequest, database: str
) -> None:
    await execute(
        database,
        f"""
        INSERT INTO judge_spend (day, provider, cap_usd)
        SELECT {TODAY} - days, provider, 9
        FROM unnest('{{30,31,40}}'::integer[]) days, unnest('{{openai,gemini}}'::text[]) provider
        """,  # noqa: S608
    )
    for days, provider, released, settled in [
        (30, "openai", True, True),
        (31, "openai", False, True),
        (31, "openai", True, False),
        (40, "openai", True, True),
        (40, "gemini", False, False),
    ]:
        await execute(
            database,
            f"""
            INSERT INTO judge_reservations (reservation_id, day, provider, request_id, lease_token,
                amount_usd, released_at, settled_at, spent_usd)
            VALUES (gen_random_uuid(), {TODAY} - $1::integer, $2, $3, $4, 1,
                CASE WHEN $5 THEN now() END, CASE WHEN $6 THEN now() END, CASE WHEN $6 THEN 1 END)
            """,  # noqa: S608
            days,
            provider,
            claimed.request_id,
            claimed.lease_token,
            released,
            settled,
        )
    await spend.settle(await reserved(spend, claimed, 0.5), 0.5)

    deleted = []
    while count := await spend.prune(older_than_days=30, batch=2):
        deleted.append(count)

    # Two reservations and the day that had none; then the third; the days go as they are emptied.
    assert sum(deleted) == 3 + 3
    assert len(deleted) == 2
    left = f"SELECT {TODAY} - day AS days, provider FROM %s ORDER BY 1, 2"  # noqa: S608
    for table, also in (("judge_reservations", []), ("judge_spend", [(30, "gemini")])):
        rows = [tuple(row.values()) for row in await fetch(database, left % table)]
        assert rows == [(0, "openai"), *also, (30, "openai"), (40, "gemini")]


async def test_a_server_that_is_away_is_not_reachable(spend: Spend) -> None:
    await spend._pool.close()

    for attempt in (spend.settle(uuid4(), 1), spend.prune(older_than_days=1, batch=1)):
        with pytest.raises(NotReachable):
            await attempt
