"""What TARSy recorded is what a judge reads: each thought, call, argument, result, error and stage
once, and in order. What must be there is read from the raw answer here, not by the parser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from consumer.edges.history.tarsy_python_shape import Detail, parse, session
from consumer.scoring.session import Session
from consumer.scoring.transcript import transcript, visible
from tests.contract.tarsy_agents import KINDS, LONG, Json
from tests.support.skips import SHARED
from tests.unit import builders

RECORDED = sorted((SHARED / "history" / "recorded").glob("*.json"))
OBSERVED = ("Observation: k", "Tool Result: k", "Tool Error: ", "Observation: Error executing")


def read(detail: Json) -> Session:
    parsed = parse(Detail, json.dumps(detail).encode())
    return session(parsed, final_analysis=parsed.final_analysis, labels={})


def lines(detail: Json) -> list[Json]:
    return [json.loads(step.line) for step in transcript(read(detail)).steps]


# --- What must be there --------------------------------------------------------------------------


def investigated(stages: list[Json]) -> Iterator[Json]:
    for stage in stages:
        if not stage["chat_id"]:
            yield stage
            yield from investigated(stage["parallel_executions"] or [])


def worked(stage: Json) -> Iterator[tuple[Any, ...]]:
    """What the stage's agent thought, said, called, and failed at, by the times of the records."""
    events = stage["chronological_interactions"]
    summaries = {
        event["details"]["mcp_event_id"]: event["details"]["conversation"]["messages"][-1]
        for event in events
        if event["details"].get("interaction_type") == "summarization"
    }
    for event in events:
        details = event["details"]
        if details.get("communication_type") == "tool_call":
            yield called(event, summaries.get(event["id"]))
        elif event["type"] == "llm" and details["interaction_type"] != "summarization":
            yield from answered(details)
    if stage["status"] != "completed":
        yield "stage", stage["status"], stage["error_message"] or ""


def answered(details: Json) -> Iterator[tuple[Any, ...]]:
    if not details["success"]:
        yield "failed", details["error_message"]
        return
    if details["thinking_content"]:
        yield "thought", details["thinking_content"]
    if "grounding_metadata" in (details["response_metadata"] or {}):
        yield ("searched",)
    last = details["conversation"]["messages"][-1]
    if last["role"] == "assistant":
        yield "said", last["content"]


def called(event: Json, summary: Json | None) -> tuple[Any, ...]:
    details = event["details"]
    name = f"{details['server_name']}.{details['tool_name']}"
    told = (details["tool_result"] or {}).get("result", "")
    wrong = told.startswith(("Error", "Unknown tool:"))
    failure = "tool" if wrong else "transport" if not details["success"] else None
    result = ("a summary", summary["content"]) if summary else ("in full", told)
    return "call", name, details["tool_arguments"], result, failure, details["error_message"]


