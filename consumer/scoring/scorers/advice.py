"""Where a text says what to do, or how long something takes: no claims about the data.

"Raise the limit to 512Mi", "replicas should be 3", all under "Recommendations", "within the last
24 hours", "will be refunded in 5 to 7 days". But "because it uses 490Mi" tells what is, anywhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, lru_cache
from typing import NamedTuple

# They ask for something where they begin a clause.
VERBS = (
    *("add", "adjust", "alert", "allocate", "allow", "apply", "block", "bump", "cap", "change"),
    *("configure", "decrease", "double", "ensure", "extend", "give", "halve", "increase", "keep"),
    *("limit", "lower", "make", "move", "pin", "provision", "raise", "reduce", "reserve", "resize"),
    *("restart", "retry", "rollback", "roll", "run", "scale", "set", "shorten", "shrink", "start"),
    *("switch", "triple", "try", "tune", "update", "upgrade", "use", "wait"),
)
# They make advice of what follows them in the sentence.
WORDS = (
    *("should", "recommend", "recommended", "recommends", "recommendation", "suggest", "suggested"),
    *("suggestion", "propose", "proposed", "consider", "advise", "ought to", "e.g.", "for example"),
)
HEADINGS = (
    *(
        "recommendation",
        "recommendations",
        "recommended actions",
        "recommended steps",
        "mitigation",
    ),
    *("next steps", "action items", "remediation", "remediation steps", "proposed fix", "actions"),
)

_HEADING = re.compile(r"^[ \t]*(?:#+[ \t]|\*\*(?=[^*\n]{1,80}\*\*:?[ \t]*$))[^\n]*", re.MULTILINE)
_AROUND_TITLE = "#*_:>. \t\r0123456789)"
_SENTENCE = re.compile(r"[.!?;]\s|\n|[\u3002\uff01\uff1f]|\A")
_AND = r"(?:(?:and|or|then|please)\s){0,2}"
_CLAUSE = re.compile(rf"(?:[:,]\s|\s(?=(?:and|or|then|please)\s)){_AND}", re.IGNORECASE)
# "Use of memory" asks for nothing.
_FIRST_WORD = re.compile(
    rf"[\s>*_`+\d.()\[\]-]{{0,20}}{_AND}([^\W\d_]{{1,30}})\b(?!\sof\b)", re.IGNORECASE
)
# After these the sentence tells what is, or what was.
_FACT = re.compile(
    r"\b(?:because|since|as|while|whereas|currently|now|was|were|is|are|has|had|used|uses|reached|"
    r"exceeded|rose|fell|grew|lost|went|failed|from|than|instead of|but)\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?:\s?(?:to|or|-|\u2013)\s?\d{1,3})?[\s-]?(?:business\s|working\s)?"
    r"(?:second|minute|min|hour|hr|day|week|month|year)s?\b",
    re.IGNORECASE,
)
_WINDOW_OF = re.compile(
    r"\b(?:within|last|past|next|previous|first|every)\s(?:the\s)?(?:last\s|past\s|next\s)?"
    r"(?:\d{1,3}\s?(?:to|or|-|\u2013)\s?)?\Z",
    re.IGNORECASE,
)
_BEFORE_CHARACTERS = 40
_WILL = re.compile(
    r"\b(?:will|shall|would|can expect|may take|should)\b|['\u2019]ll\b", re.IGNORECASE
)
_A_DAY = re.compile(r"24[\s-]hours?\b", re.IGNORECASE)


class Advice:
    """A text's advice, told by the verbs and words that introduce it and by headings.

    Asked in the order of the text: what tells of a sentence is looked for once.
    """

    def __init__(
        self,
        text: str,
        *,
        verbs: tuple[str, ...],
        words: tuple[str, ...],
        headings: tuple[str, ...],
    ) -> None:
        self._text = text
        self._verbs = frozenset(verbs)
        self._titles = frozenset(headings)
        self._words = _words_pattern(words)
        self._sentences = [match.end() for match in _SENTENCE.finditer(text)]
        self._in_sentence = (-1, _Marks([], [], []))

    def holds(self, start: int, end: int) -> bool:
        """Whether the figure at this place is advice, a forecast, or the length of a window."""
        nth = bisect_right(self._sentences, start) - 1
        marks = self._marks(nth)
        if _TIME.match(self._text, end):
            before = self._text[max(self._sentences[nth], start - _BEFORE_CHARACTERS) : start]
            if _last(marks.forecasts, start) >= 0 or _WINDOW_OF.search(before):
                return True
        fact = _last(marks.facts, start)
        under = bisect_right(self._headings, (start,)) - 1
        return (
            _last(marks.advice, start) > fact
            or (under >= 0 and self._headings[under][1] and fact < 0)
            or _A_DAY.match(self._text, start) is not None
        )

    def _marks(self, nth: int) -> _Marks:
        """Those of this sentence."""
        if self._in_sentence[0] != nth:
            start, end = [*self._sentences[nth : nth + 2], len(self._text)][:2]
            clauses = [start, *_ends(_CLAUSE, self._text, start, end)]
            firsts = filter(None, (_FIRST_WORD.match(self._text, at, end) for at in clauses))
            asked = [first.end() for first in firsts if first[1].lower() in self._verbs]
            marks = _Marks(
                facts=_ends(_FACT, self._text, start, end),
                forecasts=_ends(_WILL, self._text, start, end),
                advice=sorted(asked + _ends(self._words, self._text, start, end)),
            )
            self._in_sentence = (nth, marks)
        return self._in_sentence[1]

    @cached_property
    def _headings(self) -> list[tuple[int, bool]]:
        return [
            (match.start(), match[0].strip(_AROUND_TITLE).lower() in self._titles)
            for match in _HEADING.finditer(self._text)
        ]


class _Marks(NamedTuple):
    """Where words end that tell of what is, of what will be, and of what is advised."""

    facts: list[int]
    forecasts: list[int]
    advice: list[int]


@lru_cache(maxsize=64)
def _words_pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    listed = "|".join(map(re.escape, words)) or r"(?!)"
    return re.compile(rf"(?<!\w)(?:{listed})(?!\w)", re.IGNORECASE)


def _ends(pattern: re.Pattern[str], text: str, start: int, end: int) -> list[int]:
    return [match.end() for match in pattern.finditer(text, start, end)]


def _last(places: list[int], at: int) -> int:
    """The last of these places, in order, that is not behind this one; -1 if there is none."""
    found = bisect_right(places, at)
    return places[found - 1] if found else -1
