"""Scorers of the final analysis' wording: what it says and how. Formulas: docs/scoring.md."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Self

from pydantic import Field, model_validator

from consumer.scoring.patterns import Pattern, find
from consumer.scoring.scorers.base import (
    EXCERPT_CHARACTERS,
    MAX_PLACES,
    NO_ANALYSIS,
    Measured,
    NotApplicable,
    Params,
    Place,
    Result,
    Subject,
    in_analysis,
    missing,
)
from consumer.scoring.scorers.keywords import (
    MAX_PATTERN_SPOTS,
    PATTERN_PREFIX,
    Keyword,
    Text,
    folded,
)
from consumer.scoring.scorers.prose import (
    Script,
    bare,
    count_words,
    is_error,
    lines,
    pieces,
    sentences,
    share_of_scripts,
    spaced,
    titles,
)

# Names and code are in other letters in any language.
LEAST_OF_SCRIPTS = 0.5
NO_PROSE = NotApplicable("the final analysis has no prose")


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
    """Required dimensions that are mentioned, over required (docs/scoring.md)."""
    text = subject.text or Text("")
    absent = [d.name for d in params.dimensions if not text.has(*d.any_of)]
    return Measured(1 - len(absent) / len(params.dimensions), _missing(absent))


def _missing(names: Sequence[str]) -> tuple[Place, ...]:
    return tuple(map(missing, names[:MAX_PLACES]))


class Structure(Params):
    """What the analysis must and must not contain, and its length in characters.

    `required_sections` are keywords, looked for in names of sections (headings, bold lead-ins,
    `Name:` lines); there, `^` and `$` of a pattern are the name's. `prohibited` are patterns.
    `scripts` are those that half of its letters or more must be of; with `refuse_errors` it must
    not be an error message, such as a program's or a model's refusal: either one is refused whole.
    """

    required_sections: tuple[Keyword, ...] = ()
    prohibited: tuple[Pattern, ...] = ()
    min_characters: int | None = Field(default=None, ge=1)
    max_characters: int | None = Field(default=None, ge=1)
    scripts: tuple[Script, ...] = ()
    refuse_errors: bool = False

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        low, high = self.min_characters, self.max_characters
        if not any(self.model_dump().values()):
            raise ValueError(f"nothing to check: give one of {', '.join(type(self).model_fields)}")
        if low and high and low > high:
            raise ValueError(f"min_characters {low} is above max_characters {high}")
        return self


def structure(subject: Subject, params: Structure) -> Result:
    """Share of checks met: each required section, prohibited element and length bound is one.

    The length is without white space around the text. An empty analysis is 0, and so is one in
    another script, or an error message, where that is asked. (docs/scoring.md)
    """
    text = subject.text
    if text is None:
        return Measured(0.0, _missing(params.required_sections))
    if refused := _refused(subject.own_text, params):
        return Measured(0.0, (Place(step=None, excerpt=refused),))
    absent = _absent_sections(text, params.required_sections)
    present = [spot for p in params.prohibited if (spot := find(_bare(p), text.raw))]
    lengths = list(_lengths(len(text.raw.strip()), params))
    wrong = [place for place in lengths if place]
    total = len(params.required_sections) + len(params.prohibited) + len(lengths)
    met = total - len(absent) - len(present) - len(wrong)
    places = (*in_analysis(text.raw, present), *wrong, *_missing(absent))
    return Measured(met / total if total else 1.0, places[:MAX_PLACES])


def _refused(text: str, params: Structure) -> str:
    """Why the analysis is none at all; empty where it is one."""
    if params.refuse_errors and is_error(text):
        return f"an error message: {text.strip()}"[:EXCERPT_CHARACTERS]
    if params.scripts and (share := share_of_scripts(text, params.scripts)) < LEAST_OF_SCRIPTS:
        return f"{share:.0%} of its letters are {' or '.join(params.scripts)}"
    return ""


def _bare(pattern: str) -> str:
    """The pattern without a prefix that is needed only among keywords."""
    return pattern.removeprefix(PATTERN_PREFIX)


def _absent_sections(text: Text, required: Sequence[str]) -> list[str]:
    sections = Text("\n|\n".join(titles(text.raw)))
    return [name for name in required if not sections.has(_by_line(name))]


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

    Every occurrence is a hit, of every phrase that it is one of. (docs/scoring.md)
    """
    text = subject.text or Text("")
    absent = [keyword for keyword in params.required_disclaimers if not text.has(keyword)]
    enough = max(params.limit, MAX_PLACES)
    banned = dict.fromkeys(params.banned)
    hits = [spot for keyword in banned for spot in islice(text.spots(keyword), enough)]
    places = (*_missing(absent), *in_analysis(text.raw, sorted(hits)))[:MAX_PLACES]
    score = 0.0 if absent else max(0.0, 1 - len(hits) / params.limit)
    return Measured(score, places)


