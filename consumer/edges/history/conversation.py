"""One conversation out of a stage's threads, and its tool calls at their places.

Every model call of the agent is recorded with its whole thread so far: most of it is told again and
again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from pydantic_core import from_json

from consumer.scoring.session import Message, Step, ToolCall

Said = tuple[str, str]  # role, text

# To find a thread among all that may hold it takes quadratic time for some that nobody tells but to
# make us work. Where a conversation is told again and again, the very next thread holds it.
MAX_COMPARED = 100

AGENT = "assistant"
# What ReAct agents are told of their calls, and what those with native function calling are.
_MARKS = ("Observation:", "Tool Result:", "Tool Error:")
# Observations without the tool's name: the last action before them had it.
_UNNAMED = (
    "Error executing action:",
    "Error: Iteration ",
    "No data returned from the action",
    "Action completed but no specific data returned",
)
_ERRORS = ("Error executing ", "Error: Iteration ")
_ACTION = re.compile(r"^[ \t]*Action:[ \t]*([^\r\n]*)", re.MULTILINE)
# So TARSy begins what it tells the agent in place of a long result.
_NOTE = "[NOTE: The tool output was too long and has been summarized"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The messages that one model call was made with, its answer last where it has one, and what
    it brought besides (thoughts, searches); microseconds UTC.
    """

    told_at_us: int
    messages: tuple[Said, ...]
    besides: tuple[Message, ...] = ()


def conversation(threads: Sequence[Thread]) -> list[Message]:
    """The messages without repetitions, each with the time it was known.

    Only threads that no later one contains are kept, without the beginning that they share with
    the thread before. What a call brought besides stands before its answer.
    """
    ordered = sorted(threads, key=lambda thread: thread.told_at_us)
    # User messages carry no time of their own: they were there at their predecessor's.
    answers = [t for t in reversed(ordered) if t.messages and t.messages[-1][0] != "user"]
    known_at = {thread.messages[-1]: thread.told_at_us for thread in answers}
    messages: list[Message] = []
    before: Sequence[Said] = ()
    for thread in _not_told_later(ordered):
        shared = _shared_beginning(before, thread.messages)
        before = thread.messages
        at_us = messages[-1].at_us if messages else 0
        for said in thread.messages[shared:]:
            at_us = max(at_us, known_at.get(said, at_us))
            messages.append(Message(role=said[0], text=said[1], at_us=at_us))
    return _with_besides(messages, [t for t in ordered if t.messages and t.besides])


def _with_besides(messages: Sequence[Message], threads: Sequence[Thread]) -> list[Message]:
    """A thread says its last message for the nth time: where the conversation does, its call was
    made.
    """
    if not threads:
        return [*messages]
    said: dict[Said, list[int]] = {}
    for n, message in enumerate(messages):
        said.setdefault((message.role, message.text), []).append(n)
    besides: dict[int, list[Message]] = {}
    for thread in threads:
        last = thread.messages[-1]
        places = said[last]
        place = places[min(thread.messages.count(last), len(places)) - 1]
        besides.setdefault(place + (last[0] != AGENT), []).extend(thread.besides)
    told: list[Message] = []
    for n in range(len(messages) + 1):
        told += (*besides.get(n, ()), *messages[n : n + 1])
    return told


def _not_told_later(ordered: Sequence[Thread]) -> list[Thread]:
    """The threads with a message that no later one holds, in order.

    A thread is compared with those kept so far that hold its rarest message: enough, for what a
    dropped thread holds a kept one holds too. Of very many only the next ones are looked at.
    """
    kept: list[Thread] = []
    numbers: dict[Said, int] = {}
    holders: list[list[frozenset[int]]] = []
    for thread in reversed(ordered):
        own = frozenset([numbers.setdefault(said, len(numbers)) for said in thread.messages])
        holders += [[] for _ in range(len(numbers) - len(holders))]
        rarest: list[frozenset[int]] = min((holders[n] for n in own), key=len, default=[own])
        if any(own <= other for other in islice(reversed(rarest), MAX_COMPARED)):
            continue
        kept.append(thread)
        for n in own:
            holders[n].append(own)
    return kept[::-1]


def _shared_beginning(first: Sequence[Said], second: Sequence[Said]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(first), len(second)))


def woven(
    messages: Sequence[Message],
    calls: Sequence[ToolCall],
    facts: Sequence[Message] = (),
    summaries: Mapping[str, str] | None = None,
) -> list[Step]:
    """Messages, tool calls and facts in order.

    A call stands where the conversation tells its observation, and replaces it: the service's own
    record is more complete. A call that the conversation does not tell, and a fact, stands by its
    time. `summaries` are those made of results, by the call's id, "" where that failed: such a
    call's result is what the agent read.
    """
    summaries = summaries or {}
    untold: list[Step] = [*facts]
    found: dict[int, ToolCall] = {}
    observations = _observations(messages)
    position = 0
    for call in calls:
        places = observations.get(call.name, [])
        n = bisect_left(places, position)
        if n == len(places):
            untold.append(_summarized(call, summaries.get(call.id) or call.result))
        else:
            found[places[n]] = call
            position = places[n] + 1
    told: list[Step] = []
    for n, message in enumerate(messages):
        told += _answered(message, found[n], summaries) if n in found else (message,)
    return _by_time(told, untold)


def _by_time(told: Sequence[Step], untold: Sequence[Step]) -> list[Step]:
    """The told ones in their order, and each other one after all that was known at its time."""
    latest = list(accumulate((step.at_us for step in told), max))
    steps: list[Step] = []
    taken = 0
    for step in sorted(untold, key=lambda step: step.at_us):
        place = bisect_right(latest, step.at_us)
        steps += (*told[taken:place], step)
        taken = place
    return [*steps, *told[taken:]]


def _observations(messages: Sequence[Message]) -> dict[str, list[int]]:
    """Where the conversation tells what a tool answered, by the tool's name."""
    places: dict[str, list[int]] = {}
    before = ""
    for n, message in enumerate(messages):
        if message.role == "user" and message.text.startswith(_MARKS):
            places.setdefault(_observed(message.text, before), []).append(n)
        before = message.text if message.role == AGENT else ""
    return places


def _observed(text: str, before: str) -> str:
    """Of which tool an observation is; `before` is what the agent said just before it."""
    rest = _after(text)
    if rest.startswith(_UNNAMED):
        # The last one counts, as for TARSy.
        *_, action = "", *(found[1] for found in _ACTION.finditer(before))
        return action.strip()
    name = rest[: max(0, rest.find(":"))].strip()
    return name.removeprefix("Error executing ").removesuffix(" error")


def _after(text: str) -> str:
    """What stands after the first colon."""
    return text[text.find(":") + 1 :].lstrip()


def _answered(message: Message, call: ToolCall, summaries: Mapping[str, str]) -> Iterator[Step]:
    """The call in place of its observation. Where that tells an error that the record of the call
    does not have, it stays.
    """
    rest = _after(message.text)
    if rest.startswith(_ERRORS):
        yield call
        if (call.error or "\0") not in rest:
            yield message
    elif call.id in summaries or _NOTE in rest[: len(call.name) + 200]:
        yield _summarized(call, _read(_after(rest)))
    else:
        yield call


def _summarized(call: ToolCall, read: str) -> ToolCall:
    if read == call.result:
        return call
    return replace(call, result=read, full_result=call.result)


def _read(told: str) -> str:
    """The text of `{"result": text}`; else all of it."""
    try:
        value = from_json(told)
    except ValueError:
        return told
    text = value.get("result") if isinstance(value, dict) else None
    return text if isinstance(text, str) else told
