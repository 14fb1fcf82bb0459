"""Profiles over HTTP: stored, activated, told apart; and what a replica uses of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from consumer.scoring.profile import parse_profile
from tests.integration.builders import execute
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics

RULES = "efficiency-simple"
ANN, BOB = {"x-forwarded-user": "Ann"}, {"x-forwarded-user": "Bob"}


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics) as made:
        for profile in made.profiles.files:
            await made.store.register_profile(profile, by="config")
        yield made


def changed(api: Api, **changes: Any) -> dict[str, Any]:
    """The shipped rules profile with changes, as somebody would send it."""
    profile = api.profiles.by_id(RULES)
    assert profile is not None
    content = profile.body() | changes
    content.pop("version")
    return content


async def test_a_version_is_stored_then_activated_by_all_then_taken_back(
    api: Api, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    http = api.http
    before = (await http.get(f"/profiles/{RULES}")).json()
    assert (before["source"], before["activations"]) == ("file", [])
    assert [v["created_by"] for v in before["versions"]] == ["config"]
    first = before["profile"]["version"]

    none_yet = await http.post(f"/profiles/{RULES}/activate", json={"version": None})
    assert (none_yet.status_code, none_yet.json()["code"]) == (409, "not_activated")
    new = changed(api, quality_risk_threshold=55)
    stored = await http.put(f"/profiles/{RULES}", json=new, headers=ANN)
    assert (stored.status_code, stored.json()["version"]) == (201, first + 1)
    assert stored.json()["created_by"] == "Ann"
    assert (await http.put(f"/profiles/{RULES}", json=new, headers=BOB)).status_code == 200
    same = await http.put(f"/profiles/{RULES}", json=new | {"version": first + 1}, headers=BOB)
    assert (same.status_code, same.json()["created_by"]) == (200, "Ann")
    still = (await http.get(f"/profiles/{RULES}")).json()
    assert (still["profile"], still["criteria_hash"]) == (
        before["profile"],
        before["criteria_hash"],
    )

    used = await http.post(f"/profiles/{RULES}/activate", json={"version": first + 1}, headers=BOB)
    assert used.json()["profile"]["quality_risk_threshold"] == 55
    assert used.json()["source"] == "activated"
    assert used.json()["criteria_hash"] != before["criteria_hash"]
    diff = await http.get(f"/profiles/{RULES}/diff?from={first}&to={first + 1}")
    assert diff.json()["changes"] == [
        {"place": "version", "old": first, "new": first + 1},
        {"place": "quality_risk_threshold", "old": 40.0, "new": 55.0},
    ]

    async with serving(database, kafka, topics) as replica:
        assert not replica.profiles.is_activated(RULES)
        await replica.profiles.refresh_now()
        assert replica.profiles.hash_of(RULES) == used.json()["criteria_hash"]
        back = await http.post(f"/profiles/{RULES}/activate", json={"version": None}, headers=ANN)
        assert back.json()["source"] == "file"
        await replica.profiles.refresh_now()
        assert replica.profiles.hash_of(RULES) == before["criteria_hash"]
    past = [(a["version"], a["activated_by"]) for a in back.json()["activations"]]
    assert past == [(None, "Ann"), (first + 1, "Bob")]
    for change in ("UPDATE profile_activations SET version = 1", "DELETE FROM profile_activations"):
        with pytest.raises(asyncpg.RestrictViolationError, match="immutable"):
            await execute(database, change)


async def test_a_profile_that_no_file_has(api: Api) -> None:
    http = api.http
    new = changed(api, id="mine", match_labels=["mine"])
    assert (await http.put("/profiles/mine", json=new)).json()["version"] == 1
    listed = {p["id"]: p for p in (await http.get("/profiles")).json()["profiles"]}
    assert (listed["mine"]["newest_version"], listed["mine"]["source"]) == (1, None)
    assert listed[RULES]["source"] == "file"
    assert api.profiles.for_label("mine") != api.profiles.by_id("mine")
    await http.post("/profiles/mine/activate", json={"version": 1})
    assert api.profiles.for_label("mine") == api.profiles.by_id("mine")
    assert (await http.get("/profiles/mine/versions/1")).json()["profile"]["scale"]["max"] == 100
    await http.post("/profiles/mine/activate", json={"version": None})
    assert api.profiles.by_id("mine") is None
    shown = (await http.get("/profiles/mine")).json()
    assert (shown["profile"], shown["source"]) == (None, None)


async def test_what_this_version_cannot_use_is_left_out(api: Api, database: str) -> None:
    """A profile that a newer version of the product stored: the file's goes on."""
    insert = "INSERT INTO judge_profiles VALUES ($1, 9, $2, true, now(), 'newer')"
    await execute(database, insert, RULES, '{"id": "efficiency-simple", "new": 1}')
    assert (await api.http.get(f"/profiles/{RULES}/versions/9")).json()["profile"]["new"] == 1
    refused = await api.http.post(f"/profiles/{RULES}/activate", json={"version": 9})
    assert refused.status_code == 422
    await execute(
        database, "INSERT INTO profile_activations (profile_id, version, activated_by) "
        "VALUES ($1, 9, 'newer')", RULES,
    )  # fmt: skip
    await api.profiles.refresh_now()
    assert not api.profiles.is_activated(RULES)
    assert (await api.http.put(f"/profiles/{RULES}", json=changed(api))).json()["version"] == 10


