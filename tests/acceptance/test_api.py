"""The HTTP API of a real consumer: asked over a socket, answered through Kafka and Postgres."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from consumer.api.server import MAX_HEAD_BYTES
from tests.support.stage import Stage

API = "/api/v1/scoring"
RULES = "efficiency-simple"
SECRET = "sesame"  # noqa: S105
TOKEN = f"board:admin:{hashlib.sha256(SECRET.encode()).hexdigest()}"


class Live:
    """Somebody who follows the events, and what was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    async def follow(self, http: httpx.AsyncClient, *, last: str | None = None) -> None:
        headers = {"last-event-id": last} if last else {}
        fields: dict[str, str] = {}
        async with http.stream("GET", f"{API}/events", headers=headers, timeout=None) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            async for line in stream.aiter_lines():
                name, _, text = line.partition(": ")
                fields[name] = text
                if not line and "event" in fields:
                    data = json.loads(fields["data"])
                    self.events.append((fields["id"], fields["event"], data))
                    fields = {}

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.events) < count:
                await asyncio.sleep(0.02)

    def states(self, session: str) -> list[str]:
        of_requests = (data for _, kind, data in self.events if kind == "request")
        return [data["state"] for data in of_requests if data["session_id"] == session]


@asynccontextmanager
async def following(http: httpx.AsyncClient, last: str | None = None) -> AsyncIterator[Live]:
    live = Live()
    task = asyncio.create_task(live.follow(http, last=last))
    try:
        await live.until(1)
        yield live
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_from_asking_to_overriding(stage: Stage) -> None:
    """One consumer, all of it: scores, requests, overrides, live events, profiles, batches."""
    good = stage.stand_ins.add("s-good", "good")
    lean = stage.stand_ins.add("s-lean", "simple")
    async with (
        stage.consumer(api_tokens=TOKEN) as consumer,
        httpx.AsyncClient(
            base_url=consumer.url, headers={"authorization": f"Bearer {SECRET}"}, timeout=60
        ) as http,
    ):
        async with httpx.AsyncClient(base_url=consumer.url) as stranger:
            assert (await stranger.get(f"{API}/sessions/s1/score")).status_code == 401
            assert (await stranger.get("/readyz")).status_code == 200
        async with following(http) as live:
            await asking_and_waiting(stage, http, good, lean)
            await overriding(stage, http, good)
            await live.until(7)
            assert live.states(good) == ["pending", "in_progress", "completed"]
            assert live.states(lean) == ["pending", "in_progress", "completed"]
            (told,) = [data for _, kind, data in live.events if kind == "override"]
            assert told["override_score"] == 12
            third = live.events[2][0]
        async with following(http, last=third) as again:
            await again.until(len(live.events) - 2)
            assert again.events[1:] == live.events[3:]
        await failing_and_retrying(stage, http)
        await changing_a_profile(http, lean)
        await a_batch(stage, http)
        await what_is_wrong(http)
        figures = (await http.get("/metrics")).text
        route = f'method="POST",route="{API}/sessions/{{session_id}}/score",status="200"'
        assert f"scoring_http_requests_total{{{route}}}" in figures
    log = consumer.log.read_text()
    assert SECRET not in log
    assert "Traceback" not in log


async def asking_and_waiting(stage: Stage, http: httpx.AsyncClient, good: str, lean: str) -> None:
    never = await http.get(f"{API}/sessions/{good}/score")
    assert never.json()["code"] == "never_requested"
    user = {"x-forwarded-user": "Ann"}
    answered = await http.post(f"{API}/sessions/{good}/score?wait=30", headers=user)
    score = answered.json()
    assert (answered.status_code, score["scored_triggered_by"]) == (200, "Ann")
    assert score["is_current_criteria"] is True
    assert score["total_score"] == round(sum(score["score_breakdown"].values()) / 4)
    assert score["tool_report"]["calls"] > 0
    calls = stage.stand_ins.judge_calls[good]
    again = await http.post(f"{API}/sessions/{good}/score")
    assert (again.status_code, again.json()["score_id"]) == (200, score["score_id"])
    assert stage.stand_ins.judge_calls[good] == calls == 1
    assert (await http.get(f"{API}/sessions/{good}/score")).json() == score
    request = (await http.get(f"{API}/requests/{score['request_id']}")).json()
    assert (request["state"], request["triggered_by"]) == ("completed", "Ann")

    asked = await http.post(f"{API}/sessions/{lean}/score")
    assert (asked.status_code, asked.json()["state"]) == (202, "requested")
    event = await stage.answer(asked.json()["request_id"])
    assert event.data["judge_profile_id"] == RULES
    where = asked.headers["location"]
    assert (await http.get(where)).json()["score_id"] == event.data["score_id"]


async def overriding(stage: Stage, http: httpx.AsyncClient, good: str) -> None:
    score = (await http.get(f"{API}/sessions/{good}/score")).json()
    given = await http.post(
        f"{API}/scores/{score['score_id']}/override",
        json={"override_score": 12, "reason": "It never looked at the logs."},
    )
    assert (given.status_code, given.json()["annotator"]) == (201, "board")
    await stage.until(lambda: stage.events[stage.topics.overridden])
    (event,) = stage.events[stage.topics.overridden]
    assert event.headers["ce_type"] == "score.overridden"
    assert event.data["total_score"] == score["total_score"]
    assert (event.data["override_score"], event.data["session_id"]) == (12, good)
    shown = (await http.get(f"{API}/sessions/{good}/score")).json()
    assert (shown["total_score"], shown["override"]["override_score"]) == (score["total_score"], 12)


