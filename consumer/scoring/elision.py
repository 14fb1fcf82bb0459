"""What is left out of a long session's transcript, so that its prompt fits the judge's context.

Four rungs, each taken only if those before it did not suffice: identical tool results become a
reference to the first; base64 is taken out; tool results lose their middle, the largest first; the
steps in the middle become skeletons. What stands for a text is a JSON list of what is still shown
and of markers. Markers are objects: no recorded text can imitate one, it is always a string.

Never left out: alert data, final analysis, tool names and arguments, step numbers, and

- agent decisions. Assistant messages are whole on the first three rungs; a skeleton keeps their
  first and last sentence, every line that starts like `Thought:` (DECISIONS), and all that
  follows `Final Answer:`.
- error lines: lines of a tool's answer that hold one of ERROR_WORDS. Those in a part that is left
  out are still shown, each once, in order, a long one around its word. They may take half of what
  is shown of an answer, so that what consists of error lines only is cut as well; on the lowest
  level, and in a skeleton, that is the first one. What is told as a call's error is an answer too,
  but no skeleton shortens it.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any

import re2

from consumer.scoring.profile import Profile
from consumer.scoring.prompt import fill, frame
from consumer.scoring.scorers.base import Subject
from consumer.scoring.session import Message, Session, Stage, Step, ToolCall
from consumer.scoring.tool_report import BYTES_PER_TOKEN
from consumer.scoring.transcript import (
    NumberedStep,
    Transcript,
    encode,
    numbered,
    staged_steps,
    transcript,
    utf8_size,
)

# A place in a text: [start, end) in bytes of its UTF-8.
Span = tuple[int, int]

ERROR_WORDS = (
    "error",
    "fail",
    "exception",
    "fatal",
    "denied",
    "traceback",
    "panic",
    "refused",
    "forbidden",
    "unauthorized",
    "not found",
    "timeout",
    "timed out",
    "crash",
    "killed",
)
DECISIONS = ("thought", "action", "action input", "conclusion", "decision")
# Shown of one error line, of which so much from before its word where the line is longer.
ERROR_LINE_BYTES = 200
BEFORE_ERROR_BYTES = 60
# More error lines of one answer are looked at than there is room for, as many of them may be the
# same; not all, as there may be millions.
MORE_ERROR_LINES = 100
# Below this a reference or a skeleton would save nothing worth a judge's attention.
SMALL_BYTES = 200
# The lowest level that tool results are cut to: a beginning, an error line and an end.
LEAST_RESULT_BYTES = 640
# Of messages by others than the agent, as skeletons: a beginning and an end.
SKELETON_BYTES = 300
# Steps at either end that are never skeletons: what was asked, and what it came to.
EDGE_STEPS = 3
# A SHA-512 in hex has 128 characters, a token or an id hardly more; images and archives thousands.
BASE64_CHARACTERS = 256

_ERROR = re2.compile(("(?i)" + "|".join(ERROR_WORDS)).encode())
# In lines of 60 to 76 as PEM and MIME write it (their ends may be escaped), or in one run. The
# escape before it is matched too: its letter is none of base64's. The engine is quickest without
# groups.
_BASE64 = re2.compile(
    rb"(?:\\[nrt])?(?:"
    rb"(?:[A-Za-z0-9+/]{60,76}(?:\r?\n|(?:\\r)?\\n)){3,}[A-Za-z0-9+/]{0,76}={0,2}"
    rb"|[A-Za-z0-9+/_-]{%d,}={0,2})" % BASE64_CHARACTERS
)
_LINE_END = re.compile(rb"\\[nr]|[\r\n]")
# Lines that follow each other are one match.
_DECISION = re2.compile(
    rb"(?im)(?:^[ \t*#>-]*(?:%b)[ \t*]*:[^\n]*\n?)+|^[ \t*#>-]*final answer[ \t*]*:(?s:.*)"
    % "|".join(DECISIONS).encode()
)
_SENTENCE_ENDS = (b"\n", b". ", b"! ", b"? ")
_PLACEHOLDER = "{{SESSION_CONVERSATION}}"


class DoesNotFit(ValueError):
    """All that may be left out is left out, and the prompt is still too long."""

    def __init__(self, tokens: int, budget_tokens: int) -> None:
        self.tokens = tokens
        self.budget_tokens = budget_tokens
        super().__init__(
            f"the prompt has at least about {tokens} tokens; there is room for {budget_tokens}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elision:
    """What was left out: the rungs that left something out, in order; the bytes by which the
    transcript shrank, and their share of its whole size, 0-1.
    """

    strategy: list[str]
    bytes: int
    ratio: float

    def as_json(self) -> dict[str, Any]:
        """`{strategy, bytes, ratio}`, as it is stored."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A prompt that fits, and the transcript it shows, by which quotes are checked."""

    prompt: str
    transcript: Transcript
    elision: Elision | None


