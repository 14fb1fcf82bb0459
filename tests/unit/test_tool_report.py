"""The tool report: the findings, what they cost, and the effectiveness that follows."""

from itertools import chain
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.session import AvailableTool, Step, ToolCall
from consumer.scoring.tool_kinds import named_as_action
from consumer.scoring.tool_report import (
    Correction,
    FailedCall,
    RepeatedCalls,
    ToolReport,
    UncitedCall,
    WastedCall,
    effectiveness,
    flattened,
    jaccard,
    steps_text,
    tool_report,
)
from consumer.scoring.uptake import is_distinctive, words
from tests.unit.builders import (
    available,
    failed_call,
    message,
    no_price,
    session,
    stage,
    tool_call,
)


def report(*steps: Step, **changes: Any) -> ToolReport:
    return tool_report(session(*steps, **changes), no_price)


def call(tool: str, call_id: str, **changes: Any) -> ToolCall:
    return tool_call(tool, **{"id": call_id, "arguments": {"call": call_id}, **changes})


def failing(tool: str, call_id: str, **changes: Any) -> ToolCall:
    return failed_call(tool, **{"id": call_id, "arguments": {"call": call_id}, **changes})


# --- Effectiveness -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # The vectors of the specification.
        ({"total": 4, "ok": 2, "corrections": 1, "wasted_failed": 1, "repeated": 1}, 65),
        ({"total": 3, "ok": 0, "corrections": 0, "wasted_failed": 3, "repeated": 0}, 40),
        ({"total": 0, "ok": 0, "corrections": 0, "wasted_failed": 0, "repeated": 0}, 100),
        ({"total": 1, "ok": 1, "corrections": 0, "wasted_failed": 0, "repeated": 0}, 100),
        ({"total": 1, "ok": 0, "corrections": 1, "wasted_failed": 1, "repeated": 1}, 0),
        # Ratios are capped at 1.
        ({"total": 1, "ok": 0, "corrections": 2, "wasted_failed": 3, "repeated": 4}, 0),
        # 40 * 7/16 + 30 + 20 + 10 = 77.5, half up
        ({"total": 16, "ok": 7, "corrections": 0, "wasted_failed": 0, "repeated": 0}, 78),
    ],
)
def test_effectiveness(counts: dict[str, int], expected: int) -> None:
    assert effectiveness(**counts) == expected


def test_the_first_vector_from_a_session() -> None:
    found = report(
        failed_call("a", id="1", arguments={"x": 1}),
        tool_call("a", id="2", arguments={"x": 1}),
        failed_call("b", id="3"),
        tool_call("c", id="4"),
    )
    assert (found.calls, len(found.failed)) == (4, 2)
    assert [(c.failed_call_id, c.call_id) for c in found.corrections] == [("3", "4")]
    assert [(w.call_id, w.reason) for w in found.wasted if w.reason == "failed"] == [
        ("3", "failed")
    ]
    assert len(found.repeated) == 1
    assert found.effectiveness == 65


def test_without_calls_there_is_nothing_to_blame() -> None:
    assert report(message(), available_tools=()) == ToolReport(
        calls=0,
        actions=0,
        failed=(),
        corrections=(),
        repeated=(),
        wasted=(),
        not_cited=(),
        unused_tools=(),
        effectiveness=100,
    )


def test_what_a_call_brought_does_not_change_the_effectiveness() -> None:
    found = report(call("a", "1", result="code 4711"), final_analysis="")
    assert (found.wasted, len(found.not_cited)) == ((), 1)
    assert found.effectiveness == 100


# --- Failed, corrected -------------------------------------------------------------------------


def test_failed_calls_say_how_and_why() -> None:
    found = report(
        call("a", "1"),
        failing("b", "2", error="connection reset"),
        failing("c", "3", failure="tool", error="x" * 999, result="x"),
        failing("d", "4", error=None),
    )
    assert found.failed == (
        FailedCall(call_id="2", tool="kubernetes.b", failure="transport", error="connection reset"),
        FailedCall(call_id="3", tool="kubernetes.c", failure="tool", error="x" * 500),
        FailedCall(call_id="4", tool="kubernetes.d", failure="transport", error=""),
    )


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (tool_call("b", id="2"), "fallback_after_error"),
        (failed_call("b", id="2"), "fallback_after_error"),
        (tool_call("a", id="2", server="other"), "fallback_after_error"),
        (tool_call("a", id="2", arguments={"x": 2}), "retry_with_different_params"),
        (failed_call("a", id="2", arguments={}), "retry_with_different_params"),
        (tool_call("a", id="2", arguments={"x": 1}), None),
    ],
)
def test_what_directly_follows_a_failure_corrects_it(after: ToolCall, kind: Any) -> None:
    before = failed_call("a", id="1", arguments={"x": 1})
    # What is said between two calls does not keep them apart.
    found = report(before, message(), after).corrections
    expected = Correction(failed_call_id="1", call_id="2", kind=kind)
    assert found == ((expected,) if kind else ())


