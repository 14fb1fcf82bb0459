"""Numbers as texts write them: where they stand, and the values that they may mean.

All patterns consume what they match and look back a fixed number of characters, so the time is
linear in the texts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
    *("sep", "sept", "oct", "nov", "dec", "年", "月", "日"),
)
DURATION = re.compile(r"(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?")
TRAILING = ".,:/_-\u2013"
PERCENT = frozenset({"%", "\uff05", "\u066a", "percent", "per cent", "pct"})

# A run of digits and what is attached to it, not inside a word and not after "word-"; then a unit
# after a blank. The digit comes before its look-behinds, so that the search skips to digits.
_RUN = re.compile(
    r"(\d(?<![\dA-Za-z_]\d)(?<![\dA-Za-z_)\]][-.@#]\d)(?:(?<=([-\u2212])\d))?"
    "(?:\\d{0,2}(?:[ '\u2019\u00a0\u2009\u202f]\\d{3}){1,6}(?!\\d)(?:[.,]\\d{1,9})?[A-Za-z]{0,4}"
    "|[\\dA-Za-z.,:/_\u066b\u066c\u2013-]*)"
    "(?:[ \u00a0\u202f]?(%|\uff05|\u066a|per ?cent|pct"
    "|(?:[kKMGT]i?B?|thousand|million|billion|trillion|mn|bn|tn|Tsd|Mio|Mrd)(?![\\dA-Za-z])"
    "|[\u4e07\u5104\u4ebf\u5146]|\u0e25\u0e49\u0e32\u0e19))?)"
)
_ASCII_RUN = re.compile(_RUN.pattern, re.ASCII)  # finds the same in ASCII, sooner
_PIECE = re.compile(
    "(\\d[\\d.,_ '\u2019\u00a0\u2009\u202f\u066b\u066c]*?)([eE][+-]?\\d{1,3})?([A-Za-z]{0,4})"
)
_SIMPLE = re.compile(r"\d{1,20}(?:\.\d{1,20})?")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}\b|\d{1,2}:\d{2}(?!\d)|\d{1,2}/\d{1,2}/\d{4}")
_NOT_DIGITS = str.maketrans("\u066b\u066c", ".,", "_ '\u2019\u00a0\u2009\u202f")
_SEPARATORS = re.compile("[:/\u2013-]")
# 3rd is an ordinal, 5pm a time.
_NO_UNITS = frozenset({"st", "nd", "rd", "th", "am", "pm", "AM", "PM"})
_MAX_DIGITS = 40
# Of longer runs the values are not kept: their texts would fill the memory.
_KEPT_CHARACTERS = 100
_LARGE_CHARACTERS = 1_000_000
# Of units that scale; 15GB is meant either way. 500m are half a core, 1500ms are 1.5 s.
_FACTORS: dict[str, tuple[float, ...]] = {"m": (1e-3,), "ms": (1e-3,)}
for _n, _prefixes in enumerate(("kK", "M", "G", "T"), start=1):
    for _prefix in _prefixes:
        _FACTORS |= {_prefix: (1e3**_n,), f"{_prefix}B": (1e3**_n, 1024.0**_n)}
        _FACTORS |= {f"{_prefix}i": (1024.0**_n,), f"{_prefix}iB": (1024.0**_n,)}
_FACTORS |= dict.fromkeys(("thousand", "Tsd"), (1e3,))
_FACTORS |= dict.fromkeys(("million", "mn", "Mio", "MM", "\u0e25\u0e49\u0e32\u0e19"), (1e6,))
_FACTORS |= dict.fromkeys(("billion", "bn", "B", "Mrd"), (1e9,))
_FACTORS |= dict.fromkeys(("trillion", "tn", "\u5146"), (1e12,))
_FACTORS |= {"\u4e07": (1e4,), "\u5104": (1e8,), "\u4ebf": (1e8,)}


def pattern_for(text: str) -> re.Pattern[str]:
    """Finds the text's numbers. Groups: all of it, the minus sign before it, the unit."""
    return _ASCII_RUN if text.isascii() else _RUN


