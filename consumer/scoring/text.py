"""Text from outside, made fit for every place it may go."""

from __future__ import annotations

import re
from typing import Any

# A place in a text: (start, end) in characters.
Spot = tuple[int, int]

# PostgreSQL stores no U+0000; half a surrogate pair is not UTF-8. Both occur in valid JSON.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with U+0000 and lone surrogates replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:  # much quicker than to look for what is rare
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Any) -> Any:
    """The JSON value with every string storable, keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [storable_json(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable_json(item) for key, item in value.items()}
    return value
