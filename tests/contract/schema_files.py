"""The generated files in `schemas/`, as their readers use them."""

from datetime import datetime
from functools import cache
from typing import Any

import yaml
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from consumer import contracts
from consumer.events import Event
from consumer.resources import resource

SCHEMAS = resource("schemas")
FORMATS = FormatChecker()
_ASYNCAPI = "asyncapi.yaml"


@FORMATS.checks("date-time", raises=ValueError)
def is_rfc3339(value: object) -> bool:
    """jsonschema checks this format only with an extra package: without one, anything passes."""
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@cache
def event_validator(event: type[Event]) -> Draft202012Validator:
    """Of the data of this event, by the file in `schemas/`."""
    return _validator(yaml.safe_load((SCHEMAS / contracts.schema_name(event)).read_text()))


@cache
def asyncapi() -> Any:
    """The AsyncAPI document."""
    return yaml.safe_load((SCHEMAS / _ASYNCAPI).read_text())


@cache
def header_validator(message: str) -> Draft202012Validator:
    """Of this message's headers, by the AsyncAPI document."""
    return _validator({"$ref": f"{_ASYNCAPI}#/components/messages/{message}/headers"})


def _validator(schema: Any) -> Draft202012Validator:
    document = DRAFT202012.create_resource(asyncapi())
    registry: Registry[Any] = Registry().with_resource(_ASYNCAPI, document)
    return Draft202012Validator(schema, registry=registry, format_checker=FORMATS)
