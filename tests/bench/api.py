"""How fast the API answers with a million scores: GET score, every list, every report, an export.

`make bench-api` fills a database (ten minutes; kept in .cache/bench-api for the next time), starts
`score-consumer run --roles api` as it is, and asks it over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg
import psutil
from rich.console import Console

from consumer.demo.servers import EmbeddedPostgres
from consumer.edges.postgres import migrations
from consumer.edges.postgres.analytics import StoredAnalytics
from consumer.edges.postgres.connect import open_pool, place
from tests.bench.figures import Figure, percentile, report
from tests.bench.machine import machine
from tests.bench.many_scores import fill
from tests.support.replica import Replica

CACHE = Path(__file__).parents[2] / ".cache" / "bench-api"
PREFIX = "/api/v1/scoring"
RATE, SECONDS = 200, 15
# A tail shows what else the machine does: more rounds for it than for the rest.
GET_ROUNDS, ROUNDS, TIMES = 9, 3, 20
GET_P99_MS, REPORT_P95_MS, EXPORT_ROWS = 10.0, 300.0, 100_000
# A server for a million scores has more than PostgreSQL's default of 128 MB.
SHARED_BUFFERS = "1GB"
OUT = Console()

TODAY = datetime.now(UTC).date()
RANGES = {"30 days": 29, "92 days": 91, "a year": 365}
# Names are looked at for 92 days at most.
OF_NAMES = ("missing-tools", "approaches")
REPORTS = (
    *("trend", "distribution", *OF_NAMES, "criteria", "models", "tools", "cost", "agreement"),
)
LISTS = {
    "all": "",
    "agent": "agent=agent-3",
    "agent that is not": "agent=nobody",
    "label": "label=code",
    "model": "model=gpt-5",
    "profile": "profile_id=hybrid-code",
    "criteria that are not": f"criteria_hash={'0' * 64}",
    "band": "band=near-perfect",
    "state failed": "state=failed",
    "session": "session_id=s-1000",
    "before": f"to={TODAY - timedelta(days=300)}T00:00:00Z",
    "a common word": "text=memory",
    "three common words": "text=memory%20limit%20pod",
    "a rare word": "text=host777777",
    "a word of fifty": "text=pod-1234",
    "agent and word": "agent=agent-3&text=pod-1234",
    "four filters": "agent=agent-3&label=report&band=near-perfect&model=gpt-5",
    "four that exclude each other": "agent=agent-3&label=simple&band=good&profile_id=hybrid-code",
}


@contextlib.asynccontextmanager
async def database(folder: Path, scores: int) -> AsyncIterator[str]:
    """URL of the filled database, made if it is not there or is of another schema."""
    name = f"scores_{scores}_{migrations.shipped()[-1].checksum[:12]}"
    server = EmbeddedPostgres(folder)
    await asyncio.to_thread(server.start)
    try:
        await _execute(server.dsn, f"ALTER SYSTEM SET shared_buffers = '{SHARED_BUFFERS}'")
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        url = urlunsplit(urlsplit(server.dsn)._replace(path=f"/{name}"))
        if not await _value(server.dsn, "SELECT 1 FROM pg_database WHERE datname = $1", name):
            await _make(server.dsn, name, scores)
        yield url
    finally:
        await asyncio.to_thread(server.stop)


async def _make(dsn: str, name: str, scores: int) -> None:
    unfinished = f"{name}_unfinished"
    await _execute(dsn, f"DROP DATABASE IF EXISTS {unfinished}")
    await _execute(dsn, f"CREATE DATABASE {unfinished}")
    url = urlunsplit(urlsplit(dsn)._replace(path=f"/{unfinished}"))
    await migrations.up(url)
    began = perf_counter()
    await fill(url, scores, told=lambda n: OUT.print(f"{n} scores, {perf_counter() - began:.0f} s"))
    pool = await open_pool(url, size=1)
    began = perf_counter()
    days = await StoredAnalytics(pool, where=place(url)).roll_up(limit=1000)
    OUT.print(f"{days} days rolled up in {perf_counter() - began:.0f} s")
    await pool.close()
    await _execute(url, "VACUUM ANALYZE")  # longer than a pool's transaction may take
    await _execute(dsn, f"ALTER DATABASE {unfinished} RENAME TO {name}")


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


async def _value(dsn: str, query: str, *args: object) -> object:
    connection = await asyncpg.connect(dsn)
    found = await connection.fetchval(query, *args)
    await connection.close()
    return found


async def asked(http: aiohttp.ClientSession, path: str) -> float:
    """Milliseconds until the answer is read in full."""
    began = perf_counter()
    async with http.get(f"{PREFIX}{path}") as answer:
        await answer.read()
        assert answer.status == 200, (path, await answer.text())
    return (perf_counter() - began) * 1000


async def at_a_rate(http: aiohttp.ClientSession, paths: Sequence[str]) -> list[float]:
    """Milliseconds of each, asked at the rate whether or not the former ones are answered; counted
    from when each was due.
    """
    began = perf_counter()

    async def one(path: str, due: float) -> float:
        late = perf_counter() - due
        return late * 1000 + await asked(http, path)

    async with asyncio.TaskGroup() as asking:
        asks = []
        for number, path in enumerate(paths):
            due = began + number / RATE
            await asyncio.sleep(due - perf_counter())
            asks.append(asking.create_task(one(path, due)))
    return [ask.result() for ask in asks]


async def get_score(http: aiohttp.ClientSession, scores: int) -> list[Figure]:
    """Current scores of sessions all over the year."""
    sessions = [(n * 7919 * 10) % scores for n in range(RATE * SECONDS)]
    paths = [f"/sessions/s-{number}/score" for number in sessions]
    await at_a_rate(http, paths[: RATE * 3])
    rounds = [await at_a_rate(http, paths) for _ in range(GET_ROUNDS)]
    return [_ms(f"GET score at {RATE}/s", rounds, 0.99, GET_P99_MS)]


def _ms(name: str, rounds: Sequence[Sequence[float]], share: float, mark: float) -> Figure:
    return Figure(
        name=f"{name}, p{share * 100:.0f}",
        unit="ms",
        values=[percentile(times, share) for times in rounds],
        mark=mark,
        better="less",
        note=f"p50 {statistics.median(time for times in rounds for time in times):.1f}",
    )


async def one_by_one(http: aiohttp.ClientSession, paths: dict[str, str]) -> list[Figure]:
    """Each path so often, after one time that is not counted."""
    figures = []
    for name, path in paths.items():
        await asked(http, path)
        rounds = [[await asked(http, path) for _ in range(TIMES)] for _ in range(ROUNDS)]
        figures.append(_ms(name, rounds, 0.95, REPORT_P95_MS))
    return figures


async def lists(http: aiohttp.ClientSession) -> list[Figure]:
    """The scorecards, by every filter."""
    paths = {f"list: {name}": f"/scorecards?{query}" for name, query in LISTS.items()}
    return await one_by_one(http, paths)


async def reports(http: aiohttp.ClientSession) -> list[Figure]:
    """Each report over each range, of all scores and of one label."""
    paths = {}
    for name in REPORTS:
        for told, days in RANGES.items():
            if name in OF_NAMES and days > 92:
                continue
            path = f"/analytics/{name}?from={TODAY - timedelta(days=days)}"
            paths[f"report: {name}, {told}"] = path
            paths[f"report: {name}, {told}, one label"] = f"{path}&label=alert"
    return await one_by_one(http, paths)


async def export(http: aiohttp.ClientSession, server: psutil.Process) -> list[Figure]:
    """The server's memory at most while it writes 100 000 rows, over that of the first 10 000."""
    return [await _exported(http, server, written) for written in ("csv", "jsonl")]


