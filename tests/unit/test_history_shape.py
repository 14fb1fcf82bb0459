"""TARSy's Python History API: its answers as sessions."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.demo.sample_sessions import SampleSession
from consumer.demo.sample_sessions import load as load_samples
from consumer.edges.history.tarsy_python_shape import (
    MAX_SERVERS,
    Detail,
    FinalAnalysis,
    parse,
    session,
)
from consumer.edges.history.web_search import web_search
from consumer.errors import HistoryInvalid, HistoryUnavailable
from consumer.scoring.session import AvailableTool, LlmCall, Message, Session, Step, ToolCall
from consumer.scoring.transcript import transcript

SHARED = Path(__file__).parents[2].parent / "shared"
RECORDED = SHARED / "data" / "sessions"
SAMPLES = {sample.case: sample for sample in load_samples().values()}

each_sample = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)


def read(detail: dict[str, Any], labels: dict[str, str] | None = None) -> Session:
    parsed = parse(Detail, json.dumps(detail).encode())
    return session(parsed, final_analysis=parsed.final_analysis, labels=labels or {})


def refused(detail: Any) -> str:
    with pytest.raises(HistoryInvalid) as error:
        parse(Detail, json.dumps(detail).encode())
    return str(error.value)


# --- Small answers of the service --------------------------------------------------------------


def say(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


def llm(at_us: int, *messages: dict[str, Any], **details: Any) -> dict[str, Any]:
    conversation = {"messages": list(messages)}
    fields = {"model_name": "gpt-4o", "provider": "openai", "conversation": conversation}
    return {"id": f"llm-{at_us}", "timestamp_us": at_us, "details": {**fields, **details}}


def mcp(at_us: int, tool: str = "pods_get", **details: Any) -> dict[str, Any]:
    fields = {
        "server_name": "k8s",
        "communication_type": "tool_call",
        "tool_name": tool,
        "tool_arguments": {"n": at_us},
        "tool_result": {"result": f"result {at_us}"},
        "success": True,
    }
    return {"id": f"mcp-{at_us}", "timestamp_us": at_us, "details": {**fields, **details}}


def tool_list(at_us: int, **available: list[dict[str, Any]]) -> dict[str, Any]:
    return mcp(at_us, "", communication_type="tool_list", tool_result={}, available_tools=available)


def a_stage(name: str = "analysis", **changes: Any) -> dict[str, Any]:
    fields = {"execution_id": f"id-{name}", "stage_name": name, "agent": "A", "status": "completed"}
    return {**fields, **changes}


def a_detail(*stages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    fields = {
        "session_id": "s-1",
        "status": "completed",
        "agent_type": "chain:security",
        "alert_data": {"pod": "miner-0"},
        "stages": list(stages),
    }
    return {**fields, **changes}


def woven(*interactions: dict[str, Any], calls: list[dict[str, Any]] | None = None) -> list[str]:
    """What a stage of these interactions reads like: texts, and calls by their ids."""
    stage = a_stage(llm_interactions=list(interactions), mcp_communications=calls or [])
    return [_brief(step) for step in read(a_detail(stage)).steps]


def _brief(step: Step) -> str:
    return step.text if isinstance(step, Message) else step.id


def the_call(**details: Any) -> ToolCall:
    (call,) = read(a_detail(a_stage(mcp_communications=[mcp(1, **details)]))).tool_calls
    return call


# --- Conversations -----------------------------------------------------------------------------


def observation(tool: str = "pods_get", text: str = "x") -> dict[str, Any]:
    return say("user", f"Observation: k8s.{tool}: {text}")


SYSTEM, TASK = say("system", "sys"), say("user", "task")


def test_what_later_threads_repeat_is_told_once() -> None:
    one, two = say("assistant", "one"), say("assistant", "two")
    told = woven(llm(10, SYSTEM, TASK, one), llm(20, SYSTEM, TASK, one, say("user", "ok"), two))
    assert told == ["sys", "task", "one", "ok", "two"]


def test_interactions_are_read_in_order_of_time() -> None:
    one, two = say("assistant", "one"), say("assistant", "two")
    assert woven(llm(20, SYSTEM, TASK, one, two), llm(10, SYSTEM, TASK, one)) == [
        "sys",
        "task",
        "one",
        "two",
    ]
    assert woven(llm(20, two), llm(10, one)) == ["one", "two"]


def test_a_thread_that_starts_like_the_one_before_continues_it() -> None:
    first = llm(10, SYSTEM, TASK, say("assistant", "a"), say("user", "b"))
    shortened = llm(20, SYSTEM, TASK, say("user", "summary of a and b"), say("assistant", "c"))
    assert woven(first, shortened) == ["sys", "task", "a", "b", "summary of a and b", "c"]


def test_a_thread_of_its_own_is_told_in_full() -> None:
    summary = llm(15, say("system", "summarise"), say("assistant", "short"))
    main = llm(20, SYSTEM, TASK, say("assistant", "done"))
    assert woven(llm(10, SYSTEM, TASK), summary, main) == [
        "summarise",
        "short",
        "sys",
        "task",
        "done",
    ]


def test_the_same_words_said_twice_stay_two_messages() -> None:
    again = say("assistant", "again")
    assert woven(llm(10, TASK, again), llm(20, TASK, again, say("user", "no"), again)) == [
        "task",
        "again",
        "no",
        "again",
    ]


def test_two_equal_threads_are_told_once() -> None:
    assert woven(llm(10, TASK), llm(20, TASK)) == ["task"]


def test_interactions_without_a_conversation_tell_nothing() -> None:
    silent = llm(30, conversation=None)
    assert woven(silent) == []
    assert woven(llm(10, TASK), silent, llm(40)) == ["task"]


def test_an_empty_message_is_kept() -> None:
    assert woven(llm(10, say("assistant", None), say("user", ""))) == ["", ""]


def test_a_message_s_time_is_when_it_was_first_known() -> None:
    a, b = say("assistant", "a"), say("assistant", "b")
    stage = a_stage(
        llm_interactions=[llm(10, SYSTEM, TASK, a), llm(20, SYSTEM, TASK, a, say("user", "u"), b)]
    )
    steps = list(read(a_detail(stage)).steps)
    assert [(_brief(step), step.at_us) for step in steps] == [
        ("sys", 0),
        ("task", 0),
        ("a", 10),
        ("u", 10),
        ("b", 20),
    ]


words = st.sampled_from("abcd")
threads = st.lists(st.lists(words, max_size=4), max_size=6)


@given(threads)
def test_every_message_is_told_and_time_runs_forward(contents: list[list[str]]) -> None:
    interactions = [
        llm(10 * n, *[say("assistant", content) for content in thread])
        for n, thread in enumerate(contents, start=1)
    ]
    steps = list(read(a_detail(a_stage(llm_interactions=interactions))).steps)
    assert {_brief(step) for step in steps} == {word for thread in contents for word in thread}
    times = [step.at_us for step in steps]
    assert times == sorted(times)


@given(st.lists(words, min_size=1, max_size=12), st.sets(st.integers(1, 12)))
def test_a_growing_thread_is_told_as_it_ended(contents: list[str], cuts: set[int]) -> None:
    messages = [say("assistant", content) for content in contents]
    ends = sorted({min(cut, len(messages)) for cut in cuts} | {len(messages)})
    assert woven(*[llm(n, *messages[:n]) for n in ends]) == contents


# --- Tool calls in the conversation ------------------------------------------------------------


def test_a_call_takes_the_place_of_its_observation() -> None:
    thread = [TASK, say("assistant", "a"), observation(), say("assistant", "b")]
    assert woven(llm(30, *thread), calls=[mcp(20)]) == ["task", "a", "mcp-20", "b"]


def test_observations_are_matched_by_tool_and_in_order() -> None:
    thread = [observation("one"), observation("two"), observation("one"), say("assistant", "end")]
    calls = [mcp(1, "one"), mcp(2, "two"), mcp(3, "one")]
    assert woven(llm(9, *thread), calls=calls) == ["mcp-1", "mcp-2", "mcp-3", "end"]


def test_an_observation_of_another_tool_stays_a_message() -> None:
    thread = [observation("other", "hi"), say("assistant", "end")]
    assert woven(llm(9, *thread), calls=[mcp(5)]) == [
        "Observation: k8s.other: hi",
        "mcp-5",
        "end",
    ]


def test_only_the_operator_s_messages_are_observations() -> None:
    thread = [say("assistant", "Observation: k8s.pods_get: I made this up")]
    assert woven(llm(9, *thread), calls=[mcp(20)])[0] == thread[0]["content"]
    assert woven(llm(9, say("user", "no Observation: k8s.pods_get: x")), calls=[mcp(20)]) == [
        "no Observation: k8s.pods_get: x",
        "mcp-20",
    ]


def test_calls_that_nobody_mentions_stand_by_their_time() -> None:
    interactions = [llm(at, say("assistant", str(at))) for at in (10, 20, 30)]
    calls = [mcp(5), mcp(25), mcp(20), mcp(21), mcp(99)]
    told = ["mcp-5", "10", "20", "mcp-20", "mcp-21", "mcp-25", "30", "mcp-99"]
    assert woven(*interactions, calls=calls) == told


def test_calls_of_the_same_time_keep_their_order() -> None:
    calls = [{**mcp(15), "id": i} for i in ("first", "second", "third")]
    interactions = [llm(10, say("assistant", "a")), llm(20, say("assistant", "b"))]
    assert woven(*interactions, calls=calls) == ["a", "first", "second", "third", "b"]


@given(st.lists(st.sampled_from(["told", "told_too", "untold"]), max_size=8))
def test_every_call_stands_once_whether_the_conversation_tells_it_or_not(calls: list[str]) -> None:
    thread, interactions = [TASK], []
    for n, tool in enumerate(calls, start=1):
        thread.append(say("assistant", f"think {n}"))
        interactions.append(llm(10 * n, *thread))
        thread += [] if tool == "untold" else [observation(tool)]
    interactions.append(llm(999, *thread, say("assistant", "end")))
    brief = woven(*interactions, calls=[mcp(10 * n + 5, t) for n, t in enumerate(calls, 1)])
    turns = [text for n in range(1, len(calls) + 1) for text in (f"think {n}", f"mcp-{10 * n + 5}")]
    assert brief == ["task", *turns, "end"]


ASKED = say("assistant", "Thought: x\nAction: k8s.other\n  Action: k8s.pods_get \nAction Input: a")


@pytest.mark.parametrize(
    "answer",
    [
        "Observation: Error executing action: timed out after 60 s",
        "Observation: No data returned from the action.",
        "Observation: Action completed but no specific data returned.",
        "Observation: k8s.pods_get error: timed out after 60 s",
        "Tool Result: k8s.pods_get:\n{}",
        "Tool Error: Error executing k8s.pods_get: timed out after 60 s",
    ],
)
def test_however_an_agent_is_told_of_its_call(answer: str) -> None:
    thread = [ASKED, say("user", answer), say("assistant", "end")]
    failed = mcp(20, success=False, error_message="timed out after 60 s")
    assert woven(llm(30, *thread), calls=[failed]) == [ASKED["content"], "mcp-20", "end"]


@pytest.mark.parametrize("error", ["refused", None])
@pytest.mark.parametrize(
    "answer",
    [
        "Observation: Error executing action: timed out",
        "Observation: Error: Iteration 3 exceeded",
        "Tool Error: Error executing k8s.pods_get: too long to summarize",
    ],
)
def test_an_error_that_the_call_does_not_tell_is_kept(answer: str, error: str | None) -> None:
    thread = [ASKED, say("user", answer), ASKED, observation(), say("assistant", "end")]
    calls = [mcp(20, success=False, error_message=error, tool_result=None), mcp(25)]
    asked = ASKED["content"]
    assert woven(llm(30, *thread), calls=calls) == [asked, "mcp-20", answer, asked, "mcp-25", "end"]


def test_what_no_action_asked_for_is_a_message() -> None:
    lost = say("user", "Observation: Error executing action: x")
    assert woven(llm(30, TASK, lost), calls=[mcp(20)]) == ["task", lost["content"], "mcp-20"]


def test_results_that_one_message_tells_are_told_once_each() -> None:
    both = say("user", "Tool Result: k8s.pods_get: one\n\nk8s.pods_log: two")
    calls = [mcp(20), mcp(21, "pods_log")]
    told = woven(llm(15, TASK), llm(30, TASK, both, say("assistant", "end")), calls=calls)
    assert told == ["task", "mcp-20", "mcp-21", "end"]


NOTE = "[NOTE: The tool output was too long and has been summarized below.] short"


@pytest.mark.parametrize(
    "told", [json.dumps({"result": NOTE}), NOTE, f'{{"result": 1, "x": "{NOTE}"}}']
)
def test_a_summary_is_known_by_what_the_agent_read(told: str) -> None:
    thread = llm(30, say("user", f"Observation: k8s.pods_get: {told}"))
    stage = a_stage(llm_interactions=[thread], mcp_communications=[mcp(20)])
    (call,) = read(a_detail(stage)).tool_calls
    assert call.result == (NOTE if told.startswith('{"result": "') else told)
    assert call.full_result == "result 20"


def summary(of: str, *messages: dict[str, Any], **details: Any) -> dict[str, Any]:
    fields = {"interaction_type": "summarization", "mcp_event_id": of, **details}
    return llm(25, *messages, **fields)


@pytest.mark.parametrize("odd", [{"interaction_type": None}, {"mcp_event_id": None}, {}])
def test_a_summarizer_is_no_step_however_it_is_told(odd: dict[str, Any]) -> None:
    note = say("user", f"Observation: k8s.pods_get: {NOTE}")
    wrote = summary("mcp-20", SYSTEM, say("assistant", "short"), **odd)
    stage = a_stage(llm_interactions=[llm(30, TASK, note), wrote], mcp_communications=[mcp(20)])
    task, call = read(a_detail(stage)).steps
    assert _brief(task) == "task"
    assert isinstance(call, ToolCall)
    assert (call.result, call.full_result) == (NOTE, "result 20")


def test_a_summary_that_failed_is_what_the_agent_was_told_of_it() -> None:
    lost = say("user", "Observation: k8s.pods_get error: too long to summarize")
    failed = summary("mcp-20", conversation=None, success=False, error_message="429")
    stage = a_stage(llm_interactions=[llm(30, lost), failed], mcp_communications=[mcp(20)])
    (call,) = read(a_detail(stage)).tool_calls
    assert (call.result, call.full_result) == ("too long to summarize", "result 20")


# --- Thoughts and failures ---------------------------------------------------------------------


def test_a_thought_stands_before_the_answer_of_its_turn() -> None:
    a, b = say("assistant", "a"), say("assistant", "b")
    told = woven(
        llm(10, TASK, thinking_content="first"),
        llm(20, TASK, a, thinking_content="second"),
        llm(30, TASK, a, b, thinking_content=""),
        llm(40, conversation=None, thinking_content="third"),
    )
    assert told == ["task", "first", "second", "a", "b", "third"]


def test_each_repeated_answer_has_its_own_thought() -> None:
    again, no = say("assistant", "again"), say("user", "no")
    told = woven(
        llm(10, TASK, again, thinking_content="1"),
        llm(15, TASK, again, thinking_content="1b"),
        llm(20, TASK, again, no, again, thinking_content="2"),
        llm(30, TASK, again, no, again, no, thinking_content="3"),
    )
    assert told == ["task", "1", "1b", "again", "no", "2", "again", "no", "3"]


def test_failures_in_a_row_are_told_once_for_each_reason() -> None:
    errors = ["x", "x", None, None, "x"]
    failed = [
        llm(n, conversation=None, success=False, error_message=e) for n, e in enumerate(errors)
    ]
    well = llm(9, TASK, success=True, error_message="ignored")
    told = ["task", "2 calls in a row: x", "2 calls in a row: ", "x"]
    assert woven(well, *failed) == told


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("completed", None, []),
        ("completed", "", []),
        ("completed", "odd", ["completed: odd"]),
        ("failed", None, ["failed"]),
        ("failed", "boom", ["failed: boom"]),
    ],
)
def test_a_stage_that_did_not_complete_says_so(
    status: str, error: str | None, told: list[str]
) -> None:
    found = read(a_detail(a_stage(status=status, error_message=error)))
    assert [_brief(step) for step in found.steps] == told


# --- Web searches ------------------------------------------------------------------------------


def test_what_was_searched_for_and_found() -> None:
    metadata = {
        "groundingMetadata": {
            "webSearchQueries": ["q1", "q1", 5],
            "groundingChunks": [
                {"web": {"title": "T", "uri": "https://x.example"}},
                {"retrievedContext": {"title": None, "text": "some text"}},
                {"web": None},
                "odd",
            ],
        },
        "url_context_metadata": {"url_metadata": [{"retrieved_url": "https://y.example"}, {}]},
    }
    assert web_search(metadata).splitlines() == [
        "query: q1",
        "source: T https://x.example",
        "source: some text",
        "source: https://y.example",
    ]


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "grounding_metadata",
                    "web_search_queries",
                    "grounding_chunks",
                    "web",
                    "uri",
                    "url_context_metadata",
                    "url_metadata",
                    "retrieved_url",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(ANYTHING)
def test_metadata_may_be_anything(metadata: Any) -> None:
    assert isinstance(web_search(metadata), str)


# --- One tool call -----------------------------------------------------------------------------


def test_a_tool_call_in_full() -> None:
    assert the_call(tool_name="pods_log", duration_ms=412) == ToolCall(
        id="mcp-1",
        server="k8s",
        tool="pods_log",
        arguments={"n": 1},
        result="result 1",
        failure=None,
        error=None,
        duration_ms=412,
        at_us=1,
    )


def test_null_fields_of_a_call() -> None:
    call = the_call(tool_name=None, tool_arguments=None, tool_result=None)
    assert (call.name, call.arguments, call.result, call.failure) == ("k8s.", {}, "", None)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"result": "as is\n"}, "as is\n"),
        ({"result": ""}, ""),
        ({"result": {"a": 1}}, '{"result": {"a": 1}}'),
        ({"other": "é"}, '{"other": "é"}'),
        (["a", 1], '["a", 1]'),
        ("text", '"text"'),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_result_as_the_agent_read_it(raw: Any, text: str) -> None:
    assert the_call(tool_result=raw).result == text


def test_no_success_is_a_transport_failure() -> None:
    call = the_call(success=False, tool_result={}, error_message="timed out after 60 s")
    assert (call.failure, call.error) == ("transport", "timed out after 60 s")


def test_a_transport_failure_without_message_shows_its_result() -> None:
    call = the_call(success=False, tool_result={"result": "x" * 600})
    assert (call.failure, call.error) == ("transport", "x" * 500)


@pytest.mark.parametrize(
    "raw",
    [
        {"result": 'Error from server (NotFound): pods "miner-0" not found'},
        {"result": "error: unknown flag"},
        {"result": "Unknown tool: no_such_tool"},
        {"result": "\n  Error executing tool"},
        {"result": "Failed to connect"},
        {"result": "Exception: boom"},
        {"result": "Traceback (most recent call last):"},
        {"result": '{"content": [], "isError": true}'},
        {"result": '{"content":[],"isError":true}'},
        {"result": "fine", "isError": True},
        {"isError": True, "content": []},
        {"error": "denied"},
        {"content": {"isError": True}},
    ],
)
def test_a_tool_s_own_error_is_read_from_its_result(raw: Any) -> None:
    call = the_call(tool_result=raw)
    assert call.failure == "tool"
    assert call.error == call.result


@pytest.mark.parametrize(
    "raw",
    [
        {"result": "3 pods; no error found"},
        {"result": "Errors: 0"},
        {"result": "failedJobs: 2"},
        {"result": '{"isError": false}'},
        {"result": "ok", "isError": False, "error": None},
        {"result": ""},
        {},
    ],
)
def test_a_result_that_only_speaks_of_errors_is_no_failure(raw: Any) -> None:
    call = the_call(tool_result=raw)
    assert (call.failure, call.error) == (None, None)


# --- Stages ------------------------------------------------------------------------------------


def test_parallel_stages_follow_the_one_that_holds_them() -> None:
    children = [
        a_stage(
            name, parallel_type="multi_agent", llm_interactions=[llm(5, say("assistant", name))]
        )
        for name in ("left", "right")
    ]
    nested = a_stage("both", parallel_type="multi_agent", parallel_executions=children)
    found = read(a_detail(a_stage("before", parallel_type="single"), nested, a_stage("after")))
    assert [(s.name, s.parallel) for s in found.stages] == [
        ("before", False),
        ("both", True),
        ("left", True),
        ("right", True),
        ("after", False),
    ]
    assert [_brief(step) for step in found.steps] == ["left", "right"]
    assert (found.stages[2].id, found.stages[2].agent) == ("id-left", "A")


def test_follow_up_chat_is_left_out_everywhere() -> None:
    chat = a_stage(
        "chat",
        chat_id="c-1",
        llm_interactions=[llm(1, say("assistant", "chatter"), input_tokens=9)],
        mcp_communications=[tool_list(2, chat=[{"name": "chat_tool"}]), mcp(3)],
    )
    work = a_stage("work", llm_interactions=[llm(1, say("assistant", "work"))])
    found = read(a_detail(work, chat))
    assert [s.name for s in found.stages] == ["work"]
    assert [_brief(step) for step in found.steps] == ["work"]
    assert found.available_tools == ()
    assert len(found.llm_calls) == 1


# --- The session -------------------------------------------------------------------------------


def test_available_tools_once_each_in_the_order_they_were_listed() -> None:
    one = a_stage(
        "one",
        mcp_communications=[
            tool_list(
                1, k8s=[{"name": "a", "description": "first"}, {"name": "b"}], db=[{"name": "a"}]
            )
        ],
    )
    two = a_stage(
        "two",
        mcp_communications=[
            tool_list(2, k8s=[{"name": "a", "description": "again"}, {"name": "c"}])
        ],
    )
    assert read(a_detail(one, two)).available_tools == (
        AvailableTool(server="k8s", name="a", description="first"),
        AvailableTool(server="k8s", name="b", description=""),
        AvailableTool(server="db", name="a", description=""),
        AvailableTool(server="k8s", name="c", description=""),
    )


@pytest.mark.parametrize(
    ("hints", "read_only"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "destructiveHint": True}, True),
        ({"readOnlyHint": False}, False),
        ({"destructiveHint": True}, False),
        ({"destructiveHint": False}, None),
        ({"readOnlyHint": "yes", "destructiveHint": 1}, None),
        ({}, None),
        (None, None),
        ([1], None),
        ("odd", None),
    ],
)
def test_what_a_server_says_of_its_tool(hints: Any, read_only: bool | None) -> None:
    stage = a_stage(mcp_communications=[tool_list(1, k8s=[{"name": "a", "annotations": hints}])])
    (tool,) = read(a_detail(stage)).available_tools
    assert tool.read_only is read_only


def test_model_calls_include_those_of_no_stage() -> None:
    stage = a_stage(llm_interactions=[llm(1, input_tokens=5, output_tokens=2, duration_ms=7)])
    level = [llm(9, model_name="mini", provider=None)]
    assert read(a_detail(stage, session_level_interactions=level)).llm_calls == (
        LlmCall(model="gpt-4o", provider="openai", input_tokens=5, output_tokens=2, duration_ms=7),
        LlmCall(model="mini", provider=None, input_tokens=0, output_tokens=0, duration_ms=None),
    )


def test_the_session_s_model_is_the_one_with_the_most_tokens() -> None:
    calls = [
        llm(1, model_name="big", input_tokens=50, output_tokens=10),
        llm(2, model_name="small", input_tokens=40, output_tokens=0),
        llm(3, model_name="small", input_tokens=1, output_tokens=20),
        llm(4, model_name="small", provider="other", input_tokens=59),
    ]
    found = read(a_detail(a_stage(llm_interactions=calls)))
    assert found.model == ("small", "openai")  # 61 over both calls, against 60 and 59
    tie = read(a_detail(a_stage(llm_interactions=[calls[0], llm(2, input_tokens=60)])))
    assert tie.model == ("big", "openai")
    assert read(a_detail()).model == (None, None)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "general"),
        ({"alert_type": "BuildFailed"}, "code"),
        ({"alert_type": "Other"}, "general"),
        ({"alert_type": "BuildFailed", "session_metadata": {"classification_label": "x"}}, "x"),
        ({"alert_type": "BuildFailed", "session_metadata": {"classification_label": ""}}, "code"),
        ({"alert_type": "BuildFailed", "session_metadata": {}}, "code"),
        ({"alert_type": "BuildFailed", "session_metadata": None}, "code"),
    ],
)
def test_the_label(changes: dict[str, Any], label: str) -> None:
    assert read(a_detail(**changes), {"BuildFailed": "code"}).label == label


def test_the_facts_of_a_session() -> None:
    found = read(
        a_detail(
            alert_type="T",
            runbook_url="https://runbooks.example/x",
            final_analysis="done",
            session_input_tokens=10,
            session_output_tokens=2,
            session_total_tokens=12,
            duration_ms=5000,
        )
    )
    assert found == Session(
        id="s-1",
        alert_type="T",
        agent="chain:security",
        label="general",
        alert_data={"pod": "miner-0"},
        runbook_url="https://runbooks.example/x",
        final_analysis="done",
        stages=(),
        llm_calls=(),
        available_tools=(),
        input_tokens=10,
        output_tokens=2,
        total_tokens=12,
        duration_ms=5000,
    )


def test_no_final_analysis_is_an_empty_one() -> None:
    parsed = parse(Detail, json.dumps(a_detail()).encode())
    assert session(parsed, final_analysis=None, labels={}).final_analysis == ""


def test_what_goes_into_tables_can_be_stored() -> None:
    bad, good = "a\x00b", "a\ufffdb"
    calls = [llm(1, model_name=bad, provider=bad)]
    metadata = {"classification_label": bad}
    found = read(
        a_detail(a_stage(llm_interactions=calls), agent_type=bad, session_metadata=metadata)
    )
    assert (found.agent, found.label, found.model) == (good, good, (good, good))


@pytest.mark.parametrize(
    ("long", "kept"),
    [
        ("a" * 255, "a" * 255),
        ("a" * 256, "a" * 254 + "\u2026"),
        ("\u00e9" * 250, "\u00e9" * 250),
        ("\u00e9" * 251, "\u00e9" * 248 + "\u2026"),
        ("\U00020000" * 126, "\U00020000" * 124 + "\u2026"),
    ],
)
def test_a_name_is_as_long_as_an_index_has_room_for(long: str, kept: str) -> None:
    calls = [llm(1, model_name=long, provider=long)]
    metadata = {"classification_label": long}
    found = read(
        a_detail(a_stage(llm_interactions=calls), agent_type=long, session_metadata=metadata)
    )
    assert (found.agent, found.label, found.model) == (kept, kept, (kept, kept))
    assert len(kept.encode()) <= 500


# --- What is not understood --------------------------------------------------------------------


def test_unknown_fields_are_ignored() -> None:
    stage = a_stage(llm_interactions=[llm(1, TASK | {"new": 1}, new={})], new=[1])
    assert [_brief(s) for s in read(a_detail(stage, new="field")).steps] == ["task"]


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("session_id", {k: v for k, v in a_detail().items() if k != "session_id"}),
        ("stages", {k: v for k, v in a_detail().items() if k != "stages"}),
        ("stages.0.agent", a_detail({k: v for k, v in a_stage().items() if k != "agent"})),
        (
            "stages.1.parallel_executions.0.status",
            a_detail(a_stage(), a_stage(parallel_executions=[{**a_stage(), "status": None}])),
        ),
        (
            "stages.0.llm_interactions.0.details.conversation.messages.1.role",
            a_detail(a_stage(llm_interactions=[llm(1, TASK, {"content": "x"})])),
        ),
        (
            "stages.0.llm_interactions.0.timestamp_us",
            a_detail(a_stage(llm_interactions=[llm(1, TASK) | {"timestamp_us": "soon"}])),
        ),
        (
            "stages.0.mcp_communications.0.details.communication_type",
            a_detail(a_stage(mcp_communications=[mcp(1, communication_type="ping")])),
        ),
        (
            "stages.0.mcp_communications.0.details.tool_arguments",
            a_detail(a_stage(mcp_communications=[mcp(1, tool_arguments=[1])])),
        ),
        ("alert_data", a_detail(alert_data="text")),
        (
            "session_metadata.classification_label",
            a_detail(session_metadata={"classification_label": 5}),
        ),
        (
            "session_level_interactions.0.llm.details",
            a_detail(session_level_interactions=[{"id": "a", "timestamp_us": 1}]),
        ),
    ],
)
def test_what_is_missing_or_wrong_is_told_with_its_path(path: str, detail: Any) -> None:
    told = refused(detail)
    assert told.startswith(f"the History Service's answer can't be read: {path}: ")


@pytest.mark.parametrize("figure", [-1, 2**53 + 1, 2**70, 1e30, "many", "", "7", True, 1.5, [1]])
def test_figures_that_cannot_be_right_are_as_if_absent(figure: Any) -> None:
    odd = dict.fromkeys(["session_input_tokens", "session_output_tokens", "duration_ms"], figure)
    call = llm(1, TASK, input_tokens=figure, output_tokens=figure, duration_ms=figure)
    stage = a_stage(llm_interactions=[call], mcp_communications=[mcp(2, duration_ms=figure)])
    found = read(a_detail(stage, session_total_tokens=figure, **odd))
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (None, None, None)
    assert (found.duration_ms, found.tool_calls[0].duration_ms) == (None, None)
    assert (found.llm_calls[0].input_tokens, found.llm_calls[0].duration_ms) == (0, None)


def test_figures_may_be_large_or_null() -> None:
    assert read(a_detail(duration_ms=2**53)).duration_ms == 2**53
    assert read(a_detail(duration_ms=None)).duration_ms is None


def test_only_the_first_problems_are_told_and_none_at_length() -> None:
    servers: Any = {f"{n}{'x' * 1000}": [{"name": 1}] for n in range(9)}
    told = refused(a_detail(a_stage(mcp_communications=[tool_list(1, **servers)])))
    assert told.count("Input should be a valid string") == 5
    assert len(told) < 2000


def test_the_first_wrong_item_of_a_list_ends_it() -> None:
    told = refused(a_detail(*[a_stage(agent=[])] * 9))
    assert told.endswith("can't be read: stages.0.agent: Input should be a valid string")


def test_nothing_of_the_answer_is_repeated() -> None:
    for body in (b'{"stages": "hunter2"}', b"hunter2", b'{"session_id": hunter2}'):
        with pytest.raises(HistoryInvalid) as error:
            parse(Detail, body)
        assert "hunter" not in str(error.value)


def test_a_flood_of_servers_is_refused() -> None:
    servers: Any = {str(n): [{"name": "x"}] for n in range(MAX_SERVERS + 1)}
    told = refused(a_detail(a_stage(mcp_communications=[tool_list(1, **servers)])))
    assert "available_tools: Value error, must have at most 1000 servers" in told


def long_name(size: int) -> dict[str, Any]:
    servers: Any = {"k" * size: [{}] * (size // 20)}
    return a_detail(a_stage(mcp_communications=[tool_list(1, **servers)]))


def much_inside(size: int) -> dict[str, Any]:
    """Of which each level lacks fields."""
    inside: dict[str, Any] = {"x": [[]] * size}
    for _ in range(40):
        inside = {"parallel_executions": [inside]}
    return a_detail(inside)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it tells what memory was taken")
@pytest.mark.parametrize("wrong", [long_name, much_inside])
def test_to_refuse_takes_no_more_memory_than_to_read(
    wrong: Callable[[int], dict[str, Any]],
) -> None:
    none = _peak_kib(a_detail())
    right = _peak_kib(a_detail(alert_data={"x": [[]] * 100_000}))
    assert _peak_kib(wrong(100_000)) - none < 3 * (right - none)


def _peak_kib(detail: dict[str, Any]) -> int:
    """The most memory that a process took that read this, with all that is not Python's own."""
    body = json.dumps(detail).encode()
    ran = subprocess.run(
        [sys.executable, "-c", READING], input=body, capture_output=True, check=True, timeout=120
    )
    return int(ran.stdout)