def fit(
    template: str,
    subject: Subject,
    profile: Profile,
    *,
    nonce: str,
    budget_tokens: int,
    correction: float = 1.0,
) -> Fitted:
    """The prompt in at most so many tokens, as `estimated_tokens` counts them.

    A session that fits is shown whole, and its elision is None. The same arguments give the same
    prompt. `correction` (above 0): the model's tokens over those estimated. Raises DoesNotFit.
    """
    whole = transcript(subject.session)
    around = frame(subject, profile, nonce=nonce)
    empty = fill(template, around, Transcript(steps=()), nonce=nonce)
    room = _Room(
        frame=utf8_size(empty),
        shown=max(1, template.count(_PLACEHOLDER)),
        total=math.floor(Fraction(budget_tokens * BYTES_PER_TOKEN) / Fraction(correction)),
    )
    if whole.size <= room.left(""):
        prompt = fill(template, around, whole, nonce=nonce)
        return Fitted(prompt=prompt, transcript=whole, elision=None)
    if (least := len(whole.steps) * _LEAST_LINE_BYTES) > room.left(""):
        # Tens of thousands of steps: nothing to try, and it would take seconds.
        raise DoesNotFit(_tokens(room.needed(least, ""), correction), budget_tokens)
    draft = _draft(subject.session, whole)
    taken = _descend(draft, room)
    if draft.size > room.left(_note(taken)):
        tokens = _tokens(room.needed(draft.size, _note(taken)), correction)
        raise DoesNotFit(tokens, budget_tokens)
    shown = Transcript(steps=tuple(draft.steps), note=_note(taken))
    return Fitted(
        prompt=fill(template, around, shown, nonce=nonce),
        transcript=shown,
        elision=_elision(taken, whole.size, draft.size),
    )


def estimated_tokens(text: str, correction: float = 1.0) -> int:
    """UTF-8 bytes / 2, times the model's correction, rounded up."""
    return _tokens(utf8_size(text), correction)


def _tokens(size: int, correction: float) -> int:
    return math.ceil(Fraction(size, BYTES_PER_TOKEN) * Fraction(correction))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Bytes: of all but the transcript, and of all; and how often the transcript is shown."""

    frame: int
    shown: int
    total: int

    def left(self, note: str) -> int:
        """What a transcript with this note may have."""
        return (self.total - self.frame) // self.shown - _line_size(note)

    def needed(self, size: int, note: str) -> int:
        """What a prompt with such a transcript has."""
        return self.frame + self.shown * (size + _line_size(note))


def _line_size(line: str) -> int:
    return utf8_size(line) + 1 if line else 0


def _elision(taken: Sequence[_Rung], before: int, after: int) -> Elision:
    removed = before - after
    return Elision(
        strategy=[rung.name for rung in taken], bytes=removed, ratio=round(removed / before, 4)
    )


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The transcript on its way down. Steps are counted from 0 here.

    `shown`: what stands for a step's text, result or error that is no longer whole; `base64`: where
    base64 was taken out of it.
    """

    staged: list[tuple[int, Stage, Step]]
    steps: list[NumberedStep]
    size: int
    shown: dict[int, dict[str, Any]] = field(default_factory=dict)
    base64: dict[tuple[int, str], tuple[Span, ...]] = field(default_factory=dict)

    def show(self, n: int, changes: Mapping[str, Any]) -> None:
        """Shows this instead, where that makes the line shorter."""
        shown = {**self.shown.get(n, {}), **changes}
        step = numbered(*self.staged[n], shown)
        if step.size < self.steps[n].size:
            self.size -= self.steps[n].size - step.size
            self.steps[n], self.shown[n] = step, shown

    def answers(self) -> Iterator[tuple[int, str, str]]:
        """(step, field, text) of all that tools answered, but for references."""
        for n, (_, _, step) in enumerate(self.staged):
            if isinstance(step, ToolCall):
                if not self.is_reference(n):
                    yield n, "result", step.result
                if step.failure and step.error:
                    yield n, "error", step.error

    def is_reference(self, n: int) -> bool:
        return isinstance(self.shown.get(n, {}).get("result"), dict)

    def size_of(self, n: int, name: str) -> int:
        """Bytes that the field takes in its line now."""
        without = numbered(*self.staged[n], {**self.shown.get(n, {}), name: ""})
        return self.steps[n].size - without.size + len('""')


