"""Scorers of the final analysis' wording: what it says and how. Formulas: scoring.md.

Keywords come from the profile, so any language's text can be scored. Everything here takes time
linear in the text.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from consumer.scoring.patterns import MAX_CHARACTERS, Pattern, find, find_all
from consumer.scoring.scorers.base import (
    EXCERPT_CHARACTERS,
    MAX_PLACES,
    Measured,
    NotApplicable,
    Params,
    Place,
    Result,
    Subject,
    in_analysis,
)
from consumer.scoring.text import storable

Spot = tuple[int, int]

NO_ANALYSIS = NotApplicable("there is no final analysis")
NO_PROSE = NotApplicable("the final analysis has no prose")

# --- Keywords ------------------------------------------------------------------------------------

PATTERN_PREFIX = "pattern:"
# Thai, Lao, Myanmar, Khmer, kana, Han: written without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_UNSPACED}]+")
# Hangul has spaces, but particles are attached to the word: a keyword is found inside of one.
_ATTACHING = re.compile(f"[{_UNSPACED}\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
# Patterns may be slow to find all places; no formula needs more of them than this.
MAX_PATTERN_SPOTS = 1000


def _folded(text: str) -> str:
    """The text without case, emphasis marks and typographic variants; of the same length."""
    # U+0130 is the only letter whose lower case is longer; a final sigma is a sigma.
    lowered = text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")
    plain = lowered.replace("*", " ").replace("`", " ")
    return plain.replace("\u2019", "'").replace("\u2011", "-")


@lru_cache(maxsize=4096)
def _literals(keyword: str) -> tuple[re.Pattern[str], ...]:
    """The keyword over any white space, in both Unicode forms of its accented letters."""
    forms = dict.fromkeys(unicodedata.normalize(form, keyword) for form in ("NFC", "NFD"))
    return tuple(re.compile(r"\s+".join(map(re.escape, _folded(f).split()))) for f in forms)


def _usable(keyword: str) -> str:
    if not keyword.startswith(PATTERN_PREFIX):
        if not _folded(keyword).split():
            raise ValueError("a keyword needs at least one letter, digit or sign")
    elif find(keyword.removeprefix(PATTERN_PREFIX), "") is not None:
        raise ValueError("the pattern matches the empty text, so it is found everywhere")
    return keyword


Keyword = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_usable)]
"""Words, found without regard to case, or `pattern:` and a regular expression (RE2 syntax).

