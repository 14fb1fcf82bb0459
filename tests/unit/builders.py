"""Small builders: each gives a valid value, and takes what a test wants to be different."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consumer.ports import ClaimedRequest, Completion, Sent
from consumer.scoring.profile import Profile, parse_profile
from consumer.scoring.score import JudgeUsage, Score, SessionFacts
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.session import (
    AvailableTool,
    LlmCall,
    Message,
    Session,
    Stage,
    Step,
    ToolCall,
)
from consumer.scoring.tool_report import Price

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
REQUEST_ID = UUID("00000000-0000-4000-8000-000000000001")
TEMPLATE = "Judge this:\n{{SESSION_CONVERSATION}}\nBy this schema:\n{{OUTPUT_SCHEMA}}"


def message(text: str = "Thought: look at the pods", **changes: Any) -> Message:
    return Message(**{"role": "assistant", "text": text, "at_us": 1, **changes})


def tool_call(tool: str = "pods_get", **changes: Any) -> ToolCall:
    fields: dict[str, Any] = {
        "id": "call-1",
        "server": "kubernetes",
        "tool": tool,
        "arguments": {"name": "miner-0"},
        "result": "pod miner-0 is Running",
        "failure": None,
        "error": None,
        "duration_ms": 180,
        "at_us": 2,
    }
    return ToolCall(**{**fields, **changes})


def failed_call(tool: str = "pods_log", **changes: Any) -> ToolCall:
    failure = {"result": "", "failure": "transport", "error": "connection reset"}
    return tool_call(tool, **{**failure, **changes})


def stage(*steps: Step, **changes: Any) -> Stage:
    fields: dict[str, Any] = {
        "id": "stage-1",
        "name": "analysis",
        "agent": "KubernetesAgent",
        "status": "completed",
        "parallel": False,
        "steps": steps,
    }
    return Stage(**{**fields, **changes})


def llm_call(model: str = "gpt-4o", **changes: Any) -> LlmCall:
    fields: dict[str, Any] = {
        "model": model,
        "provider": "openai",
        "input_tokens": 1000,
        "output_tokens": 100,
        "duration_ms": 900,
    }
    return LlmCall(**{**fields, **changes})


def available(*names: str, server: str = "kubernetes") -> tuple[AvailableTool, ...]:
    return tuple(AvailableTool(server=server, name=n, description=f"does {n}") for n in names)


def session(*steps: Step, **changes: Any) -> Session:
    """A session of one stage with these steps (none: a message and a tool call)."""
    fields: dict[str, Any] = {
        "id": "session-1",
        "alert_type": "SecurityAlert",
        "agent": "chain:security",
        "label": "general",
        "alert_data": {"pod": "miner-0"},
        "runbook_url": "https://runbooks.example/cpu.md",
        "final_analysis": "The pod mines.",
        "stages": (stage(*(steps or (message(), tool_call()))),),
        "llm_calls": (llm_call(),),
        "available_tools": available("pods_get", "pods_log"),
        "input_tokens": 1000,
        "output_tokens": 100,
        "total_tokens": 1100,
        "duration_ms": 5000,
    }
    return Session(**{**fields, **changes})


def no_price(_read: int, _written: int) -> float | None:
    """A model whose price nobody knows."""
    return None


def about(
    run: Session, *, price: Price = no_price, cost_usd: float | None = None, **changes: Any
) -> Subject:
    """The session as scorers look at it; no price is known unless one is given."""
    return replace(subject(run, price=price, cost_usd=cost_usd), **changes)


def gated(check: str = "tool_count", threshold: float = 50, **changes: Any) -> dict[str, Any]:
    """A gate as a profile's file writes it, named after its check."""
    return {"id": check, "check": check, "threshold": threshold, **changes}


def judged(criterion_id: str = "logical_flow", **changes: Any) -> dict[str, Any]:
    """A judge criterion as a profile's file writes it."""
    return {"id": criterion_id, "weight": 1, "scorer": "judge", **changes}


def ruled(scorer: str = "tool_count", **changes: Any) -> dict[str, Any]:
    """A rule criterion as a profile's file writes it."""
    return {"id": scorer, "weight": 1, "scorer": scorer, **changes}


def raw_profile(**changes: Any) -> dict[str, Any]:
    fields = {
        "id": "review",
        "version": 1,
        "match_labels": ["*"],
        "method": "llm",
        "criteria": [judged("logical_flow"), judged("consistency", max_points=10)],
    }
    return {**fields, **changes}


def profile(**changes: Any) -> Profile:
    """A profile of two judge criteria, logical_flow of 25 points and consistency of 10."""
    return parse_profile(raw_profile(**changes))


def rules_profile(*criteria: Mapping[str, Any], **changes: Any) -> Profile:
    """A profile of rule criteria (none: tool_count)."""
    chosen = list(criteria) or [ruled()]
    return profile(**{"id": "lean", "method": "heuristic", "criteria": chosen, **changes})


