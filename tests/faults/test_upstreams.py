"""History Service and judge: unwell, silent, slow or talking nonsense; and away for long."""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from starlette.responses import Response, StreamingResponse

from consumer.error_codes import ErrorCode
from consumer.resources import resource
from tests.faults.conftest import SESSION_S
from tests.support import promises
from tests.support.asking import add_sessions, ask_each, ask_slowly, judged
from tests.support.stage import Stage
from tests.support.stand_ins import Fault, answer, completion, hang
from tests.support.tcp_proxy import tcp_proxy

# How long aiokafka lets a consumer go without a poll before it leaves the group.
MAX_POLL_S = 300.0
MIB = 1024 * 1024
LIMIT_MIB = 8
_JUDGE = "openai-compatible:\n  type: openai\n"


def huge() -> Fault:
    """More than a consumer may read."""

    async def respond() -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(4 * LIMIT_MIB):
                yield b"[" * MIB
                await asyncio.sleep(0)

        return StreamingResponse(chunks(), media_type="application/json")

    return respond


def trickle() -> Fault:
    """A body that begins at once and never ends, a byte at a time."""

    async def respond() -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield b" "
                await asyncio.sleep(0.2)

        return StreamingResponse(chunks(), media_type="application/json")

    return respond


def stalled() -> Fault:
    """A body that stops before its announced length."""

    async def respond() -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b'{"session_id":'
            await asyncio.sleep(3600)

        return StreamingResponse(chunks(), headers={"Content-Length": "100000"})

    return respond


PASSING: dict[str, list[Fault]] = {
    "500": [answer(500)] * 2,
    "503": [answer(503, headers={"Retry-After": "1"})],
    "hang": [hang()],
    "slow body": [trickle()],
    "stalls half-way": [stalled()],
    "ends half-way": [answer(200, '{"session_id":')],
    "404 of an ingress": [answer(404, "404 page not found")] * 2,
    "redirect": [answer(302, "moved", {"Location": "http://login.invalid/"})],
}
LASTING: dict[str, tuple[Fault, ErrorCode]] = {
    "404": (answer(404, {"detail": "Session x not found"}), ErrorCode.SESSION_NOT_FOUND),
    "always 500": (answer(500), ErrorCode.HISTORY_UNAVAILABLE),
    "always hangs": (hang(), ErrorCode.HISTORY_UNAVAILABLE),
    "another shape": (answer(200, [1, 2, 3]), ErrorCode.HISTORY_INVALID),
    "garbage": (answer(200, '{"session_id"; 1}'), ErrorCode.HISTORY_INVALID),
    "huge body": (huge(), ErrorCode.HISTORY_INVALID),
}


@pytest.mark.ci_fault
async def test_history_faults(stage: Stage) -> None:
    """What may pass is tried again until the deadline; what does not is told; no judge is asked
    about what could not be read.
    """
    passing = dict(zip(PASSING, add_sessions(stage, len(PASSING)), strict=True))
    lasting = dict(zip(LASTING, add_sessions(stage, len(LASTING)), strict=True))
    faults = stage.stand_ins.history_faults
    faults.queued.update({passing[name]: list(queue) for name, queue in PASSING.items()})
    faults.forever.update({lasting[name]: fault for name, (fault, _) in LASTING.items()})
    stage.settings.update(history_timeout_seconds=1, request_deadline_seconds=8)
    async with stage.consumer(history_max_bytes=LIMIT_MIB * MIB):
        await ask_each(stage, [*passing.values(), *lasting.values()])
        seen = await promises.kept(stage)
    ends = {row["session_id"]: row["error_code"] for row in seen.requests.values()}
    assert {name: ends[session] for name, session in passing.items()} == dict.fromkeys(passing)
    for name, (_, code) in LASTING.items():
        assert ends[lasting[name]] == code, name
    assert seen.judge_calls.total() == len(passing)


async def test_history_behind_a_bad_line(stage: Stage) -> None:
    """Reset, silent, cut off: as soon as it is back, so are the scores."""
    async with tcp_proxy(_port(stage.stand_ins.history_url)) as line:
        stage.settings.update(history_timeout_seconds=1, request_deadline_seconds=60)
        async with stage.consumer(history_url=f"http://{line.address}"):
            asking = asyncio.create_task(ask_slowly(stage, 60, rate=12))
            for harm in (line.reset, line.half_open, line.cut):
                await asyncio.sleep(1)
                harm()
                await asyncio.sleep(1)
                line.restore()
            await asking
            seen = await promises.kept(stage, timeout_s=90)
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 60