Words are found as whole words; inside of others only in scripts that put no space between words,
and in Hangul. Any white space stands for any other; emphasis marks (`*`, backticks) are ignored.
"""


def _word_character(character: str) -> bool:
    known = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return known and _ATTACHING.match(character) is None


@dataclass(frozen=True)
class Text:
    """A text to look for keywords in; spots are (start, end) in its characters."""

    raw: str

    @cached_property
    def folded(self) -> str:
        return _folded(self.raw)

    def spots(self, keyword: str) -> Iterator[Spot]:
        """Where the keyword occurs, without overlaps; not sorted if it has two Unicode forms."""
        if keyword.startswith(PATTERN_PREFIX):
            found = find_all(keyword.removeprefix(PATTERN_PREFIX), self.raw)
            return islice(found, MAX_PATTERN_SPOTS)
        matches = chain.from_iterable(form.finditer(self.folded) for form in _literals(keyword))
        return (match.span() for match in matches if self._whole(*match.span()))

    def all(self, keywords: Iterable[str]) -> list[Spot]:
        """Where any of the keywords occurs, sorted."""
        return sorted({spot for keyword in keywords for spot in self.spots(keyword)})

    def first(self, keywords: Iterable[str]) -> Spot | None:
        """Where the first of the keywords occurs."""
        spots = (spot for keyword in keywords for spot in islice(self.spots(keyword), 1))
        return min(spots, default=None)

    def has(self, keyword: str) -> bool:
        return next(self.spots(keyword), None) is not None

    def _whole(self, start: int, end: int) -> bool:
        return not (self._joined(start) or self._joined(end))

    def _joined(self, at: int) -> bool:
        if not 0 < at < len(self.folded):
            return False
        return _word_character(self.folded[at - 1]) and _word_character(self.folded[at])


def text_of(subject: Subject) -> Text | None:
    """The final analysis; None if it is empty."""
    return Text(storable(subject.analysis)) if subject.analysis.strip() else None


def missing(what: str) -> Place:
    """A place for what is nowhere."""
    return Place(step=None, excerpt=f"missing: {what}"[:EXCERPT_CHARACTERS])


# --- Lines, sentences, words ---------------------------------------------------------------------

_FENCE = re.compile(r"(?:```+|~~~+)\s*(\w*)")
_BULLET = re.compile(r"(?:[-*+•‣·]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"#{1,6}\s+(.+)")
_BOLD = re.compile(r"(?:\*\*|__)(\S.{0,79}?)(?:\*\*|__)")
_NAME = re.compile(r"([^:\uff1a|]{1,40})(?::(?=\s|$)|\uff1a)")
_NUMBER = re.compile(r"^(?:\d{1,3}[.)]){1,4}\d{0,3}\s+")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_TITLE_CHARACTERS = 120
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*_”’»]*\s+|[。！？।॥؟۔]+\s*")  # noqa: RUF001
# A shorter line is not broken by an editor's margin: its end is an end.
_WRAPPED_CHARACTERS = 60
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_PUNCTUATION = "".join(
    chr(code)
    for code in chain(range(0x3100), range(0xFE10, 0xFFF0))
    if unicodedata.category(chr(code))[0] in "PS"
)


def _lines(text: str) -> Iterator[str]:
    """The stripped lines; those of code blocks are empty. A block of Markdown is no code."""
    open_blocks: list[bool] = []
    for line in map(str.strip, text.splitlines()):
        fence = _FENCE.match(line)
        in_code = any(open_blocks)
        if fence is None:
            yield "" if in_code else line
            continue
        if open_blocks and not fence[1]:
            open_blocks.pop()
        elif not in_code:
            open_blocks.append(fence[1].lower() not in {"markdown", "md"})
        yield ""


def _titles(text: str) -> Iterator[str]:
    """Names of sections: Markdown or underlined headings, bold lead-ins, `Name:` lines."""
    before = ""
    for line in _lines(text):
        start = _BULLET.match(line)
        lead = line[start.end() :] if start else line
        found = _HEADING.match(line) or _BOLD.match(lead) or _NAME.match(lead)
        if found:
            yield _name(found[1])
        elif before and len(before) <= _TITLE_CHARACTERS and _UNDERLINE.fullmatch(line):
            yield _name(before)
        before = line


def _name(title: str) -> str:
    return _NUMBER.sub("", title[:_TITLE_CHARACTERS].strip(" #*_"), count=1).strip(" #*_:\uff1a")


def _paragraphs(text: str) -> Iterator[str]:
    """Running text; tables, headings and rules are left out, list items stand for themselves."""
    lines: list[str] = []
    for line in _lines(text):
        bullet = _BULLET.match(line)
        apart = not line or line[0] in "|#" or _UNDERLINE.fullmatch(line) is not None
        if lines and (apart or bullet or len(lines[-1]) < _WRAPPED_CHARACTERS):
            yield " ".join(lines)
            lines = []
        if not apart:
            lines.append(line[bullet.end() :] if bullet else line)
    yield " ".join(lines)


def sentences(text: str) -> Iterator[str]:
    """Sentences of any script, list items and short lines without a full stop among them."""
    for paragraph in _paragraphs(text):
        yield from filter(_LETTER_OR_DIGIT.search, _SENTENCE_END.split(paragraph))


def _spaced(text: str) -> Iterator[str]:
    """Words between spaces, without those of scripts that have no spaces."""
    return filter(_LETTER_OR_DIGIT.search, _RUN.sub(" ", text).split())


def count_words(text: str, characters_per_word: float) -> float:
    """Words between spaces, and one for so many characters of scripts that have no spaces."""
    unspaced = sum(len(run) for run in _RUN.findall(text))
    return sum(1 for _ in _spaced(text)) + unspaced / characters_per_word


def _pieces(text: str, size: int) -> Iterator[str]:
    """Text of scripts without spaces, in pieces of `size` characters."""
    for run in _RUN.findall(text):
        yield from (run[at : at + size] for at in range(0, len(run), size))


# --- The scorers ---------------------------------------------------------------------------------


class Dimension(Params):
    """Something the analysis must speak of: any of these keywords tells that it does."""

    name: str = Field(min_length=1, max_length=200)
    any_of: tuple[Keyword, ...] = Field(min_length=1)


class Coverage(Params):
    """The required dimensions."""

    dimensions: tuple[Dimension, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [dimension.name for dimension in self.dimensions]
        if len(set(names)) < len(names):
            raise ValueError(f"two dimensions have the same name: {names}")
        return self


def coverage(subject: Subject, params: Coverage) -> Result:
    """Required dimensions that are mentioned, over required (scoring.md)."""
    text = text_of(subject) or Text("")
    absent = [d.name for d in params.dimensions if not any(map(text.has, d.any_of))]
    return Measured(1 - len(absent) / len(params.dimensions), _missing(absent))


def _missing(names: Sequence[str]) -> tuple[Place, ...]:
    return tuple(map(missing, names[:MAX_PLACES]))


class Structure(Params):
    """What the analysis must and must not contain, and its length in characters.

    `required_sections` are keywords, looked for in names of sections (headings, bold lead-ins,
    `Name:` lines); there, `^` and `$` of a pattern are the name's. `prohibited` are patterns.
    """

    required_sections: tuple[Keyword, ...] = ()
    prohibited: tuple[Pattern, ...] = ()
    min_characters: int | None = Field(default=None, ge=1)
    max_characters: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        low, high = self.min_characters, self.max_characters
        if not (self.required_sections or self.prohibited or low or high):
            raise ValueError(
                "nothing to check: give required_sections, prohibited, min_characters "
                "or max_characters"
            )
        if low and high and low > high:
            raise ValueError(f"min_characters {low} is above max_characters {high}")
        return self


def structure(subject: Subject, params: Structure) -> Result:
    """Share of checks met: each required section, prohibited element and length bound is one.

    The length is without white space around the text. An empty analysis is 0. (scoring.md)
    """
    text = text_of(subject)
    if text is None:
        return Measured(0.0, _missing(params.required_sections))
    absent = _absent_sections(text, params.required_sections)
    present = [spot for p in params.prohibited if (spot := find(_bare(p), text.raw))]
    lengths = list(_lengths(len(text.raw.strip()), params))
    wrong = [place for place in lengths if place]
    total = len(params.required_sections) + len(params.prohibited) + len(lengths)
    met = total - len(absent) - len(present) - len(wrong)
    places = (*in_analysis(text.raw, present), *wrong, *_missing(absent))
    return Measured(met / total, places[:MAX_PLACES])


def _bare(pattern: str) -> str:
    """The pattern without a prefix that is needed only among keywords."""
    return pattern.removeprefix(PATTERN_PREFIX)


def _absent_sections(text: Text, required: Sequence[str]) -> list[str]:
    titles = Text("\n|\n".join(_titles(text.raw)))
    return [name for name in required if not titles.has(_by_line(name))]


def _by_line(keyword: str) -> str:
    if not keyword.startswith(PATTERN_PREFIX):
        return keyword
    return f"{PATTERN_PREFIX}(?m){_bare(keyword)}"


def _lengths(length: int, params: Structure) -> Iterator[Place | None]:
    """One for each given bound: None where it is kept."""
    if params.min_characters is not None:
        short = length < params.min_characters
        yield _wrong_length(length, f"at least {params.min_characters}") if short else None
    if params.max_characters is not None:
        long = length > params.max_characters
        yield _wrong_length(length, f"at most {params.max_characters}") if long else None


def _wrong_length(length: int, wanted: str) -> Place:
    return Place(step=None, excerpt=f"{length} characters, {wanted} wanted")


class Policy(Params):
    """Banned phrases, how many hits are as bad as it gets, and disclaimers that must occur."""

    banned: tuple[Keyword, ...] = ()
    limit: int = Field(default=3, ge=1, le=MAX_PATTERN_SPOTS)
    required_disclaimers: tuple[Keyword, ...] = ()

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        if not (self.banned or self.required_disclaimers):
            raise ValueError("nothing to check: give banned or required_disclaimers")
        return self


def policy(subject: Subject, params: Policy) -> Result:
    """1 - hits/limit of banned phrases, not below 0; a required disclaimer missing: 0.

    Every occurrence is a hit, of every phrase that it is one of. (scoring.md)
    """
    text = text_of(subject) or Text("")
    absent = [keyword for keyword in params.required_disclaimers if not text.has(keyword)]
    enough = max(params.limit, MAX_PLACES)
    banned = dict.fromkeys(params.banned)
    hits = [spot for keyword in banned for spot in islice(text.spots(keyword), enough)]
    places = (*_missing(absent), *in_analysis(text.raw, sorted(hits)))[:MAX_PLACES]
    score = 0.0 if absent else max(0.0, 1 - len(hits) / params.limit)
    return Measured(score, places)


class Readability(Params):
    """Words a sentence: on average, and from where one is long.

    In scripts without spaces, `characters_per_word` characters are a word.
    """

    good_mean_words: float = Field(default=20, gt=0)
    bad_mean_words: float = Field(default=40, gt=0)
    long_words: float = Field(default=40, gt=0)
    characters_per_word: float = Field(default=2, gt=0)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.good_mean_words >= self.bad_mean_words:
            raise ValueError("good_mean_words must be below bad_mean_words")
        return self


def readability(subject: Subject, params: Readability) -> Result:
    """Mean of two: by mean sentence length, 1 up to 20 words, 0 from 40, linear between;
    and 1 - share of sentences over 40 words. Code, tables and headings are left out. (scoring.md)
    """
    text = text_of(subject)
    if text is None:
        return NO_ANALYSIS
    sized = [(count_words(s, params.characters_per_word), s) for s in sentences(text.raw)]
    if not sized:
        return NO_PROSE
    mean = sum(size for size, _ in sized) / len(sized)
    share_long = sum(size > params.long_words for size, _ in sized) / len(sized)
    by_mean = _rising(-mean, worst=-params.bad_mean_words, best=-params.good_mean_words)
    longest = heapq.nlargest(MAX_PLACES, (s for s in sized if s[0] > params.good_mean_words))
    score = (by_mean + 1 - share_long) / 2
    return Measured(score, tuple(_sentence(s, n) for n, s in longest) if score < 1 else ())


def _rising(value: float, *, worst: float, best: float) -> float:
    """0 up to `worst`, 1 from `best`, linear between."""
    return min(1.0, max(0.0, (value - worst) / (best - worst)))


def _sentence(sentence: str, words: float) -> Place:
    return Place(step=None, excerpt=f"{words:.0f} words: {sentence}"[:EXCERPT_CHARACTERS])


class Conciseness(Params):
    """Shares of distinct content words that are worth 0 and 1, and what a content word is.

    That is a word of at least `min_characters` that is no stop word; in scripts without spaces, any
    `characters_per_word` characters.
    """

    poor: float = Field(default=0.3, ge=0, le=1)
    good: float = Field(default=0.6, ge=0, le=1)
    min_characters: int = Field(default=4, ge=1)
    stopwords: frozenset[str] = frozenset()
    characters_per_word: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.poor >= self.good:
            raise ValueError("poor must be below good")
        return self


def conciseness(subject: Subject, params: Conciseness) -> Result:
    """Distinct content words per word: 0 up to 0.3, 1 from 0.6, linear between (scoring.md).

    A long text repeats more words than a short one; code blocks are left out.
    """
    text = text_of(subject)
    if text is None:
        return NO_ANALYSIS
    return _conciseness(_folded("\n".join(_lines(text.raw))), params)


def _conciseness(prose: str, params: Conciseness) -> Result:
    words = [word.strip(_PUNCTUATION) for word in _spaced(prose)]
    stopwords = set(map(_folded, params.stopwords))
    content = Counter(w for w in words if len(w) >= params.min_characters and w not in stopwords)
    pieces = Counter(_pieces(prose, params.characters_per_word))
    total = len(words) + pieces.total()
    if not total:
        return NO_PROSE
    content.update(pieces)
    score = _rising(len(content) / total, worst=params.poor, best=params.good)
    return Measured(score, _repeated(content) if score < 1 else ())


def _repeated(words: Counter[str]) -> tuple[Place, ...]:
    """The words that are said most often."""
    often = [(word, count) for word, count in words.most_common(MAX_PLACES) if count > 1]
    return tuple(
        Place(step=None, excerpt=f"{count} times: {word}"[:EXCERPT_CHARACTERS])
        for word, count in often
    )