READING = r"""
import contextlib, re, sys
from consumer.edges.history.tarsy_python_shape import Detail, parse
from consumer.errors import HistoryInvalid, HistoryUnavailable
with contextlib.suppress(HistoryInvalid):
    parse(Detail, sys.stdin.buffer.read())
print(re.search("VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.parametrize(
    "body", [b"<html>", b"null", b"[]", b"\xff", b'{"a":' + b"[" * 9999, b"{}{}", b'{"a": x']
)
def test_what_is_no_object_in_json_is_refused(body: bytes) -> None:
    with pytest.raises(HistoryInvalid, match=r"^the History Service's answer can't be read: "):
        parse(Detail, body)
    with pytest.raises(HistoryInvalid, match=r"^the History Service's answer can't be read: "):
        parse(FinalAnalysis, body)


def test_an_answer_that_ends_early_is_asked_for_again() -> None:
    detail = a_detail(alert_data={"\u00e9": [1.5e10, None, True, '\U0001f600"\n']})
    whole = json.dumps(detail).encode()
    for body in (whole, json.dumps(detail, ensure_ascii=False).encode()):
        assert parse(Detail, body).session_id
        for end in range(len(body)):
            with pytest.raises(HistoryUnavailable, match="can't be read: EOF while parsing"):
                parse(Detail, body[:end])


def test_the_final_analysis_may_be_null_but_not_missing() -> None:
    assert parse(FinalAnalysis, b'{"final_analysis": null}').final_analysis is None
    assert parse(FinalAnalysis, b'{"final_analysis": "x"}').final_analysis == "x"
    with pytest.raises(HistoryInvalid, match="final_analysis: Field required"):
        parse(FinalAnalysis, b"{}")


# --- Whole sessions ----------------------------------------------------------------------------


def wire_stages(detail: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The investigation's stages, as the answer holds them."""
    for stage in detail["stages"]:
        if not stage["chat_id"]:
            yield stage
            yield from stage["parallel_executions"] or ()


