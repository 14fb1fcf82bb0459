"""The bundled samples: valid answers of the History API, and verdicts that quote what is there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from consumer.demo.sample_sessions import SampleSession, Script, load

SCHEMAS = Path(__file__).parents[3] / "shared" / "history"
SESSIONS = load()
CASES = {
    "good": 88,
    "parallel": 78,
    "adequate": 67,
    "weak": 50,
    "tool-loop": 35,
    "contradiction": 27,
    "injection": 24,
    "simple": None,
    "in-progress": None,
}
CRITERIA = ["logical_flow", "consistency", "tool_relevance", "synthesis_quality"]

each_session = pytest.mark.parametrize("session", SESSIONS.values(), ids=lambda s: s.case)
each_judged = pytest.mark.parametrize(
    "session", [s for s in SESSIONS.values() if s.verdict], ids=lambda s: s.case
)


def by_case(case: str) -> SampleSession:
    return next(session for session in SESSIONS.values() if session.case == case)


def stages(session: SampleSession, *, chat: bool = True) -> Iterator[dict[str, Any]]:
    """Every stage, nested ones included."""
    for stage in session.detail["stages"]:
        if chat or stage["chat_id"] is None:
            yield stage
            yield from stage["parallel_executions"] or ()


def texts(session: SampleSession) -> Iterator[str]:
    """What a judge can quote: the agent's messages and what the tools answered."""
    for stage in stages(session, chat=False):
        for event in stage["llm_interactions"]:
            messages = event["details"]["conversation"]["messages"]
            yield from (m["content"] for m in messages if m["role"] == "assistant")
        for event in stage["mcp_communications"]:
            yield from event["details"]["tool_result"].values()
            yield event["details"]["error_message"] or ""


def quotes(session: SampleSession) -> list[str]:
    assert session.verdict is not None
    return [q for c in session.verdict["criteria"].values() for q in c["evidence"]]


def test_the_cases_and_their_expected_totals() -> None:
    assert {s.case: s.expected_total for s in SESSIONS.values()} == CASES


def test_two_loads_are_equal_and_share_nothing() -> None:
    again = load()
    assert dict(again) == dict(SESSIONS)
    assert again[by_case("good").session_id].detail is not by_case("good").detail


@each_session
def test_ids_are_accepted_by_the_events(session: SampleSession) -> None:
    assert SESSIONS[session.session_id] is session
    assert re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", session.session_id)


@each_session
@pytest.mark.parametrize("part", ["detail", "final"])
def test_the_history_schemas_accept_them(session: SampleSession, part: str) -> None:
    name = {"detail": "schema_session_detail.json", "final": "schema_final_analysis.json"}[part]
    if not (SCHEMAS / name).exists():
        pytest.skip("the History API's schemas are not part of this repository")
    schema = json.loads((SCHEMAS / name).read_text("utf-8"))
    jsonschema.validate(getattr(session, part), schema)


@each_session
def test_they_have_all_fields_of_the_service_s_own_sample(session: SampleSession) -> None:
    if not SCHEMAS.exists():
        pytest.skip("the History API's samples are not part of this repository")
    sample = json.loads((SCHEMAS / "sample_session_detail.json").read_text("utf-8"))
    assert session.detail.keys() == sample.keys()
    for stage in stages(session):
        assert stage.keys() == sample["stages"][0].keys()
        for events in ("llm_interactions", "mcp_communications"):
            expected = sample["stages"][0][events][0]
            for event in stage[events]:
                assert event.keys() == expected.keys()
                assert event["details"].keys() == expected["details"].keys()


@each_session
def test_totals_are_the_sums_of_the_parts(session: SampleSession) -> None:
    detail = session.detail
    llm = [e["details"] for stage in stages(session) for e in stage["llm_interactions"]]
    llm += [event["details"] for event in detail["session_level_interactions"]]
    mcp = [event for stage in stages(session) for event in stage["mcp_communications"]]
    assert detail["llm_interaction_count"] == len(llm)
    assert detail["mcp_communication_count"] == len(mcp)
    assert detail["total_interactions"] == len(llm) + len(mcp)
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert detail[f"session_{name}"] == sum(details[name] for details in llm)
    assert detail["session_total_tokens"] == (
        detail["session_input_tokens"] + detail["session_output_tokens"]
    )


@each_session
def test_time_runs_forward(session: SampleSession) -> None:
    for stage in stages(session):
        events = stage["chronological_interactions"]
        ends = [event["timestamp_us"] for event in events]
        starts = [event["timestamp_us"] - event["duration_ms"] * 1000 for event in events]
        assert ends == sorted(set(ends))
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert all(start >= stage["started_at_us"] for start in starts)
        both = stage["llm_interactions"] + stage["mcp_communications"]
        assert sorted(event["id"] for event in events) == sorted(event["id"] for event in both)


@each_session
def test_each_turn_repeats_the_conversation_before_it(session: SampleSession) -> None:
    for stage in stages(session):
        before: list[dict[str, str]] = []
        for event in stage["llm_interactions"]:
            messages = event["details"]["conversation"]["messages"]
            assert messages[: len(before)] == before
            assert messages[-1]["role"] == "assistant"
            before = messages