def as_judged(wanted: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Calls that failed for the same reason, one after the other, are told together."""
    told: list[tuple[Any, ...]] = []
    for one, same in groupby(wanted):
        times = len([*same])
        if one[0] == "failed" and times > 1:
            told.append(("failed", f"{times} calls in a row: {one[1]}"))
        else:
            told += [one] * times
    return told


# --- What is there -------------------------------------------------------------------------------


def shown(line: Json) -> tuple[Any, ...] | None:
    told = {"thought": "thought", "model_call_failed": "failed", "message": "said"}
    match line["kind"]:
        case "web_search":
            return ("searched",)
        case "stage_status":
            status, _, reason = line["text"].partition(": ")
            return "stage", status, reason
        case "tool_call":
            return shown_call(line)
        case kind if line.get("role", "assistant") == "assistant":
            return told[kind], line["text"]
    return None


def shown_call(line: Json) -> tuple[Any, ...]:
    result = ("in full", line["result"])
    if "summarized" in line:
        first, summary, *_ = line["result"].split("\n\n")
        assert first.startswith("[NOTE")
        result = ("a summary", summary)
    failure = line.get("failure")
    error = line.get("error") if failure == "transport" else None
    return "call", line["tool"], line["arguments"], result, failure, error


def check(detail: Json) -> None:
    found = lines(detail)
    assert [line["step"] for line in found] == list(range(1, len(found) + 1))
    by_stage = {
        name: [*own]
        for name, own in groupby(found, lambda line: line["stage"])
        if name != "session"
    }
    wanted = {stage["stage_name"]: stage for stage in investigated(detail["stages"])}
    silent = [name for name, stage in wanted.items() if not as_judged(worked(stage))]
    assert list(by_stage) == [name for name in wanted if name not in silent]
    for name, own in by_stage.items():
        assert [one for line in own if (one := shown(line))] == as_judged(worked(wanted[name]))
        assert [
            (line["role"], line["text"])
            for line in own
            if line["kind"] == "message" and line["role"] != "assistant"
        ] == given(wanted[name])
        agents = {line.get("parallel_agent", wanted[name]["agent"]) for line in own}
        assert agents == {wanted[name]["agent"]}


def given(stage: Json) -> list[tuple[str, str]]:
    """What the agent was given besides the results of its calls."""
    threads = [
        event["details"]["conversation"]["messages"]
        for event in stage["llm_interactions"]
        if event["details"]["conversation"]
        and event["details"]["interaction_type"] != "summarization"
    ]
    return [
        (message["role"], visible(message["content"]))
        for message in max(threads, key=len, default=[])
        if message["role"] != "assistant" and not message["content"].startswith(OBSERVED)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_an_agent_did_is_told_once_and_in_order(kind: str) -> None:
    check(KINDS[kind]())


@pytest.mark.parametrize("path", RECORDED or [Path()], ids=lambda path: path.stem)
def test_all_that_tarsy_s_own_code_recorded_is_told_once_and_in_order(path: Path) -> None:
    if not RECORDED:
        pytest.skip("TARSy's own answers are not in this repo")
    detail = json.loads(path.read_text("utf-8"))
    if path.stem in {"1-native", "1-parnative"}:  # they had not begun; nothing is to be compared
        return
    check(detail)


# --- What the kinds are about --------------------------------------------------------------------


def test_a_summarized_result_is_what_the_agent_read() -> None:
    for detail in (KINDS["summarized"](), KINDS["summarized_native"]()):
        told = transcript(read(detail)).text
        size = len(LONG.encode())
        assert f"the agent did not read the full one of {size} bytes" in told
        assert told.count("300 pods run; cart-7 was killed.") == 1
        assert "You summarize." not in told
        assert "cart-299" not in told


def test_what_the_agent_did_not_read_is_evidence_all_the_same() -> None:
    found = read(KINDS["summarized"]())
    (call,) = found.tool_calls
    assert call.full_result == LONG
    assert "10.0.0.299" in builders.about(found).evidence
    calls = [call.input_tokens for call in found.llm_calls]
    assert calls == [100, 900, 100, 100]  # the summarizer's is paid for


def test_a_summary_that_nobody_told_is_the_summarizer_s() -> None:
    detail = KINDS["summarized"]()
    (stage,) = detail["stages"]
    stage["llm_interactions"] = stage["llm_interactions"][:2]
    (call,) = read(detail).tool_calls
    assert (call.result, call.full_result) == ("300 pods run; cart-7 was killed.", LONG)


def test_thoughts_are_no_evidence_and_searches_are() -> None:
    detail = KINDS["web_search"]()
    about = builders.about(read(detail))
    assert "I search." not in about.evidence
    for found in ("exit code 137 meaning", "cgroup limit", "Signal 9 https://docs.example/137"):
        assert about.evidence.count(found) == 1
        assert transcript(about.session).text.count(found) == 1
    assert "<style>" not in transcript(about.session).text


def test_an_agent_without_a_line_of_its_own_is_told_of() -> None:
    told = [line for line in lines(KINDS["failed_agent"]()) if line["stage"] == "look - IdleAgent"]
    assert [(line["kind"], line["parallel_agent"], line["text"]) for line in told] == [
        ("stage_status", "IdleAgent", "cancelled")
    ]


def test_failures_are_evidence() -> None:
    assert "429: too many" in builders.about(read(KINDS["failed_agent"]())).evidence


def test_chat_counts_nowhere() -> None:
    with_chat, without = KINDS["chat"](), KINDS["react"]()
    assert with_chat["session_total_tokens"] > without["session_total_tokens"]
    one, other = read(with_chat), read(without)
    assert (one.input_tokens, one.output_tokens, one.total_tokens) == (
        other.input_tokens,
        other.output_tokens,
        other.total_tokens,
    )
    assert one.llm_calls == other.llm_calls
    assert transcript(one).text == transcript(other).text


def test_where_calls_tell_no_tokens_the_session_s_sums_are_taken() -> None:
    detail = KINDS["chat"]()
    for stage in detail["stages"]:
        for event in stage["llm_interactions"]:
            event["details"] |= {"input_tokens": None, "output_tokens": None, "total_tokens": None}
    detail["session_level_interactions"] = []
    assert read(detail).total_tokens == detail["session_total_tokens"]


def test_a_sum_that_is_absent_is_made() -> None:
    detail = KINDS["native"]()
    whole = read(detail)
    for name in ("session_input_tokens", "session_output_tokens", "session_total_tokens"):
        assert read({**detail, name: None}) == whole
    every = [call for stage in detail["stages"] for call in stage["llm_interactions"]]
    for call in every + detail["session_level_interactions"]:
        call["details"] |= {"total_tokens": 2**53}
    assert read({**detail, "session_total_tokens": None}).total_tokens is None


def test_calls_of_no_stage_stand_where_they_were_made() -> None:
    told = [(line["stage"], line["kind"]) for line in lines(KINDS["beside"]())]
    stages = [name for name, _ in groupby(told, lambda one: one[0])]
    assert stages == ["analysis", "session", "more", "session"]
    assert told.count(("session", "tool_call")) == 2


@pytest.mark.parametrize(
    ("kind", "agent"),
    [
        ("react", "KubernetesAgent"),
        ("stages", "Collector+Checker"),
        ("multi_agent", "ThinkingAgent+LogAgent+SynthesisAgent"),
        ("replica", "LogAgent+SynthesisAgent"),
        ("chat", "KubernetesAgent"),
    ],
)
def test_the_agent_is_who_did_the_work(kind: str, agent: str) -> None:
    assert read(KINDS[kind]()).agent == agent


def test_an_agent_that_nobody_tells_is_the_chain() -> None:
    detail = KINDS["react"]()
    assert read({**detail, "stages": []}).agent == "chain:shop"
    assert read({**detail, "agent_type": "Triage"}).agent == "Triage"


def test_a_long_row_of_agents_fits_its_column() -> None:
    detail = KINDS["stages"]()
    for stage in detail["stages"]:
        stage["agent"] = stage["stage_name"] * 100
    assert len(read(detail).agent) == 255
