"""The tool report: what became of a session's tool calls (docs/scoring.md, "The tool report").

Linear in the number of calls and in the size of their texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Literal

from consumer.scoring.rounding import rounded
from consumer.scoring.session import AvailableTool, Message, Session, Step, ToolCall
from consumer.scoring.tool_kinds import ToolKinds
from consumer.scoring.uptake import not_taken_up

SIMILAR = 0.8
# Who looks again after a minute may expect something else.
CHANGES_BY_ITSELF_US = 60_000_000
# Made once: json.dumps makes an encoder for each call that asks for anything special.
_ARGUMENTS = json.JSONEncoder(ensure_ascii=False)
# A fair estimate where nobody counted: see judge.md, "Long sessions".
BYTES_PER_TOKEN = 2

CorrectionKind = Literal["fallback_after_error", "retry_with_different_params"]
WasteReason = Literal["failed", "repeated"]
Price = Callable[[int, int], float | None]

# A path is repeated with each leaf below it: no longer one than the name of a longer one.
_PATH_CHARACTERS = 64


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
class UncitedCall:
    """A look-up of whose result nothing is stated, passed on or decided later. It may have served
    all the same: this accuses nobody, and enters no figure.
    """

    call_id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """All findings; `effectiveness` is 0-100, and 100 without any call. Calls that are no `actions`
    are look-ups.
    """

    calls: int
    actions: int
    failed: tuple[FailedCall, ...]
    corrections: tuple[Correction, ...]
    repeated: tuple[RepeatedCalls, ...]
    wasted: tuple[WastedCall, ...]
    not_cited: tuple[UncitedCall, ...]
    unused_tools: tuple[str, ...]
    effectiveness: int


def tool_report(session: Session, price: Price, actions: Collection[str] = ()) -> ToolReport:
    """The report of a session; `price` tells USD of (input, output) tokens of its model, `actions`
    are the tools that the profile calls so.
    """
    steps = {at: step for at, step in enumerate(session.steps) if isinstance(step, ToolCall)}
    calls = session.tool_calls
    kinds = ToolKinds(session.available_tools, actions)
    asked = {at: _json(call.arguments) for at, call in steps.items()}
    failed = tuple(_failed(call) for call in calls if call.failure)
    corrections = tuple(_corrections(calls))
    repeated = tuple(entry for stage in session.stages for entry in _repeated(stage.steps))
    wasted = tuple(_wasted(steps, _repeats(session, kinds, asked), asked, price))
    return ToolReport(
        calls=len(calls),
        actions=sum(kinds.changes(call) is True for call in calls),
        failed=failed,
        corrections=corrections,
        repeated=repeated,
        wasted=wasted,
        not_cited=tuple(_not_cited(session, steps, kinds, asked)),
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


def _repeated(steps: Sequence[Step]) -> Iterator[RepeatedCalls]:
    """One entry a tool, of its consecutive calls (other tools may stand between them) in a stage:
    another stage's agent, or one at its side, does not know what this one asked.
    """
    by_tool: dict[str, list[ToolCall]] = {}
    for call in steps:
        if isinstance(call, ToolCall):
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


def _wasted(
    steps: Mapping[int, ToolCall],
    repeated: Collection[int],
    asked: Mapping[int, str],
    price: Price,
) -> Iterator[WastedCall]:
    last_success = {call.name: at for at, call in steps.items() if not call.failure}
    for at, call in steps.items():
        reason: WasteReason
        if call.failure and last_success.get(call.name, -1) < at:
            reason = "failed"
        elif at in repeated:
            reason = "repeated"
        else:
            continue
        read, written = _tokens(call.result), _tokens(asked[at])
        yield WastedCall(
            call_id=call.id,
            tool=call.name,
            reason=reason,
            tokens=read + written,
            cost_usd=price(read, written),
        )


def _repeats(session: Session, kinds: ToolKinds, asked: Mapping[int, str]) -> set[int]:
    """Steps that asked again, in the same stage, and got what was there already.

    Only look-ups, and only where neither a call between nor time could have changed the answer.
    """
    found: set[int] = set()
    numbers = count()
    for stage in session.stages:
        known: dict[tuple[str, str], ToolCall] = {}
        for step, at in zip(stage.steps, numbers, strict=False):
            if not isinstance(step, ToolCall):
                continue
            if kinds.changes(step) is not False:
                known.clear()
            elif not step.failure:
                former = known.get((step.name, asked[at]))
                if former and former.result == step.result and _soon(former, step):
                    found.add(at)
                known[step.name, asked[at]] = step
    return found


def _soon(former: ToolCall, call: ToolCall) -> bool:
    return call.at_us - former.at_us <= CHANGES_BY_ITSELF_US


def _not_cited(
    session: Session,
    steps: Mapping[int, ToolCall],
    kinds: ToolKinds,
    asked: Mapping[int, str],
) -> Iterator[UncitedCall]:
    # Who asks the same of the next one looked at this one, and found that it is not the one.
    went_on = {
        at
        for (at, call), (_, after) in pairwise(steps.items())
        if call.name == after.name and call.arguments != after.arguments
    }
    lookups = {
        at: call
        for at, call in steps.items()
        if not (call.failure or at in went_on or kinds.changes(call))
    }
    for at in not_taken_up(session, lookups, asked):
        yield UncitedCall(call_id=lookups[at].id, tool=lookups[at].name)


def _json(arguments: Mapping[str, Any]) -> str:
    return _ARGUMENTS.encode(dict(arguments))


def _tokens(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _unused(available: Sequence[AvailableTool], calls: Sequence[ToolCall]) -> tuple[str, ...]:
    used = {call.name for call in calls}
    names = (f"{tool.server}.{tool.name}" for tool in available)
    return tuple(name for name in names if name not in used)


def steps_text(steps: Sequence[Step]) -> str:
    """All that was said and answered, for scorers that look for evidence."""
    return "\n".join(step.text if isinstance(step, Message) else step.result for step in steps)