JUDGE_PASSING: dict[str, list[Fault]] = {
    "429": [answer(429, headers={"Retry-After": "1"})],
    "burst of 5xx": [answer(500), answer(502)],
    "hang": [hang()],
    "truncated JSON": [answer(200, '{"choices": [{"mess')],
    "no JSON": [answer(200, "<html>gateway</html>")],
}
JUDGE_LASTING: dict[str, tuple[Fault, ErrorCode]] = {
    "refusal": (completion(None, refusal="I will not."), ErrorCode.JUDGE_REFUSED),
    "wrong schema": (completion('{"verdict": "fine"}'), ErrorCode.JUDGE_INVALID_OUTPUT),
    "prose": (completion("It went well, I think."), ErrorCode.JUDGE_INVALID_OUTPUT),
}


@pytest.mark.ci_fault
async def test_judge_faults(stage: Stage) -> None:
    """One session after the other, so that the breaker stays out of it."""
    passing = dict(zip(JUDGE_PASSING, add_sessions(stage, len(JUDGE_PASSING)), strict=True))
    lasting = dict(zip(JUDGE_LASTING, add_sessions(stage, len(JUDGE_LASTING)), strict=True))
    faults = stage.stand_ins.judge_faults
    faults.queued.update({passing[name]: list(queue) for name, queue in JUDGE_PASSING.items()})
    faults.forever.update({lasting[name]: fault for name, (fault, _) in JUDGE_LASTING.items()})
    config = _impatient(stage)
    async with stage.consumer(
        scoring_config_dir=config, request_deadline_seconds=60, worker_slots=1
    ):
        await ask_each(stage, [*passing.values(), *lasting.values()])
        calls = {passing[name]: len(queue) for name, queue in JUDGE_PASSING.items()}
        calls |= dict.fromkeys(lasting.values(), 3)
        seen = await promises.kept(stage, tries=calls)
    ends = {row["session_id"]: row["error_code"] for row in seen.requests.values()}
    assert {name: ends[session] for name, session in passing.items()} == dict.fromkeys(passing)
    for name, (_, code) in JUDGE_LASTING.items():
        assert ends[lasting[name]] == code, name


async def test_judge_behind_a_bad_line(stage: Stage) -> None:
    """Each harm costs the calls that were under way, no more."""
    stage.stand_ins.judge_delay_s = 0.2
    async with (
        tcp_proxy(_port(stage.stand_ins.judge_url)) as line,
        stage.consumer(
            llm_base_url=f"http://{line.address}/v1",
            scoring_config_dir=_impatient(stage),
            request_deadline_seconds=90,
            worker_slots=4,
        ),
    ):
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=10))
        for harm in (line.reset, line.half_open, line.cut):
            await judged(stage, 5)
            harm()
            await asyncio.sleep(2)
            line.restore()
            line.reset()
        await asking
        seen = await promises.kept(stage, crashes=6, timeout_s=110)
    assert len(seen.scores) == 60


@pytest.mark.parametrize(
    "outage_s",
    [
        pytest.param(3 * SESSION_S, id="session_timeout", marks=pytest.mark.timeout(200)),
        pytest.param(MAX_POLL_S + 10, id="max_poll_interval", marks=pytest.mark.timeout(500)),
    ],
)
async def test_judge_away_for_longer_than(stage: Stage, outage_s: float) -> None:
    """The breaker opens, requests wait and none fails; nobody has to lend a hand."""
    async with tcp_proxy(_port(stage.stand_ins.judge_url)) as line:
        line.cut()
        async with stage.consumer(
            llm_base_url=f"http://{line.address}/v1", request_deadline_seconds=60
        ) as process:
            asking = asyncio.create_task(ask_slowly(stage, 100, rate=100 / outage_s))
            await asyncio.sleep(outage_s)
            async with asyncio.timeout(60):  # intake goes on
                while (states := await _states(stage)).total() < 90:
                    await asyncio.sleep(0.2)
            assert set(states) <= {"pending", "in_progress"}, states
            line.restore()
            await asking
            seen = await promises.kept(stage, timeout_s=120)
            assert process.pid
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 100


@pytest.mark.ci_fault
async def test_breaker_opens_and_closes_again(stage: Stage) -> None:
    """A burst of errors from a judge that then is well: all wait, all are scored."""
    sessions = add_sessions(stage, 20)
    for session_id in sessions[:8]:
        stage.stand_ins.judge_faults.queued[session_id] = [answer(500)]
    async with stage.consumer(request_deadline_seconds=90, worker_slots=8):
        await ask_each(stage, sessions)
        seen = await promises.kept(stage, tries=dict.fromkeys(sessions, 1), timeout_s=90)
    assert len(seen.scores) == 20


async def _states(stage: Stage) -> Counter[str]:
    return Counter(row["state"] for row in await stage.rows("SELECT state FROM score_requests"))


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].split("/")[0])


def _impatient(stage: Stage) -> str:
    """The shipped configuration, with a second for each call to the judge."""
    folder = stage.folder / "impatient"
    shutil.copytree(resource("config"), folder)
    providers = folder / "llm_providers.yaml"
    text = providers.read_text()
    assert _JUDGE in text
    providers.write_text(text.replace(_JUDGE, f"{_JUDGE}  timeout_s: 1\n"))
    return str(folder)
