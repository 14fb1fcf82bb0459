"""Batches over HTTP: by names and from History, planned, published, gone on with, cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from consumer import batches
from consumer.batches import NewBatch, Runner, request_id
from consumer.errors import NotReachable
from consumer.events import ScoreRequested
from consumer.scoring.criteria import Criteria
from tests.integration.builders import begin, claim_one, execute, fetch, published, request, score
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.stand_ins import StandIns, answer, stand_ins
from tests.support.topics import Topics

RULES = "efficiency-simple"
LISTING = ""  # no session's id: the list itself
DAY, DAY_BEFORE = "2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z"
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def services() -> AsyncIterator[StandIns]:
    async with stand_ins() as made:
        yield made


@pytest_asyncio.fixture
async def api(
    database: str, kafka: KafkaServer, topics: Topics, services: StandIns
) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics, history_url=services.history_url) as made:
        yield made


def add(services: StandIns, name: str, minute: int, **changes: Any) -> None:
    started = round((START + timedelta(minutes=minute)).timestamp() * 1_000_000)
    services.add(name, started_at_us=started, **changes)


async def finished(api: Api, batch_id: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            found: dict[str, Any] = (await api.http.get(f"/batches/{batch_id}")).json()
            if found["finished_at"]:
                return found
            await asyncio.sleep(0.1)


async def score_now(api: Api, session: str, total: int) -> None:
    """A score by the rules profile under today's criteria."""
    current = Criteria(hash=api.profiles.hash_of(RULES) or "", content={})
    await api.store.register_criteria(current)
    await api.store.accept([request(session, profile_id=RULES)], [])
    claimed = await claim_one(api.store)
    await begin(api.store, claimed, profile_id=RULES, criteria_hash=current.hash)
    made = score(claimed, profile_id=RULES, criteria_hash=current.hash, total_score=total)
    await api.store.complete(claimed, made)


async def sent(kafka: KafkaServer, topics: Topics) -> list[dict[str, Any]]:
    return [json.loads(r.value or b"") for r in await published(kafka.bootstrap, topics.requested)]


async def test_named_sessions_are_planned_and_published_once(
    api: Api, kafka: KafkaServer, topics: Topics
) -> None:
    ask = {"sessions": ["s1", "s2", "s1"], "profile_id": RULES, "force_rescore": True}
    planned = await api.http.post("/batches", json=ask | {"dry_run": True})
    assert (planned.status_code, planned.json()) == (
        200,
        {
            "sessions": 2,
            "judged": 0,
            "by_profile": {RULES: 2},
            "cost_usd": 0.0,
            "cost_basis": "none",
        },
    )
    assert (await api.http.get("/batches")).json()["batches"] == []

    made = await api.http.post("/batches", json=ask, headers={"x-forwarded-user": "Ann"})
    assert made.status_code == 202
    assert made.headers["location"] == f"/api/v1/scoring/batches/{made.json()['batch_id']}"
    done = await finished(api, made.json()["batch_id"])
    assert (done["state"], done["created_by"], done["history"]) == ("completed", "Ann", None)
    assert (done["progress"]["sessions"], done["progress"]["published"]) == (2, 2)
    requests = await sent(kafka, topics)
    ids = {request_id(UUID(done["batch_id"]), s) for s in ("s1", "s2")}
    assert {UUID(r["request_id"]) for r in requests} == ids
    assert {(r["triggered_by"], r["force_rescore"], r["priority"]) for r in requests} == {
        ("Ann", True, 3)
    }
    await api.store.accept([request("s1", request_id=UUID(requests[0]["request_id"]))], [])
    assert (await finished(api, done["batch_id"]))["progress"]["pending"] == 1
    listed = (await api.http.get("/batches?limit=1")).json()
    assert [b["batch_id"] for b in listed["batches"]] == [done["batch_id"]]
    older = await api.http.get("/batches", params={"before": listed["next_before"]})
    assert older.json() == {"batches": [], "next_before": None}


