"""What the triggers of live events cost intake: `python -m tests.bench.live`.

Batches as intake stores them, by turns with the triggers and without, on one PostgreSQL; and
each is ended afterwards, by turns as well.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

import asyncpg

from consumer.edges.postgres import migrations
from consumer.edges.postgres.store import Store
from tests.integration.builders import execute, opened_store, request
from tests.support.servers import postgres_server

BATCHES, RECORDS = 60, 500
TRIGGERS = ("new_requests_noted", "request_states_noted")
END = """UPDATE score_requests
SET state = 'failed', error_code = 'internal_error', finished_at = now()
WHERE request_id = ANY($1::uuid[])"""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder)) as server:
        await migrations.up(server.dsn)
        async with opened_store(server.dsn) as store:
            times = await _measured(server.dsn, store)
    for what in ("accept", "end"):
        on, off = (median(times[what, mode]) * 1000 for mode in (True, False))
        print(  # noqa: T201
            f"{what}: {RECORDS} requests in {on:.1f} ms with triggers, {off:.1f} ms without: "
            f"{100 * (on / off - 1):+.1f} % (medians of {len(times[what, True])})"
        )


async def _measured(dsn: str, store: Store) -> dict[tuple[str, bool], list[float]]:
    times: dict[tuple[str, bool], list[float]] = {
        (what, mode): [] for what in ("accept", "end") for mode in (True, False)
    }
    connection = await asyncpg.connect(dsn)
    for n in range(BATCHES):
        mode = n % 2 == 0
        for trigger in TRIGGERS:
            switch = "ENABLE" if mode else "DISABLE"
            await execute(dsn, f"ALTER TABLE score_requests {switch} TRIGGER {trigger}")
        batch = [request(f"s-{uuid4().hex}") for _ in range(RECORDS)]
        started = perf_counter()
        await store.accept(batch, [])
        times["accept", mode].append(perf_counter() - started)
        started = perf_counter()
        await connection.execute(END, [one.request_id for one in batch])
        times["end", mode].append(perf_counter() - started)
    await connection.close()
    return times


if __name__ == "__main__":
    asyncio.run(main())
