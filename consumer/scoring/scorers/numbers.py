"""Are the numbers of the analysis in the evidence? Formula: scoring.md."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from math import isfinite

from pydantic import Field

from consumer.scoring.scorers.base import NotApplicable, Params, Result, Subject
from consumer.scoring.scorers.grounding import DURATION, Words, share
from consumer.scoring.text import Spot, blank

# A number's readings (512Mi: 512 and 536870912), and whether it is a percentage.
Claim = tuple[tuple[float, ...], bool]

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
    *("sep", "sept", "oct", "nov", "dec", "年", "月", "日"),
)
PARTS = ("section", "step", "stage", "phase", "part", "chapter", "figure", "table", "appendix")


class NumericGrounding(Params):
    """How near is near enough, and which words make a number no claim about the world."""

    relative_tolerance: float = Field(default=0.02, ge=0, lt=1)
    percentage_points: float = Field(default=0.5, ge=0, le=100)
    date_words: Words = Field(default=MONTHS, description="next to a day of the month")
    part_words: Words = Field(default=PARTS, description="before a section number")
    own_words: Words = Field(
        default=("confidence", "confident", "certainty"),
        description="the agent's own judgement: 'Confidence: high (90 %)' is no claim",
    )


# A run of digits and what is attached to it, not inside a word and not after "word-"; then a unit
# after a blank. The digit comes before its look-behinds, so that the search skips to digits.
# Groups: all of it, the minus sign before it, the unit.
_RUN = re.compile(
    r"(\d(?<![\dA-Za-z_]\d)(?<![\dA-Za-z_)\]][-.@#]\d)(?:(?<=([-\u2212])\d))?"
    "(?:\\d{0,2}(?:[ '\u2019\u00a0\u2009\u202f]\\d{3}){1,6}(?!\\d)(?:[.,]\\d{1,9})?[A-Za-z]{0,4}"
    "|[\\dA-Za-z.,:/_\u066b\u066c\u2013-]*)"
    "(?:[ \u00a0\u202f]?(%|\uff05|\u066a|per ?cent|pct"
    "|(?:[kKMGT]i?B?|thousand|million|billion)(?![\\dA-Za-z])))?)"
)
_ASCII_RUN = re.compile(_RUN.pattern, re.ASCII)  # finds the same in ASCII, sooner
_PIECE = re.compile(
    "(\\d[\\d.,_ '\u2019\u00a0\u2009\u202f\u066b\u066c]*?)([eE][+-]?\\d{1,3})?([A-Za-z]{0,4})"
)
_SIMPLE = re.compile(r"\d{1,20}(?:\.\d{1,20})?")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}\b|\d{1,2}:\d{2}(?!\d)|\d{1,2}/\d{1,2}/\d{4}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_BEFORE_YEAR = re.compile(r"[.,]?\s{1,3}(?:[^\W\d]{1,12}[.,]?\s){0,3}(?:19|20)\d\d\b")
_ORDINAL = re.compile(
    r"^[ \t>*_+-]*\d{1,3}(?:\.\d{1,3})*[.)](?=[\s*_])|^#+[ \t*_]*\d{1,3}(?:\.\d{1,3})*[.):]?(?=\s)",
    re.MULTILINE,
)
_NOT_DIGITS = str.maketrans("\u066b\u066c", ".,", "_ '\u2019\u00a0\u2009\u202f")
_SEPARATORS = re.compile("[:/\u2013-]")
_INSIDE = ("/", "\\", "@", "#", ":", ".")
_TRAILING = ".,:/_-\u2013"
_MINUS = frozenset("-\u2212")
_CURRENCIES = frozenset("$\u20ac\u00a3\u00a5")
_AROUND_WORDS = " .,\u00a0"
_BEFORE_JUDGEMENT = frozenset("(:=*|,")
_PERCENT = frozenset({"%", "\uff05", "\u066a", "percent", "per cent", "pct"})
# 3rd is an ordinal, 5pm a time.
_NO_UNITS = frozenset({"st", "nd", "rd", "th", "am", "pm", "AM", "PM"})
_MAX_DIGITS = 40
# Of longer runs the values are not kept: their texts would fill the memory.
_KEPT_CHARACTERS = 100
_LARGE_CHARACTERS = 1_000_000
_WINDOW = 60
# Of units that scale; 15GB is meant either way. 500m are half a core, 1500ms are 1.5 s.
_FACTORS: dict[str, tuple[float, ...]] = {"m": (1e-3,), "ms": (1e-3,)}
for _n, _prefixes in enumerate(("kK", "M", "G", "T"), start=1):
    for _prefix in _prefixes:
        _FACTORS |= {_prefix: (1e3**_n,), f"{_prefix}B": (1e3**_n, 1024.0**_n)}
        _FACTORS |= {f"{_prefix}i": (1024.0**_n,), f"{_prefix}iB": (1024.0**_n,)}
_FACTORS |= {"thousand": (1e3,), "million": (1e6,), "billion": (1e9,)}


def numeric_grounding(subject: Subject, params: NumericGrounding) -> Result:
    """Numbers of the analysis that occur in the evidence, over numbers mentioned (scoring.md).

    A number occurs if the evidence has one from which it differs by at most 2 %; a percentage, if
    it differs by at most 0.5 points (0.95 is 95 %). 512Mi is 512 and 536870912; 1,234 is 1234.
    No claims: years, dates, times, list ordinals and section numbers, versions, addresses, hashes
    and other identifiers with digits, and the agent's own confidence.
    """
    text = subject.own_text
    claims: dict[Claim, Spot] = {}
    for claim, spot in _claims(text, params):
        claims.setdefault(claim, spot)
    if not claims:
        return NotApplicable("the analysis mentions no numbers")
    plain = _Wanted(value for values, percent in claims if not percent for value in values)
    percents = _Wanted(value for values, percent in claims if percent for value in values)
    _compare(subject.evidence, plain, percents, params)
    found = {False: plain.found(), True: percents.found()}
    wrong = [spot for (values, pct), spot in claims.items() if found[pct].isdisjoint(values)]
    return share(text, wrong, len(claims))


class _Wanted:
    """Sorted values, and which of them ranges covered. A range costs one search, however wide."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(set(values))
        self.steps = [0] * (len(self.values) + 1)

    def cover(self, value: float, tolerance: float) -> None:
        # Binary floating point must not turn 98 away from 100 +- 2.
        tolerance += 1e-9 * abs(value)
        self.steps[bisect_left(self.values, value - tolerance)] += 1
        self.steps[bisect_right(self.values, value + tolerance)] -= 1

    def found(self) -> set[float]:
        covers = accumulate(self.steps)
        return {value for value, count in zip(self.values, covers, strict=False) if count}