def runs(text: str) -> set[tuple[str, ...]]:
    """The groups of every match, each once."""
    pattern = pattern_for(text)
    if len(text) < _LARGE_CHARACTERS:
        return set(pattern.findall(text))
    # One call for all of it is quicker, but no other thread runs until it is over.
    return {match.groups("") for match in pattern.finditer(text)}


def values(run: str, minus: str, tail: str) -> tuple[tuple[float, bool], ...]:
    """Every value that a run may mean, and whether it may be a share of 1."""
    read = kept_values if len(run) <= _KEPT_CHARACTERS else _read
    return read(run, minus, tail)


def _read(run: str, minus: str, tail: str) -> tuple[tuple[float, bool], ...]:
    if _SIMPLE.fullmatch(run) and not minus:  # most are; the rest of this takes ten times longer
        return ((float(run), "." in run and float(run) <= 1),)
    run = run.removesuffix(tail).rstrip(TRAILING)
    pieces = [run] if _PIECE.fullmatch(run) else _SEPARATORS.split(run)
    if _DATE.match(run) or ("-" in run and len(pieces) > 2):
        return ()
    found: list[float] = []
    fractions: set[float] = set()
    for piece in pieces:
        if match := _PIECE.fullmatch(piece):
            own = readings(match, tail)
            # A list without blanks looks like one number with thousands separators.
            listed = re.split(r"[^\d.]", match[1])
            parts = (_figure(part) for part in listed if part and len(listed) > 1)
            found += own + [part for part in parts if part is not None]
            fractions |= {value for value in own if "." in piece and value <= 1}
        elif DURATION.fullmatch(piece):
            found += [float(part) for part in re.findall(r"\d{1,9}", piece)]
    if tail in PERCENT:
        found += [value / 100 for value in found]
    signs = (1, -1) if minus else (1,)
    return tuple({(sign * value, value in fractions) for value in found for sign in signs})


kept_values = lru_cache(maxsize=1 << 16)(_read)


def claimed(run: str) -> list[re.Match[str]]:
    """The numbers of a run: one, or two of a range; none of an identifier, date or time."""
    if whole := _PIECE.fullmatch(run):
        return [whole]
    pieces = _SEPARATORS.split(run)
    if ":" in run or len(pieces) > 2 or _DATE.match(run):
        return []
    # 200MB/s and 3-node: the letters are a unit.
    matches = [_PIECE.fullmatch(piece) for piece in pieces if not piece.isalpha()]
    return [match for match in matches if match] if all(matches) else []


def readings(piece: re.Match[str], tail: str) -> list[float]:
    """The number as written, and scaled by its unit. None if it is an ordinal or no number."""
    value = _figure(piece[1])
    if value is None or piece[3] in _NO_UNITS:
        return []
    value *= float(f"1{piece[2] or 'e0'}")
    factors = (1.0, *_FACTORS.get(piece[3] or tail, ()))
    return [value * factor for factor in factors if isfinite(value * factor)]


def step(piece: re.Match[str]) -> float:
    """A unit of its last digit: 1 of 12, 0.1 of 1.2 and of 1.234,5."""
    digits = piece[1].translate(_NOT_DIGITS).rstrip(".,")
    cut = max(digits.rfind("."), digits.rfind(","))
    if cut < 0 or (digits[cut] == "," and _GROUPED.fullmatch(digits)):
        return 1.0
    return float(f"1e{cut + 1 - len(digits)}")


def _figure(written: str) -> float | None:
    """1,234.5 and 1.234,5 and 1 234 and 0,5; None for 1.2.3, and for what no double can hold."""
    digits = written.translate(_NOT_DIGITS)
    if "," in digits and digits.rfind(".") < digits.rfind(","):
        grouped = "." not in digits and _GROUPED.fullmatch(digits)
        digits = digits.replace(".", "").replace(",", "" if grouped else ".")
    digits = digits.replace(",", "")
    return float(digits) if len(digits) <= _MAX_DIGITS and digits.count(".") <= 1 else None