def test_only_the_adjacent_call_corrects_and_only_a_failure_is_corrected() -> None:
    found = report(failing("a", "1"), call("b", "2"), call("a", "3"), call("c", "4"))
    assert [(c.failed_call_id, c.call_id) for c in found.corrections] == [("1", "2")]


# --- Repeated ----------------------------------------------------------------------------------


def of_tool(name: str, *arguments: Any) -> list[ToolCall]:
    return [tool_call(name, id=f"{name}{n}", arguments=a) for n, a in enumerate(arguments, start=1)]


FIVE = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


def test_a_long_path_is_not_repeated_with_each_of_its_leaves() -> None:
    made = flattened({"k" * 990: list(range(1000)), "l" * 990: list(range(1000))})
    assert len(made) == 2000
    assert sum(map(len, made)) < 100 * len(made)


def test_the_similarity_of_parameters_is_a_share_of_flattened_paths() -> None:
    assert flattened({"pod": {"name": "x", "labels": ["a", {"k": None}]}, "n": 1.5}) == {
        ".pod.name='x'",
        ".pod.labels[0]='a'",
        ".pod.labels[1].k=None",
        ".n=1.5",
    }
    assert flattened({"empty": {}, "none": []}) == {".empty={}", ".none=[]"}
    assert flattened({}) == frozenset()
    assert jaccard(frozenset(), frozenset()) == 1
    assert jaccard(frozenset("ab"), frozenset()) == 0
    assert jaccard(frozenset("abc"), frozenset("bcd")) == 0.5


def test_a_long_path_is_not_repeated_with_each_leaf() -> None:
    def below(key: str) -> frozenset[str]:
        return flattened({"k" * 5000 + key: {"a": [1, {"b": 2}], "c": {}}})

    assert len(below("x")) == 3
    assert max(map(len, below("x"))) < 100
    assert below("x") == below("x")
    assert below("x").isdisjoint(below("y"))
    assert below("x").isdisjoint(flattened({"k" * 5000 + "x": {"a": {"b": 2}, "c": []}}))


@pytest.mark.parametrize(
    ("one", "other", "similarity"),
    [
        ({"x": 1}, {"x": 1}, 1.0),
        ({}, {}, 1.0),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}, 1.0),
        ({k: FIVE[k] for k in "abcd"}, FIVE, 0.8),  # exactly the threshold
        ({k: FIVE[k] for k in "abc"}, FIVE, None),  # 0.6
        ({k: FIVE[k] for k in "abc"}, {k: FIVE[k] for k in "abcd"}, None),  # 0.75
        ({"x": 1}, {"x": "1"}, None),
        ({"x": [1, 2]}, {"x": [2, 1]}, None),
        ({}, {"x": 1}, None),
    ],
)
def test_calls_with_nearly_the_same_parameters(
    one: Any, other: Any, similarity: float | None
) -> None:
    expected: tuple[RepeatedCalls, ...] = ()
    if similarity is not None:
        expected = (
            RepeatedCalls(
                tool_name="kubernetes.a", call_ids=("a1", "a2"), param_similarity=similarity
            ),
        )
    assert report(*of_tool("a", one, other)).repeated == expected


def test_other_tools_between_do_not_matter() -> None:
    first, second = of_tool("a", {"x": 1}, {"x": 1})
    other = tool_call("a", id="b", server="prometheus", arguments={"x": 1})
    (found,) = report(first, other, message(), second).repeated
    assert found.call_ids == ("a1", "a2")


def test_only_consecutive_calls_of_a_tool_are_compared() -> None:
    assert report(*of_tool("a", {"x": 1}, {"x": 2}, {"x": 1})).repeated == ()