def _compare(evidence: str, plain: _Wanted, percents: _Wanted, params: NumericGrounding) -> None:
    """Cover what the evidence's numbers are near to; many of them occur again and again."""
    for run in _runs(evidence):
        read = _evidence_values if len(run[0]) <= _KEPT_CHARACTERS else _values
        for value, is_fraction in read(*run):
            plain.cover(value, abs(value) * params.relative_tolerance)
            if percents.values:
                percents.cover(value, params.percentage_points)
            if percents.values and is_fraction:
                percents.cover(100 * value, params.percentage_points)


def _runs(evidence: str) -> set[tuple[str, ...]]:
    """The groups of every match, each once."""
    pattern = _pattern(evidence)
    if len(evidence) < _LARGE_CHARACTERS:
        return set(pattern.findall(evidence))
    # One call for all of it is quicker, but no other thread runs until it is over.
    return {match.groups("") for match in pattern.finditer(evidence)}


def _pattern(text: str) -> re.Pattern[str]:
    return _ASCII_RUN if text.isascii() else _RUN


def _values(run: str, minus: str, tail: str) -> tuple[tuple[float, bool], ...]:
    """Every value that a run of the evidence may mean, and whether it may be a share of 1."""
    if _SIMPLE.fullmatch(run) and not minus:  # most are; the rest of this takes ten times longer
        return ((float(run), "." in run and float(run) <= 1),)
    run = run.removesuffix(tail).rstrip(_TRAILING)
    pieces = [run] if _PIECE.fullmatch(run) else _SEPARATORS.split(run)
    if _DATE.match(run) or ("-" in run and len(pieces) > 2):
        return ()
    values: list[float] = []
    fractions: set[float] = set()
    for piece in pieces:
        if match := _PIECE.fullmatch(piece):
            own = _readings(match, tail)
            # A list without blanks looks like one number with thousands separators.
            listed = re.split(r"[^\d.]", match[1])
            parts = (_figure(part) for part in listed if part and len(listed) > 1)
            values += own + [part for part in parts if part is not None]
            fractions |= {value for value in own if "." in piece and value <= 1}
        elif DURATION.fullmatch(piece):
            values += [float(part) for part in re.findall(r"\d{1,9}", piece)]
    if tail in _PERCENT:
        values += [value / 100 for value in values]
    signs = (1, -1) if minus else (1,)
    return tuple({(sign * value, value in fractions) for value in values for sign in signs})


