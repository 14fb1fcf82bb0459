"""One conversation out of many threads: what is kept, by the plain and slow way to find it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.edges.history.conversation import (
    MAX_COMPARED,
    Said,
    Thread,
    _not_told_later,
    conversation,
    woven,
)
from consumer.scoring.session import Message, Step, ToolCall
from tests.unit.builders import message, tool_call

SAID = st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from("abc"))
THREADS = st.lists(
    st.builds(
        lambda at, messages: Thread(told_at_us=at, messages=tuple(messages)),
        st.integers(0, 6),
        st.lists(SAID, max_size=5),
    ),
    max_size=12,
)
TOLD = st.builds(
    lambda tool, at: message(f"Observation: kubernetes.{tool}: x", role="user", at_us=at),
    st.sampled_from("ab"),
    st.integers(0, 9),
)
MESSAGES = st.lists(TOLD | st.integers(0, 9).map(lambda at: message("x", at_us=at)), max_size=12)
CALLS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12)


def not_told_later(ordered: Sequence[Thread]) -> list[Thread]:
    """Each thread is compared with all that were kept."""
    kept: list[Thread] = []
    for thread in reversed(ordered):
        own = set(thread.messages)
        if own and not any(own <= set(other.messages) for other in kept):
            kept.append(thread)
    return kept[::-1]


def inserted(messages: Sequence[Message], calls: Sequence[ToolCall]) -> list[Step]:
    """Each call is put into the list where it belongs."""
    told: list[Step] = list(messages)
    untold, position = [], 0
    places = {
        name: [n for n, m in enumerate(messages) if m.text.startswith(f"Observation: {name}:")]
        for name in {call.name for call in calls}
    }
    for call in calls:
        found = bisect_left(places[call.name], position)
        if found == len(places[call.name]):
            untold.append(call)
        else:
            told[places[call.name][found]] = call
            position = places[call.name][found] + 1
    latest = list(accumulate((step.at_us for step in told), max))
    for call in sorted(untold, key=lambda call: call.at_us)[::-1]:
        told.insert(bisect_right(latest, call.at_us), call)
    return told


@given(THREADS)
def test_threads_are_kept_that_no_later_one_holds(threads: list[Thread]) -> None:
    ordered = sorted(threads, key=lambda thread: thread.told_at_us)
    assert _not_told_later(ordered) == not_told_later(ordered)


@given(THREADS)
def test_all_that_was_said_is_told(threads: list[Thread]) -> None:
    told = {(step.role, step.text) for step in conversation(threads)}
    assert told == {said for thread in threads for said in thread.messages}


@given(MESSAGES, CALLS)
def test_calls_stand_where_they_would_be_inserted(
    messages: list[Message], calls: list[tuple[str, int]]
) -> None:
    made = [tool_call(tool, id=f"{n}", at_us=at) for n, (tool, at) in enumerate(calls)]
    assert woven(messages, made) == inserted(messages, made)


def thread(at_us: int, *texts: str) -> Thread:
    said: list[Said] = [("user", text) for text in texts]
    return Thread(told_at_us=at_us, messages=tuple(said))


@pytest.mark.parametrize(("between", "kept"), [(-1, False), (0, True), (50, True)])
def test_of_very_many_that_may_hold_a_thread_the_next_ones_are_looked_at(
    between: int, kept: bool
) -> None:
    """What is then told twice is little, and all is told in any case."""
    first, holder = thread(0, "a", "b"), thread(10**6, "a", "b", "c")
    halves = [thread(n, "ab"[n % 2], f"{n}") for n in range(2 * (MAX_COMPARED + between))]
    found = _not_told_later([first, *halves, holder])
    assert found == [*([first] if kept else []), *halves, holder]
