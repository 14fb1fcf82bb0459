"""What breaks readers or writers who rely on an older JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

# JSON Schema, or a part of one.
Schema = Mapping[str, Any]
_T = TypeVar("_T")

_ALTERNATIVES = ("anyOf", "oneOf")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
# Restrictions that can't be ordered: another one may refuse what this one allowed.
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "contentEncoding", "contentMediaType")
_STRUCTURE = ("$ref", "type", "enum", "const", "properties", "required", "items")
# They tell people something, and change no document. `default` is looked at on its own.
_ANNOTATIONS = (
    "$schema",
    "$id",
    "$defs",
    "$comment",
    "title",
    "description",
    "examples",
    "deprecated",
    "default",
    "readOnly",
    "writeOnly",
    "discriminator",
)
_UNDERSTOOD = frozenset(
    {
        *_ALTERNATIVES,
        *_LOWER,
        *_UPPER,
        *_EXACT,
        *_STRUCTURE,
        *_ANNOTATIONS,
        "additionalProperties",
    }
)


def breaking(old: Schema, new: Schema, *, incoming: bool) -> list[str]:
    """What in `new` breaks those who rely on `old`, one line each; none if nothing does.

    In every event, a field must not be removed, and none may become required: writers of requests
    don't send it, and readers of our events still find older ones without it in the topic.

    In requests (`incoming`), whatever was accepted must be accepted still, and mean the same: no
    type or enum value may go, no bound, pattern or format may get narrower, no default may change.

    In events we send it is the other way round: nothing may come that readers never saw. No type
    or enum value may be added (readers make closed types of both), no bound, pattern or format may
    get wider, and what was always sent must be sent always.

    Everything else is compatible: new optional fields, texts for people, and a restriction that
    gets wider in requests or narrower in events. JSON Schema that these rules don't know breaks as
    soon as it changes.
    """
    return _Comparison(old, new, incoming=incoming).schemas(old, new, "")


class _Comparison:
    """Two schemas, walked side by side. Paths are like `session.model`, `reasons[]`, `scores.*`."""

    def __init__(self, old: Schema, new: Schema, *, incoming: bool) -> None:
        self._old, self._new = old, new
        self._incoming = incoming
        self._defs_differ = old.get("$defs") != new.get("$defs")
        # What is being compared just now: a schema may contain itself.
        self._open: set[str] = set()

    def schemas(self, old: Schema | bool, new: Schema | bool, path: str) -> list[str]:
        """Every alternative of the one that must be covered has to fit one of the other's."""
        narrow, wide = self._turned(
            list(_alternatives(old, self._old)), list(_alternatives(new, self._new))
        )
        unfit = "{} is no longer accepted" if self._incoming else "may be {} now"
        problems: list[str] = []
        for one in narrow:
            fits = [self._fit(one, other, path) for other in wide if _covers(other, one)]
            best: list[str] = min(fits or [[_at(path) + unfit.format(_kind(one))]], key=len)
            problems += best
        return problems

    def _turned(self, old: _T, new: _T) -> tuple[_T, _T]:
        """What must fit, and what it must fit into; given these, the old and the new again."""
        return (old, new) if self._incoming else (new, old)

    def _fit(self, narrow: Schema, wide: Schema, path: str) -> list[str]:
        pair = json.dumps([narrow, wide], sort_keys=True)
        if pair in self._open:
            return []
        self._open.add(pair)
        old, new = self._turned(narrow, wide)
        problems = [
            *self._values(narrow, wide, path),
            *self._restrictions(old, new, path),
            *self._unknown(old, new, path),
            *self._fields(old, new, path),
            *self._contents(old, new, path),
        ]
        self._open.remove(pair)
        return problems

    def _values(self, narrow: Schema, wide: Schema, path: str) -> Iterator[str]:
        these, those = _values(narrow), _values(wide)
        if those is None:
            return
        if these is None:
            change = "limited to" if self._incoming else "no longer limited to"
            yield f"{_at(path)}{change} {', '.join(those)}"
            return
        change = "is no longer accepted" if self._incoming else "is new"
        yield from (f"{_at(path)}value {value} {change}" for value in these if value not in those)

    def _restrictions(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        narrow, wide = self._turned(old, new)
        for keyword in (*_LOWER, *_UPPER, *_EXACT):
            if keyword in wide and not _as_tight(keyword, narrow.get(keyword), wide[keyword]):
                yield f"{_at(path)}{keyword} {_change(old, new, keyword)}"

    def _unknown(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        for keyword in sorted((old.keys() | new.keys()) - _UNDERSTOOD):
            if old.get(keyword) != new.get(keyword) or self._defs_differ:
                yield f"{_at(path)}{keyword} or what it refers to changed, and may break anything"

    def _fields(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        always, must = set(old.get("required", ())), set(new.get("required", ()))
        for name, field in before.items():
            where = _join(path, name)
            if name not in after:
                yield f"{where}: removed"
                continue
            if not self._incoming and name in always - must:
                yield f"{where}: no longer required"
            if self._incoming and name not in always | must:
                yield from _default(field, after[name], where)
            yield from self.schemas(field, after[name], where)
        yield from (f"{_join(path, name)}: newly required" for name in sorted(must - always))

    def _contents(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        """What lists and maps hold; by JSON Schema anything, where nothing is said."""
        for keyword, where in (("items", f"{path}[]"), ("additionalProperties", _join(path, "*"))):
            if keyword in old or keyword in new:
                before, after = old.get(keyword, True), new.get(keyword, True)
                yield from self.schemas(before, after, where)


def _alternatives(schema: Schema | bool, root: Schema) -> Iterator[Schema]:
    """The schemas one of which a document must fit, each of one type; none where nothing fits."""
    if isinstance(schema, bool):
        yield from [{}] if schema else []
        return
    if "$ref" in schema:
        yield from _alternatives(_merged(schema, "$ref", _target(schema["$ref"], root)), root)
        return
    for keyword in _ALTERNATIVES:
        if keyword in schema:
            for one in schema[keyword]:
                yield from _alternatives(_merged(schema, keyword, one), root)
            return
    types = schema.get("type")
    yield from ({**schema, "type": t} for t in types) if isinstance(types, list) else [schema]


def _merged(schema: Schema, keyword: str, part: Schema) -> Schema:
    """The part, with what stands beside the keyword that led to it."""
    return {**{k: v for k, v in schema.items() if k != keyword}, **part}


def _target(ref: str, root: Schema) -> Schema:
    """What a reference within the document leads to. Raises KeyError where that is nothing."""
    node = root
    for part in ref.split("/")[1:]:
        node = node[part]
    return node


def _covers(wide: Schema, narrow: Schema) -> bool:
    """Whether the one's type includes the other's; every integer is a number."""
    types = (wide.get("type"), narrow.get("type"))
    return types[0] in {None, types[1]} or types == ("number", "integer")


def _as_tight(keyword: str, narrow: Any, wide: Any) -> bool:
    """Whether this restriction, if any, refuses all that the wide one refuses."""
    if narrow is None:
        return False
    if keyword in _EXACT:
        return bool(narrow == wide)
    return bool(narrow >= wide if keyword in _LOWER else narrow <= wide)


def _values(schema: Schema) -> list[str] | None:
    """The values it is limited to, as JSON; None where it isn't."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else [json.dumps(value) for value in values]


def _default(old: Schema, new: Schema, where: str) -> Iterator[str]:
    if json.dumps(old.get("default")) != json.dumps(new.get("default")):
        yield f"{where}: default {_change(old, new, 'default')}"


def _change(old: Schema, new: Schema, keyword: str) -> str:
    before, after = (json.dumps(s[keyword]) if keyword in s else "none" for s in (old, new))
    return f"changed from {before} to {after}"


def _kind(schema: Schema) -> str:
    return str(schema.get("type", "any type"))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str) -> str:
    return f"{path}: " if path else ""
