"""Does the final analysis contradict itself? Formula: docs/scoring.md.

The keywords are English unless the profile gives others.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

from consumer.scoring.scorers.base import (
    MAX_PLACES,
    NO_ANALYSIS,
    Measured,
    NotApplicable,
    Params,
    Result,
    Subject,
    in_analysis,
)
from consumer.scoring.scorers.keywords import Keywords, Text
from consumer.scoring.text import Spot

Side = Literal["low", "high"]
# How far after its label a severity or a verdict stands ("Severity of the incident: low"), and how
# far before a word its negation ("not at all malicious").
REACH_CHARACTERS = 40
NEGATION_CHARACTERS = 20

_SENTENCE_END = re.compile(r"[.!?…](?=\s)|[。！？।॥؟۔]|\n\s*(?:\n|[-*+•|#]|\d{1,3}[.)]\s)")  # noqa: RUF001
# What ends a clause: a negation or label before it says nothing of what follows.
_CLAUSE_END = re.compile(r"[.!?;,:(。！？،؛、，；]")  # noqa: RUF001
_LEVEL_END = re.compile(r"[.!?;。！？]")  # noqa: RUF001
# Names with a digit or an inner mark: pod-1, web/api, s_77, 10.0.0.7. No plain words, no figures.
_TOKEN = re.compile(r"\w(?:[\w.\-/:@]{0,252}\w)?", re.ASCII)
_ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_FIGURE = re.compile(r"\d{4}-\d\d-\d\d|[\d:.,/\-]+[a-z]{0,3}$")
_DISTINCTIVE = re.compile(r"\d|\w[.\-/:@_]\w")


def _identifies(token: str) -> bool:
    if _ADDRESS.match(token):
        return True
    return _FIGURE.match(token) is None and _DISTINCTIVE.search(token) is not None


_CONFIDENCE = r"pattern:\bconfidence(?:\s+level|\s+score)?[\s:|*_]{1,12}(?:is\s+|of\s+)?"
_NO_ACTION = (
    r"pattern:\bno\s+(?:action|remediation|response)\s+(?:is\s+|was\s+)?"
    r"(?:needed|required|necessary|recommended|warranted)\b"
)


class InternalConsistency(Params):
    """What tells the sides that contradict each other; an empty list leaves its side out.

    confidence: any of `high_confidence`, none of `qualified_confidence`, against `gaps`.
    state: `gone` against `running`, said of the same identifier, except in sentences with any of
    `not_now` (what shall be or was before).
    severity: `malicious` against low severity or `no_action`, `benign` against high severity or
    `strong_action`. A level counts next to one of `severity_labels`, unless one of `reported`
    stands before that (the alert's own severity). Where both verdicts are mentioned, the one next
    to one of `verdict_labels` counts. Words after one of `negations` don't.
    """

    high_confidence: Keywords = (
        _CONFIDENCE + r"(?:very\s+|extremely\s+)?high\s*(?:[-\x{2013}\x{2014}.,;(|*_]|\n|$)",
        _CONFIDENCE + r"(?:9\d|100)\s*%",
        r"pattern:\b(?:9\d|100)\s*%\s+(?:confiden|certain|sure)",
        "high confidence", "full confidence", "absolute certainty",
        "absolutely certain", "completely certain", "no doubt", "without doubt",
        "beyond doubt",
    )  # fmt: skip
    qualified_confidence: Keywords = (
        "medium confidence", "moderate confidence", "low confidence", "less confident",
        r"pattern:(?:^|[.:;,*]\s*|\n)(?:medium|moderate|low)\s+(?:that|for|on|in)\s",
        _CONFIDENCE + r"(?:medium|moderate|low)\b",
    )  # fmt: skip
    gaps: Keywords = (
        "could not verify", "could not be verified", "couldn't verify", "unable to verify",
        "could not confirm", "could not be confirmed", "couldn't confirm", "unable to confirm",
        "could not determine", "could not be determined", "unable to determine",
        "could not check", "could not be checked", "could not access", "unable to access",
        "could not retrieve", "unable to retrieve", "not verified", "unverified", "not confirmed",
        "unconfirmed", "not investigated", "insufficient data", "insufficient evidence",
        "not enough evidence", "not enough data", "no evidence was", "inconclusive",
        "check failed", "checks failed", "tool failed", "tools failed", "all tool calls failed",
        "no data available", "logs were not available", "logs were unavailable",
        "data was unavailable", "missing data",
    )  # fmt: skip
    gone: Keywords = (
        "terminated", "deleted", "not found", "no longer exists", "does not exist",
        "doesn't exist", "no longer running", "not running", "has been removed", "was removed",
        "is gone",
    )  # fmt: skip
    running: Keywords = (
        "confirmed running", "confirmed to be running", "is running", "are running",
        "still running", "is still active", "currently running", "is up and running",
    )  # fmt: skip
    not_now: Keywords = (
        "should", "must", "shall", "will be", "can be", "could be", "to be deleted",
        "to be terminated", "recommend", "recommended", "again", "restarted", "recreated",
        "rescheduled", "replaced", "previously", "earlier", "before", "until", "if", "once",
    )  # fmt: skip
    malicious: Keywords = ("malicious", "true positive", "confirmed attack")
    benign: Keywords = ("benign", "false positive", "legitimate activity")
    verdict_labels: Keywords = ("verdict", "classification", "classified", "determination")
    severity_labels: Keywords = ("severity", "risk level", "risk rating", "threat level")
    reported: Keywords = ("alert", "alert's", "original", "reported", "initial")
    low_level: Keywords = ("low", "minor", "informational", "negligible", "none")
    high_level: Keywords = ("critical", "high", "severe", "emergency")
    no_action: Keywords = (
        _NO_ACTION,
        "action: none", "actions: none", "without action",
    )  # fmt: skip
    strong_action: Keywords = ("ban", "banned", "permanently block", "suspend the account")
    negations: Keywords = (
        "no", "not", "isn't", "wasn't", "aren't", "don't", "doesn't", "never", "without",
        "neither", "nor", "rather than", "instead of",
    )  # fmt: skip


class _Analysis:
    """The analysis, and the places all checks need, each found once, where one asks for it."""

    def __init__(self, text: Text, params: InternalConsistency) -> None:
        self.text = text
        self._params = params

    @cached_property
    def _ends(self) -> list[int]:
        return [match.end() for match in _SENTENCE_END.finditer(self.text.raw)]

    @cached_property
    def _negations(self) -> list[int]:
        return [end for _, end in self.text.all(self._params.negations)]

    @cached_property
    def other_times(self) -> set[int]:
        """The sentences of what is not now."""
        return {self.sentence(start) for start, _ in self.text.all(self._params.not_now)}

    def sentence(self, at: int) -> int:
        """The number of the sentence at this character."""
        return bisect_right(self._ends, at)

    def stated(self, keywords: Keywords) -> list[Spot]:
        """Where the keywords stand without a negation before them."""
        spots = self.text.all(keywords)
        return [(start, end) for start, end in spots if not self._negated(start)]

    def _negated(self, start: int) -> bool:
        before = bisect_right(self._negations, start)
        if not before or start - self._negations[before - 1] > NEGATION_CHARACTERS:
            return False
        return _CLAUSE_END.search(self.text.raw, self._negations[before - 1], start) is None

    @cached_property
    def identifiers(self) -> list[Spot]:
        found = _TOKEN.finditer(self.text.folded)
        return [match.span() for match in found if _identifies(match[0])]

    def subject(self, spot: Spot) -> str | None:
        """The identifier in the sentence: the nearest before the spot, else the next one after."""
        after = bisect_left(self.identifiers, spot)
        for number in (after - 1, after):
            if 0 <= number < len(self.identifiers):
                start, end = self.identifiers[number]
                if self.sentence(start) == self.sentence(spot[0]):
                    return self.text.folded[start:end]
        return None


# A check's answer: None if it could not be made, else the places of a contradiction, if any.
Check = list[Spot] | None


def internal_consistency(subject: Subject, params: InternalConsistency) -> Result:
    """1 - contradictions found / checks made (docs/scoring.md): stated confidence vs. stated gaps;
    "terminated/not found" vs. "confirmed running"; classification vs. severity.

    A check is made when at least one of its sides is in the analysis.
    """
    text = subject.text
    if text is None:
        return NO_ANALYSIS
    analysis = _Analysis(text, params)
    checks = (_confidence(analysis, params), _states(analysis, params), _severity(analysis, params))
    made = [check for check in checks if check is not None]
    if not made:
        return NotApplicable("the final analysis states nothing that could contradict itself")
    found = [check for check in made if check]
    spots = [spot for check in found for spot in check][:MAX_PLACES]
    return Measured(1 - len(found) / len(made), in_analysis(text.raw, spots))


def _confidence(analysis: _Analysis, params: InternalConsistency) -> Check:
    high = analysis.stated(params.high_confidence)
    gaps = analysis.stated(params.gaps)
    qualified = analysis.text.first(params.qualified_confidence)
    if not (high or gaps or qualified):
        return None
    return [high[0], gaps[0]] if high and gaps and not qualified else []


def _states(analysis: _Analysis, params: InternalConsistency) -> Check:
    gone, running = (
        dict(_subjects(analysis, analysis.stated(keywords)))
        for keywords in (params.gone, params.running)
    )
    if not (gone or running):
        return None
    both = [name for name in gone if name in running]
    return [spot for name in both[:MAX_PLACES] for spot in (gone[name], running[name])]


def _subjects(analysis: _Analysis, spots: Sequence[Spot]) -> Iterator[tuple[str, Spot]]:
    for spot in spots:
        now = analysis.sentence(spot[0]) not in analysis.other_times
        if now and (name := analysis.subject(spot)):
            yield name, spot


def _severity(analysis: _Analysis, params: InternalConsistency) -> Check:
    verdicts = _sides(analysis, params.benign, params.malicious)
    verdict = _agreed(_labelled(analysis, params.verdict_labels, (), verdicts) or verdicts)
    levels = _sides(analysis, params.low_level, params.high_level)
    severity = _agreed(_labelled(analysis, params.severity_labels, params.reported, levels))
    action = _agreed(_sides(analysis, params.no_action, params.strong_action))
    if not (verdict or severity or action):
        return None
    against = [said for said in (severity, action) if said and verdict and said[1] != verdict[1]]
    return [verdict[0], *(spot for spot, _ in against)] if verdict and against else []


Said = tuple[Spot, Side]


def _sides(analysis: _Analysis, low: Keywords, high: Keywords) -> list[Said]:
    sides: tuple[tuple[Side, Keywords], ...] = (("low", low), ("high", high))
    return sorted((spot, side) for side, words in sides for spot in analysis.stated(words))


def _agreed(said: Sequence[Said]) -> Said | None:
    """What is said, if it is one side only."""
    return said[0] if len({side for _, side in said}) == 1 else None


def _labelled(
    analysis: _Analysis, labels: Keywords, not_after: Keywords, said: Sequence[Said]
) -> list[Said]:
    """For each label the word after it, within reach, or the one directly before it."""
    if not said:
        return []
    others = [end for _, end in analysis.text.all(not_after)]
    starts = [start for (start, _), _ in said]
    spots = (spot for spot in analysis.text.all(labels) if not _follows(others, spot[0]))
    found = []
    for start, end in spots:
        after = bisect_left(starts, end)
        if after and start - said[after - 1][0][1] == 1:
            found.append(said[after - 1])
        elif after < len(said) and _in_reach(analysis.text.raw, end, starts[after]):
            found.append(said[after])
    return found


def _follows(ends: Sequence[int], start: int) -> bool:
    """Does the word at `start` come directly after one that ends at one of `ends`?"""
    before = bisect_right(ends, start)
    return before > 0 and start - ends[before - 1] <= 1


def _in_reach(text: str, end: int, start: int) -> bool:
    return start - end <= REACH_CHARACTERS and _LEVEL_END.search(text, end, start) is None
