"""Are the numbers of the analysis in the evidence? Formula: docs/scoring.md."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from pydantic import Field

from consumer.scoring.quantities import (
    MONTHS,
    PERCENT,
    TRAILING,
    claimed,
    pattern_for,
    readings,
    runs,
    step,
    values,
)
from consumer.scoring.scorers import advice
from consumer.scoring.scorers.base import NotApplicable, Params, Result, Subject
from consumer.scoring.scorers.derived import Figure, Key, derived
from consumer.scoring.scorers.grounding import CITATION, Words, share
from consumer.scoring.text import Spot, blank

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
    advice_verbs: Words = Field(default=advice.VERBS, description="at the beginning of a clause")
    advice_words: Words = Field(default=advice.WORDS, description="before what is recommended")
    advice_headings: Words = Field(default=advice.HEADINGS, description="above recommendations")


_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_BEFORE_YEAR = re.compile(r"[.,]?\s{1,3}(?:[^\W\d]{1,12}[.,]?\s){0,3}(?:19|20)\d\d\b")
_ORDINAL = re.compile(
    r"^[ \t>*_+-]*\d{1,3}(?:\.\d{1,3})*[.)](?=[\s*_])|^#+[ \t*_]*\d{1,3}(?:\.\d{1,3})*[.):]?(?=\s)",
    re.MULTILINE,
)
_IN_PARENTHESES = re.compile(r"\((\d{1,2})\)(?=\s)")
_INSIDE = ("/", "\\", "@", "#", ":", ".")
_MINUS = frozenset("-\u2212")
_CURRENCIES = frozenset("$\u20ac\u00a3\u00a5")
_AROUND_WORDS = " .,\u00a0"
_BEFORE_JUDGEMENT = frozenset("(:=*|,")
_WINDOW = 60


def numeric_grounding(subject: Subject, params: NumericGrounding) -> Result:
    """Numbers of the analysis that occur in the evidence, over numbers mentioned (docs/scoring.md).

    A number occurs if the evidence has one from which it differs by at most 2 %; a percentage, if
    it differs by at most 0.5 points (0.95 is 95 %). 512Mi is 512 and 536870912; 1,234 is 1234. What
    is rounded, counted or computed from seen numbers is as good. No claims: years, dates, times,
    list ordinals, section numbers and citation marks, versions, addresses, hashes and other
    identifiers with digits, what is recommended, and the agent's own confidence.
    """
    text = subject.own_text
    figures = list(_figures(text, params, _advice(text, params)))
    if not figures:
        return NotApplicable("the analysis mentions no numbers")
    first: dict[Key, Spot] = {}
    for figure in figures:
        first.setdefault(figure.key, figure.spot)
    evidence = runs(subject.evidence)
    found = _found(first, evidence, params)
    if len(found) < len(first):
        found = derived(
            subject,
            figures,
            found,
            evidence,
            thoughts=lambda: list(_figures(subject.thoughts, params, None)),
            occurring=lambda keys: _found(keys, evidence, params),
        )
    wrong = [spot for key, spot in first.items() if key not in found]
    return share(text, wrong, len(first))


def _found(
    claims: Iterable[Key], evidence: Iterable[tuple[str, ...]], params: NumericGrounding
) -> set[Key]:
    """Those claims that one of the evidence's numbers is near to."""
    claims = list(claims)
    plain = _Wanted(value for values, percent in claims if not percent for value in values)
    percents = _Wanted(value for values, percent in claims if percent for value in values)
    _compare(evidence, plain, percents, params)
    found = {False: plain.found(), True: percents.found()}
    return {key for key in claims if not found[key[1]].isdisjoint(key[0])}


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


def _compare(
    evidence: Iterable[tuple[str, ...]],
    plain: _Wanted,
    percents: _Wanted,
    params: NumericGrounding,
) -> None:
    """Cover what the evidence's numbers are near to."""
    for run in evidence:
        for value, is_fraction in values(*run):
            plain.cover(value, abs(value) * params.relative_tolerance)
            if percents.values:
                percents.cover(value, params.percentage_points)
            if percents.values and is_fraction:
                percents.cover(100 * value, params.percentage_points)


def _advice(text: str, params: NumericGrounding) -> advice.Advice:
    return advice.Advice(
        text,
        verbs=params.advice_verbs,
        words=params.advice_words,
        headings=params.advice_headings,
    )


def _figures(
    text: str, params: NumericGrounding, advised: advice.Advice | None
) -> Iterator[Figure]:
    """The numbers that claim something, in the order of the text, but for what is advised."""
    shown = _without_marks(text)
    for match in pattern_for(shown).finditer(shown):
        start, tail = match.start(), match[3] or ""
        run = match[0].removesuffix(tail).rstrip(TRAILING)
        before = shown[max(0, start - _WINDOW) : start]
        after = shown[start + len(run) : start + len(run) + _WINDOW]
        if before.endswith(_INSIDE) or _no_claim(run, tail, before, after, params):
            continue
        pieces = [(piece, meant) for piece in claimed(run) if (meant := readings(piece, tail))]
        if not pieces or (advised and advised.holds(start, start + len(run))):
            continue
        sign = -1 if before[-1:] in _MINUS else 1
        for piece, meant in pieces:
            yield Figure(
                values=tuple(sign * value for value in meant),
                percent=tail in PERCENT,
                step=step(piece),
                plain=run.isdecimal() and not tail and before[-1:] not in _CURRENCIES,
                spot=(start, start + len(run)),
            )


def _without_marks(text: str) -> str:
    """The text with blanks for its ordinals and citations, `(1)` where there is a `(2)` too."""
    text = blank(CITATION, blank(_ORDINAL, text)) if "[" in text else blank(_ORDINAL, text)
    if "(2)" not in text:
        return text
    follows = 1

    def unless_it_follows(match: re.Match[str]) -> str:
        nonlocal follows
        if int(match[1]) not in {1, follows}:
            return match[0]
        follows = int(match[1]) + 1
        return " " * len(match[0])

    return _IN_PARENTHESES.sub(unless_it_follows, text)


def _no_claim(run: str, tail: str, before: str, after: str, params: NumericGrounding) -> bool:
    """Whether it is a year, an ordinal ("Card 2:"), an own judgement, or a day of the month."""
    if _YEAR.fullmatch(run) and not tail and before[-1:] not in _CURRENCIES:
        return True
    if _ends_with(before, params.part_words) or (len(run) <= 2 and after.startswith(":")):
        return True
    if tail in PERCENT or run.startswith("0.") or "/" in run:
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
