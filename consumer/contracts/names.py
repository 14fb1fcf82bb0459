"""What the generated files are called."""

from __future__ import annotations

from consumer.events import Event


def schema_name(event: type[Event] | Event) -> str:
    """The file of an event's JSON Schema; also its `$id`, and `ce_dataschema`."""
    return f"{event.type}.v{event.version}.schema.json"
