"""Do the proper names of the analysis occur in the evidence? Formula: docs/scoring.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from consumer.scoring.scorers.base import (
    EXCERPT_CHARACTERS,
    MAX_PLACES,
    Measured,
    NotApplicable,
    Params,
    Place,
    Result,
    Subject,
)
from consumer.scoring.scorers.prose import sentences


class NameGrounding(Params):
    """`known` are names that need no evidence, without regard to case."""

    known: tuple[str, ...] = ()
    least_words: int = Field(default=2, ge=2, le=5)


_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_BETWEEN = re.compile(r" (?:(?:of|and|de|&) )?")
_WORD_CHARACTERS = 3
NO_NAMES = NotApplicable("the analysis mentions no names of several words")


def name_grounding(subject: Subject, params: NameGrounding) -> Result:
    """Names of several capitalised words, such as a company's, that occur in the evidence, over
    those mentioned (docs/scoring.md).

    Only running text is read, no headings and tables; a sentence's first word is no part of a name,
    nor is a word that is written small anywhere. A name occurs if each of its words does: a name
    that is shortened, or put together otherwise, is none that somebody made up.
    """
    found = list(_names(subject.own_text, params))
    if not found:
        return NO_NAMES
    evidence = subject.evidence
    small = {w for text in (subject.own_text, evidence) for w in _WORD.findall(text) if w.islower()}
    there = {word.lower() for word in _WORD.findall(evidence)} | {
        word for name in params.known for word in name.lower().split()
    }
    names: dict[str, str] = {}
    for name, sentence in found:
        words = [w for w in _WORD.findall(name.lower()) if w not in small]
        if len(words) >= params.least_words:
            names.setdefault(" ".join(words), sentence)
    if not names:
        return NO_NAMES
    wrong = [(n, s) for n, s in names.items() if not there.issuperset(n.split())]
    places = tuple(
        Place(step=None, excerpt=f"{name}: {sentence}"[:EXCERPT_CHARACTERS])
        for name, sentence in wrong[:MAX_PLACES]
    )
    return Measured(1 - len(wrong) / len(names), places)


def _names(text: str, params: NameGrounding) -> Iterator[tuple[str, str]]:
    """Each run of capitalised words, with its sentence."""
    for sentence in sentences(text):
        words = list(_WORD.finditer(sentence))
        run: list[re.Match[str]] = []
        for word in words[1:]:
            joined = not run or _BETWEEN.fullmatch(sentence, run[-1].end(), word.start())
            if run and not joined:
                yield from _joined(sentence, run, params)
                run = []
            if _capitalised(word[0]):
                run.append(word)
            elif word[0] not in {"of", "and", "de"}:
                yield from _joined(sentence, run, params)
                run = []
        yield from _joined(sentence, run, params)


def _joined(
    sentence: str, run: list[re.Match[str]], params: NameGrounding
) -> Iterator[tuple[str, str]]:
    if len(run) >= params.least_words:
        yield sentence[run[0].start() : run[-1].end()], sentence


def _capitalised(word: str) -> bool:
    return len(word) >= _WORD_CHARACTERS and word[0].isupper() and word[1:].islower()
