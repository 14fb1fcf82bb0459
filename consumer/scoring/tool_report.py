"""The tool report: what became of a session's tool calls. Formulas: scoring.md, "Tool report".

Linear in the number of calls and in the size of their texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Literal

from consumer.scoring.rounding import rounded
from consumer.scoring.session import AvailableTool, Message, Session, Step, ToolCall
from consumer.scoring.text import LETTERS_AND_DIGITS, only, runs

SIMILAR = 0.8
# Made once: json.dumps makes an encoder for each call that asks for anything special.
_ARGUMENTS = json.JSONEncoder(ensure_ascii=False)
# A fair estimate where nobody counted: see judge.md, "Long sessions".
BYTES_PER_TOKEN = 2

CorrectionKind = Literal["fallback_after_error", "retry_with_different_params"]
WasteReason = Literal["failed", "unreferenced"]
Price = Callable[[int, int], float | None]

# What identifiers and numbers are made of; all else separates them, other scripts' letters too:
# what these write between identifiers are plain words, often without a blank. So do `:`, `/` and
# `@`: who reads `pod/miner-0` or `app:2.14.0` speaks of `miner-0` and `2.14.0`. At a word's ends
# `-` and `.` are the sentence's or the JSON's, not the word's.
_IN_WORDS = only(LETTERS_AND_DIGITS + ".-")
_WORD_CHARACTERS = 4
# As long as people's own paths hardly are.
_PATH_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    call_id: str
    tool: str
    failure: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A failed call and the adjacent one that answered it."""

    failed_call_id: str
    call_id: str
    kind: CorrectionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedCalls:
    """Calls of one tool with nearly the same parameters; the similarity is the highest found."""

    tool_name: str
    call_ids: tuple[str, ...]
    param_similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WastedCall:
    """A call that brought nothing, and an estimate of what it cost (USD null: unknown price)."""

    call_id: str
    tool: str
    reason: WasteReason
    tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """All findings; `effectiveness` is 0-100, and 100 without any call."""

    calls: int
    failed: tuple[FailedCall, ...]
    corrections: tuple[Correction, ...]
    repeated: tuple[RepeatedCalls, ...]
    wasted: tuple[WastedCall, ...]
    unused_tools: tuple[str, ...]
    effectiveness: int


def tool_report(session: Session, price: Price) -> ToolReport:
    """The report of a session; `price` tells USD of (input, output) tokens of its model."""
    calls = session.tool_calls
    failed = tuple(_failed(call) for call in calls if call.failure)
    corrections = tuple(_corrections(calls))
    repeated = tuple(_repeated(calls))
    wasted = tuple(_wasted(session, calls, price))
    return ToolReport(
        calls=len(calls),
        failed=failed,
        corrections=corrections,
        repeated=repeated,
        wasted=wasted,
        unused_tools=_unused(session.available_tools, calls),
        effectiveness=effectiveness(
            total=len(calls),
            ok=len(calls) - len(failed),
            corrections=len(corrections),
            wasted_failed=sum(call.reason == "failed" for call in wasted),
            repeated=len(repeated),
        ),
    )


def effectiveness(
    *, total: int, ok: int, corrections: int, wasted_failed: int, repeated: int
) -> int:
    """round(40 ok/n + 30 (1 - corrections/n) + 20 (1 - wasted_failed/n) + 10 (1 - repeated/n)).

    Ratios are capped at 1; 100 without calls; half rounds up.
    """
    if total == 0:
        return 100

    def capped(count: int) -> int:
        return min(count, total)

    points = (
        40 * capped(ok)
        + 30 * (total - capped(corrections))
        + 20 * (total - capped(wasted_failed))
        + 10 * (total - capped(repeated))
    )
    return rounded(points, total)


def _failed(call: ToolCall) -> FailedCall:
    return FailedCall(
        call_id=call.id, tool=call.name, failure=call.failure or "", error=(call.error or "")[:500]
    )


def _corrections(calls: Sequence[ToolCall]) -> Iterator[Correction]:
    """What directly followed a failure: another tool, or the same one asked otherwise."""
    for before, after in pairwise(calls):
        if not before.failure:
            continue
        kind: CorrectionKind
        if before.name != after.name:
            kind = "fallback_after_error"
        elif before.arguments != after.arguments:
            kind = "retry_with_different_params"
        else:
            continue
        yield Correction(failed_call_id=before.id, call_id=after.id, kind=kind)


