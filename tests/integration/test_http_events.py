"""Live events over HTTP: nothing is missed or told twice, by whichever replica, after any break."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import asyncpg
import pytest
import pytest_asyncio

from consumer.api import events, feed
from consumer.api.feed import Feed
from consumer.edges.postgres.connect import open_pool
from consumer.edges.postgres.live import StoredChanges
from consumer.error_codes import ErrorCode
from consumer.pipeline import Failed
from consumer.ports import Change, Cursor
from tests.integration.builders import claim_one, execute, fetch, request, scored, until
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics) as made:
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One server-sent event."""

    id: str
    kind: str
    data: dict[str, Any]


class Listening:
    """A client that reads; httpx' in-process transport would wait for the stream's end."""

    def __init__(self, api: Api, query: str = "", last: str | None = None) -> None:
        self._queue: asyncio.Queue[Sent] = asyncio.Queue()
        self._headers = [(b"last-event-id", last.encode())] if last else []
        self._gone = asyncio.Event()
        self._api, self._query = api, query
        self._text = ""

    async def __aenter__(self) -> Self:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/api/v1/scoring/events",
            "raw_path": b"/api/v1/scoring/events",
            "query_string": self._query.encode(),
            "headers": self._headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "scheme": "http",
            "root_path": "",
        }
        self._task = asyncio.create_task(self._api.app(scope, self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._text += message.get("body", b"").decode()
        *whole, self._text = self._text.split("\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
            if "event" in fields:
                data = json.loads(fields["data"])
                self._queue.put_nowait(Sent(id=fields["id"], kind=fields["event"], data=data))

    async def next(self) -> Sent:
        # A transaction of another test holds up what is told: the order of commits is kept.
        async with asyncio.timeout(60):
            return await self._queue.get()

    async def states(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(event.data["session_id"], event.data["state"]) for event in events]

    async def ended(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.wait([self._task])


async def test_states_scores_and_overrides_are_told_as_they_happen(api: Api) -> None:
    store = api.store
    async with Listening(api) as everyone, Listening(api, "session_id=s2") as one:
        assert (await everyone.next()).kind == (await one.next()).kind == "ready"
        made = await scored(store, request("s1"))
        assert await everyone.states(2) == [("s1", "pending"), ("s1", "in_progress")]
        done = await everyone.next()
        assert (done.kind, done.data["state"]) == ("request", "completed")
        assert done.data["score_id"] == str(made.score_id)
        assert done.data["total_score"] == made.total_score
        await store.accept([request("s2"), request("s3", priority=1)], [])
        claimed = (await store.claim(1, owner="w", lease_s=60))[0]
        await store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, "it would not"))
        assert sorted(await everyone.states(2)) == [("s2", "pending"), ("s3", "pending")]
        assert await everyone.states(1) == [("s2", "in_progress")]
        failed = await everyone.next()
        assert (failed.data["error_code"], failed.data["error_message"]) == (
            "judge_refused", "it would not",
        )  # fmt: skip
        path = f"/scores/{made.score_id}/override"
        await api.http.post(path, json={"override_score": 7, "reason": "no"})
        override = await everyone.next()
        assert (override.kind, override.data["override_score"]) == ("override", 7)
        assert (override.data["session_id"], override.data["annotator"]) == ("s1", "api-client")
        assert [state for _, state in await one.states(3)] == ["pending", "in_progress", "failed"]


async def test_whoever_comes_back_misses_nothing(
    api: Api, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """Broken off within a batch, resumed at another replica; and told where that is too late."""
    async with Listening(api) as listener:
        ready = await listener.next()
        await api.store.accept([request(f"s{n}") for n in range(5)], [])
        seen = [await listener.next() for _ in range(3)]
    claimed = await api.store.claim(1, owner="w", lease_s=60)
    async with (
        serving(database, kafka, topics) as replica,
        Listening(replica, last=seen[-1].id) as back,
        Listening(replica, last=ready.id) as from_ready,
    ):
        assert (await back.next()).kind == "ready"
        rest = [await back.next() for _ in range(3)]
        sessions = [event.data["session_id"] for event in seen + rest[:2]]
        assert sorted(sessions) == [f"s{n}" for n in range(5)]
        assert rest[2].data["request_id"] == str(claimed[0].request_id)
        ids = [event.id for event in seen + rest]
        assert len(set(ids)) == 6
        assert (await from_ready.next()).kind == "ready"
        assert [(await from_ready.next()).id for _ in range(6)] == ids

    await execute(database, "UPDATE live_changes SET at = at - interval '2 hours'")
    changes = StoredChanges(api.store.pool, where=api.store.where)
    assert await changes.prune() == 2  # the marker of the beginning, and the first statement
    assert await changes.prune() == 0
    for last in (seen[0].id, "9223372036854775807-1-1"):
        async with Listening(api, last=last) as late:
            assert (await late.next()).kind == "gap"
    async with Listening(api, last=ids[-1]) as in_time:
        assert (await in_time.next()).kind == "ready"
    for bad in ("x", "1-2", "99999999999999999999-1-1", "1-2-3-4", "-1-2-3"):
        refused = await api.http.get("/events", headers={"last-event-id": bad})
        assert refused.status_code == 422, bad
        assert "three numbers" in refused.json()["detail"]


async def test_what_commits_late_is_told_late_and_not_missed(api: Api, database: str) -> None:
    """Whoever goes by numbers alone misses a number that commits after a later one."""
    slow = await asyncpg.connect(database)
    try:
        async with Listening(api) as listener:
            await listener.next()
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute(
                "INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by,"
                " priority, requested_at) VALUES (gen_random_uuid(), 'slow', false, 't', 5, now())"
            )
            await api.store.accept([request("quick")], [])
            await asyncio.sleep(1.2)
            assert listener._queue.empty()
            await transaction.commit()
            assert await listener.states(2) == [("slow", "pending"), ("quick", "pending")]
    finally:
        await slow.close()


async def test_renewals_tell_nothing(api: Api, database: str) -> None:
    await api.store.accept([request("s1")], [])
    claimed = await claim_one(api.store)
    before = await fetch(database, "SELECT count(*) FROM live_changes")
    await api.store.renew([claimed], lease_s=60)
    assert await fetch(database, "SELECT count(*) FROM live_changes") == before


async def test_who_reads_too_slowly_is_sent_away(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_QUEUED", 2)
    pool = await open_pool(database, size=2)
    stop = asyncio.Event()
    slow = Feed(StoredChanges(pool, where="here"), every_s=0.01)

    async def sent_away() -> bool:
        return all(listener.closed for listener in slow._listeners)

    running = asyncio.create_task(slow.run(stop))
    try:
        got: list[Change] = []
        listening = slow.listen(await slow.changes.now())
        await execute(database, INSERT, "first")
        (first,) = await anext(listening)
        for n in range(4):
            await execute(database, INSERT, f"s{n}")
        # It reads on only when too much has come: one that reads meanwhile may keep up.
        await until(sent_away, every_s=0.01)
        async with asyncio.timeout(10):
            got = [change async for piece in listening for change in piece]
        assert len(got) < 4
        after = got[-1].at if got else first.at
        again = slow.listen(after)
        while len(got) < 4:
            got += await anext(again)
        assert [change.session_id for change in got] == ["s0", "s1", "s2", "s3"]
        await again.aclose()
    finally:
        stop.set()
        await running
        pool.terminate()


async def test_no_more_may_listen_than_the_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (feed, events):
        monkeypatch.setattr(module, "MAX_LISTENERS", 2)
    async with Listening(api) as one:
        async with Listening(api) as other:
            assert [(await one.next()).kind, (await other.next()).kind] == ["ready"] * 2
            await api.store.accept([request("s1")], [])  # once it is told they do listen
            assert await one.states(1) == await other.states(1) == [("s1", "pending")]
            refused = await api.http.get("/events")
            assert (refused.status_code, refused.json()["code"]) == (503, "too_many_listeners")
            assert refused.headers["retry-after"] == "5"
        async with Listening(api) as another:
            assert (await another.next()).kind == "ready"


async def test_of_those_who_come_at_once_some_must_go(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_LISTENERS", 0)
    ended = api.app.state.ports.feed.listen(Cursor(0, 0, 0))
    assert [piece async for piece in ended] == []


class Kept:
    """Changes that are kept in this process."""

    def __init__(self, count: int) -> None:
        self.changes = [
            Change(at=Cursor(1, 1, n), session_id="s", text=b"x") for n in range(1, count + 1)
        ]
        self.known = 0

    async def now(self) -> Cursor:
        return Cursor(1, 1, self.known)

    async def missed(self, after: Cursor) -> bool:
        return False

    async def after(self, place: Cursor, limit: int) -> list[Change]:
        return self.changes[place.n : self.known]


async def test_others_have_a_turn_between_two_listeners_and_two_pieces() -> None:
    listeners, changes, turns, stop = 50, 10 * feed.PIECE, 0, asyncio.Event()
    at_turn: list[int] = []

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read() -> None:
        left = changes
        async for piece in many.listen(Cursor(1, 1, 0)):
            at_turn.append(turns)
            assert 0 < len(piece) <= feed.PIECE
            if (left := left - len(piece)) == 0:
                return

    kept = Kept(changes)
    many = Feed(kept, every_s=0.01)
    feeding = asyncio.create_task(many.run(stop))
    reading = [asyncio.create_task(read()) for _ in range(listeners)]
    while len(many._listeners) < listeners or not many._reading.is_set():
        await asyncio.sleep(0)
    for _ in range(100):  # and have read what there was, which is nothing
        await asyncio.sleep(0)
    counting = asyncio.create_task(count_turns())
    kept.known = changes
    await asyncio.gather(*reading)
    assert len(set(at_turn)) >= listeners + changes // feed.PIECE - 1
    counting.cancel()
    stop.set()
    await feeding


INSERT = """INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by,
    priority, requested_at) VALUES (gen_random_uuid(), $1, false, 't', 5, now())"""


async def test_a_stop_ends_the_streams(api: Api) -> None:
    async with Listening(api) as listener:
        await listener.next()
        api.stopping.set()
        await listener.ended()


def test_cursors_are_ordered_and_read_back() -> None:
    places = [Cursor(1, 9, 9), Cursor(2, 1, 9), Cursor(2, 2, 1), Cursor(2**64 - 1, 2**63 - 1, 1)]
    assert sorted(places, reverse=True)[::-1] == places
    assert [Cursor.parse(str(place)) for place in places] == places
