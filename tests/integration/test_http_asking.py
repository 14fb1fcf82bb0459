"""Asking, retrying, cancelling and overriding over HTTP, on a real database and a real Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from consumer.error_codes import ErrorCode
from consumer.pipeline import Failed
from consumer.scoring.criteria import Criteria
from consumer.scoring.score import Score
from tests.integration.builders import (
    begin,
    claim_one,
    execute,
    fetch,
    published,
    request,
    score,
    scored,
)
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics
from tests.unit import builders

JSON = {"content-type": "application/json"}
RULES = "efficiency-simple"
USER = [(b"x-forwarded-user", "Zoë".encode())]


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics) as made:
        yield made


async def scored_by_rules(api: Api, session_id: str) -> Score:
    """A score as the pipeline would make it today, of a session with the label `simple`."""
    current = Criteria(hash=api.profiles.hash_of(RULES) or "", content={})
    await api.store.register_criteria(current)
    await api.store.accept([request(session_id)], [])
    claimed = await claim_one(api.store)
    await begin(api.store, claimed, profile_id=RULES, criteria_hash=current.hash)
    facts = builders.score().facts.__class__(
        agent="a", model=None, provider=None, classification_label="simple",
        total_tokens=None, cost_usd=None, duration_ms=None,
    )  # fmt: skip
    made = score(claimed, profile_id=RULES, criteria_hash=current.hash, facts=facts)
    await api.store.complete(claimed, made)
    return made


async def test_asking_goes_through_kafka_unless_there_is_an_answer(
    api: Api, kafka: KafkaServer, topics: Topics
) -> None:
    http = api.http
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    traced = [*USER, (b"traceparent", parent.encode())]
    asked = await http.post("/sessions/s1/score", headers=traced)
    told = asked.json()
    assert (asked.status_code, told["state"]) == (202, "requested")
    assert asked.headers["location"] == f"/api/v1/scoring/requests/{told['request_id']}"
    insisting = await http.post(
        "/sessions/s1/score",
        json={"force_rescore": True, "profile_id": RULES, "priority": 9},
        headers={"x-forwarded-email": "zoe@example.org"},
    )
    records = await published(kafka.bootstrap, topics.requested)
    sent = {json.loads(record.value or b"")["request_id"]: record for record in records}
    assert sent.keys() == {told["request_id"], insisting.json()["request_id"]}
    first = json.loads(sent[told["request_id"]].value or b"")
    assert (first["session_id"], first["triggered_by"], first["priority"]) == ("s1", "Zoë", 5)
    assert dict(sent[told["request_id"]].headers)["ce_source"] == b"/score-consumer/api"
    assert dict(sent[told["request_id"]].headers)["traceparent"] == parent.encode()
    second = json.loads(sent[insisting.json()["request_id"]].value or b"")
    assert second["triggered_by"] == "zoe@example.org"
    assert (second["force_rescore"], second["profile_id"]) == (True, RULES)

    made = await scored_by_rules(api, "s2")
    for same in ({}, {"profile_id": RULES}):
        found = await http.post("/sessions/s2/score", json=same)
        assert (found.status_code, found.json()["score_id"]) == (200, str(made.score_id))
    # By another profile than today's, or insisting: asked.
    await scored(api.store, request("s3"))
    others: tuple[tuple[str, dict[str, Any]], ...] = (
        ("s3", {}),
        ("s2", {"force_rescore": True}),
        ("s2", {"profile_id": "hybrid-code"}),
    )
    for session, body in others:
        assert (await http.post(f"/sessions/{session}/score", json=body)).status_code == 202
    assert len(await published(kafka.bootstrap, topics.requested)) == 5


async def test_waiting_tells_how_it_ended(api: Api) -> None:
    http = api.http

    async def asked_and_ended(
        session: str, outcome: Failed | None
    ) -> tuple[int, dict[str, object]]:
        waiting = asyncio.create_task(http.post(f"/sessions/{session}/score?wait=20"))
        while not (row := await fetch_published(api, session)):
            await asyncio.sleep(0.02)
        await api.store.accept([request(session, request_id=row)], [])
        claimed = await claim_one(api.store)
        if outcome:
            await api.store.end(claimed, outcome)
        else:
            await begin(api.store, claimed)
            await api.store.complete(claimed, score(claimed))
        answer = await waiting
        return answer.status_code, answer.json()

    seen: dict[str, UUID] = {}

    async def fetch_published(_: Api, session: str) -> UUID | None:
        return seen.get(session)

    class Noted:
        async def publish(self, requests: list[object], **_: object) -> None:
            for one in requests:
                seen[one.session_id] = one.request_id  # type: ignore[attr-defined]

    api.app.state.ports = replace(api.app.state.ports, asking=Noted())
    await scored(api.store, request("other"))  # its criteria are stored
    status, body = await asked_and_ended("s1", None)
    assert (status, body["session_id"], body["total_score"]) == (
        200,
        "s1",
        score(builders.claimed()).total_score,
    )
    for code, expected in {
        ErrorCode.SESSION_NOT_FOUND: 404,
        ErrorCode.CANCELLED: 409,
        ErrorCode.NO_MATCHING_PROFILE: 422,
        ErrorCode.JUDGE_REFUSED: 502,
        ErrorCode.JUDGE_UNAVAILABLE: 503,
    }.items():
        status, body = await asked_and_ended(f"s-{code}", Failed(code, "why"))
        assert (status, body["code"], body["detail"]) == (expected, code.value, "why")

    late = await http.post("/sessions/s9/score?wait=0.1")
    assert (late.status_code, late.json()["state"]) == (202, "requested")
    waiting = asyncio.create_task(http.post("/sessions/s9/score?wait=60"))
    await asyncio.sleep(0.1)
    api.stopping.set()
    assert (await waiting).status_code == 202


async def test_retry_asks_again_and_cancel_ends(
    api: Api, kafka: KafkaServer, topics: Topics, database: str
) -> None:
    http, store = api.http, api.store
    incoming = request("s1", force_rescore=True, profile_id=RULES, priority=7)
    await store.accept([incoming], [])
    early = await http.post(f"/requests/{incoming.request_id}/retry")
    assert (early.status_code, early.json()["state"]) == (409, "pending")

    ended = await http.post(f"/requests/{incoming.request_id}/cancel", headers=USER)
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
    assert ended.json()["error_message"] == "cancelled by Zoë"
    (event,) = await fetch(database, "SELECT type, payload FROM outbox")
    assert event["type"] == "score.failed"
    assert json.loads(event["payload"])["request_id"] == str(incoming.request_id)
    again = await http.post(f"/requests/{incoming.request_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "already_finished")

    retried = await http.post(f"/requests/{incoming.request_id}/retry", headers=USER)
    assert retried.status_code == 202
    (record,) = await published(kafka.bootstrap, topics.requested)
    sent = json.loads(record.value or b"")
    assert sent["request_id"] == retried.json()["request_id"] != str(incoming.request_id)
    assert (sent["force_rescore"], sent["profile_id"], sent["priority"]) == (True, RULES, 7)
    twice = await http.post(f"/requests/{incoming.request_id}/retry", headers=USER)
    assert twice.json()["request_id"] == retried.json()["request_id"], "one request, sent twice"
    second = replace(incoming, request_id=UUID(twice.json()["request_id"]))
    await store.accept([second], [])
    assert await store.cancel(second.request_id, by="someone")
    third = await http.post(f"/requests/{incoming.request_id}/retry", headers=USER)
    fourth = await http.post(f"/requests/{second.request_id}/retry", headers=USER)
    assert third.json()["request_id"] == fourth.json()["request_id"] != str(second.request_id)
    done = await scored(store, request("s2"))
    refused = await http.post(f"/requests/{done.request_id}/retry")
    assert (refused.status_code, refused.json()["state"]) == (409, "completed")
    for what in ("retry", "cancel"):
        assert (await http.post(f"/requests/{uuid4()}/{what}")).status_code == 404

    await store.accept([request("s3")], [])
    claimed = await claim_one(store)
    under_way = await http.post(f"/requests/{claimed.request_id}/cancel")
    assert under_way.json()["state"] == "cancelled"


async def test_overrides_stand_beside_the_score(api: Api, database: str) -> None:
    http = api.http
    made = await scored(api.store, request("s1"))
    path = f"/scores/{made.score_id}"
    for points, user in ((30, "Ann"), (40, "Bob")):
        given = await http.post(
            f"{path}/override",
            json={"override_score": points, "reason": " I read it. \n"},
            headers={"x-forwarded-user": user},
        )
        assert given.status_code == 201
        assert (given.json()["annotator"], given.json()["reason"]) == (user, "I read it.")
    shown = (await http.get("/sessions/s1/score")).json()
    assert (shown["total_score"], shown["override"]["override_score"]) == (made.total_score, 40)
    history = (await http.get(f"{path}/overrides")).json()["overrides"]
    assert [o["annotator"] for o in history] == ["Bob", "Ann"]

    sent = await fetch(
        database, "SELECT * FROM outbox WHERE type = 'score.overridden' ORDER BY seq"
    )
    assert [json.loads(row["payload"])["override_score"] for row in sent] == [30, 40]
    assert json.loads(sent[0]["payload"])["total_score"] == made.total_score
    assert len({row["event_id"] for row in sent}) == 2
    for change in ("UPDATE score_overrides SET reason = ''", "DELETE FROM score_overrides"):
        with pytest.raises(asyncpg.RestrictViolationError, match="immutable"):
            await execute(database, change)

    unknown = await http.post(
        f"/scores/{uuid4()}/override", json={"override_score": 1, "reason": "x"}
    )
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_score")
    assert (await http.get(f"/scores/{uuid4()}/overrides")).status_code == 404
    assert (await http.get(f"/scores/{made.score_id}/overrides")).status_code == 200


async def test_bad_bodies_change_nothing(api: Api, database: str) -> None:
    http = api.http
    made = await scored(api.store, request("s1"))
    path = f"/scores/{made.score_id}/override"
    for body, where in (
        ({"override_score": 101, "reason": "x"}, "body.override_score"),
        ({"override_score": -1, "reason": "x"}, "body.override_score"),
        ({"override_score": "7", "reason": "x"}, "body.override_score"),
        ({"override_score": 1.5, "reason": "x"}, "body.override_score"),
        ({"override_score": 7, "reason": " "}, "body.reason"),
        ({"override_score": 7, "reason": "a\0b"}, "body.reason"),
        ({"override_score": 7, "reason": "x" * 4001}, "body.reason"),
        ({"override_score": 7, "reason": "x", "by": "me"}, "body.by"),
        ([], "body"),
    ):
        refused = await http.post(path, json=body)
        told = (refused.status_code, refused.json()["errors"][0]["where"])
        assert told == (422, where), body
    lone = await http.post(
        path,
        content=b'{"override_score": 7, "reason": "\\ud800"}',
        headers=JSON,
    )
    assert (lone.status_code, lone.json()["errors"][0]["where"]) == (422, "body.reason")
    nested = b"[" * 100_000
    for content, code in ((b"{", "not_json"), (b"\xff", "bad_request"), (nested, "bad_request")):
        broken = await http.post(path, content=content, headers=JSON)
        assert (broken.status_code, broken.json()["code"]) == (400, code), content[:9]
    large = await http.post("/sessions/s1/score", content=b"x" * 10_000_000)
    assert (large.status_code, large.json()["code"]) == (413, "content_too_large")
    for headers in ({"x-forwarded-user": "x" * 256}, {"x-forwarded-email": "a\tb"}):
        refused = await http.post("/sessions/s1/score", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_user")
    for query in ("wait=61", "wait=-1", "wait=nan"):
        assert (await http.post(f"/sessions/s1/score?{query}")).status_code == 422
    unknown = await http.post("/sessions/s1/score", json={"profile_id": "mine"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_profile")
    assert RULES in unknown.json()["detail"]
    assert await fetch(database, "SELECT * FROM score_overrides") == []
