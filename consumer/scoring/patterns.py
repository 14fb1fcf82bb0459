"""Patterns from profiles. They run on an engine whose time is linear in the text, so that none can
stall the consumer, whatever it was written for; in exchange, there are no look-arounds and no
back-references.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, Field

from consumer.scoring.text import Spot, storable

# A pattern such as \pL{900} compiles to a program as large as it may be, and the interpreter does
# nothing else meanwhile: some 20 ms for each MiB. (x{1000}){1000} is refused.
MAX_MEMORY_BYTES = 1024 * 1024
# The product's own are few, known, and quicker with more.
OWN_MEMORY_BYTES = 8 * 1024 * 1024
MAX_CHARACTERS = 1000
# In one profile.
MAX_PATTERNS = 100


@lru_cache(maxsize=256)
def compiled(pattern: str, *, match_case: bool = False, own: bool = False) -> Any:
    """The pattern, without regard to case unless told. Raises ValueError that says why not."""
    options = re2.Options()
    options.case_sensitive = match_case
    options.log_errors = False
    options.max_mem = OWN_MEMORY_BYTES if own else MAX_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a usable pattern: {shown} (RE2 syntax)") from error


def _usable(pattern: str) -> str:
    compiled(pattern)
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_usable)]


def find(pattern: str, text: str, *, match_case: bool = False, own: bool = False) -> Spot | None:
    """Where the pattern first occurs: (start, end) in characters."""
    # A lone surrogate can't be encoded for the engine; its stand-in is one character as well.
    match = compiled(pattern, match_case=match_case, own=own).search(storable(text))
    return (match.start(), match.end()) if match else None


def find_all(pattern: str, text: str, *, own: bool = False) -> Iterator[Spot]:
    """Where the pattern occurs, without overlaps; empty matches are left out."""
    for match in compiled(pattern, own=own).finditer(storable(text)):
        if match.end() > match.start():
            yield match.start(), match.end()
