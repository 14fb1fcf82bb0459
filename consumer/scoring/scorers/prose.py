"""Lines, section titles, sentences and words of an analysis in Markdown. In linear time."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import chain
from typing import Literal

from consumer.scoring.scorers.keywords import UNSPACED_RUN

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
Script = Literal[
    "latin", "greek", "cyrillic", "armenian", "georgian", "hebrew", "arabic", "devanagari",
    "bengali", "tamil", "telugu", "thai", "lao", "khmer", "myanmar", "ethiopic", "hangul", "han",
    "hiragana", "katakana",
]  # fmt: skip
_SCRIPTS = {"han": "CJK"}  # as Unicode names its characters
_ALPHABETIC = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # and without spaces
# How error messages begin, and how long they are at most: what begins with a status may be about
# one, so it is an error only where hardly anything follows.
_ERRORS = (
    (
        600,
        re.compile(
            r"[\w.]{0,60}(?:error|exception)\s?:|traceback \(most recent|fatal:|panic:|"
            r"\{\s?\"(?:error|detail)\"|(?:i'm |i am )?sorry,? (?:but )?i|i can(?:no|')t |"
            "i am unable|as an ai|\u0e02\u0e2d\u0e2d\u0e20\u0e31\u0e22|"
            "\u0e40\u0e01\u0e34\u0e14\u0e02\u0e49\u0e2d\u0e1c\u0e34\u0e14\u0e1e\u0e25\u0e32\u0e14",
            re.IGNORECASE,
        ),
    ),
    (
        100,
        re.compile(
            r"(?:HTTP |error )?[45]\d\d\b|internal server error|service unavailable|bad gateway|"
            "gateway time-?out|too many requests|rate limit",
            re.IGNORECASE,
        ),
    ),
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_PUNCTUATION = "".join(
    chr(code)
    for code in chain(range(0x3100), range(0xFE10, 0xFFF0))
    if unicodedata.category(chr(code))[0] in "PS"
)


@lru_cache(maxsize=1)  # several scorers ask for those of the same analysis, one after the other
def lines(text: str) -> tuple[str, ...]:
    """The stripped lines; those of code blocks are empty. A block of Markdown is no code."""
    return tuple(_lines(text))


def _lines(text: str) -> Iterator[str]:
    open_blocks: list[bool] = []
    for line in map(str.strip, text.splitlines()):
        fence = _FENCE.match(line)
        in_code = open_blocks[-1:] == [True]  # in code no block is opened: only the last can be
        if fence is None:
            yield "" if in_code else line
            continue
        if open_blocks and not fence[1]:
            open_blocks.pop()
        elif not in_code:
            open_blocks.append(fence[1].lower() not in {"markdown", "md"})
        yield ""


def titles(text: str) -> Iterator[str]:
    """Names of sections: Markdown or underlined headings, bold lead-ins, `Name:` lines."""
    before = ""
    for line in lines(text):
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
    open_lines: list[str] = []
    for line in lines(text):
        bullet = _BULLET.match(line)
        apart = not line or line[0] in "|#" or _UNDERLINE.fullmatch(line) is not None
        if open_lines and (apart or bullet or len(open_lines[-1]) < _WRAPPED_CHARACTERS):
            yield " ".join(open_lines)
            open_lines = []
        if not apart:
            open_lines.append(line[bullet.end() :] if bullet else line)
    yield " ".join(open_lines)


def sentences(text: str) -> Iterator[str]:
    """Sentences of any script, list items and short lines without a full stop among them."""
    for paragraph in _paragraphs(text):
        yield from filter(_LETTER_OR_DIGIT.search, _SENTENCE_END.split(paragraph))


def spaced(text: str) -> list[str]:
    """Words between spaces, without those of scripts that have no spaces."""
    words = (text if text.isascii() else UNSPACED_RUN.sub(" ", text)).split()
    # `isalnum` accepts most of them, many times as fast as a search.
    return [word for word in words if word.isalnum() or _LETTER_OR_DIGIT.search(word)]


def _unspaced(text: str) -> list[str]:
    return [] if text.isascii() else UNSPACED_RUN.findall(text)


def bare(word: str) -> str:
    """The word without punctuation at its ends."""
    # Most have none, or ASCII's; to look through all of Unicode's takes its time.
    if not (word[0].isalnum() and word[-1].isalnum()):
        word = word.strip(string.punctuation)
    if not word or (word[0].isalnum() and word[-1].isalnum()):
        return word
    return word.strip(_PUNCTUATION)


def count_words(text: str, characters_per_word: float | None = None) -> float:
    """Words between spaces, and one for so many characters of scripts that have no spaces; without
    a number, as many as these scripts' words have on average.
    """
    runs = _unspaced(text)
    if characters_per_word is not None:
        return len(spaced(text)) + sum(map(len, runs)) / characters_per_word
    return len(spaced(text)) + sum(len(run) / _word_size(run) for run in runs)


def pieces(text: str, size: int | None = None) -> Iterator[str]:
    """Text of scripts without spaces, in pieces of `size` characters, or of a word's."""
    for run in _unspaced(text):
        step = size or _word_size(run)
        yield from (run[at : at + step] for at in range(0, len(run), step))


def _word_size(run: str) -> int:
    """Characters of a word. Thai's are 5.1 on average, vowels and tones counted."""
    return 5 if _ALPHABETIC.match(run) else 2


def share_of_scripts(text: str, scripts: Collection[Script]) -> float:
    """The share (0-1) of the text's letters that are of these scripts; 0 without any letter."""
    names = tuple(_SCRIPTS.get(script, script.upper()) for script in scripts)
    letters = {c: n for c, n in Counter(text).items() if unicodedata.category(c)[0] in "LM"}
    own = sum(n for c, n in letters.items() if unicodedata.name(c, "").startswith(names))
    return own / sum(letters.values()) if letters else 0.0


def is_error(text: str) -> bool:
    """Whether the text is a program's error message or a model's refusal, and nothing else: it
    begins like one, and is no longer than such ones are.
    """
    text = text.strip().lstrip("#* ")
    return any(len(text) <= most and begins.match(text) for most, begins in _ERRORS)
