"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP, and keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from consumer.demo.world import served


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSpan:
    """One span, with its resource's attributes; ids are in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    events: dict[str, dict[str, Any]]
    resource: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """What was sent so far."""

    url: str = ""
    spans: list[SentSpan] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert request.url.path == "/v1/traces"
        self.received += body
        self.spans += _spans(ExportTraceServiceRequest.FromString(body))
        await Response(b"", media_type="application/x-protobuf")(scope, receive, send)

    async def until(self, name: str, count: int, timeout_s: float = 20) -> Sequence[SentSpan]:
        """Waits for so many spans of this name, and answers them."""
        async with asyncio.timeout(timeout_s):
            while len(found := self.named(name)) < count:
                await asyncio.sleep(0.02)
        return found

    def named(self, name: str) -> list[SentSpan]:
        return [span for span in self.spans if span.name == name]


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """A collector on a free port."""
    made = Collector()
    async with served(made) as url:
        made.url = url
        yield made


def _spans(request: Any) -> list[SentSpan]:
    return [
        SentSpan(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            kind=span.kind,
            failed=span.status.code == 2,
            attributes=_attributes(span.attributes),
            events={event.name: _attributes(event.attributes) for event in span.events},
            resource=_attributes(sent.resource.attributes),
        )
        for sent in request.resource_spans
        for scope in sent.scope_spans
        for span in scope.spans
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
