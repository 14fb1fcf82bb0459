"""Sessions and verdicts of any size, as the History Service and a judge give them.

Session `b-<n>` is the n-th of endless many, alike but for its id. Its verdict is right for it
alone: a score that belongs to another session can be told.
"""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

CRITERIA = ("logical_flow", "consistency", "tool_relevance", "synthesis_quality")
MAX_POINTS = 25
# Of the prompt, what is not the session: instructions, criteria, schema.
FRAME_KB = 11
RESULT_LINES = 14
_HOLE = "b-@@"
_AT_US = 1_772_000_000_000_000
REASONING = "The step shows what the agent claims, and the next one follows from it. "


def number_in(text: bytes) -> int:
    """Which session this prompt is about."""
    start = text.index(b"[b-") + 3
    return int(text[start : text.index(b"]", start)])


def points(number: int) -> dict[str, int]:
    """What this session gets of the judge."""
    return {name: (number * 7 + k * 5) % (MAX_POINTS + 1) for k, name in enumerate(CRITERIA)}


def total(number: int) -> int:
    """The score of this session, of 100."""
    return sum(points(number).values())


def session(number: int, *, prompt_kb: int) -> bytes:
    """The session whose prompt has about so many kB, as the History Service sends it."""
    return _session(prompt_kb).replace(_HOLE.encode(), f"b-{number}".encode())


def verdict(number: int, *, kb: int = 7) -> str:
    """A verdict of about so many kB."""
    text = _verdict(kb)
    for name, score in points(number).items():
        text = text.replace(f'"@@{name}"', str(score))
    return text


@cache
def _session(prompt_kb: int) -> bytes:
    random = Random(7)  # the same in every process
    calls: list[tuple[str, str]] = []
    size = 0
    while size < (prompt_kb - FRAME_KB) * 1000:
        result = "\n".join(_log_line(random) for _ in range(RESULT_LINES))
        calls.append((f"Thought: step {len(calls)}. Something is odd, I look closer.", result))
        size += len(result) + 700
    return json.dumps(_detail(calls)).encode()


def _log_line(random: Random) -> str:
    pod = f"checkout-{random.randrange(16**8):08x}-{random.randrange(16**5):05x}"
    return (
        f"2026-03-01T12:{random.randrange(60):02}:{random.randrange(60):02}Z INFO {pod} answered "
        f"GET /cart/{random.randrange(10**6)} with {random.choice([200, 200, 404, 503])} in "
        f"{random.randrange(900)} ms"
    )


def _detail(calls: list[tuple[str, str]]) -> dict[str, Any]:
    llm = [_llm(n, thought) for n, (thought, _) in enumerate(calls)]
    mcp = [_tool_list(), *(_mcp(n, result) for n, (_, result) in enumerate(calls))]
    stage = {
        "execution_id": "e-1",
        "session_id": _HOLE,
        "stage_name": "investigation",
        "agent": "KubernetesAgent",
        "status": "completed",
        "parallel_type": "single",
        "llm_interactions": llm,
        "mcp_communications": mcp,
        # The service tells everything once more, in the order of time.
        "chronological_interactions": sorted(llm + mcp, key=lambda i: int(i["timestamp_us"])),
    }
    return {
        "session_id": _HOLE,
        "alert_type": "kubernetes",
        "agent_type": "chain:kubernetes",
        "status": "completed",
        "alert_data": {"alert": f"checkout is slow [{_HOLE}]", "severity": "warning"},
        "runbook_url": "https://runbooks.example/checkout",
        "final_analysis": "The checkout pods answer slowly because their database is overloaded.",
        "started_at_us": _AT_US,
        "session_input_tokens": 30_000,
        "session_output_tokens": 2_000,
        "session_total_tokens": 32_000,
        "duration_ms": 60_000,
        "stages": [stage],
    }


def _interaction(n: int, kind: str, offset_us: int, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{kind}-{n}",
        "timestamp_us": _AT_US + n * 1_000_000 + offset_us,
        "step_description": kind,
        "duration_ms": 400,
        "type": kind,
        "details": {"session_id": _HOLE, **details},
    }


def _llm(n: int, thought: str) -> dict[str, Any]:
    said = f'{thought}\nAction: kubernetes.logs\nAction Input: {{"n": {n}}}'
    return _interaction(
        n,
        "llm",
        0,
        {
            "model_name": "gpt-4o",
            "provider": "openai",
            "conversation": {"messages": [{"role": "assistant", "content": said}]},
            "input_tokens": 1000,
            "output_tokens": 60,
            "success": True,
        },
    )


def _mcp(n: int, result: str) -> dict[str, Any]:
    return _interaction(
        n,
        "mcp",
        500_000,
        {
            "server_name": "kubernetes",
            "communication_type": "tool_call",
            "tool_name": "logs",
            "tool_arguments": {"n": n},
            "tool_result": {"result": result},
            "available_tools": {},
            "success": True,
        },
    )


def _tool_list() -> dict[str, Any]:
    tools = [{"name": name, "description": f"{name} of a pod"} for name in ("logs", "describe")]
    return _interaction(
        0,
        "mcp",
        -500_000,
        {
            "server_name": "kubernetes",
            "communication_type": "tool_list",
            "tool_name": "",
            "tool_arguments": {},
            "tool_result": {},
            "available_tools": {"kubernetes": tools},
            "success": True,
        },
    )


@cache
def _verdict(kb: int) -> str:
    quote = "Something is odd, I look closer."
    evidence = [{"step": step, "quote": quote} for step in (1, 3, 5)]
    fill = REASONING * max(1, (kb * 1000 - 2500) // (len(REASONING) * len(CRITERIA)))
    criteria = {
        name: {"evidence": evidence, "reasoning": fill, "score": f"@@{name}"} for name in CRITERIA
    }
    return json.dumps(
        {
            "criteria": criteria,
            "score_reasoning": REASONING * 3,
            "missing_tools": [{"tool_name": "kubernetes.describe", "rationale": REASONING}],
            "alternative_approaches": [
                {"name": f"way {n}", "description": REASONING, "steps": [REASONING] * 3}
                for n in range(2)
            ],
            "disqualified": False,
            "disqualifier_triggered": None,
            "injection_suspected": False,
        }
    )