async def test_requests_are_answered_while_patterns_compile(api: Api) -> None:
    """All that are allowed, each about as costly as one may be."""
    turns = 0

    async def go_on() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    costly = [rf"pattern:(\pL|\pN){{{30 + n % 18}}}{n}" for n in range(100)]
    others = asyncio.create_task(go_on())
    stored = await api.http.put(f"/profiles/{RULES}", json=changed(api, disqualifiers=costly))
    others.cancel()
    assert stored.status_code == 201, stored.text
    assert turns > 25  # a handful where nothing is answered meanwhile


async def test_bad_profiles_are_refused_with_every_problem(api: Api) -> None:
    http = api.http
    deep: Any = {}
    for _ in range(600):
        deep = {"a": deep}
    for change, told in (
        ({"criteria": [], "weights": 1}, "weights: Extra inputs"),
        ({"match_labels": []}, "match_labels"),
        ({"id": "other"}, "id: must be"),
        ({"name": "a\0b"}, "U+0000"),
        ({"name": "\ud800"}, "half a surrogate"),
        ({"name": deep}, "nested"),
        ({"quality_risk_threshold": "NaN"}, "quality_risk_threshold"),
    ):
        body = changed(api) | change
        content, kind = json.dumps(body), {"content-type": "application/json"}
        refused = await http.put(f"/profiles/{RULES}", content=content, headers=kind)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_profile"), change
        assert told in str(refused.json()), change
    judge = {"provider": "nobody", "model": "nothing"}
    asking = changed(api, method="hybrid", judge=judge)
    asking["criteria"] = [*asking["criteria"], {"id": "flow", "weight": 1, "scorer": "judge"}]
    refused = await http.put(f"/profiles/{RULES}", json=asking)
    assert "nobody/nothing is not open" in refused.json()["detail"]
    parse_profile(asking | {"version": 1})

    for version in (0, 7, 2**40):
        taken = await http.put(f"/profiles/{RULES}", json=changed(api) | {"version": version})
        assert taken.status_code in {409, 422}, version
    for path in (
        f"/profiles/{RULES}/versions/99",
        "/profiles/nobody",
        f"/profiles/{RULES}/diff?from=1&to=9",
    ):
        assert (await http.get(path)).status_code == 404, path
    wrong: tuple[Any, ...] = ([], {"version": "1"}, {"version": 0}, {})
    for what in wrong:
        assert (await http.post(f"/profiles/{RULES}/activate", json=what)).status_code == 422
    unknown = await http.post(f"/profiles/{RULES}/activate", json={"version": 99})
    assert unknown.json()["code"] == "unknown_version"
