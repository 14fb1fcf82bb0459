"""Keys and passwords go where they open something, and nowhere else."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.support.judging import JUDGE, configured, shipped
from tests.support.stage import CliResult, Stage
from tests.support.stand_ins import answer, hang

KEY, GEMINI_KEY, PASSWORD = "sk-canary-1f9a", "gm-canary-1f9a", "pw-canary-1f9a"
CANARY = "canary"
NOWHERE = "http://127.0.0.1:1"
# What the provider says of a wrong key: the key.
ECHO = {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}
WRONG_KEY = answer(401, {"error": {**ECHO, "code": "invalid_api_key"}})
BAD_REQUEST = answer(400, {"error": {**ECHO, "code": KEY, "param": KEY}})


@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_no_secret_is_told_by_a_consumer(
    stage: Stage, database_url: str, tmp_path: Path, log_format: str
) -> None:
    for session in ("s-good", "j-401", "j-400", "j-slow", "j-nowhere"):
        stage.stand_ins.add(session, "good")
    faults = stage.stand_ins.judge_faults
    faults.forever |= {"j-401": WRONG_KEY, "j-400": BAD_REQUEST}
    faults.queued["j-slow"] = [hang()]
    settings = secretive(tmp_path) | {
        "database_url": database_url,
        "log_level": "DEBUG",
        "log_format": log_format,
    }
    async with stage.consumer(**settings) as consumer:
        await stage.answer(await stage.ask("s-good"))
        await stage.ask("j-nowhere", profile_id="elsewhere")
        for session, code in (("j-401", "judge_unavailable"), ("j-400", "internal_error")):
            event = await stage.answer(await stage.ask(session))
            assert event.data["error_code"] == code
        slow = await stage.answer(await stage.ask("j-slow"))
        assert slow.topic == stage.topics.completed
        await told(stage, "j-nowhere")
        async with httpx.AsyncClient() as http:
            figures = (await http.get(f"{consumer.url}/metrics")).text
    log = consumer.log.read_text()
    for part in ("JudgeRejected", "InternalError", "JudgeNoAnswer", "JudgeUnavailable"):
        assert f'result="{part}"' in figures, "each of these failures happened"
    assert "judge_request" in log
    assert CANARY not in log
    assert CANARY not in figures
    for events in stage.events.values():
        assert not any(CANARY in f"{event.data} {event.headers}" for event in events)
    assert CANARY not in await tables(stage)


async def test_no_secret_is_told_by_a_command(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    faults = stage.stand_ins.judge_faults.forever
    faults["j-400"] = BAD_REQUEST
    settings = secretive(tmp_path) | {"database_url": database_url}
    file = tmp_path / "session.json"
    kept = stage.stand_ins.sessions[stage.stand_ins.add("s-good", "good")]
    file.write_text(json.dumps({"detail": kept.detail, "final": kept.final}))
    async with stage.consumer(**settings):
        good = await stage.answer(await stage.ask("s-good"))
        await stage.answer(await stage.ask(stage.stand_ins.add("j-400", "good")))
    judged = ("score", str(file), "--judge", "--profile", "alert-investigation", "--json")
    asking: list[tuple[str, ...]] = [judged, ("replay", good.data["score_id"], "--send", "--json")]
    for command in [*asking, ("show", "s-good", "--json"), ("show", "j-400", "--json")]:
        silent(await stage.cli(*command, **settings), code=0)
    faults |= dict.fromkeys(("s-good", "unknown"), BAD_REQUEST)
    for command in [*asking, ("check",)]:
        silent(await stage.cli(*command, **settings), code=1)


def silent(done: CliResult, *, code: int) -> None:
    """It ended with this code and told no secret, and no trace of ours."""
    assert done.code == code, done.err
    assert CANARY not in done.out + done.err
    assert "Traceback" not in done.err


@pytest_asyncio.fixture
async def database_url(stage: Stage) -> AsyncIterator[str]:
    """The stage's database, for a user with our password."""
    user = f"keeper_{uuid4().hex}"
    await stage.rows(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    url = urlsplit(stage.database_url)
    yield urlunsplit(url._replace(netloc=f"{user}:{PASSWORD}@{url.hostname}:{url.port}"))
    await stage.rows(f"DROP ROLE {user}")


def secretive(folder: Path) -> dict[str, Any]:
    """Settings with keys: of the judge, and of one whose port is closed."""
    return {
        "llm_api_key": KEY,
        "gemini_api_key": GEMINI_KEY,
        "gemini_base_url": NOWHERE,
        "request_deadline_seconds": 1,
        "grace_seconds": 1,
        "scoring_config_dir": configured(
            folder,
            shipped("alert-investigation", id="elsewhere", judge={"provider": "gemini"}),
            providers={JUDGE: {"timeout_s": 1}},
        ),
    }


async def told(stage: Stage, session: str) -> None:
    """Waits until it is stored what went wrong with the session's request."""
    sql = "SELECT FROM score_requests WHERE session_id = $1 AND error_message <> ''"
    async with asyncio.timeout(40):
        while not await stage.rows(sql, session):
            await asyncio.sleep(0.1)


async def tables(stage: Stage) -> str:
    """All that the database holds, as text."""
    names = await stage.rows(
        "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'public'"
    )
    held = []
    for name in (row["tablename"] for row in names):
        rows = await stage.rows(f"SELECT to_jsonb(t)::text AS row FROM {name} t")  # noqa: S608
        held += [row["row"] for row in rows]
    sent = await stage.rows("SELECT content FROM judge_sent")
    assert sent
    text = "\n".join([*held, *(zlib.decompress(row["content"]).decode() for row in sent)])
    assert "judge_unavailable" in text
    return text
