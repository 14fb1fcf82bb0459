"""Where complete JSON objects stand in a text. In linear time, whatever the text.

To try a decoder at each `{` is quadratic: an object that is never closed is read again from each
object inside of it. Here what one reading learns of the objects it meets is kept for those after
it. A place is read twice at most, for a string to one reading may be the outside of one to another.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from consumer.scoring.text import Spot

# No verdict is nested a tenth as deep, and what reads it further on may go as deep as this.
MAX_DEPTH = 100

# One token as Python's json reads it: punctuation; a string; a number it can hold, or a word.
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:([{}\[\],:])"
    r'|("[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")'
    r"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)"
    r"|-?(?:0|[1-9][0-9]{0,4299}+)(?![0-9])|-?Infinity|NaN|true|false|null))"
)
# Where an object may begin: most braces of prose are passed by in no time.
_OPENING = re.compile(r'\{[ \t\n\r]*+["}]')
_STRING, _SCALAR = '"', "0"
# What may come next, by the tokens' first characters.
_VALUE = f"{{[{_STRING}{_SCALAR}"
_KEY = _STRING
# What may come after a bracket was opened, and after a value inside of it.
_AFTER_OPENING = {"{": f"{_KEY}}}", "[": f"{_VALUE}]"}
_AFTER_VALUE = {"{": ",}", "[": ",]"}
_AFTER_COMMA = {"{": _KEY, "[": _VALUE}


class TooDeep(ValueError):
    """Nested too deeply to be read."""


class DoubledKeys(ValueError):
    """An object has a key twice; `keys` are those, sorted."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        super().__init__(", ".join(keys))


@dataclass(slots=True)
class _Open:
    """A bracket that is not closed yet, and the keys so far, as they are written."""

    bracket: str
    start: int
    keys: list[str] = field(default_factory=list)


def objects(text: str) -> Iterator[Spot]:
    """Each complete object, from left to right, without those inside of others.

    Raises TooDeep, and DoubledKeys for any object that is complete, inside of others too.
    """
    ends: dict[int, int | None] = {}
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.start()
        if start not in ends:
            _read(text, start, ends)
        end = ends[start]
        if end is not None:
            yield start, end
        position = start + 1 if end is None else end


def _read(text: str, start: int, ends: dict[int, int | None]) -> None:
    """Notes where the object ends that starts here, and all that it holds; None: nowhere."""
    opened: list[_Open] = []
    allowed, at = "{", start
    while (token := _TOKEN.match(text, at)) and _kind(token) in allowed:
        at = token.end()
        allowed = _next(token, allowed, opened, ends)
        if not opened:
            return
    ends.update((one.start, None) for one in opened)


def _kind(token: re.Match[str]) -> str:
    return token[1] or (_STRING if token[2] else _SCALAR)


def _next(
    token: re.Match[str], allowed: str, opened: list[_Open], ends: dict[int, int | None]
) -> str:
    """What may come after this token."""
    kind = _kind(token)
    if kind in _AFTER_OPENING:
        opened.append(_Open(kind, token.start(1)))
        if len(opened) > MAX_DEPTH:
            raise TooDeep
        return _AFTER_OPENING[kind]
    inside = opened[-1]
    if kind == ",":
        return _AFTER_COMMA[inside.bracket]
    if kind == ":":
        return _VALUE
    if kind == _STRING and _VALUE not in allowed:
        inside.keys.append(token[2])
        return ":"
    if kind in "}]":
        _close(opened.pop(), token.end(), ends)
    return _AFTER_VALUE[opened[-1].bracket] if opened else ""


def _close(closed: _Open, end: int, ends: dict[int, int | None]) -> None:
    ends[closed.start] = end
    if len(set(closed.keys)) == len(closed.keys) and not any("\\" in key for key in closed.keys):
        return
    counts = Counter(map(json.loads, closed.keys))
    if doubled := sorted(key for key, count in counts.items() if count > 1):
        raise DoubledKeys(doubled)
