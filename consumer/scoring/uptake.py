"""Which results of look-ups were taken up later: stated, passed on, or decided by.

In any usual form: `1023.0` is `$1,023`, `2024-05-20` is May 20, `"insurance": "no"` is "no travel
insurance". Who looks up a booking and then changes it took up what was found. Rather too much is
held for taken up than too little. Linear in the texts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain, repeat
from math import log
from string import ascii_letters
from typing import Any

from consumer.scoring import quantities
from consumer.scoring.session import Message, Session, ToolCall
from consumer.scoring.text import LETTERS_AND_DIGITS, only, runs, unescaped
from consumer.scoring.transcript import encode

# What identifiers and numbers are made of; all else separates them, other scripts' letters too:
# what these write between identifiers are plain words, often without a blank. So do `:`, `/` and
# `@`: who reads `pod/miner-0` or `app:2.14.0` speaks of `miner-0` and `2.14.0`. At a word's ends
# `-` and `.` are the sentence's or the JSON's, not the word's.
_IN_WORDS = only(LETTERS_AND_DIGITS + ".-")
_LETTERS = only(ascii_letters)
_WORD_CHARACTERS = 4
# Insured and insurance, delays and delayed.
_STEM_CHARACTERS = 5
# Of results that nobody quotes, in all.
_MOST_CHARACTERS = 300_000
# As long as the name of something hardly is.
_NAME_CHARACTERS = 200
# Numbers that are rounded lie in the same bucket, or in adjacent ones.
_BUCKET = log(1.02)
# Numbers of one digit are everywhere, and so are these words.
_LEAST_NUMBER = 10
_MOST_NUMBER = 2**53
_NO_NAMES = frozenset({"", "true", "false", "yes", "no", "none", "null", "all", "any"})

# A number's bucket, a day of the year, or a time of the day.
Form = tuple[str, int, int]

_YES_OR_NO = re.compile(
    r"""(?<![\w-])([A-Za-z_][\w-]{3,60})["']?\s{0,3}[:=]\s{0,3}"""
    r"""(?:["']?(?:true|false|yes|no|null|none|0|0\.0)\b|["']{2}|\[\s{0,3}\]|\{\s{0,3}\})""",
    re.IGNORECASE,
)
_MONTHS = {name[:3]: number for number, name in enumerate(quantities.MONTHS[:12], start=1)}
# They begin with a digit, and only then look behind it: so the search skips to digits.
_NUMERIC_DATE = re.compile(
    r"\d(?<![\d.]\d)(?:\d{3}[-/]\d{1,2}([-/])\d{1,2}|\d?[/.]\d{1,2}[/.]\d{2,4}|\d?月\d{1,2}日)(?!\d)"
)
_DAY = re.compile(r"(\d(?<![\d.,:/$-]\d)\d?)(?![\d:/])(?:st|nd|rd|th)?")
_BESIDE_DAY = 16
_TIME = re.compile(
    r"\d(?<![\d:]\d)\d?(?::\d\d(?!\d)(?::\d\d)?(?:\s?([ap])\.?m\b)?|\s?([ap])\.?m\b)", re.IGNORECASE
)
_DIGITS = re.compile(r"\d+")


def not_taken_up(
    session: Session, lookups: Mapping[int, ToolCall], asked: Mapping[int, str]
) -> list[int]:
    """Which of these steps, calls that succeeded, brought what nobody took up; `asked` are the
    arguments of all calls as JSON, by step.

    A result that holds nothing distinctive ("OK") can't be said to be unused, and is left out.
    """
    unused = _not_quoted(session, lookups, asked)
    unused = _not_pursued(session, lookups, _first_of(unused, lookups))
    return _not_stated(session, lookups, unused, asked) if unused else []


def _first_of(calls: Iterable[int], lookups: Mapping[int, ToolCall]) -> list[int]:
    """As many as there is time to look at closely; what is not looked at counts as taken up."""
    sizes = accumulate(len(lookups[at].result) for at in calls)
    return [at for at, size in zip(calls, sizes, strict=True) if size <= _MOST_CHARACTERS]


def _not_quoted(session: Session, lookups: Collection[int], asked: Mapping[int, str]) -> list[int]:
    """Those of whose result nothing distinctive is repeated as it stands: the quickest look."""
    later = words(session.final_analysis)
    unread: list[str] = []
    found: list[int] = []
    steps = session.steps
    # What was said before the first look-up, often most of a session, was not said of its result.
    for at in range(len(steps) - 1, min(lookups, default=len(steps)) - 1, -1):
        step = steps[at]
        if isinstance(step, Message):
            unread.append(_said(step))
            continue
        if at in lookups:
            own = words(step.result)
            own -= words(asked[at])  # in place: results have thousands of words
            if own and not any(map(is_distinctive, later & own)):
                # Only now: the analysis alone takes up much.
                later |= words("\n".join(unread))
                unread.clear()
                repeated = any(map(is_distinctive, later & own))
                if not repeated and any(map(is_distinctive, own)):
                    found.append(at)
        unread.append(asked[at])
    return found[::-1]


def _said(step: Message) -> str:
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


def _not_pursued(
    session: Session, lookups: Mapping[int, ToolCall], calls: Collection[int]
) -> list[int]:
    """Those after which nobody asks about the same thing, nor about something of the result."""
    asked: dict[str, int] = {}
    for at in range(min(calls, default=len(session.steps)) + 1, len(session.steps)):
        step = session.steps[at]
        if isinstance(step, ToolCall):
            asked.update(zip(_names(step.arguments), repeat(at), strict=False))
    if not asked:
        return list(calls)

    def pursued(at: int) -> bool:
        call = lookups[at]
        names = chain(_names(call.arguments), map(str.lower, words(unescaped(call.result))))
        return any(asked.get(name, -1) > at for name in names)

    return [at for at in calls if not pursued(at)]


