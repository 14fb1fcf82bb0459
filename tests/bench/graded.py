"""The judge's answers to those who ask in a shape of their own: a tool's, a JSON schema's, or none.

A grade of 0 to 10 in place of the product's verdict, and an explanation of about the same size. It
begins with the session's mark, so that an answer that belongs to another session can be told.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.bench import sessions

EXPLANATION_KB = 7
# What who tells no schema is taken to ask for.
_NUMBER = {"type": "number"}
_PLAIN: dict[str, Any] = {
    "properties": {"reason": {"type": "string"}, "score": _NUMBER, "value": _NUMBER}
}


def grade(number: int) -> int:
    """What this session gets, of 10."""
    return sessions.total(number) // 10


def message(request: bytes) -> dict[str, Any]:
    """The judge's message, in the shape that a chat completion's request asks for."""
    asked = json.loads(request)
    number = sessions.number_in(request)
    for tool in asked.get("tools") or ():
        function = tool["function"]
        arguments = json.dumps(_filled(function["parameters"], number))
        called = {"name": function["name"], "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": called}
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    schema = asked.get("response_format", {}).get("json_schema", {}).get("schema", _PLAIN)
    return {"role": "assistant", "content": json.dumps(_filled(schema, number)), "refusal": None}


def _filled(schema: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: _value(shape, number) for name, shape in schema["properties"].items()}


def _value(shape: dict[str, Any], number: int) -> Any:
    """A label where labels are given, else a number, or the text."""
    given = grade(number)
    for choice in shape.get("enum", ()):
        if str(choice) == str(given):
            return choice
    return given if shape["type"] in {"number", "integer"} else f"[b-{number}] {_explanation()}"


@cache
def _explanation() -> str:
    return sessions.REASONING * (EXPLANATION_KB * 1000 // len(sessions.REASONING))
