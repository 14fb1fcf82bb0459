"""Text from outside, made fit for every place it may go."""

from __future__ import annotations

import re
import string
from contextlib import suppress
from typing import Any

from pydantic_core import to_json

# A place in a text: (start, end) in characters.
Spot = tuple[int, int]

ELLIPSIS = "\u2026"
MOST_NAME_CHARACTERS = 255
MOST_NAME_BYTES = 500
LETTERS_AND_DIGITS = f"{string.ascii_letters}{string.digits}_"

# Tool results are often JSON in a string: an escaped line break is one, not the letter n.
_ESCAPE = re.compile(r"\\(?:[nrt]|u[0-9a-fA-F]{4})")
# PostgreSQL stores no U+0000; half a surrogate pair is not UTF-8. Both occur in valid JSON.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def blank(pattern: re.Pattern[str], text: str) -> str:
    """The text with blanks for what the pattern matches: places stay where they are."""
    return pattern.sub(lambda match: " " * len(match[0]), text)


def unescaped(text: str) -> str:
    """The text with blanks for the escapes of JSON."""
    return _ESCAPE.sub(" ", text)


def only(characters: str) -> bytes:
    """A table for `runs`: these ASCII characters stay, all others separate."""
    return bytes(code if chr(code) in characters else 0x20 for code in range(256))


def runs(text: str, table: bytes) -> list[str]:
    """What a search for `[characters]+` finds, for a fifth of its price. Other scripts separate."""
    return str(text.encode("ascii", "replace").translate(table), "ascii").split()


def storable(text: str) -> str:
    """The text with U+0000 and lone surrogates replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:  # much quicker than to look for what is rare
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def short_name(text: str) -> str:
    """The text as a name that can be stored: of 255 characters and 500 bytes at most, for several
    share one row of an index, which holds 2704. A longer one ends in an ellipsis.
    """
    text = storable(text)
    if len(text) <= MOST_NAME_CHARACTERS and len(text.encode()) <= MOST_NAME_BYTES:
        return text
    room = MOST_NAME_BYTES - len(ELLIPSIS.encode())
    kept = text[: MOST_NAME_CHARACTERS - 1].encode()[:room].decode(errors="ignore")
    return kept + ELLIPSIS


def shortened(text: str, characters: int) -> str:
    """The text, or as much of its beginning as there is room for before an ellipsis."""
    return text if len(text) <= characters else text[: characters - 1] + ELLIPSIS


def storable_json(value: Any) -> Any:
    """The JSON value with every string storable, keys included."""
    with suppress(ValueError):  # of half a surrogate pair, or nested very deeply
        if b"\\u0000" not in to_json(value, inf_nan_mode="constants"):
            return value  # much quicker than to look at each string
    return _storable_json(value)


def _storable_json(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [_storable_json(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable_json(item) for key, item in value.items()}
    return value