def _not_stated(
    session: Session,
    lookups: Mapping[int, ToolCall],
    calls: Sequence[int],
    asked: Mapping[int, str],
) -> list[int]:
    """Those of whose result nothing is said later, in whatever form."""
    said: dict[Form | str, int] = {}  # behind which of the calls, at last
    for nth, text in enumerate(_texts_after(session, calls, asked)):
        said.update(zip(chain(_stems(text), _forms(text)), repeat(nth), strict=False))

    def says(looked_for: Iterable[Form | str], nth: int) -> bool:
        return any(said.get(one, -1) >= nth for one in looked_for)

    def stated(nth: int, at: int) -> bool:
        result = unescaped(lookups[at].result)
        known = set(_forms(asked[at]))
        forms = (form for form in _forms(result) if form not in known)
        keys = (match[1] for match in _YES_OR_NO.finditer(result))
        looked_for: Iterable[Form | str] = chain(
            (near for form in forms for near in _near(form)),
            (stem for key in keys for stem in _stems(key)),
        )
        return says(looked_for, nth)

    unused = [(nth, at) for nth, at in enumerate(calls) if not stated(nth, at)]
    fresh = _first_words(session, {at for _, at in unused}, asked)
    return [at for nth, at in unused if not says(fresh[at], nth)]


def _texts_after(session: Session, calls: Sequence[int], asked: Mapping[int, str]) -> Iterator[str]:
    """What is said and passed on after each of these calls, up to the next one."""
    ends = [at + 1 for at in calls[1:]]
    for start, end in zip(calls, [*ends, None], strict=True):
        steps = enumerate(session.steps[start + 1 : end], start=start + 1)
        texts = [_said(step) if isinstance(step, Message) else asked[at] for at, step in steps]
        yield "\n".join([*texts, *([] if end else [session.final_analysis])])


def _forms(text: str) -> Iterator[Form]:
    """The text's numbers, dates and times, each in a form that does not depend on its writing."""
    return chain(_numbers(text), _dates(text), _times(text))


def _numbers(text: str) -> Iterator[Form]:
    for run in quantities.runs(text):
        for value, _ in quantities.values(*run):
            if abs(value) >= _LEAST_NUMBER or value % 1:
                yield "number", round(log(abs(value)) / _BUCKET), 0


def _dates(text: str) -> Iterator[Form]:
    """Month and day; both readings of 05/06/2024."""
    for match in _NUMERIC_DATE.finditer(text):
        parts = [int(part) for part in _DIGITS.findall(match[0])]
        one, other = parts[1:3] if match[1] else parts[:2]
        yield "date", one, other
        if not match[1]:
            yield "date", other, one
    for match in _DAY.finditer(text):
        if month := _month_beside(text, *match.span()):
            yield "date", month, int(match[1])


def _times(text: str) -> Iterator[Form]:
    for match in _TIME.finditer(text):
        hour, *minutes = map(int, _DIGITS.findall(match[0])[:2])
        if half := match[1] or match[2]:
            hour = hour % 12 + 12 * (half in "pP")
        yield "time", hour, minutes[0] if minutes else 0


def _month_beside(text: str, start: int, end: int) -> int | None:
    """Of "May 20" and "20th of May"."""
    before = text[max(0, start - _BESIDE_DAY) : start].rstrip(" .").rpartition(" ")[2]
    after = text[end : end + _BESIDE_DAY].lstrip(" .").removeprefix("of ")
    return _MONTHS.get(before[:3].lower()) or _MONTHS.get(after[:3].lower())


def _near(form: Form) -> Iterator[Form]:
    yield form
    if form[0] == "number":
        kind, bucket, _ = form
        yield kind, bucket - 1, 0
        yield kind, bucket + 1, 0


def _stems(text: str) -> set[str]:
    """How the text's longer words begin; cut, insured and insurance are the same."""
    longer = {word for word in runs(text, _LETTERS) if len(word) >= _WORD_CHARACTERS}
    return {word[:_STEM_CHARACTERS].lower() for word in longer}


def _names(arguments: Mapping[str, Any]) -> Iterator[str]:
    """What the arguments are about: their values, and the identifiers within longer ones."""
    waiting: list[Any] = [*arguments.values()]
    while waiting:
        match waiting.pop():
            case dict() as inner:
                waiting += inner.values()
            case list() as inner:
                waiting += inner
            case str() as text:
                name = text.strip().lower()
                if len(name) <= _NAME_CHARACTERS and name not in _NO_NAMES:
                    yield name
                yield from (word.lower() for word in words(text) if is_distinctive(word))
            case bool() | None:
                pass
            case number if _LEAST_NUMBER <= abs(number) < _MOST_NUMBER:
                yield str(number)
            case _:
                pass


def _first_words(
    session: Session, calls: AbstractSet[int], asked: Mapping[int, str]
) -> dict[int, set[str]]:
    """Of each of these calls, the words that its result was the first to bring."""
    seen = _stems(encode(dict(session.alert_data)))
    fresh: dict[int, set[str]] = {}
    for at, step in enumerate(session.steps[: max(calls, default=-1) + 1]):
        if isinstance(step, ToolCall):
            seen |= _stems(asked[at])
            own = _stems(unescaped(step.result))
            if at in calls:
                fresh[at] = own - seen
            seen |= own
        else:
            seen |= _stems(step.text)
    return fresh