async def failing_and_retrying(stage: Stage, http: httpx.AsyncClient) -> None:
    missing = await http.post(f"{API}/sessions/s-missing/score?wait=30")
    assert (missing.status_code, missing.json()["code"]) == (404, "session_not_found")
    why = (await http.get(f"{API}/sessions/s-missing/score")).json()
    assert (why["code"], why["error_code"]) == ("failed", "session_not_found")
    stage.stand_ins.add("s-missing", "simple")
    retried = await http.post(f"{API}/requests/{missing.json()['request_id']}/retry?wait=30")
    assert (retried.status_code, retried.json()["session_id"]) == (200, "s-missing")
    refused = await http.post(f"{API}/requests/{retried.json()['request_id']}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (409, "already_finished")


async def changing_a_profile(http: httpx.AsyncClient, lean: str) -> None:
    """The worker takes the new version without a restart; old scores are of former criteria."""
    before = (await http.get(f"{API}/sessions/{lean}/score")).json()
    shown = (await http.get(f"{API}/profiles/{RULES}")).json()
    content = shown["profile"] | {"quality_risk_threshold": 100, "version": 2}
    assert (await http.put(f"{API}/profiles/{RULES}", json=content)).status_code == 201
    await http.post(f"{API}/profiles/{RULES}/activate", json={"version": 2})
    after = await http.post(f"{API}/sessions/{lean}/score?wait=30")
    assert after.json()["judge_profile_version"] == 2
    assert after.json()["score_id"] != before["score_id"]
    history = (await http.get(f"{API}/sessions/{lean}/scores")).json()["scores"]
    assert [s["is_current_criteria"] for s in history] == [True, False]
    await http.post(f"{API}/profiles/{RULES}/activate", json={"version": None})
    back = await http.post(f"{API}/sessions/{lean}/score?wait=30", json={"force_rescore": True})
    assert back.json()["judge_profile_version"] == 1


async def a_batch(stage: Stage, http: httpx.AsyncClient) -> None:
    for n in range(4):
        stage.stand_ins.add(f"b-{n}", "simple", alert_type="Batched")
    ask: dict[str, Any] = {"history": {"alert_type": "Batched", "not_current": True}}
    plan = (await http.post(f"{API}/batches", json=ask | {"dry_run": True})).json()
    assert plan["sessions"] == 4
    made = await http.post(f"{API}/batches", json=ask | {"profile_id": RULES})
    where = made.headers["location"]
    async with asyncio.timeout(30):
        while (await http.get(where)).json()["progress"]["completed"] < 4:
            await asyncio.sleep(0.1)
    done = (await http.get(where)).json()
    assert (done["state"], done["created_by"]) == ("completed", "board")
    by_command = await stage.cli(
        "publish", "--from-history", "--alert-type", "Batched", "--profile", RULES, "--dry-run",
        "--not-current", "--json",
    )  # fmt: skip
    assert by_command.json["sessions"] == 0
    forced = await stage.cli(
        "publish",
        "--from-history",
        "--alert-type",
        "Batched",
        "--profile",
        RULES,
        "--force",
        "--json",
    )
    assert forced.json["progress"]["published"] == 4
    assert forced.json["state"] == "completed"


async def what_is_wrong(http: httpx.AsyncClient) -> None:
    """Over a socket, where servers and clients change paths on their own."""
    host, port = http.base_url.host, http.base_url.port
    for target, status in (
        (f"{API}/sessions/../../../etc/passwd/score", 404),
        (f"{API}/sessions/..%2f..%2fetc/score", 404),
        (f"{API}/sessions/a%00b/score", 422),
        (f"{API}/sessions/a%0d%0aX:1/score", 422),
        (f"{API}/sessions/%ff/score", 422),
        (f"{API}/sessions/s1/scores?limit=-1", 422),
        (f"{API}/sessions/s1/scores?before=32.13.2026", 422),
    ):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        answer = (await reader.read()).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} "), (target, head)
        assert "application/problem+json" in head
        assert json.loads(body)["detail"], target
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Endless: " + b"x" * MAX_HEAD_BYTES)
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 400 "), answer
    assert f"more than {MAX_HEAD_BYTES} bytes" in answer
    large = await http.post(f"{API}/batches", content=b"[" + b" " * 10_000_000)
    assert (large.status_code, large.json()["code"]) == (413, "content_too_large")


async def test_without_its_role_there_is_no_api(stage: Stage) -> None:
    async with (
        stage.consumer(roles="intake") as consumer,
        httpx.AsyncClient(base_url=consumer.url) as http,
    ):
        refused = await http.get(f"{API}/sessions/s1/score")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert "role api" in refused.json()["detail"]


async def test_a_token_is_made_and_only_its_hash_is_a_setting(stage: Stage) -> None:
    made = await stage.cli("token", "board", "--scope", "read", "--scope", "score", "--json")
    entry, token = made.json["setting"], made.json["token"]
    assert entry == f"board:read+score:{hashlib.sha256(token.encode()).hexdigest()}"
    assert len(token) >= 32
    wrong = await stage.cli("status", api_tokens=f"{entry},nonsense")
    assert wrong.code == 1
    assert "API_TOKENS" in wrong.err
    assert "entry 2" in wrong.err
    for bad in (["bo:ard"], ["board", "--scope", "all"]):
        refused = await stage.cli("token", *bad)
        assert refused.code != 0, bad


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from-history", "s1"],
        ["s1", "--dry-run"],
        ["--from-history", "--band", "great"],
        ["--from-history", "--since", "2026-02-02", "--until", "2026-02-01"],
        ["--from-history", "--profile", "nobody"],
    ],
    ids=" ".join,
)
async def test_batches_that_make_no_sense(stage: Stage, arguments: list[str]) -> None:
    refused = await stage.cli("publish", *arguments)
    assert refused.code == 1
    assert refused.err.startswith("- ") or "--" in refused.err