async def _exported(http: aiohttp.ClientSession, server: psutil.Process, written: str) -> Figure:
    query = f"format={written}&state=completed&from={TODAY - timedelta(days=41)}T00:00:00Z"
    growth, rate = [], 0.0
    for _ in range(ROUNDS):
        rows, began, first, most = 0, perf_counter(), 0, 0
        async with http.get(f"{PREFIX}/scorecards/export?{query}") as answer:
            async for chunk in answer.content.iter_any():
                rows += chunk.count(b"\n")
                most = max(most, server.memory_info().rss)
                if rows < EXPORT_ROWS / 10:
                    first = most
                if rows >= EXPORT_ROWS:
                    break
        assert rows >= EXPORT_ROWS, rows
        rate = rows / (perf_counter() - began)
        growth.append(most / first - 1)
    return Figure(
        name=f"memory: {EXPORT_ROWS} rows as {written} over a tenth of them",
        unit="",
        values=growth,
        mark=0.05,
        better="less",
        note=f"{rate:.0f} rows/s, {most / 2**20:.0f} MiB",
    )


async def run(data: Path, scores: int, only: Sequence[str]) -> list[Figure]:
    """Everything, or some parts."""
    async with database(data, scores) as url:
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                "DATABASE_URL": url,
                "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",  # nothing here is published
                "LOG_LEVEL": "WARNING",
            }
            api = Replica(Path(folder) / "api", environment, roles="api")
            await asyncio.to_thread(api.start)
            try:
                async with aiohttp.ClientSession(api.url) as http:
                    parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
                        "get": lambda: get_score(http, scores),
                        "lists": lambda: lists(http),
                        "reports": lambda: reports(http),
                        "export": lambda: export(http, psutil.Process(api.pid)),
                    }
                    found = [await part() for name, part in parts.items() if name in only]
            finally:
                await asyncio.to_thread(api.stop)
    return [figure for figures in found for figure in figures]


def main() -> None:
    """Prints a table; writes JSON where told."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.api", description=__doc__)
    parser.add_argument("--scores", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=CACHE, help="where the database is kept")
    parser.add_argument("--only", default="get,lists,reports,export", help="parts, by commas")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    figures = asyncio.run(run(given.folder, given.scores, given.only.split(",")))
    report(figures, OUT, given.json, machine=about, scores=given.scores)
    sys.exit(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    main()