def _repeated(calls: Sequence[ToolCall]) -> Iterator[RepeatedCalls]:
    """One entry a tool, of its consecutive calls (other tools may stand between them)."""
    by_tool: dict[str, list[ToolCall]] = {}
    for call in calls:
        by_tool.setdefault(call.name, []).append(call)
    for name, own in by_tool.items():
        if len(own) == 1:
            continue
        flat = ((call, flattened(call.arguments)) for call in own)
        ids: dict[str, None] = {}
        highest = 0.0
        for (one, one_params), (other, other_params) in pairwise(flat):
            similarity = jaccard(one_params, other_params)
            if similarity >= SIMILAR:
                ids |= {one.id: None, other.id: None}
                highest = max(highest, similarity)
        if ids:
            yield RepeatedCalls(tool_name=name, call_ids=tuple(ids), param_similarity=highest)


def flattened(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Every leaf of the arguments as `path=value`. Empty containers are leaves too."""
    return frozenset(_leaves(dict(arguments))) if arguments else frozenset()


def _leaves(arguments: dict[str, Any]) -> Iterator[str]:
    waiting: list[tuple[str, Any]] = [("", arguments)]
    while waiting:
        for path, inner in _inside(*waiting.pop()):
            if inner and isinstance(inner, dict | list):
                waiting.append((_short(path), inner))
            else:
                yield f"{path}={inner!r}"


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{path}.{key}", inner) for key, inner in value.items())
    return ((f"{path}[{number}]", inner) for number, inner in enumerate(value))


def _short(path: str) -> str:
    """The path, or a name for a long one: it is repeated with each leaf below."""
    if len(path) <= _PATH_CHARACTERS:
        return path
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared over all; two empty sets are the same: 1."""
    return len(one & other) / len(one | other) if one or other else 1.0


def _wasted(session: Session, calls: Sequence[ToolCall], price: Price) -> Iterator[WastedCall]:
    asked = [_json(call.arguments) for call in calls]
    unreferenced = _unreferenced(session, asked)
    last_success = {call.name: n for n, call in enumerate(calls) if not call.failure}
    for n, call in enumerate(calls):
        reason: WasteReason
        if call.failure:
            if last_success.get(call.name, -1) > n:
                continue
            reason = "failed"
        elif call.id in unreferenced:
            reason = "unreferenced"
        else:
            continue
        read, written = _tokens(call.result), _tokens(asked[n])
        yield WastedCall(
            call_id=call.id,
            tool=call.name,
            reason=reason,
            tokens=read + written,
            cost_usd=price(read, written),
        )


def _json(arguments: Mapping[str, Any]) -> str:
    return _ARGUMENTS.encode(dict(arguments))


def _tokens(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _unreferenced(session: Session, asked: Sequence[str]) -> set[str]:
    """Ids of calls of whose result nothing distinctive is taken up later; `asked` with these texts.

    A result that holds nothing distinctive ("OK") can't be said to be unused, and is left out.
    """
    later = words(session.final_analysis)
    unread: list[str] = []
    asked = list(asked)
    unused: set[str] = set()
    first = next((n for n, s in enumerate(session.steps) if isinstance(s, ToolCall)), None)
    # What was said before the first call, often most of a session, was not said of its result.
    for step in reversed(session.steps[first:] if first is not None else ()):
        if isinstance(step, Message):
            unread.append(_text(step))
            continue
        arguments = asked.pop()
        own = set() if step.failure else words(step.result)
        own -= words(arguments)  # in place: results have thousands of words
        if own and not any(map(is_distinctive, later & own)):
            # Only now: the analysis alone takes up much.
            later |= words("\n".join(unread))
            unread.clear()
            if not any(map(is_distinctive, later & own)) and any(map(is_distinctive, own)):
                unused.add(step.id)
        unread.append(arguments)
    return unused


def _text(step: Message) -> str:
    return step.text if step.role != "system" else ""


def words(text: str) -> set[str]:
    """The text's words, as far as they may be identifiers."""
    return set(map(str.strip, runs(text, _IN_WORDS), repeat(".-")))


def is_distinctive(word: str) -> bool:
    """Whether it is a number or an identifier, of four characters or more: it has a digit, or holds
    parts together with punctuation, or changes case inside. Plain words do not.
    """
    if len(word) < _WORD_CHARACTERS:
        return False
    return not (word.isalpha() and (word.islower() or word.isupper() or word.istitle()))


def _unused(available: Sequence[AvailableTool], calls: Sequence[ToolCall]) -> tuple[str, ...]:
    used = {call.name for call in calls}
    names = (f"{tool.server}.{tool.name}" for tool in available)
    return tuple(name for name in names if name not in used)


def steps_text(steps: Sequence[Step]) -> str:
    """All that was said and answered, for scorers that look for evidence."""
    return "\n".join(step.text if isinstance(step, Message) else step.result for step in steps)