def test_one_entry_a_tool_with_the_highest_similarity() -> None:
    four = {k: FIVE[k] for k in "abcd"}
    calls = of_tool("a", four, FIVE, {"z": 1}, {"z": 1}, {"z": 1}) + of_tool("b", {}, {})
    assert report(*calls).repeated == (
        RepeatedCalls(
            tool_name="kubernetes.a",
            call_ids=("a1", "a2", "a3", "a4", "a5"),
            param_similarity=1.0,
        ),
        RepeatedCalls(tool_name="kubernetes.b", call_ids=("b1", "b2"), param_similarity=1.0),
    )


# --- Wasted: failed ----------------------------------------------------------------------------


def wasted(*steps: Step, **changes: Any) -> list[tuple[str, str]]:
    return [(w.call_id, w.reason) for w in report(*steps, **changes).wasted]


def test_a_failure_is_wasted_unless_the_tool_succeeds_later() -> None:
    ok = {"result": "OK"}
    assert wasted(failing("a", "1"), call("a", "2", **ok)) == []
    assert wasted(failing("a", "1"), failing("a", "2"), call("a", "3", **ok)) == []
    assert wasted(call("a", "1", **ok), failing("a", "2")) == [("2", "failed")]
    assert wasted(failing("a", "1"), call("b", "2", **ok)) == [("1", "failed")]
    assert wasted(failing("a", "1"), call("a", "2", server="other", **ok)) == [("1", "failed")]


# --- Wasted: repeated --------------------------------------------------------------------------


def again(*between: Step, **changes: Any) -> list[tuple[str, str]]:
    """What is wasted of two equal calls of `pods_get` with these steps between."""
    first, second = (
        tool_call(id=n, **{"arguments": {"name": "a"}, "result": "Running", **changes})
        for n in ("1", "2")
    )
    return wasted(first, *between, second)


def test_the_same_look_up_with_the_same_result_is_wasted_the_second_time() -> None:
    assert again() == [("2", "repeated")]
    assert again(message(), message(role="user")) == [("2", "repeated")]
    assert again(tool_call("pods_list", id="3"), failed_call("pods_log", id="4"))[-1] == (
        "2",
        "repeated",
    )
    # Of three, two.
    third = tool_call(id="3", arguments={"name": "a"}, result="Running")
    assert again(third) == [("3", "repeated"), ("2", "repeated")]


@pytest.mark.parametrize(
    "between",
    [
        tool_call("pods_delete", id="3"),
        failed_call("pods_delete", id="3", result="forbidden", failure="tool"),
        tool_call("kubectl", id="3"),  # it may have changed something
        tool_call(id="3", arguments={"name": "a"}, result="Pending"),
    ],
)
def test_what_could_have_changed_the_answer_excuses_asking_again(between: ToolCall) -> None:
    assert ("2", "repeated") not in again(between)


@pytest.mark.parametrize(
    "changes",
    [
        {"tool": "pods_delete"},
        {"tool": "kubectl"},
        {"failure": "tool", "error": "not found"},
    ],
)
def test_only_look_ups_that_succeed_are_repeated(changes: dict[str, Any]) -> None:
    assert ("2", "repeated") not in again(**changes)


def test_other_arguments_or_another_result_are_no_repetition() -> None:
    one = tool_call(id="1", arguments={"name": "a"}, result="Running")
    for other in (
        tool_call(id="2", arguments={"name": "b"}, result="Running"),
        tool_call(id="2", arguments={"name": "a"}, result="Pending"),
        tool_call(id="2", arguments={"name": "a"}, result="Running", server="other"),
    ):
        assert wasted(one, other) == []


def test_after_a_minute_one_may_look_again() -> None:
    looks = [
        tool_call(id=n, arguments={}, result="Running", at_us=second * 1_000_000)
        for n, second in (("1", 0), ("2", 61), ("3", 121))
    ]
    assert wasted(*looks) == [("3", "repeated")]


def test_who_works_in_another_stage_has_not_seen_what_the_first_one_found() -> None:
    calls = [tool_call(id=n, arguments={}, result="Running") for n in ("1", "2")]
    stages = tuple(stage(one, id=one.id) for one in calls)
    assert tool_report(session(stages=stages), no_price).wasted == ()