def _draft(session: Session, whole: Transcript) -> _Draft:
    return _Draft(staged=list(staged_steps(session)), steps=list(whole.steps), size=whole.size)


# --- The rungs ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rung:
    """`elide` shortens a draft to so many bytes, if it can; `told` is what the judge is told."""

    name: str
    elide: Callable[[_Draft, int], None]
    told: str


def _descend(draft: _Draft, room: _Room) -> list[_Rung]:
    """Takes rung after rung until the draft fits; those that made it shorter."""
    taken: list[_Rung] = []
    for rung in RUNGS:
        if draft.size <= room.left(_note(taken)):
            break
        before = draft.size
        rung.elide(draft, room.left(_note([*taken, rung])))
        if draft.size < before:
            taken.append(rung)
    return taken


def _note(taken: Iterable[_Rung]) -> str:
    """One line for the judge, outside all that was recorded."""
    told = "; ".join(rung.told for rung in taken)
    if not told:
        return ""
    return (
        "(Note by the program that shows you this session: the recording was too long to be shown "
        f"whole. Left out were: {told}. The agent saw all of it. Never count as missing work, or "
        "as a claim without proof, what may stand in a part that was left out.)"
    )


def _refer(draft: _Draft, _room: int) -> None:
    first: dict[str, int] = {}
    for number, _, step in draft.staged:
        if isinstance(step, ToolCall) and len(step.result) >= SMALL_BYTES:
            original = first.setdefault(step.result, number)
            if original != number:
                draft.show(number - 1, {"result": {"same_as_step": original}})


def _strip_base64(draft: _Draft, _room: int) -> None:
    for n, name, text in draft.answers():
        raw = _raw(text)
        if found := tuple(_base64_runs(raw)):
            draft.base64[n, name] = found
            draft.show(n, {name: _stripped(raw, found)})


def _cut_results(draft: _Draft, room: int) -> None:
    answers = list(draft.answers())
    sizes = [draft.size_of(n, name) for n, name, _ in answers]
    level = max(LEAST_RESULT_BYTES, water_level(sizes, room - (draft.size - sum(sizes))))
    for (n, name, text), size in zip(answers, sizes, strict=True):
        if size > level:
            raw, holes = _raw(text), draft.base64.get((n, name), ())
            kept = _cut(raw, _between(holes, len(raw)), level - _WHOLE_BYTES)
            draft.show(n, {name: _parts(raw, kept, holes)})