class Readability(Params):
    """Words a sentence: on average, and from where one is long.

    In scripts without spaces, `characters_per_word` characters are a word: by default 2 in Han and
    kana, 5 in Thai, Lao, Khmer and Burmese.
    """

    good_mean_words: float = Field(default=20, gt=0)
    bad_mean_words: float = Field(default=40, gt=0)
    long_words: float = Field(default=40, gt=0)
    characters_per_word: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.good_mean_words >= self.bad_mean_words:
            raise ValueError("good_mean_words must be below bad_mean_words")
        return self


def readability(subject: Subject, params: Readability) -> Result:
    """Mean of two: by mean sentence length, 1 up to 20 words, 0 from 40, linear between;
    and 1 - share of sentences over 40 words. Code, tables and headings are left out.
    (docs/scoring.md)
    """
    text = subject.text
    if text is None:
        return NO_ANALYSIS
    sized = [(count_words(s, params.characters_per_word), s) for s in sentences(text.raw)]
    if not sized:
        return NO_PROSE
    mean = sum(size for size, _ in sized) / len(sized)
    share_long = sum(size > params.long_words for size, _ in sized) / len(sized)
    by_mean = _rising(-mean, worst=-params.bad_mean_words, best=-params.good_mean_words)
    score = (by_mean + 1 - share_long) / 2
    return Measured(score, _longest(sized, params.good_mean_words) if score < 1 else ())


def _rising(value: float, *, worst: float, best: float) -> float:
    """0 up to `worst`, 1 from `best`, linear between."""
    return min(1.0, max(0.0, (value - worst) / (best - worst)))


def _longest(sized: Sequence[tuple[float, str]], good: float) -> tuple[Place, ...]:
    """The longest sentences, of those with more words than is good."""
    longest = heapq.nlargest(MAX_PLACES, (pair for pair in sized if pair[0] > good))
    return tuple(
        Place(step=None, excerpt=f"{words:.0f} words: {sentence}"[:EXCERPT_CHARACTERS])
        for words, sentence in longest
    )


class Conciseness(Params):
    """Shares of distinct content words that are worth 0 and 1, and what a content word is.

    That is a word of at least `min_characters` that is no stop word; in scripts without spaces, any
    `characters_per_word` characters (by default as for readability).
    """

    poor: float = Field(default=0.3, ge=0, le=1)
    good: float = Field(default=0.6, ge=0, le=1)
    min_characters: int = Field(default=4, ge=1)
    stopwords: frozenset[str] = frozenset()
    characters_per_word: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.poor >= self.good:
            raise ValueError("poor must be below good")
        return self


def conciseness(subject: Subject, params: Conciseness) -> Result:
    """Distinct content words per word: 0 up to 0.3, 1 from 0.6, linear between (docs/scoring.md).

    A long text repeats more words than a short one; code blocks are left out.
    """
    text = subject.text
    if text is None:
        return NO_ANALYSIS
    return _conciseness(folded("\n".join(lines(text.raw))), params)


def _conciseness(prose: str, params: Conciseness) -> Result:
    words = [word if word.isalnum() else bare(word) for word in spaced(prose)]
    stopwords = set(map(folded, params.stopwords))
    content = Counter(w for w in words if len(w) >= params.min_characters and w not in stopwords)
    unspaced = Counter(pieces(prose, params.characters_per_word))
    total = len(words) + unspaced.total()
    if not total:
        return NO_PROSE
    content.update(unspaced)
    score = _rising(len(content) / total, worst=params.poor, best=params.good)
    return Measured(score, _repeated(content) if score < 1 else ())


def _repeated(words: Counter[str]) -> tuple[Place, ...]:
    """The words that are said most often."""
    often = [(word, count) for word, count in words.most_common(MAX_PLACES) if count > 1]
    return tuple(
        Place(step=None, excerpt=f"{count} times: {word}"[:EXCERPT_CHARACTERS])
        for word, count in often
    )