# --- Actions and look-ups ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("update_reservation", True), ("bookFlight", True), ("pods-delete", True),
        ("resources.create_or_update", True), ("HTTPPost", True), ("get_or_create_user", True),
        ("search_and_replace", True), ("pods_exec", True), ("run_command", True),
        ("get_reservation", False), ("list_updates", False), ("getUpdateStatus", False),
        ("search-flights", False), ("run_query", False), ("pods_log", False), ("nodes_top", False),
        ("calculate", False), ("describe.cluster", False),
        ("kubectl", None), ("log", None), ("", None), ("42", None), ("сервер", None),
    ],
)  # fmt: skip
def test_the_verbs_of_a_tools_name_tell_actions_from_look_ups(tool: str, kind: bool | None) -> None:
    assert named_as_action(tool) is kind
    assert report(tool_call(tool)).actions == (kind is True)


def test_the_profile_is_asked_first_and_then_the_tools_server() -> None:
    def actions(read_only: bool | None, *listed: str, tool: str = "pods_get") -> int:
        told = AvailableTool(server="kubernetes", name=tool, description="", read_only=read_only)
        run = session(tool_call(tool), available_tools=(told,))
        return tool_report(run, no_price, listed).actions

    assert [actions(None), actions(None, tool="pods_delete")] == [0, 1]
    assert [actions(False), actions(True), actions(True, tool="pods_delete")] == [1, 0, 0]
    assert actions(True, "pods_get") == 1
    assert actions(True, "kubernetes.pods_get") == 1
    assert actions(True, "other.pods_get") == 0


# --- Not cited ---------------------------------------------------------------------------------


def asking(**arguments: Any) -> ToolCall:
    """A later call, that brings nothing."""
    return call("b", "2", arguments=arguments, result="OK")


def not_cited(*steps: Step, **changes: Any) -> list[str]:
    return [c.call_id for c in report(*steps, **changes).not_cited]


@pytest.mark.parametrize(
    "result",
    [
        "restarts: 4711",
        '{"restarts":4711}',
        '{"restarts": [4711, 12]}',
        "node miner-7f9c is gone",
        "see /var/log/miner.log",
        "owner miner.example",
        "class CrashLoopBackOff",
        '{"insurance": "no", "id": "4XGCCM"}',
    ],
)
def test_what_nobody_takes_up_is_not_cited(result: str) -> None:
    found = report(call("a", "1", result=result), final_analysis="Nothing.")
    assert found.not_cited == (UncitedCall(call_id="1", tool="kubernetes.a"),)
    assert (found.wasted, found.effectiveness) == ((), 100)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("restarts: 4711", "It restarted 4711 times."),
        ("restarts: 4711", "restarts=4711"),
        ('{"restarts":4711}', "**4711**"),
        ("node miner-7f9c is gone", "`miner-7f9c`: gone"),
        ("node miner-7f9c is gone", "Weg ist „miner-7f9c“\u2014leider."),
        ("node miner-7f9c is gone", "节点miner-7f9c异常。"),
        ("pod/miner-7f9c BackOff", "It is miner-7f9c."),
        ("image app:2.14.0", "since 2.14.0"),
        ("class CrashLoopBackOff", "a CrashLoopBackOff!"),
        # numbers in another form
        ("1023.0", "$1,023"), ("1023.0", "1 023 euros"), ("-1023.5", "1,023.50 less"),
        ("total 1023.44", "about 1020"), ("size 536870912", "512Mi"), ('"x\\n4711"', "4711"),
        # dates and times
        ('{"date": "2024-05-20"}', "on May 20"), ('{"date": "2024-05-20"}', "the 20th of May"),
        ('{"date": "05/20/2024"}', "20 May 2024"), ('{"date": "20.05.2024"}', "2024-05-20"),
        ('{"date": "2024-05-20"}', "5月20日"),
        ('{"departs": "14:30:00", "id": "4XGCCM"}', "at 2:30 PM"),
        ('{"departs": "15:00:00", "id": "4XGCCM"}', "at 3pm"),
        # yes, no and nothing, in words
        ('{"insurance": "no", "id": "4XGCCM"}', "You are not insured."),
        ('{"insurance": false, "id": "4XGCCM"}', "without insurance"),
        ('{"delayed_flights": [], "id": "4XGCCM"}', "None of the flights."),
        ("delayed: yes, id: 4XGCCM", "It has a delay."),
        # a word that nobody had said
        ('{"membership": "gold", "id": "4XGCCM"}', "As a Gold member"),
    ],
)  # fmt: skip
def test_what_is_stated_in_any_form_is_cited(result: str, said: str) -> None:
    found = call("a", "1", result=result)
    assert not_cited(found, final_analysis=said) == []
    assert not_cited(found, message(said), final_analysis="") == []
    assert not_cited(found, message(said, role="user"), final_analysis="") == []
    assert not_cited(found, asking(q=said), final_analysis="") == []