def water_level(sizes: Iterable[int], room: int) -> int:
    """The highest level such that all sizes, each cut to it, are within the room in sum.

    The largest size where nothing must be cut; 0 or less where there is no room at all.
    """
    ordered, level = sorted(sizes), 0
    for n, size in enumerate(ordered):
        level = min(size, room // (len(ordered) - n))
        room -= level
        if level < size:
            break
    return level


def _skeletons(draft: _Draft, room: int) -> None:
    """From the middle outwards, as many as needed."""
    middle = range(EDGE_STEPS, len(draft.staged) - EDGE_STEPS)
    centre = len(draft.staged) // 2
    for n in sorted(middle, key=lambda n: abs(n - centre)):
        if draft.size <= room:
            break
        _, _, step = draft.staged[n]
        if isinstance(step, Message):
            draft.show(n, _said(step))
        elif not draft.is_reference(n):
            draft.show(n, _answered(step, draft.base64.get((n, "result"), ())))


def _said(message: Message) -> dict[str, Any]:
    raw = _raw(message.text)
    if message.role == "assistant":
        return {"text": _parts(raw, _merged(_decisions(raw)))}
    head, tail = _ends(raw, [(0, len(raw))], SKELETON_BYTES)
    return {"text": _parts(raw, _merged([*head, *tail]))}


def _answered(call: ToolCall, holes: Sequence[Span]) -> dict[str, Any]:
    raw = _raw(call.result)
    spans = _between(holes, len(raw))
    kept = _error_lines(raw, spans, (0, len(raw)), _LEAST_ERROR_BYTES)
    return {"result": _parts(raw, _merged(kept), holes)}


RUNGS = (
    _Rung(
        name="identical_results",
        elide=_refer,
        told="tool results that an earlier step holds word for word (same_as_step)",
    ),
    _Rung(
        name="base64",
        elide=_strip_base64,
        told="base64 inside tool results (elided_base64_bytes)",
    ),
    _Rung(
        name="cut_results",
        elide=_cut_results,
        told="the middle of large tool results but for lines that tell errors (elided_bytes)",
    ),
    _Rung(
        name="middle_turns",
        elide=_skeletons,
        told="most of the text of steps in the middle of the session, though not the agent's "
        "decisions and tool arguments (elided_bytes)",
    ),
)


# --- What is shown of a text -------------------------------------------------------------------


def _raw(text: str) -> bytes:
    return text.encode(errors="replace")


def _parts(raw: bytes, kept: Sequence[Span], holes: Iterable[Span] = ()) -> list[Any]:
    """The kept spans, a marker for each gap between them, and the whole text's size and SHA-256.

    `holes` are the gaps of base64. Where nothing is kept, one marker says it all.
    """
    digest = {"sha256": _sha256(raw)}
    if not kept:
        return [{"elided_bytes": len(raw), **digest}]
    gaps = {gap: {"elided_bytes": gap[1] - gap[0]} for gap in _between(kept, len(raw))}
    gaps |= {hole: {"elided_base64_bytes": hole[1] - hole[0]} for hole in gaps.keys() & set(holes)}
    return [*_listed(raw, kept, gaps), {"whole_bytes": len(raw), **digest}]


def _stripped(raw: bytes, holes: Sequence[Span]) -> list[Any]:
    """All but the holes, with a marker for each that has its SHA-256."""
    markers = {
        (start, end): {"elided_base64_bytes": end - start, "sha256": _sha256(raw[start:end])}
        for start, end in holes
    }
    return _listed(raw, _between(holes, len(raw)), markers)


def _listed(raw: bytes, kept: Iterable[Span], markers: Mapping[Span, Any]) -> list[Any]:
    return [
        markers[span] if span in markers else raw[span[0] : span[1]].decode()
        for span in sorted([*kept, *markers])
    ]


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _marker_bytes(marker: Mapping[str, Any]) -> int:
    """At most what a marker takes in a list: with a comma and a blank before and after it."""
    return utf8_size(encode(marker)) + len(", , ")


_GAP_BYTES = _marker_bytes({"elided_base64_bytes": 10**10})
# What a cut text has besides its parts: the brackets, one gap, and the last marker.
_WHOLE_BYTES = 2 + _GAP_BYTES + _marker_bytes({"whole_bytes": 10**10, "sha256": _sha256(b"")})
# A step of which nothing is shown, and the end of its line.
_LEAST_LINE_BYTES = 55
_LEAST_ERROR_BYTES = (LEAST_RESULT_BYTES - _WHOLE_BYTES) // 2


def _cut(raw: bytes, spans: Sequence[Span], room: int) -> list[Span]:
    """A beginning, the error lines of the middle in at most half of the room, and an end."""
    if not _ERROR.search(raw):
        head, tail = _ends(raw, spans, room)
        return _merged([*head, *tail])
    head, tail = _ends(raw, spans, room - room // 2)
    middle = (
        max((end for _, end in head), default=0),
        min((start for start, _ in tail), default=len(raw)),
    )
    errors = _error_lines(raw, spans, middle, room // 2)
    taken = sum(_shown_bytes(raw, line) + _GAP_BYTES for line in errors)
    head, tail = _ends(raw, spans, room - taken)
    return _merged([*head, *errors, *tail])


def _ends(raw: bytes, spans: Sequence[Span], room: int) -> tuple[list[Span], list[Span]]:
    """Two thirds of the room from the beginning, one third from the end."""
    tail = room // 3
    return _taken(raw, spans, room - tail), _taken(raw, spans[::-1], tail, back=True)


def _taken(raw: bytes, spans: Iterable[Span], room: int, *, back: bool = False) -> list[Span]:
    """The spans, and the holes before them, as far as the room goes; the last one in part."""
    taken: list[Span] = []
    for span in spans:
        after_hole = span[1] < len(raw) if back else span[0] > 0
        part = _fitting(raw, span, max(0, room - after_hole * _GAP_BYTES), back=back)
        taken.append(part)
        if part != span:
            break
        room -= _shown_bytes(raw, part) + after_hole * _GAP_BYTES
    return taken


def _fitting(raw: bytes, span: Span, room: int, *, back: bool = False) -> Span:
    """The longest beginning of the span, or end, that is shown in so many bytes."""
    start, end = span

    def part(length: int) -> Span:
        if back:
            return _aligned(raw, end - length), end
        return start, _aligned(raw, start + length)

    lengths = range(min(end - start, room) + 1)
    return part(bisect_right(lengths, room, key=lambda n: _shown_bytes(raw, part(n))) - 1)


def _aligned(raw: bytes, at: int) -> int:
    """The beginning of the character that this byte belongs to."""
    while at < len(raw) and raw[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _shown_bytes(raw: bytes, span: Span) -> int:
    """Bytes that the span takes as a JSON string; none where it is empty."""
    start, end = span
    return utf8_size(encode(raw[start:end].decode())) if end > start else 0


def _error_lines(raw: bytes, spans: Iterable[Span], middle: Span, room: int) -> list[Span]:
    """Error lines that reach into the middle, each once, in order, as far as the room goes."""
    first, last = middle
    wide = (first - ERROR_LINE_BYTES, last + ERROR_LINE_BYTES)
    lines: list[Span] = []
    seen: set[bytes] = set()
    found = (line for span in _inside(spans, wide) for line in _errors(raw, span))
    for line in islice(found, room // _GAP_BYTES + MORE_ERROR_LINES):
        start, end = line
        if end <= first or start >= last or raw[start:end] in seen:
            continue
        seen.add(raw[start:end])
        shown = _fitting(raw, line, ERROR_LINE_BYTES)
        room -= _shown_bytes(raw, shown) + _GAP_BYTES
        if room < 0:
            break
        lines.append(shown)
    return lines


def _errors(raw: bytes, span: Span) -> Iterator[Span]:
    at, end = span
    while found := _ERROR.search(raw, at, end):
        line = _line_around(raw, (at, end), found.span())
        yield line
        at = max(line[1], found.end())
        again = raw[line[0] : line[1] + 1]
        while raw.startswith(again, at + 1, end):
            at += len(again)


def _line_around(raw: bytes, span: Span, word: Span) -> Span:
    """The line of the word; of a long one, the part around the word."""
    start = max(span[0], word[0] - ERROR_LINE_BYTES)
    start = max(start, raw.rfind(b"\n", start, word[0]) + 1)
    end = min(span[1], word[0] + ERROR_LINE_BYTES)
    line_end = raw.find(b"\n", word[1], end)
    end = end if line_end < 0 else line_end
    if end - start > ERROR_LINE_BYTES:
        start = max(start, word[0] - BEFORE_ERROR_BYTES)
        end = min(end, start + ERROR_LINE_BYTES)
    return _aligned(raw, start), _aligned(raw, end)


def _base64_runs(raw: bytes) -> Iterator[Span]:
    for found in _BASE64.finditer(raw):
        start, end = found.span()
        start += 2 * raw.startswith(b"\\", start)
        if _is_base64(raw[start:end]):
            yield start, end


def _is_base64(run: bytes) -> bool:
    """Whole groups of four, letters of both cases and digits: no path, no word, no hex digest."""
    characters = _LINE_END.sub(b"", run)
    kinds = (re.search(kind, characters) for kind in (b"[a-z]", b"[A-Z]", b"[0-9]"))
    return len(characters) % 4 == 0 and all(kinds)


def _decisions(raw: bytes) -> Iterator[Span]:
    """The first sentence, the last one, and the lines that tell what the agent decided."""
    start, end = len(raw) - len(raw.lstrip()), len(raw.rstrip())
    first = (raw.find(mark, start, end) for mark in _SENTENCE_ENDS)
    last = (raw.rfind(mark, start, end) for mark in _SENTENCE_ENDS)
    yield start, min((at + 1 for at in first if at >= 0), default=end)
    yield max((at + 1 for at in last if at >= 0), default=start), end
    yield from (found.span() for found in _DECISION.finditer(raw))


# --- Spans -------------------------------------------------------------------------------------


def _between(holes: Iterable[Span], length: int) -> list[Span]:
    """What is left of a text of this length."""
    edges = [0, *(edge for hole in holes for edge in hole), length]
    spans = zip(edges[::2], edges[1::2], strict=True)
    return [(start, end) for start, end in spans if end > start]


def _inside(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """What lies within the bounds."""
    cut = ((max(start, bounds[0]), min(end, bounds[1])) for start, end in spans)
    return [(start, end) for start, end in cut if end > start]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """In order; those that touch or overlap as one, empty ones left out."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
