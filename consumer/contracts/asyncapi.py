"""The AsyncAPI 3.0 document: which topic carries what, in which direction."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from consumer.contracts.names import schema_name
from consumer.events import ALL, DLQ_TYPE, OUTGOING, Event, ScoreRequested, json_schema

# Of the contracts as a whole. Each event has a major version of its own.
VERSION = "1.0.0"

_STRUCTURED = "ScoreRequestedStructured"
_DEAD_LETTER = "DeadLetter"
_ABOUT = (
    "Score requests in, scores out. Topic names are settings; these are the defaults. "
    "Events are CloudEvents 1.0, sent in binary mode. Readers ignore unknown fields, and recognise "
    "duplicates by ce_id: the same event always carries the same one. Headers that begin with "
    "dlq_ are the consumer's: those of a sender are left out of a dead letter."
)
_CE_HEADERS = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": {"type": "string", "minLength": 1},
    "ce_source": {"type": "string", "minLength": 1},
    "ce_type": {"type": "string"},
    "ce_time": {"type": "string", "format": "date-time"},
    "ce_subject": {"type": "string", "description": "The session_id."},
    "ce_dataschema": {"type": "string", "description": "The JSON Schema's file name."},
}
_TRACE_HEADERS = {
    "traceparent": {"type": "string", "description": "W3C Trace Context, as the request had it."},
    "tracestate": {"type": "string", "description": "W3C Trace Context, as the request had it."},
}
_DLQ_HEADERS = {
    "dlq_original_topic": "Where the record was at first, before any redrive.",
    "dlq_original_partition": "Where the record was at first.",
    "dlq_original_offset": "Where the record was at first.",
    "dlq_original_timestamp": "Milliseconds since 1970; empty where the record had none.",
    "dlq_consumer_group": "Who could not accept it.",
    "dlq_error_code": (
        "tombstone, oversize, bad_json, schema_invalid, bad_header; or unreadable_batch: the value "
        "is a whole batch of records as Kafka has it, whose offsets the message names."
    ),
    "dlq_error_message": "What is wrong with it.",
    "dlq_failed_at": "When, RFC 3339.",
    "dlq_app_version": "Which version of the consumer could not accept it.",
    "dlq_redrive_count": "How often it was sent back and came here again.",
}
_SHORTENED_HEADERS = {
    "dlq_original_size": "Bytes of the value, where this is only its beginning: too large for us.",
    "dlq_original_sha256": "The whole value's SHA-256, there too.",
}


def asyncapi() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Score consumer", "version": VERSION, "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": {
                **{event.__name__: _message(event) for event in ALL},
                _STRUCTURED: _structured_message(),
                _DEAD_LETTER: _dead_letter(),
            },
            "schemas": {
                "CloudEventHeaders": {
                    "type": "object",
                    "properties": {**_CE_HEADERS, **_TRACE_HEADERS},
                },
                "DeadLetterHeaders": _dead_letter_headers(),
            },
        },
    }


def _messages(topic: str) -> list[str]:
    """Names of the messages in a topic."""
    if topic == DLQ_TYPE:
        return [_DEAD_LETTER]
    names = [event.__name__ for event in ALL if event.type == topic]
    return [*names, _STRUCTURED] if topic == ScoreRequested.type else names


def _channels() -> dict[str, Any]:
    return {
        topic: {
            "address": topic,
            "messages": {name: _ref("components/messages", name) for name in _messages(topic)},
        }
        for topic in (*(event.type for event in ALL), DLQ_TYPE)
    }


def _operations() -> dict[str, Any]:
    """What the score consumer does, seen from itself."""
    sent = {f"send{event.__name__}": _operation("send", event.type) for event in OUTGOING}
    return {
        "receiveScoreRequested": _operation("receive", ScoreRequested.type),
        **sent,
        f"send{_DEAD_LETTER}": _operation("send", DLQ_TYPE),
    }


def _operation(action: str, topic: str) -> dict[str, Any]:
    messages = [_ref(f"channels/{topic}/messages", name) for name in _messages(topic)]
    return {"action": action, "channel": _ref("channels", topic), "messages": messages}


def _message(event: type[Event]) -> dict[str, Any]:
    return {
        "name": event.type,
        "title": event.__name__,
        "summary": inspect.getdoc(event),
        "contentType": "application/json",
        "headers": _headers(event),
        "payload": {"$ref": f"./{schema_name(event)}"},
        "bindings": _kafka_key(
            json_schema(event)["properties"]["session_id"] | {"description": "The session_id."}
        ),
    }


def _headers(event: type[Event]) -> dict[str, Any]:
    """Of a request none is needed; our own events have them all."""
    own: dict[str, Any] = {"ce_type": {"const": event.type}}
    if event is ScoreRequested:
        return {"type": "object", "allOf": [_headers_ref()], "properties": own}
    own["ce_dataschema"] = {"const": schema_name(event)}
    required = list(_CE_HEADERS)
    return {"type": "object", "allOf": [_headers_ref()], "properties": own, "required": required}


def _structured_message() -> dict[str, Any]:
    """The other form in which CloudEvents tools send a request; bare JSON is the third."""
    attributes = {name: {"type": "string"} for name in ("specversion", "id", "source")}
    return {
        "name": ScoreRequested.type,
        "title": _STRUCTURED,
        "summary": "A request as a CloudEvent in structured mode.",
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "properties": {
                **attributes,
                "type": {"const": ScoreRequested.type},
                "data": {"$ref": f"./{schema_name(ScoreRequested)}"},
            },
            "required": ["data"],
        },
    }


def _dead_letter() -> dict[str, Any]:
    return {
        "name": DLQ_TYPE,
        "title": _DEAD_LETTER,
        "summary": "A record that can never be accepted; its key, value and headers unchanged.",
        "contentType": "application/octet-stream",
        "headers": _ref("components/schemas", "DeadLetterHeaders"),
        "payload": {"description": "The record's value, byte for byte; none for a tombstone."},
        "bindings": _kafka_key({"description": "The record's key, byte for byte."}),
    }


def _dead_letter_headers() -> dict[str, Any]:
    texts = {
        name: {"type": "string", "description": text}
        for name, text in (_DLQ_HEADERS | _SHORTENED_HEADERS).items()
    }
    return {"type": "object", "properties": texts, "required": list(_DLQ_HEADERS)}


def _kafka_key(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"kafka": {"key": dict(schema), "bindingVersion": "0.5.0"}}


def _ref(where: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/{where}/{name}"}


def _headers_ref() -> dict[str, str]:
    return _ref("components/schemas", "CloudEventHeaders")
