"""What other teams read: JSON Schemas, examples and an AsyncAPI document, made from `events.py`,
and the OpenAPI document of the HTTP API.

files            all of it, in memory
write, drift     `schemas/` is made from it, and CI sees where they differ
release          what is published now becomes the baseline in `schemas/released/`
compatibility    what would break somebody who relies on that baseline
breaking         the rules of that, for two JSON Schemas
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from consumer.contracts.asyncapi import VERSION, asyncapi
from consumer.contracts.compatibility import Schema, breaking
from consumer.contracts.examples import as_sent, examples
from consumer.contracts.names import schema_name
from consumer.events import ALL, OUTGOING, Event, json_schema

RELEASED = "released"
# In the folder, and written by hand.
_NOT_OURS = ("README.md",)
_MADE_BY = "# Made by `score-consumer schemas --write`; changes here are lost.\n"

__all__ = [
    "VERSION",
    "breaking",
    "compatibility",
    "drift",
    "files",
    "release",
    "schema_name",
    "write",
]


def files() -> dict[str, str]:
    """Relative path to text of every generated file. The same models always give the same text."""
    schemas = {schema_name(event): _json(json_schema(event)) for event in ALL}
    shown = {
        f"examples/{event.type}.v{event.version}/{name}.json": _json(as_sent(event))
        for name, event in examples()
    }
    document = yaml.safe_dump(asyncapi(), sort_keys=False, width=100, allow_unicode=True)
    return {**schemas, **shown, "asyncapi.yaml": _MADE_BY + document, "openapi.json": _openapi()}


@cache
def _openapi() -> str:
    from consumer.api.app import build  # noqa: PLC0415  FastAPI; the command line shall be quick

    return _json(build(None).openapi())


def write(folder: Path) -> None:
    """Writes every generated file. Deletes nothing: `drift` names what is superfluous."""
    _write(folder, files())


def drift(folder: Path) -> list[str]:
    """One line for each generated file that is missing, differs or is superfluous; in order.

    The released baseline is not looked at: see `compatibility`.
    """
    wanted, found = files(), _found(folder)
    return [
        f"{name}: {_drift(wanted.get(name), found.get(name))}"
        for name in sorted(wanted.keys() | found.keys())
        if _bytes(wanted.get(name)) != found.get(name)
    ]


def release(folder: Path) -> None:
    """Makes the current schemas the baseline. Schemas of former major versions stay in it."""
    _write(folder / RELEASED, {schema_name(event): _json(json_schema(event)) for event in ALL})


def compatibility(folder: Path) -> list[str]:
    """One line for each way in which the models break the released baseline; none if they don't.

    An event whose major version was raised may differ as it likes. An event never released is a
    line too: without a baseline nothing would be checked.
    """
    released = dict(_released(folder / RELEASED))
    current = {event.type: event for event in ALL}
    problems = [
        f"{event.type}: has no released baseline in {RELEASED}/"
        for event in ALL
        if not any(type_ == event.type for type_, _ in released)
    ]
    for (type_, version), schema in released.items():
        found = _breaks(current.get(type_), version, schema)
        problems += [f"{type_} v{version}: {problem}" for problem in found]
    return problems


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _found(folder: Path) -> dict[str, bytes]:
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in paths.items()
        if name.parts[0] != RELEASED and name.as_posix() not in _NOT_OURS
    }


def _drift(wanted: str | None, found: bytes | None) -> str:
    if found is None:
        return "missing"
    return "superfluous: no model makes it" if wanted is None else "differs from the models"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _released(folder: Path) -> Iterator[tuple[tuple[str, int], Schema]]:
    """(type, major version) and schema of everything ever released."""
    for path in sorted(folder.glob("*.v*.schema.json")):
        type_, _, version = path.name.removesuffix(".schema.json").rpartition(".v")
        yield (type_, int(version)), json.loads(path.read_bytes())


def _breaks(event: type[Event] | None, version: int, schema: Schema) -> list[str]:
    if event is None:
        return ["is released, and is no longer among the events"]
    if event.version < version:
        return [f"is released, and the models are back at v{event.version}"]
    if event.version > version:
        return []
    return breaking(schema, json_schema(event), incoming=event not in OUTGOING)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
