"""`${VAR}` in configuration values.

`${VAR}` must be set; `${VAR:-default}` takes the default where VAR is unset or empty, and the
default may nest; `$$` is a dollar. Values are not expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME = _NAME_START | frozenset("0123456789")


class SubstitutionError(ValueError):
    """`missing` names are not set; `malformed` says what can't be read."""

    def __init__(self, *, missing: list[str], malformed: list[str]) -> None:
        self.missing = missing
        self.malformed = malformed
        super().__init__(", ".join([*missing, *malformed]))


def variables(value: Any) -> set[str]:
    """The names of all variables that strings of a parsed document may ask for."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set[str]().union(*map(variables, value))
    return set(_VARIABLE.findall(value)) if isinstance(value, str) else set()


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables replaced. Raises SubstitutionError with every missing name."""
    missing: list[str] = []
    try:
        result, _ = _expand(text, 0, environment, missing, nested=False)
    except ValueError as error:
        raise SubstitutionError(missing=missing, malformed=[str(error)]) from error
    if missing:
        raise SubstitutionError(missing=missing, malformed=[])
    return result


def substitute_in(value: Any, environment: Mapping[str, str]) -> Any:
    """The same for every string of a parsed document; keys stay as they are.

    Raises one SubstitutionError for the whole document.
    """
    missing: list[str] = []
    malformed: list[str] = []

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walk(item) for key, item in node.items()}
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, str):
            return node
        try:
            return substitute(node, environment)
        except SubstitutionError as error:
            missing.extend(error.missing)
            malformed.extend(error.malformed)
            return node

    result = walk(value)
    if missing or malformed:
        raise SubstitutionError(missing=sorted(set(missing)), malformed=malformed)
    return result


def _expand(
    text: str, position: int, environment: Mapping[str, str], missing: list[str], *, nested: bool
) -> tuple[str, int]:
    """Expands from `position`, up to the closing brace where nested; answers text and position."""
    parts: list[str] = []
    while position < len(text):
        if text.startswith("$$", position):
            parts.append("$")
            position += 2
        elif text.startswith("${", position):
            value, position = _variable(text, position + 2, environment, missing)
            parts.append(value)
        elif nested and text[position] == "}":
            return "".join(parts), position
        else:
            parts.append(text[position])
            position += 1
    if nested:
        raise ValueError(f"a closing brace is missing in {text!r}")
    return "".join(parts), position


def _variable(
    text: str, start: int, environment: Mapping[str, str], missing: list[str]
) -> tuple[str, int]:
    """The value of the variable whose name begins at `start`, and the place after its brace."""
    end = start
    while end < len(text) and text[end] in (_NAME if end > start else _NAME_START):
        end += 1
    name = text[start:end]
    if name and text.startswith("}", end):
        if name not in environment:
            missing.append(name)
        return environment.get(name, ""), end + 1
    if name and text.startswith(":-", end):
        # A default that is not taken need not be complete: what it lacks is not missing.
        lacking = missing if not environment.get(name) else []
        default, closing = _expand(text, end + 2, environment, lacking, nested=True)
        return environment.get(name) or default, closing + 1
    raise ValueError(
        f"{text[start - 2 : end + 2]!r} is not ${{NAME}} or ${{NAME:-default}} in {text!r}"
    )