def test_who_asks_or_acts_on_the_same_thing_later_decided() -> None:
    first = call("a", "1", arguments={"id": "4XGCCM"}, result="paid: 4711")
    for later in (
        call("cancel", "2", arguments={"ids": ["4xgccm"]}, result="OK"),
        failing("b", "2", arguments={"q": {"text": "of 4XGCCM only"}}),
    ):
        assert not_cited(first, later, final_analysis="") == []
        assert not_cited(later, first, final_analysis="") == ["1"]
    other = asking(id="OTHER1", n=4, all=True, x=None)
    assert not_cited(first, other, final_analysis="") == ["1"]
    origins = call("list", "1", arguments={}, result="airports: JFK, SFO1")
    assert not_cited(origins, asking(to="JFK"), final_analysis="") == []
    paid = call("a", "1", arguments={"account": 4711}, result="paid: 9999")
    assert not_cited(paid, asking(account=4711), final_analysis="") == []


def test_who_goes_on_to_the_next_one_has_looked() -> None:
    looks = [call("a", n, arguments={"id": f"ORDER{n}"}, result=f"paid: 471{n}") for n in "123"]
    assert not_cited(*looks, final_analysis="") == ["3"]


def test_actions_and_failures_are_no_look_ups() -> None:
    assert not_cited(call("cancel_order", "1", result="refund 4711"), final_analysis="") == []
    assert not_cited(failing("a", "1", result="code 4711"), final_analysis="") == []


def test_what_came_before_takes_nothing_up() -> None:
    assert not_cited(
        message("miner-7f9c, 4711, gone"),
        message("miner-7f9c", role="system"),
        call("b", "2", arguments={"node": "miner-7f9c"}, result="OK"),
        call("a", "1", result="node miner-7f9c gone"),
        message("miner-7f9c is gone", role="system"),
        final_analysis="It is gone.",
    ) == ["1"]


def test_what_the_agent_asked_with_proves_nothing_about_the_answer() -> None:
    asked = call("a", "1", arguments={"node": "miner-7f9c"}, result="miner-7f9c has 4711 restarts")
    assert not_cited(asked, final_analysis="Look at miner-7f9c.") == ["1"]
    assert not_cited(asked, final_analysis="It restarted 4711 times.") == []


@pytest.mark.parametrize(
    "result",
    [
        "",
        "OK",
        "done and done",
        "Everything is fine HERE",
        "12 of 34, 5%",
        "at 10:19:02 in /var/log",
        "v12",
        "größer für Узел 节点异常 संसाधन",
        "... --- ///",
        "miner-7f9c",  # its own argument
    ],
)
def test_of_a_result_without_anything_distinctive_nobody_can_tell(result: str) -> None:
    asked = call("a", "1", arguments={"node": "miner-7f9c"}, result=result)
    assert not_cited(asked, final_analysis="") == []


def test_numbers_and_identifiers_are_distinctive() -> None:
    text = "At 94.5 the Pod 'miner-0' (10.0.0.12:8080) of my_app, CrashLoop; 123 GB. Größe fehlt!"
    assert set(filter(is_distinctive, words(text))) == {
        "94.5",
        "miner-0",
        "10.0.0.12",
        "8080",
        "my_app",
        "CrashLoop",
    }


# --- What it cost ------------------------------------------------------------------------------


def test_what_was_wasted_is_estimated_at_two_bytes_a_token() -> None:
    asked: list[tuple[int, int]] = []

    def price(read: int, written: int) -> float:
        asked.append((read, written))
        return (read + 4 * written) / 200

    run = session(
        *(tool_call(id=n, arguments={"q": "ä"}, result="4711" + "x" * 97) for n in ("1", "2")),
        failing("b", "3", arguments={}, result=""),
        final_analysis="",
    )
    # 101 bytes read; {"q": "ä"} and {} are 11 and 2 bytes written.
    assert tool_report(run, price).wasted == (
        WastedCall(
            call_id="2",
            tool="kubernetes.pods_get",
            reason="repeated",
            tokens=57,
            cost_usd=0.375,
        ),
        WastedCall(call_id="3", tool="kubernetes.b", reason="failed", tokens=1, cost_usd=0.02),
    )
    assert asked == [(51, 6), (0, 1)]


def test_an_unknown_price_is_no_price_of_zero() -> None:
    (found,) = report(failing("b", "2")).wasted
    assert found.cost_usd is None