def check_against_the_wire(detail: dict[str, Any]) -> None:
    """Nothing of the investigation is lost, repeated, or out of order."""
    found = read(detail)
    stages = list(wire_stages(detail))
    assert [stage.id for stage in found.stages] == [stage["execution_id"] for stage in stages]
    for stage, wire in zip(found.stages, stages, strict=True):
        calls = [step.id for step in stage.steps if isinstance(step, ToolCall)]
        assert calls == [
            event["id"]
            for event in wire["mcp_communications"]
            if event["details"]["communication_type"] == "tool_call"
        ]
        said = [step for step in stage.steps if isinstance(step, Message)]
        messages = [message for message in said if not message.is_fact]
        longest: list[dict[str, str]] = max(
            (e["details"]["conversation"]["messages"] for e in wire["llm_interactions"]),
            key=len,
            default=[],
        )
        # The observations are gone: the service's own record of each call stands there instead.
        expected = [m for m in longest if not m["content"].startswith("Observation:")]
        assert [(m.role, m.text) for m in messages] == [(m["role"], m["content"]) for m in expected]
    numbered = [json.loads(line)["step"] for line in transcript(found).text.splitlines()]
    assert numbered == list(range(1, len(numbered) + 1))


@each_sample
def test_the_bundled_samples(sample: SampleSession) -> None:
    check_against_the_wire(sample.detail)
    found = read(sample.detail)
    assert (found.id, found.alert_type) == (sample.session_id, sample.detail["alert_type"])
    assert found.final_analysis == (sample.detail["final_analysis"] or "")
    assert found.label == ("simple" if sample.case == "simple" else "general")
    offered = {(tool.server, tool.name) for tool in found.available_tools}
    assert {(call.server, call.tool) for call in found.tool_calls} <= offered


