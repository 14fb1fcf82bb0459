"""Sessions as large as they may be, and made to take much memory and time, all at once: what a
process takes stays within what the chart reckons with, and it renews its leases and answers probes
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from tests.support import promises
from tests.support.asking import add_sessions, ask_each
from tests.support.judging import figures
from tests.support.replica import Replica
from tests.support.stage import Stage

MOST_BYTES = 16 * 1024 * 1024
# As in deploy/helm: 256 MiB for a process, and 48 times what sessions have. That makes 1 GiB.
MOST_MEMORY = 256 * 1024 * 1024 + 48 * MOST_BYTES
PROBE_LIMIT_S = 20.0


def detail(session_id: str, **fields: Any) -> dict[str, Any]:
    start = {
        "session_id": session_id,
        "status": "completed",
        "agent_type": "a",
        "alert_data": {"test_session": f"[{session_id}]"},
        "final_analysis": "done",
        "stages": [],
    }
    return start | fields


def stage_of(**fields: Any) -> dict[str, Any]:
    return {"execution_id": "e", "stage_name": "n", "agent": "a", "status": "completed", **fields}


def call(**fields: Any) -> dict[str, Any]:
    details = {"server_name": "s", "communication_type": "tool_call", "success": True, **fields}
    return {"id": "c", "timestamp_us": 1, "details": details}


def conversation(messages: list[dict[str, str]]) -> dict[str, Any]:
    details = {"model_name": "m", "conversation": {"messages": messages}}
    return stage_of(llm_interactions=[{"id": "i", "timestamp_us": 1, "details": details}])


#: Each from a number of bytes.
SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "messages": lambda size: {
        "stages": [conversation([{"role": "", "content": ""}] * (size // 29))]
    },
    "calls": lambda size: {"stages": [stage_of(mcp_communications=[call()] * (size // 120))]},
    "lists": lambda size: {
        "stages": [stage_of(mcp_communications=[call(tool_result=[[]] * (size // 3))])]
    },
    "objects": lambda size: {"alert_data": {"a": [{}] * (size // 3)}},
    "keys": lambda size: {
        "stages": [
            stage_of(
                mcp_communications=[call(tool_arguments={f"{n:x}": 0 for n in range(size // 11)})]
            )
        ]
    },
    "text": lambda size: {
        "stages": [
            stage_of(mcp_communications=[call(tool_result={"result": "word 12 " * (size // 8)})])
        ]
    },
}


def large(stage: Stage, session_id: str, shape: str) -> str:
    """A session that is nearly as large as one may be."""
    fields = SHAPES[shape](MOST_BYTES - 4096)
    body = json.dumps(detail(session_id, **fields), separators=(",", ":")).encode()
    assert MOST_BYTES * 0.8 < len(body) <= MOST_BYTES, shape

    async def respond() -> Response:
        return Response(body, media_type="application/json")

    stage.stand_ins.add(session_id)
    stage.stand_ins.history_faults.forever[session_id] = respond
    return session_id


def most_memory(pid: int) -> int:
    """Bytes that a process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextlib.asynccontextmanager
async def probed(replica: Replica) -> AsyncIterator[list[str]]:
    """What went wrong with the liveness probes."""
    wrong: list[str] = []

    def probe() -> None:
        answer = httpx.get(f"{replica.url}/healthz", timeout=PROBE_LIMIT_S)
        assert answer.status_code == 200

    async def probe_on() -> None:
        while True:
            try:
                await asyncio.to_thread(probe)
            except (httpx.HTTPError, AssertionError) as error:
                wrong.append(repr(error))
            await asyncio.sleep(0.2)

    probing = asyncio.create_task(probe_on())
    try:
        yield wrong
    finally:
        probing.cancel()


@pytest.mark.ci_fault
async def test_large_sessions_all_at_once(stage: Stage) -> None:
    stage.kind = Replica  # a forked one begins with this process's memory
    sessions = [large(stage, f"s-{shape}", shape) for shape in SHAPES]
    sessions += add_sessions(stage, 10)
    stage.settings |= {"history_max_bytes": MOST_BYTES, "lease_seconds": 10}
    stage.settings |= {"request_deadline_seconds": 120, "history_timeout_seconds": 60}
    async with stage.consumer() as replica, probed(replica) as wrong:
        assert replica.pid
        await ask_each(stage, sessions)
        seen = await promises.kept(stage, timeout_s=200)
        told = await figures(replica)
        assert most_memory(replica.pid) < MOST_MEMORY
    assert wrong == []
    assert told.get(("scoring_leases_lost_total", ()), 0) == 0
    assert {row["lost_leases"] for row in seen.requests.values()} == {0}