# --- Tools that were there ---------------------------------------------------------------------


def test_unused_tools_in_the_order_they_were_offered() -> None:
    tools = (*available("c", "a", "b"), *available("a", server="other"))
    found = report(call("a", "1"), failing("b", "2"), available_tools=tools)
    assert found.unused_tools == ("kubernetes.c", "other.a")
    assert report(call("a", "1"), available_tools=()).unused_tools == ()


def test_all_that_was_said_and_answered() -> None:
    assert steps_text([message("a"), tool_call(result="b"), message("c")]) == "a\nb\nc"


# --- Properties --------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
anything = st.text(st.characters(exclude_categories=()), max_size=40)
tool_steps = st.builds(
    lambda tool, arguments_, result, failed: tool_call(
        tool,
        arguments=arguments_,
        result=result,
        failure="tool" if failed else None,
        error=result if failed else None,
    ),
    st.sampled_from("abc"),
    arguments,
    anything,
    st.booleans(),
)
steps_ = st.lists(
    tool_steps | st.builds(message, anything, role=st.sampled_from(["system", "user"])), max_size=12
)


@given(steps_, anything)
def test_any_text_gives_a_report(steps: list[Step], analysis: str) -> None:
    numbered = [
        tool_call(**{**_fields(step), "id": str(n)}) if isinstance(step, ToolCall) else step
        for n, step in enumerate(steps)
    ]
    found = report(message(), *numbered, final_analysis=analysis)
    ids = {step.id for step in numbered if isinstance(step, ToolCall)}
    assert 0 <= found.effectiveness <= 100
    assert found.calls == len(ids)
    assert {w.call_id for w in found.wasted} <= ids
    assert {f.call_id for f in found.failed} >= {
        w.call_id for w in found.wasted if w.reason == "failed"
    }
    assert all(0.8 <= r.param_similarity <= 1 for r in found.repeated)
    assert len({r.tool_name for r in found.repeated}) == len(found.repeated)
    assert all(w.tokens >= 1 for w in found.wasted)


def _fields(step: ToolCall) -> dict[str, Any]:
    return {name: getattr(step, name) for name in ToolCall.__slots__}


@given(st.integers(0, 50), st.integers(0, 50), *[st.integers(0, 99)] * 3)
def test_effectiveness_lies_on_0_to_100(
    ok: int, failed: int, corrections: int, waste: int, repeated: int
) -> None:
    found = effectiveness(
        total=ok + failed, ok=ok, corrections=corrections, wasted_failed=waste, repeated=repeated
    )
    assert 0 <= found <= 100


@given(
    st.lists(arguments, max_size=5),
    st.lists(arguments, max_size=5),
    st.randoms(use_true_random=False),
)
def test_how_calls_of_two_tools_are_mixed_does_not_matter_for_repeats(
    one: list[Any], other: list[Any], random: Random
) -> None:
    queues = [of_tool("a", *one), of_tool("b", *other)]
    apart = report(message(), *chain(*queues)).repeated
    mixed: list[ToolCall] = []
    while any(queues):
        mixed.append(random.choice([queue for queue in queues if queue]).pop(0))
    assert set(report(message(), *mixed).repeated) == set(apart)


@given(arguments, arguments)
def test_similarity_is_symmetric_and_1_for_the_same(one: Any, other: Any) -> None:
    assert jaccard(flattened(one), flattened(one)) == 1
    similarity = jaccard(flattened(one), flattened(other))
    assert 0 <= similarity <= 1
    assert similarity == jaccard(flattened(other), flattened(one))


@given(anything, anything)
def test_what_is_quoted_word_for_word_is_cited(result: str, around: str) -> None:
    found = report(call("a", "1", arguments={}, result=result), final_analysis=f"{around} {result}")
    assert found.not_cited == ()


def test_agents_side_by_side_do_not_repeat_each_other() -> None:
    """Each has to ask for itself; what one asks twice is repeated."""
    one, other = (
        stage(message(), tool_call(id=call), id=f"stage-{call}", parallel=True) for call in "ab"
    )
    found = tool_report(session(stages=(one, other)), lambda *_: None)
    assert (found.repeated, found.wasted, found.effectiveness) == ((), (), 100)
    twice = stage(tool_call(id="a"), message(), tool_call(id="b"))
    assert tool_report(session(stages=(twice,)), lambda *_: None).effectiveness == 95
