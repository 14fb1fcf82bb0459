"""Who may do what over HTTP: tokens with scopes, browsers' origins, how often."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from consumer.api import access
from consumer.api.tokens import Scope, parse_tokens
from tests.integration.builders import request, scored
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics

TOKENS = ", ".join(
    f"{name}:{scopes}:{hashlib.sha256(f'secret-{name}'.encode()).hexdigest()}"
    for name, scopes in {"viewer": "read", "reviewer": "read+override", "root": "admin"}.items()
)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer secret-{name}"}


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    settings = {
        "api_tokens": TOKENS,
        "api_cors_origins": "https://board.example",
        "api_writes_per_minute": 30,
    }
    async with serving(database, kafka, topics, **settings) as made:
        yield made


async def test_each_scope_opens_its_own_doors(api: Api) -> None:
    http = api.http
    made = await scored(api.store, request("s1"))
    read, write = "/sessions/s1/score", f"/scores/{made.score_id}/override"
    body = {"override_score": 5, "reason": "no"}
    for headers in (
        {},
        {"authorization": "Basic secret-root"},
        bearer("unknown"),
        {"authorization": "Bearer"},
    ):
        refused = await http.get(read, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
    for name in ("viewer", "reviewer", "root"):
        assert (await http.get(read, headers=bearer(name))).status_code == 200
    denied = await http.post(write, json=body, headers=bearer("viewer"))
    assert (denied.status_code, denied.json()["code"]) == (403, "forbidden")
    assert denied.json()["detail"] == "this needs scope override; token 'viewer' has read"
    assert (await http.post("/sessions/s1/score", headers=bearer("reviewer"))).status_code == 403
    given = await http.post(write, json=body, headers=bearer("reviewer"))
    assert given.json()["annotator"] == "reviewer"
    named = bearer("root") | {"x-forwarded-user": "Ann"}
    assert (await http.post(write, json=body, headers=named)).json()["annotator"] == "Ann"
    assert (await http.get("http://api/api/v1/openapi.json")).status_code == 200


async def test_nobody_writes_more_often_than_allowed(api: Api) -> None:
    """30 a minute: five at once, which is what ten seconds hold; others are not held up."""
    made = await scored(api.store, request("s1"))
    path, body = f"/scores/{made.score_id}/override", {"override_score": 5, "reason": "no"}
    codes = [
        (await api.http.post(path, json=body, headers=bearer("root"))).status_code for _ in range(6)
    ]
    assert codes == [201] * 5 + [429]
    refused = await api.http.post(path, json=body, headers=bearer("root"))
    assert 1 <= int(refused.headers["retry-after"]) <= 3
    assert "30 changes a minute" in refused.json()["detail"]
    assert (await api.http.get("/sessions/s1/score", headers=bearer("root"))).status_code == 200
    other = await api.http.post(path, json=body, headers=bearer("reviewer"))
    assert other.status_code == 201


async def test_browsers_may_call_from_named_pages_only(api: Api) -> None:
    ask = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    for origin, allowed in (("https://board.example", True), ("https://other.example", False)):
        answer = await api.http.options("/sessions/s1/score", headers=ask | {"origin": origin})
        told = answer.headers.get("access-control-allow-origin")
        assert (told == origin) == allowed
    assert answer.status_code == 400


async def test_callers_are_forgotten_after_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_CALLERS", 3)
    gate = access.Gate(writes_per_minute=6)
    for who in "abcde":
        gate._charge(who)
    assert list(gate._limiters) == ["c", "d", "e"]


def test_tokens_are_told_by_place_where_they_are_wrong() -> None:
    (viewer, reviewer, root) = parse_tokens(TOKENS)
    assert (viewer.name, set(reviewer.scopes)) == ("viewer", {Scope.READ, Scope.OVERRIDE})
    assert root.scopes == {Scope.ADMIN}
    good = TOKENS.split(", ", maxsplit=1)[0]
    for bad in (
        "secret",
        "me:read:abc",
        f"me:all:{'a' * 64}",
        f"me:read+:{'a' * 64}",
        f"m e:read:{'a' * 64}",
    ):
        with pytest.raises(ValueError, match="entry 2 must be NAME:SCOPES:SHA256") as refused:
            parse_tokens(f"{good} {bad}")
        assert "secret" not in str(refused.value)
