"""Keywords that profiles give, and where a text holds them. Any language's; in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Annotated

from pydantic import AfterValidator, Field

from consumer.scoring.patterns import MAX_CHARACTERS, find, find_all
from consumer.scoring.text import LETTERS_AND_DIGITS, Spot, only, runs

PATTERN_PREFIX = "pattern:"
# Thai, Lao, Myanmar, Khmer, kana, Han: written without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
# Hangul has spaces, but particles are attached to the word: a keyword is found inside of one.
_ATTACHING = re.compile(f"[{_UNSPACED}\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
# Latin letters and digits: no keyword's run of them is found inside of a longer one.
_IN_RUNS = only(LETTERS_AND_DIGITS)
# Patterns may be slow to find all places; no formula needs more of them than this.
MAX_PATTERN_SPOTS = 1000


def folded(text: str) -> str:
    """The text without case, emphasis marks and typographic variants; of the same length."""
    # U+0130 is the only letter whose lower case is longer; a final sigma is a sigma.
    lowered = text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")
    plain = lowered.replace("*", " ").replace("`", " ")
    return plain.replace("\u2019", "'").replace("\u2011", "-")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Keywords as they are looked for: words over any white space, and patterns.

    A run of a keyword's tells quickly where it is not. One without has the empty run: every text's.
    """

    by_run: Mapping[str, Sequence[re.Pattern[str]]]
    patterns: tuple[str, ...]


@lru_cache(maxsize=4096)
def _wanted(keywords: tuple[str, ...]) -> _Wanted:
    """Those that are no patterns in both Unicode forms of their accented letters."""
    patterns = [keyword for keyword in keywords if keyword.startswith(PATTERN_PREFIX)]
    plain = [keyword for keyword in keywords if not keyword.startswith(PATTERN_PREFIX)]
    forms = (unicodedata.normalize(form, keyword) for keyword in plain for form in ("NFC", "NFD"))
    by_run: dict[str, list[re.Pattern[str]]] = {}
    for text in map(folded, dict.fromkeys(forms)):
        longest = max(runs(text, _IN_RUNS), key=len, default="")
        pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
        by_run.setdefault(longest, []).append(pattern)
    return _Wanted(by_run, tuple(pattern.removeprefix(PATTERN_PREFIX) for pattern in patterns))


def _usable(keyword: str) -> str:
    if not keyword.startswith(PATTERN_PREFIX):
        if not folded(keyword).split():
            raise ValueError("a keyword needs at least one letter, digit or sign")
    elif find(keyword.removeprefix(PATTERN_PREFIX), "") is not None:
        raise ValueError("the pattern matches the empty text, so it is found everywhere")
    return keyword


Keyword = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_usable)]
"""Words, found without regard to case, or `pattern:` and a regular expression (RE2 syntax).

Words are found as whole words; inside of others only in scripts that put no space between words,
and in Hangul. Any white space stands for any other; emphasis marks (`*`, backticks) are ignored.
"""
Keywords = tuple[Keyword, ...]


def _word_character(character: str) -> bool:
    known = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return known and _ATTACHING.match(character) is None


@dataclass(frozen=True)
class Text:
    """A text to look for keywords in; spots are (start, end) in its characters."""

    raw: str

    @cached_property
    def folded(self) -> str:
        """The text as it is compared: see `folded`."""
        return folded(self.raw)

    @cached_property
    def _runs(self) -> frozenset[str]:
        return frozenset(["", *runs(self.folded, _IN_RUNS)])

    def spots(self, keyword: str) -> Iterator[Spot]:
        """Where the keyword occurs, without overlaps; not sorted if it has two Unicode forms."""
        return chain.from_iterable(self._each((keyword,)))

    def all(self, keywords: tuple[str, ...]) -> list[Spot]:
        """Where any of the keywords occurs, sorted."""
        return sorted(set(chain.from_iterable(self._each(keywords))))

    def first(self, keywords: tuple[str, ...]) -> Spot | None:
        """Where the first of the keywords occurs."""
        firsts = (spot for spots in self._each(keywords) for spot in islice(spots, 1))
        return min(firsts, default=None)

    def has(self, *any_of: str) -> bool:
        """Whether one of the keywords occurs."""
        return any(True for spots in self._each(any_of) for _ in spots)

    def _each(self, keywords: tuple[str, ...]) -> Iterator[Iterator[Spot]]:
        """The spots of each keyword that may occur."""
        wanted = _wanted(keywords)
        for run in sorted(wanted.by_run.keys() & self._runs):  # the same order in every process
            yield from map(self._literal_spots, wanted.by_run[run])
        for pattern in wanted.patterns:
            yield islice(find_all(pattern, self.raw), MAX_PATTERN_SPOTS)

    def _literal_spots(self, literal: re.Pattern[str]) -> Iterator[Spot]:
        spots = (match.span() for match in literal.finditer(self.folded))
        return (spot for spot in spots if self._whole(*spot))

    def _whole(self, start: int, end: int) -> bool:
        return not (self._joined(start) or self._joined(end))

    def _joined(self, at: int) -> bool:
        if not 0 < at < len(self.folded):
            return False
        return _word_character(self.folded[at - 1]) and _word_character(self.folded[at])
