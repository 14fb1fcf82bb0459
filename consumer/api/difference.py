"""How two JSON values differ, place by place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ABSENT = None


def differences(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, old, new) of each difference; None stands for what is not there.

    Items of lists are told apart by their `id` where all have one, else by their place.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{at}.{key}" if at else str(key)
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), place)
    elif isinstance(old, list) and isinstance(new, list):
        before, after = _named(old, new), _named(new, old)
        for name in [*before, *(name for name in after if name not in before)]:
            yield from differences(before.get(name), after.get(name), f"{at}[{name}]")
    elif old != new:
        yield at, old, new


def _named(items: list[Any], others: list[Any]) -> dict[Any, Any]:
    """The items by id, or by their place from 1 on."""
    if all(isinstance(item, dict) and "id" in item for item in [*items, *others]):
        return {item["id"]: item for item in items}
    return dict(enumerate(items, start=1))
