"""`schemas/`: made from the models, valid, and never breaking those who rely on it unawares."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from consumer import contracts
from consumer.events import ALL, DLQ_TYPE, OUTGOING, Event, ScoreCompleted, json_schema
from tests.contract.schema_files import SCHEMAS, asyncapi, event_validator

Json = dict[str, Any]
EXAMPLES = sorted((SCHEMAS / "examples").glob("*/*.json"))


def name_of(thing: Any) -> str:
    if isinstance(thing, Path):
        return f"{thing.parent.name}/{thing.stem}"
    return str(getattr(thing, "type", thing))


def event_of(example: Path) -> type[Event]:
    return next(e for e in ALL if example.parent.name == f"{e.type}.v{e.version}")


# ── the folder ──────────────────────────────────────────────────────────────


def test_the_files_are_what_the_models_make() -> None:
    assert contracts.drift(SCHEMAS) == [], "run: score-consumer schemas --write"


def test_nothing_breaks_what_was_released() -> None:
    assert contracts.compatibility(SCHEMAS) == []


def test_the_same_models_make_the_same_files() -> None:
    assert contracts.files() == contracts.files()


def test_write_leaves_no_drift(tmp_path: Path) -> None:
    missing = contracts.drift(tmp_path)
    contracts.write(tmp_path)
    assert missing == [f"{name}: missing" for name in sorted(contracts.files())]
    assert contracts.drift(tmp_path) == []


def test_drift_names_every_file_that_is_not_as_made(tmp_path: Path) -> None:
    contracts.write(tmp_path)
    (tmp_path / "asyncapi.yaml").write_bytes(b"\xff")
    (tmp_path / "score.failed.v1.schema.json").unlink()
    (tmp_path / "examples" / "stray.json").write_text("{}")
    (tmp_path / "README.md").write_text("by hand")
    contracts.release(tmp_path)
    assert contracts.drift(tmp_path) == [
        "asyncapi.yaml: differs from the models",
        "examples/stray.json: superfluous: no model makes it",
        "score.failed.v1.schema.json: missing",
    ]


def test_write_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    contracts.write(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"


# ── what was released ───────────────────────────────────────────────────────


def edit_released(folder: Path, event: type[Event], edit: Callable[[Json], object]) -> None:
    path = folder / "released" / contracts.schema_name(event)
    schema = json.loads(path.read_text())
    edit(schema)
    path.write_text(json.dumps(schema))


def test_without_a_baseline_nothing_passes(tmp_path: Path) -> None:
    assert contracts.compatibility(tmp_path) == [
        f"{event.type}: has no released baseline in released/" for event in ALL
    ]


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_a_removed_field_fails(event: type[Event], tmp_path: Path) -> None:
    contracts.release(tmp_path)
    edit_released(tmp_path, event, lambda s: s["properties"].update(former={"type": "string"}))
    assert contracts.compatibility(tmp_path) == [f"{event.type} v1: former: removed"]


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_a_newly_required_field_fails(event: type[Event], tmp_path: Path) -> None:
    contracts.release(tmp_path)
    edit_released(tmp_path, event, lambda s: s["required"].remove("session_id"))
    assert contracts.compatibility(tmp_path) == [f"{event.type} v1: session_id: newly required"]


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_a_new_optional_field_passes(event: type[Event], tmp_path: Path) -> None:
    contracts.release(tmp_path)
    optional = [name for name in json_schema(event)["properties"] if name not in required(event)]
    edit_released(tmp_path, event, lambda s: [s["properties"].pop(name) for name in optional])
    assert contracts.compatibility(tmp_path) == []


def required(event: type[Event]) -> list[str]:
    return list(json_schema(event)["required"])


def test_requests_and_events_are_held_to_opposite_rules(tmp_path: Path) -> None:
    contracts.release(tmp_path)
    for event in ALL:
        edit_released(tmp_path, event, lambda s: s["properties"]["session_id"].pop("pattern"))
    (problem,) = contracts.compatibility(tmp_path)
    assert problem.startswith("score.requested v1: session_id: pattern changed from none to ")


def test_a_raised_major_version_may_break_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contracts.release(tmp_path)
    edit_released(
        tmp_path, ScoreCompleted, lambda s: s["properties"].update(former={"type": "string"})
    )
    monkeypatch.setattr(ScoreCompleted, "version", 2)
    assert contracts.compatibility(tmp_path) == []

    contracts.release(tmp_path)
    assert (tmp_path / "released" / "score.completed.v1.schema.json").exists()
    monkeypatch.setattr(ScoreCompleted, "version", 1)
    assert contracts.compatibility(tmp_path) == [
        "score.completed v1: former: removed",
        "score.completed v2: is released, and the models are back at v1",
    ]


def test_a_released_event_must_not_vanish(tmp_path: Path) -> None:
    contracts.release(tmp_path)
    (tmp_path / "released" / "score.started.v1.schema.json").write_text("{}")
    assert contracts.compatibility(tmp_path) == [
        "score.started v1: is released, and is no longer among the events"
    ]


# ── what is breaking ────────────────────────────────────────────────────────

SCHEMA: Json = {
    "$defs": {
        "Kind": {"enum": ["a", "b"], "type": "string"},
        "Part": {
            "type": "object",
            "properties": {"size": {"type": "number"}, "unit": {"type": "string"}},
            "required": ["size"],
        },
        "Tree": {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
        },
    },
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9},
        "at": {"type": "string", "format": "date-time"},
        "level": {"type": "integer", "minimum": 0, "maximum": 9, "default": 5},
        "kind": {"$ref": "#/$defs/Kind"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "part": {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}, "minItems": 1},
        "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tree": {"$ref": "#/$defs/Tree"},
        "fixed": {"const": 1},
        "flag": {"type": ["boolean", "null"]},
    },
    "required": ["id", "kind", "parts"],
}

Edit = Callable[[Json], object]


def field(name: str, **changes: Any) -> Edit:
    """Replaces these keywords of a field; None removes one."""

    def edit(schema: Json) -> None:
        target = schema["properties"][name]
        target.update(changes)
        for keyword in [k for k, v in changes.items() if v is None]:
            del target[keyword]

    return edit


def definition(name: str, **changes: Any) -> Edit:
    return lambda schema: schema["$defs"][name].update(changes)


def drop(name: str) -> Edit:
    return lambda schema: schema["properties"].pop(name)


def becomes(name: str, value: Any) -> Edit:
    return lambda schema: schema["properties"].update({name: value})


def require(*names: str) -> Edit:
    return lambda schema: schema.update(required=list(names))


TREE = SCHEMA["$defs"]["Tree"]["properties"]
# What changes, what that breaks in a request, and what it breaks in an event.
CHANGES: dict[str, tuple[Edit, list[str], list[str]]] = {
    "removed": (drop("note"), ["note: removed"], ["note: removed"]),
    "newly required": (
        require("id", "kind", "parts", "at"),
        ["at: newly required"],
        ["at: newly required"],
    ),
    "new and required": (
        lambda s: (s["properties"].update(new={}), s["required"].append("new")),
        ["new: newly required"],
        ["new: newly required"],
    ),
    "no longer required": (require("id", "parts"), [], ["kind: no longer required"]),
    "new and optional": (becomes("new", {"type": "string"}), [], []),
    "other type": (
        field("at", type="integer", format=None),
        ["at: string is no longer accepted"],
        ["at: may be integer now"],
    ),
    "integer to number": (field("level", type="number"), [], ["level: may be number now"]),
    "number to integer": (
        definition("Part", properties={"size": {"type": "integer"}, "unit": {"type": "string"}}),
        [
            "part.size: number is no longer accepted",
            "parts[].size: number is no longer accepted",
        ],
        [],
    ),
    "now nullable": (
        becomes("at", {"anyOf": [SCHEMA["properties"]["at"], {"type": "null"}]}),
        [],
        ["at: may be null now"],
    ),
    "no longer nullable": (
        becomes("note", {"type": "string", "default": None}),
        ["note: null is no longer accepted"],
        [],
    ),
    "no longer nullable, as a list of types": (
        field("flag", type="boolean"),
        ["flag: null is no longer accepted"],
        [],
    ),
    "any type": (becomes("at", {}), [], ["at: may be any type now"]),
    "value added": (
        definition("Kind", enum=["a", "b", "c"]),
        [],
        ['kind: value "c" is new'],
    ),
    "value removed": (
        definition("Kind", enum=["b"]),
        ['kind: value "a" is no longer accepted'],
        [],
    ),
    "values freed": (
        becomes("kind", {"type": "string"}),
        [],
        ['kind: no longer limited to "a", "b"'],
    ),
    "values limited": (
        field("at", enum=["now"]),
        ['at: limited to "now"'],
        [],
    ),
    "other constant": (
        field("fixed", const=2),
        ["fixed: value 1 is no longer accepted"],
        ["fixed: value 2 is new"],
    ),
    "minimum raised": (
        field("level", minimum=1),
        ["level: minimum changed from 0 to 1"],
        [],
    ),
    "minimum lowered": (
        field("level", minimum=-1),
        [],
        ["level: minimum changed from 0 to -1"],
    ),
    "maximum lowered": (
        field("level", maximum=5),
        ["level: maximum changed from 9 to 5"],
        [],
    ),
    "maximum raised": (
        field("level", maximum=10),
        [],
        ["level: maximum changed from 9 to 10"],
    ),
    "new bound": (
        field("at", minLength=1),
        ["at: minLength changed from none to 1"],
        [],
    ),
    "bound gone": (field("id", maxLength=None), [], ["id: maxLength changed from 9 to none"]),
    "longer list": (
        field("parts", minItems=2),
        ["parts: minItems changed from 1 to 2"],
        [],
    ),
    "other pattern": (
        field("id", pattern="^x$"),
        ['id: pattern changed from "^[a-z]+$" to "^x$"'],
        ['id: pattern changed from "^[a-z]+$" to "^x$"'],
    ),
    "pattern gone": (
        field("id", pattern=None),
        [],
        ['id: pattern changed from "^[a-z]+$" to none'],
    ),
    "format gone": (
        field("at", format=None),
        [],
        ['at: format changed from "date-time" to none'],
    ),
    "new format": (field("id", format="uuid"), ['id: format changed from none to "uuid"'], []),
    "other default": (
        field("level", default=1),
        ["level: default changed from 5 to 1"],
        [],
    ),
    "field of a nested object removed": (
        definition("Part", properties={"size": {"type": "number"}}),
        ["part.unit: removed", "parts[].unit: removed"],
        ["part.unit: removed", "parts[].unit: removed"],
    ),
    "field of a nested object newly required": (
        definition("Part", required=["size", "unit"]),
        ["part.unit: newly required", "parts[].unit: newly required"],
        ["part.unit: newly required", "parts[].unit: newly required"],
    ),
    "field of a recursive object removed": (
        definition("Tree", properties={"children": TREE["children"]}),
        ["tree.label: removed"],
        ["tree.label: removed"],
    ),
    "other values in a map": (
        field("scores", additionalProperties={"type": "string"}),
        ["scores.*: integer is no longer accepted"],
        ["scores.*: may be string now"],
    ),
    "anything in a map": (
        field("scores", additionalProperties=True),
        [],
        ["scores.*: may be any type now"],
    ),
    "unknown fields refused": (
        lambda s: s.update(additionalProperties=False),
        ["*: any type is no longer accepted"],
        [],
    ),
    "moved out of $defs": (becomes("kind", SCHEMA["$defs"]["Kind"]), [], []),
    "new definition": (lambda s: s["$defs"].update(New={"type": "string"}), [], []),
    "texts": (field("id", title="Id", description="Which.", examples=["x"]), [], []),
    "keyword these rules don't know": (
        field("id", allOf=[{"maxLength": 3}]),
        ["id: allOf or what it refers to changed, and may break anything"],
        ["id: allOf or what it refers to changed, and may break anything"],
    ),
}


@pytest.mark.parametrize("incoming", [True, False], ids=["request", "event"])
@pytest.mark.parametrize("name", CHANGES)
def test_breaking(name: str, incoming: bool) -> None:
    edit, in_request, in_event = CHANGES[name]
    new = copy.deepcopy(SCHEMA)
    edit(new)
    assert new != SCHEMA
    found = contracts.breaking(SCHEMA, new, incoming=incoming)
    assert found == (in_request if incoming else in_event)


def test_what_an_unknown_keyword_refers_to_is_not_overlooked() -> None:
    old: Json = {"$defs": {"X": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/X"}]}
    new: Json = {"$defs": {"X": {"type": "null"}}, "allOf": [{"$ref": "#/$defs/X"}]}
    assert contracts.breaking(old, old, incoming=True) == []
    assert contracts.breaking(old, new, incoming=True) == [
        "allOf or what it refers to changed, and may break anything"
    ]


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_no_field_of_an_event_can_go_unnoticed(event: type[Event]) -> None:
    schema = json_schema(event)
    for name in schema["properties"]:
        new = copy.deepcopy(schema)
        del new["properties"][name]
        new["required"] = [other for other in new["required"] if other != name]
        found = contracts.breaking(schema, new, incoming=event not in OUTGOING)
        assert found == [f"{name}: removed"]


# ── schemas and examples ────────────────────────────────────────────────────


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_schemas_are_json_schema_2020_12(event: type[Event]) -> None:
    schema = json.loads((SCHEMAS / contracts.schema_name(event)).read_text())
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema["$id"] == contracts.schema_name(event)


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_every_event_has_an_example(event: type[Event]) -> None:
    assert [example for example in EXAMPLES if event_of(example) is event]


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_examples_fit_schema_and_model(example: Path) -> None:
    event, data = event_of(example), json.loads(example.read_text())
    event_validator(event).validate(data)
    read = event.model_validate_json(example.read_text())
    assert json.loads(read.model_dump_json(exclude_unset=True)) == data


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_unknown_fields_are_ignored(example: Path) -> None:
    event, data = event_of(example), json.loads(example.read_text())
    known = event.model_validate(data)
    for part in list(objects(data)):
        part["field_of_tomorrow"] = {"any": ["thing"]}
    data.get("score_breakdown", {}).pop("field_of_tomorrow", None)
    event_validator(event).validate(data)
    assert event.model_validate(data) == known


def objects(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from objects(part)


@pytest.mark.parametrize(
    "change",
    [
        {"scored_at": "yesterday"},
        {"scored_at": "2026-01-05T09:30:00"},
        {"score_id": "7"},
        {"session_id": "a b"},
        {"total_score": 101},
        {"total_score": None},
        {"criteria_hash": "F" * 64},
        {"method": "guess"},
        {"score_breakdown": {"logical_flow": "good"}},
        {"judge": {}},
    ],
    ids=str,
)
def test_schema_and_model_refuse_the_same(change: Json) -> None:
    example = SCHEMAS / "examples" / "score.completed.v1" / "new.json"
    data = {**json.loads(example.read_text()), **change}
    with pytest.raises(ValidationError):
        event_validator(ScoreCompleted).validate(data)
    with pytest.raises(ValueError, match=next(iter(change))):
        ScoreCompleted.model_validate_json(json.dumps(data))


# ── AsyncAPI ────────────────────────────────────────────────────────────────


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from refs(part)
    elif isinstance(value, list):
        for part in value:
            yield from refs(part)


def resolve(ref: str) -> Any:
    """What the reference leads to. Raises where that is nothing."""
    if ref.startswith("./"):
        return json.loads((SCHEMAS / ref).read_text())
    node = asyncapi()
    for part in ref.removeprefix("#/").split("/"):
        node = node[part]
    return node


def test_asyncapi_references_lead_somewhere() -> None:
    found = list(refs(asyncapi()))
    assert {ref for ref in found if ref.startswith("./")} == {
        f"./{contracts.schema_name(event)}" for event in ALL
    }
    assert all(resolve(ref) for ref in found)


def test_asyncapi_has_every_topic() -> None:
    document = asyncapi()
    assert document["asyncapi"] == "3.0.0"
    assert document["info"]["version"] == contracts.VERSION
    topics = [channel["address"] for channel in document["channels"].values()]
    assert topics == [*(event.type for event in ALL), DLQ_TYPE]


def test_asyncapi_says_who_sends_what() -> None:
    operations = asyncapi()["operations"].values()
    sent = {resolve(o["channel"]["$ref"])["address"] for o in operations if o["action"] == "send"}
    received = {
        resolve(o["channel"]["$ref"])["address"] for o in operations if o["action"] == "receive"
    }
    assert received == {"score.requested"}
    assert sent == {*(event.type for event in OUTGOING), DLQ_TYPE}


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_asyncapi_messages_carry_schema_headers_and_key(event: type[Event]) -> None:
    channel = asyncapi()["channels"][event.type]
    message = resolve(channel["messages"][event.__name__]["$ref"])
    assert message["contentType"] == "application/json"
    assert message["payload"] == {"$ref": f"./{contracts.schema_name(event)}"}
    assert message["headers"]["properties"]["ce_type"] == {"const": event.type}
    assert message["bindings"]["kafka"]["key"]["description"] == "The session_id."


def test_asyncapi_operations_name_messages_of_their_channel() -> None:
    for operation in asyncapi()["operations"].values():
        channel = operation["channel"]["$ref"]
        assert [m["$ref"].startswith(f"{channel}/messages/") for m in operation["messages"]] == [
            True for _ in resolve(channel)["messages"]
        ]