async def test_history_is_narrowed_by_time_and_filters(
    api: Api, services: StandIns, kafka: KafkaServer, topics: Topics
) -> None:
    services.sessions.clear()
    for n in range(130):
        add(services, f"s{n:03}", n, alert_type="disk" if n % 2 else "cpu", agent_type=f"a{n % 3}")
    add(services, "running", 5, status="in_progress")
    add(services, "not askable!", 5)
    for name, total in (("s001", 95), ("s003", 20), ("s005", 20)):
        await score_now(api, name, total)

    async def count(**history: Any) -> int:
        ask = {"history": history, "profile_id": RULES, "dry_run": True}
        planned = await api.http.post("/batches", json=ask)
        assert planned.status_code == 200, planned.text
        return int(planned.json()["sessions"])

    def at(minute: int) -> str:
        return (START + timedelta(minutes=minute)).isoformat()

    assert await count() == 130
    assert await count(start=at(10), end=at(19)) == 10
    assert await count(alert_type="disk") == 65
    assert await count(alert_type="disk", agent="a0", end=at(20)) == 3
    assert await count(agent="kubernetes") == 3  # as their scores tell it
    assert await count(agent="nobody") == 0
    assert await count(bands=["failed"]) == 2
    assert await count(bands=["failed", "near-perfect"], end=at(4)) == 2
    assert await count(not_current=True) == 127
    assert await count(not_current=True, bands=["failed"]) == 0
    by_label = await api.http.post("/batches", json={"history": {}, "dry_run": True})
    plan = by_label.json()
    assert (sum(plan["by_profile"].values()), plan["cost_basis"]) == (130, "unknown")
    assert (plan["judged"] > 0, plan["cost_usd"]) == (True, None)

    ask = {"history": {"end": at(20), "not_current": True}, "profile_id": RULES}
    made = (await api.http.post("/batches", json=ask)).json()
    assert (made["state"], made["history"]["not_current"]) == ("listing", True)
    done = await finished(api, made["batch_id"])
    assert done["progress"]["published"] == 18
    assert {r["session_id"] for r in await sent(kafka, topics)} == {
        f"s{n:03}" for n in range(21)
    } - {"s001", "s003", "s005"}


async def test_a_history_that_fails(api: Api, services: StandIns) -> None:
    ask = {"history": {}, "dry_run": True}
    for fault, status, code in (
        (answer(503), 503, "history_unavailable"),
        (answer(200, {"sessions": 1}), 502, "history_invalid"),
    ):
        services.history_faults.queued[LISTING].append(fault)
        refused = await api.http.post("/batches", json=ask)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    services.history_faults.forever[LISTING] = answer(200, {"sessions": 1})
    made = await api.http.post("/batches", json={"history": {}})
    failed = await finished(api, made.json()["batch_id"])
    assert failed["state"] == "failed"
    assert "sessions" in failed["error_message"]
    again = await api.http.post(f"/batches/{failed['batch_id']}/cancel")
    assert (again.status_code, again.json()["state"]) == (409, "failed")