def two_tier_profile(*criteria: Mapping[str, Any], **changes: Any) -> Profile:
    """A profile of gates (tool_count at 50) and criteria (none: tool_count)."""
    chosen = list(criteria) or [ruled()]
    own = {"id": "tiers", "method": "two_tier", "gates": [gated()], "criteria": chosen}
    return profile(**{**own, **changes})


def free_form_profile(**changes: Any) -> Profile:
    """A profile without criteria: the judge breaks the score down as it likes."""
    return profile(**{"id": "free", "criteria": [], **changes})


def criterion_answer(score: Any = 20, **changes: Any) -> dict[str, Any]:
    evidence = [{"step": 1, "quote": "look at the pods"}]
    return {"evidence": evidence, "reasoning": "It follows.", "score": score, **changes}


def answer(**changes: Any) -> dict[str, Any]:
    """A judge's answer that fits `profile()` and `session()`."""
    return {
        "criteria": {"logical_flow": criterion_answer(20), "consistency": criterion_answer(5)},
        **_common_answer(),
        **changes,
    }


def free_form_answer(**changes: Any) -> dict[str, Any]:
    """A judge's answer that fits `free_form_profile()`."""
    own = {"total_score": 62, "score_breakdown": {"method": 70, "evidence": 54}}
    return {**own, **_common_answer(), **changes}


def _common_answer() -> dict[str, Any]:
    return {
        "score_reasoning": "Sound work with a gap.",
        "missing_tools": [],
        "alternative_approaches": [],
        "disqualified": False,
        "disqualifier_triggered": None,
        "injection_suspected": False,
    }


def answer_json(**changes: Any) -> str:
    return json.dumps(answer(**changes))


def completion(text: str | None = None, **changes: Any) -> Completion:
    """A provider's answer to one call (no text: a valid verdict)."""
    fields: dict[str, Any] = {
        "text": answer_json() if text is None else text,
        "model": "judge-1-2026-01-01",
        "input_tokens": 1000,
        "output_tokens": 200,
        "truncated": False,
        "sent": Sent(path="p", body=b"", dialect="none", max_tokens=1000, temperature=None),
    }
    return Completion(**{**fields, **changes})


def claimed(**changes: Any) -> ClaimedRequest:
    """A request in its first attempt, claimed at NOW."""
    fields: dict[str, Any] = {
        "request_id": REQUEST_ID,
        "session_id": "session-1",
        "profile_id": None,
        "force_rescore": False,
        "triggered_by": "alice",
        "attempt": 1,
        "lost_leases": 0,
        "lease_token": UUID("00000000-0000-4000-8000-00000000000a"),
        "received_at": NOW,
        "started_at": NOW,
        "claimed_at": NOW,
        "deadline_at": None,
        "trace": {},
    }
    return ClaimedRequest(**{**fields, **changes})


# What is stored of a sample.
SAMPLE = {
    "provider": "openai",
    "model": "judge-1-2026-01-01",
    "fingerprint": "fp_1",
    "asked_model": "judge-1",
    "dialect": "json_schema",
    "max_tokens": 1000,
    "temperature": 0.0,
    "total": 61,
    "points": {"logical_flow": 20},
    "calls": 1,
    "verified_quotes": 1.0,
    "nonce": "n1",
    "request_sha256": "1" * 64,
    "sent_sha256": ["2" * 64, "3" * 64],
}


def score(**changes: Any) -> Score:
    """A judged score of 74 without risk or children, not stored yet."""
    fields: dict[str, Any] = {
        "score_id": UUID("00000000-0000-4000-8000-000000000002"),
        "request_id": REQUEST_ID,
        "session_id": "s1",
        "criteria_hash": "a" * 64,
        "profile_id": "alert-investigation",
        "profile_version": 1,
        "method": "llm",
        "total_score": 74,
        "breakdown": {"logical_flow": 80.0, "consistency": 68.0},
        "details": ({"id": "logical_flow", "weight": 1.0, "score": 80},),
        "reasoning": "sound, but slow",
        "confidence": 0.6,
        "ranking": None,
        "gates": (),
        "failed_gates": (),
        "disqualified": False,
        "disqualifier_triggered": None,
        "tool_report": {
            "calls": 2,
            "actions": 0,
            "failed": [],
            "corrections": [],
            "repeated": [],
            "wasted": [],
            "not_cited": [],
            "unused_tools": ["kubernetes.pods_log"],
            "effectiveness": 100,
        },
        "risk": (),
        "risk_threshold": 40.0,
        "weakest": ("consistency", "logical_flow"),
        "judge": JudgeUsage(
            provider="openai",
            model="judge-1",
            samples=1,
            input_tokens=1200,
            output_tokens=300,
            cost_usd=0.0042,
        ),
        "judge_skipped": None,
        "samples": (SAMPLE,),
        "elision": None,
        "injection_suspected": False,
        "injection_flags": (),
        "facts": SessionFacts(
            agent="kubernetes",
            model="model-1",
            provider="provider-1",
            classification_label="alert",
            total_tokens=4321,
            cost_usd=0.01,
            duration_ms=9000,
        ),
        "missing_tools": (),
        "approaches": (),
        "triggered_by": "tests",
        "duration_ms": 1234,
    }
    return Score(**{**fields, **changes})
