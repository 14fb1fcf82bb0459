"""Bearer tokens as settings name them: `NAME:SCOPE+SCOPE:SHA256`, separated by spaces or commas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_ENTRY = re.compile(r"([A-Za-z0-9._@-]{1,64}):([a-z+]+):([0-9a-f]{64})")


class Scope(StrEnum):
    """What a token is for. `admin` includes the others."""

    READ = "read"
    SCORE = "score"
    OVERRIDE = "override"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Somebody's token: its name, what it is for, and its SHA-256 in hex."""

    name: str
    scopes: frozenset[Scope]
    sha256: str


def parse_tokens(text: str) -> tuple[Token, ...]:
    """The tokens. Raises ValueError that names the entry by its place, and never shows it."""
    return tuple(
        _token(number, entry)
        for number, entry in enumerate(re.split(r"[\s,]+", text.strip()), start=1)
        if entry
    )


def _token(number: int, entry: str) -> Token:
    found = _ENTRY.fullmatch(entry)
    scopes = found[2].split("+") if found else []
    if found is None or not set(scopes) <= set(Scope):
        raise ValueError(
            f"entry {number} must be NAME:SCOPES:SHA256 with scopes of {', '.join(Scope)} joined "
            "by +, and the token's SHA-256 in lower-case hex (see `score-consumer token`)"
        )
    return Token(name=found[1], scopes=frozenset(map(Scope, scopes)), sha256=found[3])
