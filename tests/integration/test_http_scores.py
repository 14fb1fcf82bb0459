"""Scores and requests over HTTP, on a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest_asyncio
from prometheus_client import REGISTRY

from consumer.error_codes import ErrorCode
from consumer.pipeline import Failed
from consumer.scoring.criteria import Criteria
from tests.integration.builders import OTHER_CRITERIA, begin, claim_one, request, score, scored
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics
from tests.unit.builders import SAMPLE

RULES = "efficiency-simple"


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics) as made:
        yield made


async def test_a_session_from_never_requested_to_scored_twice(api: Api) -> None:
    """404 says which it is; then the score, and both in the history."""
    http, store = api.http, api.store

    never = await http.get("/sessions/s1/score")
    assert never.headers["content-type"] == "application/problem+json"
    assert (never.status_code, never.json()["code"]) == (404, "never_requested")
    assert "'s1' was never requested" in never.json()["detail"]

    failing = request("s1")
    await store.accept([failing], [])
    waiting = (await http.get("/sessions/s1/score")).json()
    assert (waiting["code"], waiting["state"]) == ("being_scored", "pending")
    assert waiting["request_id"] == str(failing.request_id)
    claimed = await claim_one(store)
    assert (await http.get("/sessions/s1/score")).json()["state"] == "in_progress"
    await store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, "it would not"))
    failed = (await http.get("/sessions/s1/score")).json()
    assert (failed["code"], failed["error_code"]) == ("failed", "judge_refused")
    assert "it would not" in failed["detail"]
    shown = (await http.get(f"/requests/{failing.request_id}")).json()
    assert (shown["state"], shown["error_message"]) == ("failed", "it would not")
    assert shown["finished_at"] >= shown["received_at"]

    old = await scored(store, request("s1"))
    current = Criteria(hash=api.profiles.hash_of(RULES) or "", content={})
    await store.register_criteria(current)
    await store.accept([request("s1", profile_id=RULES)], [])
    claimed = await claim_one(store)
    await begin(store, claimed, profile_id=RULES, criteria_hash=current.hash)
    new = score(claimed, profile_id=RULES, criteria_hash=current.hash, missing_tools=())
    await store.complete(claimed, new)

    found = (await http.get("/sessions/s1/score")).json()
    assert (found["score_id"], found["is_current_criteria"]) == (str(new.score_id), True)
    by_other = (await http.get(f"/sessions/s1/score?profile_id={old.profile_id}")).json()
    assert (by_other["score_id"], by_other["is_current_criteria"]) == (str(old.score_id), False)
    assert by_other["total_score"] == old.total_score
    assert by_other["score_breakdown"] == old.breakdown
    assert [t["tool_name"] for t in by_other["missing_tools"]] == ["kubectl_logs", "promql"]
    assert by_other["alternative_approaches"][0] == {
        "name": "logs first", "description": "read", "steps": ["one", "two", "three"],
    }  # fmt: skip
    assert by_other["override"] is None
    hidden = {"nonce", "sent_sha256"}
    assert by_other["samples"] == [{n: v for n, v in SAMPLE.items() if n not in hidden}]
    none = (await http.get("/sessions/s1/score?profile_id=hybrid-code")).json()
    assert none["code"] == "no_score_by_profile"

    one = (await http.get(f"/scores/{old.score_id}")).json()
    assert one == by_other
    first = (await http.get("/sessions/s1/scores?limit=1")).json()
    assert [s["score_id"] for s in first["scores"]] == [str(new.score_id)]
    second = await http.get(
        "/sessions/s1/scores", params={"limit": 1, "before": first["next_before"]}
    )
    assert [s["score_id"] for s in second.json()["scores"]] == [str(old.score_id)]
    assert OTHER_CRITERIA.hash not in second.text


async def test_what_is_not_there(api: Api) -> None:
    http = api.http
    unknown = await http.get(f"/requests/{uuid4()}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_request")
    assert "on its way" in unknown.json()["detail"]
    assert (await http.get(f"/scores/{uuid4()}")).json()["code"] == "unknown_score"
    elsewhere = (await http.get("/nowhere")).json()
    assert (elsewhere["status"], elsewhere["code"]) == (404, "not_found")
    method = await http.delete("/sessions/s1/score")
    assert (method.status_code, method.json()["code"]) == (405, "method_not_allowed")
    assert method.headers["allow"] == "GET"


async def test_bad_input_is_told_by_its_place(api: Api) -> None:
    """Each is refused with what is allowed; what a path can't hold is no path."""
    http = api.http
    for path, where in {
        "/sessions/%00/score": "path.session_id",
        "/sessions/a%0Ab/score": "path.session_id",
        f"/sessions/{'x' * 129}/score": "path.session_id",
        "/sessions/s%20s/score": "path.session_id",
        "/sessions/%2e%2e/score": "path.session_id",
        "/sessions/.../scores": "path.session_id",
        "/sessions/%F0%9F%92%A3/score": "path.session_id",
        "/sessions/s1/scores?limit=-1": "query.limit",
        "/sessions/s1/scores?limit=1e9": "query.limit",
        "/sessions/s1/scores?before=yesterday": "query.before",
        "/sessions/s1/scores?before=2026-01-01T00:00:00": "query.before",
        "/sessions/s1/score?profile_id=%00": "query.profile_id",
        "/requests/7": "path.request_id",
    }.items():
        refused = await http.get(path)
        told = refused.json()
        assert (refused.status_code, told["code"]) == (422, "invalid"), path
        assert refused.headers["content-type"] == "application/problem+json"
        assert told["errors"][0]["where"] == where, path
        assert told["detail"].startswith(where)
    for path in (
        "/sessions/a%2fb/score",
        "/sessions/../../etc/passwd",
        "/sessions/%2e%2e%2f/score",
    ):
        refused = await http.get(path)
        assert refused.status_code == 404, path
        assert "session ids have letters" in refused.json()["detail"], path


async def test_calls_are_counted_by_the_template_of_their_route(api: Api) -> None:
    def count(route: str, status: str) -> float:
        labels = {"route": route, "method": "GET", "status": status}
        return REGISTRY.get_sample_value("scoring_http_requests_total", labels) or 0.0

    route = "/api/v1/scoring/sessions/{session_id}/score"
    before, lost = count(route, "404"), count("other", "404")
    for session in ("s1", "s2"):
        await api.http.get(f"/sessions/{session}/score")
    await api.http.get("/sessions/s1/nothing")
    assert (count(route, "404"), count("other", "404")) == (before + 2, lost + 1)


async def test_the_document_is_served(api: Api) -> None:
    document = (await api.http.get("http://api/api/v1/openapi.json")).json()
    assert "/api/v1/scoring/sessions/{session_id}/score" in document["paths"]