def test_the_sample_with_parallel_agents() -> None:
    found = read(SAMPLES["parallel"].detail)
    assert [stage.parallel for stage in found.stages] == [True, True, True, False]
    assert all(stage.steps for stage in found.stages[1:])


def test_the_sample_with_follow_up_chat() -> None:
    sample = SAMPLES["adequate"]
    assert "blog.acme.example" in json.dumps(sample.detail)
    assert "blog.acme.example" not in transcript(read(sample.detail)).text


def test_the_sample_with_both_kinds_of_failure() -> None:
    calls = read(SAMPLES["tool-loop"].detail).tool_calls
    failures = [(call.tool, call.failure) for call in calls if call.failure]
    assert failures.count(("tags_list", "transport")) == 2
    assert [failure for _, failure in failures].count("tool") == 4
    assert all(call.error for call in calls if call.failure)


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded sessions are not in this repo")
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem[:8])
def test_the_recorded_sessions(path: Path) -> None:
    detail = json.loads(path.read_text("utf-8"))["detail"]
    check_against_the_wire(detail)
    found = read(detail)
    assert found.model == ("gpt-4o", "openai")
    assert found.final_analysis == detail["final_analysis"]
    assert (found.label, len(found.available_tools)) == ("general", 14)
    assert found.total_tokens == detail["session_total_tokens"]


@pytest.mark.skipif(not SHARED.exists(), reason="the History API's samples are not in this repo")
def test_the_service_s_own_sample() -> None:
    body = (SHARED / "history" / "sample_session_detail.json").read_bytes()
    detail = parse(Detail, body)
    found = session(detail, final_analysis=detail.final_analysis, labels={"SecurityAlert": "sec"})
    assert (found.agent, found.label, found.model) == (
        "KubernetesAgent",
        "sec",
        ("gemini-2.5-flash", "google"),
    )
    assert [(c.name, c.failure) for c in found.tool_calls] == [
        ("kubernetes-server.pods_get", "tool"),
        ("kubernetes-server.pods_log", "transport"),
    ]
    roles = [step.role if isinstance(step, Message) else "call" for step in found.steps]
    assert roles == ["system", "user", "assistant", "call", "call", "assistant"]
    names = [tool.name for tool in found.available_tools]
    assert names == ["pods_get", "pods_log", "events_list"]
    answer = (SHARED / "history" / "sample_final_analysis.json").read_bytes()
    assert parse(FinalAnalysis, answer).final_analysis == detail.final_analysis