class Lost:
    """Publishes, and then the process is gone: nobody notes that it was."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.requests: list[UUID | None] = []

    async def publish(self, requests: list[ScoreRequested]) -> None:
        self.requests += [request.request_id for request in requests]
        if len(self.requests) >= self.after:
            raise NotReachable("gone")


async def test_whoever_comes_after_a_crash_publishes_the_same(
    api: Api, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CHUNK", 4)
    api.stopping.set()  # its own runner shall not be first
    ports = api.app.state.ports
    names = [f"s{n}" for n in range(10)]
    batch_id = await ports.batches.create(
        NewBatch(
            sessions=names, selection=None, profile_id=None, force_rescore=False, priority=3,
            per_second=None, created_by="Ann",
        )
    )  # fmt: skip
    lost = Lost(after=8)
    with pytest.raises(NotReachable):
        await Runner(ports.batches, ports.selecting, lost, api.store).work_on(  # type: ignore[arg-type]
            batch_id, asyncio.Event()
        )
    (row,) = await fetch(database, "SELECT count(published_at) AS n FROM score_batch_items")
    assert row["n"] == 4
    runner = Runner(ports.batches, ports.selecting, ports.asking, api.store)
    await runner.work_on(batch_id, asyncio.Event())
    assert await sent(kafka, topics) == []  # the lease of the first is not over
    await execute(database, "UPDATE score_batches SET lease_expires_at = now()")
    await runner.work_on(batch_id, asyncio.Event())
    later = [UUID(r["request_id"]) for r in await sent(kafka, topics)]
    assert len(later) == 6
    assert set(lost.requests) | set(later) == {request_id(batch_id, name) for name in names}
    assert set(lost.requests[4:]) <= set(later)


async def test_a_rate_is_kept_and_a_cancelled_batch_ends_what_waits(
    api: Api, database: str
) -> None:
    names = [f"s{n}" for n in range(30)]
    made = (await api.http.post("/batches", json={"sessions": names, "per_second": 4})).json()
    batch_id = made["batch_id"]
    out = "SELECT * FROM score_batch_items WHERE published_at IS NOT NULL"
    while not (rows := await fetch(database, out)):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.5)
    seen = (await api.http.get(f"/batches/{batch_id}")).json()["progress"]["published"]
    assert 4 <= seen <= 12
    first = rows[0]
    known = [request(first["session_id"], request_id=first["request_id"])]
    await api.store.accept(known, [])
    bob = {"x-forwarded-user": "Bob"}
    cancelled = await api.http.post(f"/batches/{batch_id}/cancel", headers=bob)
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelling")
    # What is published and not stored yet is waited for: intake brings it, and it is ended too.
    late = await fetch(database, out)
    rest = [request(r["session_id"], request_id=r["request_id"]) for r in late if r != first]
    await api.store.accept(rest[1:], [])
    await asyncio.sleep(0.3)
    await api.store.accept(rest, [])
    done = await finished(api, batch_id)
    assert (done["state"], done["error_message"]) == ("cancelled", "cancelled by Bob")
    why = await fetch(database, "SELECT DISTINCT error_message FROM score_requests")
    assert why == [{"error_message": f"cancelled by ending batch {batch_id}"}]
    assert done["progress"]["cancelled"] == done["progress"]["published"] == len(late) < 30
    assert (await api.http.post(f"/batches/{uuid4()}/cancel")).status_code == 404


async def test_batches_that_pause_keep_no_other_waiting(api: Api, database: str) -> None:
    slow = [
        (await api.http.post("/batches", json={"sessions": [f"a{n}", f"b{n}"], "per_second": 0.01}))
        for n in range(batches.AT_A_TIME + 1)
    ]
    async with asyncio.timeout(20):
        published = "SELECT * FROM score_batch_items WHERE published_at IS NOT NULL"
        while len(out := await fetch(database, published)) < len(slow):
            await asyncio.sleep(0.05)
    assert {row["session_id"][0] for row in out} == {"a"}
    quick = await api.http.post("/batches", json={"sessions": ["s1", "s2"]})
    assert (await finished(api, quick.json()["batch_id"]))["progress"]["published"] == 2
    # What is published is stored: else it is waited for.
    await api.store.accept([request(r["session_id"], request_id=r["request_id"]) for r in out], [])
    for one in slow:
        await api.http.post(f"/batches/{one.json()['batch_id']}/cancel")
    for one in slow:
        done = await finished(api, one.json()["batch_id"])
        assert (done["state"], done["progress"]["published"]) == ("cancelled", 1)


async def test_one_batch_is_worked_on_through_its_pauses(
    api: Api, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CHUNK", 2)
    api.stopping.set()
    ports = api.app.state.ports
    batch_id = await ports.batches.create(
        NewBatch(
            sessions=["s1", "s2", "s3", "s4"], selection=None, profile_id=None,
            force_rescore=False, priority=3, per_second=2.5, created_by="Ann",
        )
    )  # fmt: skip
    runner = Runner(ports.batches, ports.selecting, ports.asking, api.store)
    await runner.work_on(batch_id, asyncio.Event())
    # Of several partitions, in whatever order.
    assert sorted(r["session_id"] for r in await sent(kafka, topics)) == ["s1", "s2", "s3", "s4"]
    assert (await finished(api, str(batch_id)))["state"] == "completed"


async def test_bad_batches(api: Api) -> None:
    for ask, where in (
        ({}, "body"),
        ({"sessions": ["s1"], "history": {}}, "body"),
        ({"sessions": ["a/b"]}, "body.sessions.0"),
        ({"sessions": ["s1", ".."]}, "body.sessions.1"),
        ({"sessions": ["s1"], "per_second": 0}, "body.per_second"),
        ({"history": {"start": DAY, "end": DAY_BEFORE}}, "body.history"),
        ({"history": {"start": "0001-01-01T00:00:00+23:00"}}, "body.history.start"),
        ({"history": {"end": "2026-03-01"}}, "body.history.end"),
        ({"history": {"bands": ["great"]}}, "body.history.bands.0"),
        ({"history": {"agent": "a\0"}}, "body.history.agent"),
    ):  # fmt: skip
        refused = await api.http.post("/batches", json=ask)
        told = (refused.status_code, refused.json()["errors"][0]["where"])
        assert told == (422, where), ask
    unknown = await api.http.post("/batches", json={"sessions": ["s1"], "profile_id": "mine"})
    assert unknown.json()["code"] == "unknown_profile"
    assert (await api.http.get(f"/batches/{uuid4()}")).status_code == 404


async def test_too_many_sessions_are_no_batch(
    api: Api, services: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_SESSIONS", 2)
    for n in range(3):
        services.add(f"s{n}")
    refused = await api.http.post("/batches", json={"history": {}, "dry_run": True})
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_sessions")
    made = await api.http.post("/batches", json={"history": {}})
    failed = await finished(api, made.json()["batch_id"])
    assert "more than 2 sessions" in failed["error_message"]