@each_session
def test_every_tool_call_names_an_available_tool(session: SampleSession) -> None:
    for stage in stages(session):
        details = [event["details"] for event in stage["mcp_communications"]]
        available = {
            (server, tool["name"])
            for listed in details
            for server, tools in listed["available_tools"].items()
            for tool in tools
        }
        called = [d for d in details if d["communication_type"] == "tool_call"]
        assert {(call["server_name"], call["tool_name"]) for call in called} <= available


@each_session
def test_no_other_sample_mentions_its_alert_id(session: SampleSession) -> None:
    holders = [s for s in SESSIONS.values() if str(session.alert_id) in json.dumps(s.detail)]
    assert holders == [session]


@each_judged
def test_prepared_quotes_occur_in_the_session(session: SampleSession) -> None:
    everything = list(texts(session))
    for quote in quotes(session):
        assert any(quote in text for text in everything), quote
        assert 20 <= len(quote) <= 120, quote
        assert not set(quote) & set('"\\\n'), quote


@each_judged
def test_prepared_verdicts_have_the_judge_s_shape(session: SampleSession) -> None:
    verdict = session.verdict
    assert verdict is not None
    assert list(verdict["criteria"]) == CRITERIA
    for criterion in verdict["criteria"].values():
        assert criterion["evidence"]
        assert criterion["reasoning"]
        assert 0 <= criterion["score"] <= 25
    assert len(verdict["score_reasoning"]) > 300
    assert len(verdict["alternative_approaches"]) <= 3
    assert all(approach["steps"] for approach in verdict["alternative_approaches"])
    assert all(tool.keys() == {"tool_name", "rationale"} for tool in verdict["missing_tools"])
    assert (verdict["disqualified"], verdict["disqualifier_triggered"]) == (False, None)
    assert verdict["injection_suspected"] is (session.case == "injection")


def test_missing_tools_are_unused_or_do_not_exist() -> None:
    kinds = set()
    for session in filter(lambda s: s.verdict, SESSIONS.values()):
        calls = [e["details"] for st in stages(session) for e in st["mcp_communications"]]
        used = {f"{call['server_name']}.{call['tool_name']}" for call in calls}
        listed = [item for call in calls for item in call["available_tools"].items()]
        available = {f"{server}.{tool['name']}" for server, tools in listed for tool in tools}
        assert session.verdict is not None
        missing = {tool["tool_name"] for tool in session.verdict["missing_tools"]}
        assert not missing & used
        kinds |= {name in available for name in missing}
    assert kinds == {True, False}


def test_parallel_agents_are_nested_and_then_weighed() -> None:
    parent, synthesis = by_case("parallel").detail["stages"]
    assert parent["llm_interactions"] == []
    assert [child["parallel_index"] for child in parent["parallel_executions"]] == [1, 2]
    for child in parent["parallel_executions"]:
        assert child["parent_stage_execution_id"] == parent["execution_id"]
        assert child["started_at_us"] == parent["started_at_us"]
    ends = [child["completed_at_us"] for child in parent["parallel_executions"]]
    assert parent["completed_at_us"] == max(ends)
    assert synthesis["iteration_strategy"] == "synthesis"
    assert synthesis["mcp_communications"] == []


def test_the_chat_comes_after_the_session_and_nothing_quotes_it() -> None:
    session = by_case("adequate")
    chat = session.detail["stages"][-1]
    assert chat["chat_id"]
    assert chat["started_at_us"] > session.detail["completed_at_us"]
    assert session.final["chat_conversation"]["messages"][-1]["content"].startswith("Thought: ")
    assert "blog.acme.example" not in " ".join(texts(session))


def test_the_running_session_has_no_result() -> None:
    session = by_case("in-progress")
    assert session.detail["status"] == "in_progress"
    assert session.detail["completed_at_us"] is None
    assert session.detail["stages"][-1]["status"] == "active"
    assert session.final["final_analysis"] is None
    assert session.final["llm_conversation"] is None


def test_tool_errors_and_transport_failures_look_different() -> None:
    (stage,) = stages(by_case("tool-loop"))
    calls = [e["details"] for e in stage["mcp_communications"] if e["details"]["tool_name"]]
    failed = [call for call in calls if not call["success"]]
    assert [call["tool_name"] for call in failed] == ["tags_list", "tags_list"]
    assert all(call["tool_result"] == {} and call["error_message"] for call in failed)
    assert sum("Error from server" in str(call["tool_result"]) for call in calls) == 4


def test_only_the_simple_session_has_a_label() -> None:
    labelled = [s for s in SESSIONS.values() if s.detail["session_metadata"]]
    assert [s.case for s in labelled] == ["simple"]
    assert labelled[0].detail["session_metadata"] == {"classification_label": "simple"}
    assert labelled[0].detail["duration_ms"] < 10_000


def test_a_typo_in_a_script_is_refused() -> None:
    with pytest.raises(TypeError, match="sumary"):
        Script.parse("{model: m, provider: p, stages: [], sumary: x}")