_evidence_values = lru_cache(maxsize=1 << 16)(_values)


def _claims(text: str, params: NumericGrounding) -> Iterator[tuple[Claim, Spot]]:
    text = blank(_ORDINAL, text)
    for match in _pattern(text).finditer(text):
        start, tail = match.start(), match[3] or ""
        run = match[0].removesuffix(tail).rstrip(_TRAILING)
        before = text[max(0, start - _WINDOW) : start]
        after = text[start + len(run) : start + len(run) + _WINDOW]
        if before.endswith(_INSIDE) or _no_claim(run, tail, before, after, params):
            continue
        sign = -1 if before[-1:] in _MINUS else 1
        for piece in _claimed(run):
            if readings := _readings(piece, tail):
                values = tuple(sign * value for value in readings)
                yield (values, tail in _PERCENT), match.span()


def _no_claim(run: str, tail: str, before: str, after: str, params: NumericGrounding) -> bool:
    """Whether it is a year, an ordinal ("Card 2:"), an own judgement, or a day of the month."""
    if _YEAR.fullmatch(run) and not tail and before[-1:] not in _CURRENCIES:
        return True
    if _ends_with(before, params.part_words) or (len(run) <= 2 and after.startswith(":")):
        return True
    if tail in _PERCENT or run.startswith("0.") or "/" in run:
        return _own_judgement(before, after, params.own_words)
    dates = params.date_words
    near_date = _ends_with(before, dates) or _starts_with(after, dates) or _BEFORE_YEAR.match(after)
    return bool(near_date and _DAY.fullmatch(run))


def _ends_with(before: str, words: tuple[str, ...]) -> bool:
    """Whether the last word is one of these, or its plural."""
    text = before.rstrip(_AROUND_WORDS).lower()
    for end in (text, text.removesuffix("s")):
        if end.endswith(words):
            return any(
                end.endswith(word) and not end[: -len(word)][-1:].isalpha() for word in words
            )
    return False


def _starts_with(after: str, words: tuple[str, ...]) -> bool:
    text = after.lstrip(_AROUND_WORDS).lower()
    return text.startswith(words) and any(
        text.startswith(word) and not re.match("[a-z]", text[len(word) :]) for word in words
    )


def _own_judgement(before: str, after: str, words: tuple[str, ...]) -> bool:
    """90 % confidence; confidence is 90 %; Confidence: very high (90 %)."""
    if after.lstrip(_AROUND_WORDS + "%*").lower().startswith(words):
        return True
    line = before.rpartition("\n")[2].lower()
    for word in words:
        _, said, between = line.rpartition(word)
        if said and not any(map(str.isdigit, between)):
            return len(between.split()) <= 1 or between.rstrip()[-1:] in _BEFORE_JUDGEMENT
    return False


def _claimed(run: str) -> list[re.Match[str]]:
    """The numbers of a run: one, or two of a range; none of an identifier, date or time."""
    if whole := _PIECE.fullmatch(run):
        return [whole]
    pieces = _SEPARATORS.split(run)
    if ":" in run or len(pieces) > 2 or _DATE.match(run):
        return []
    # 200MB/s and 3-node: the letters are a unit.
    matches = [_PIECE.fullmatch(piece) for piece in pieces if not piece.isalpha()]
    return [match for match in matches if match] if all(matches) else []


def _readings(piece: re.Match[str], tail: str) -> list[float]:
    """The number as written, and scaled by its unit. None if it is an ordinal or no number."""
    value = _figure(piece[1])
    if value is None or piece[3] in _NO_UNITS:
        return []
    value *= float(f"1{piece[2] or 'e0'}")
    factors = (1.0, *_FACTORS.get(piece[3] or tail, ()))
    return [value * factor for factor in factors if isfinite(value * factor)]


def _figure(written: str) -> float | None:
    """1,234.5 and 1.234,5 and 1 234 and 0,5; None for 1.2.3, and for what no double can hold."""
    digits = written.translate(_NOT_DIGITS)
    if "," in digits and digits.rfind(".") < digits.rfind(","):
        grouped = "." not in digits and _GROUPED.fullmatch(digits)
        digits = digits.replace(".", "").replace(",", "" if grouped else ".")
    digits = digits.replace(",", "")
    return float(digits) if len(digits) <= _MAX_DIGITS and digits.count(".") <= 1 else None
