"""One conversation out of a stage's threads, and its tool calls at their places.

Every model call of the agent is recorded with its whole thread so far: most of it is told again and
again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from consumer.scoring.session import Message, Step, ToolCall

Said = tuple[str, str]  # role, text

# To find a thread among all that may hold it takes quadratic time for some that nobody tells but to
# make us work. Where a conversation is told again and again, the very next thread holds it.
MAX_COMPARED = 100

_OBSERVATION = re.compile(r"Observation:\s*([^\s:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The messages that one model call was made with, its answer last; microseconds UTC."""

    told_at_us: int
    messages: tuple[Said, ...]


def conversation(threads: Sequence[Thread]) -> list[Message]:
    """The messages without repetitions, each with the time it was known.

    Only threads that no later one contains are kept, without the beginning that they share with
    the thread before.
    """
    ordered = sorted(threads, key=lambda thread: thread.told_at_us)
    known_at = {t.messages[-1]: t.told_at_us for t in reversed(ordered) if t.messages}
    messages: list[Message] = []
    before: Sequence[Said] = ()
    for thread in _not_told_later(ordered):
        shared = _shared_beginning(before, thread.messages)
        before = thread.messages
        at_us = messages[-1].at_us if messages else 0
        for said in thread.messages[shared:]:
            # User messages carry no time of their own: they were there at their predecessor's.
            at_us = max(at_us, known_at.get(said, at_us))
            messages.append(Message(role=said[0], text=said[1], at_us=at_us))
    return messages


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


def woven(messages: Sequence[Message], calls: Sequence[ToolCall]) -> list[Step]:
    """Messages and tool calls in order.

    A call stands where the conversation tells its observation, and replaces it: the service's own
    record is more complete. A call that the conversation does not tell stands by its time.
    """
    told: list[Step] = list(messages)
    untold: list[ToolCall] = []
    observations = _observations(messages)
    position = 0
    for call in calls:
        places = observations.get(call.name, [])
        found = bisect_left(places, position)
        if found == len(places):
            untold.append(call)
        else:
            told[places[found]] = call
            position = places[found] + 1
    latest = list(accumulate((step.at_us for step in told), max))
    steps: list[Step] = []
    taken = 0
    for call in sorted(untold, key=lambda call: call.at_us):
        place = bisect_right(latest, call.at_us)
        steps += (*told[taken:place], call)
        taken = place
    return steps + told[taken:]


def _observations(messages: Sequence[Message]) -> dict[str, list[int]]:
    """Where the conversation tells what a tool answered, by the tool's name."""
    places: dict[str, list[int]] = {}
    for n, message in enumerate(messages):
        if message.role == "user" and (match := _OBSERVATION.match(message.text)):
            places.setdefault(match[1], []).append(n)
    return places
