"""OpenTelemetry: spans by OTLP over HTTP. Its own OTEL_* variables say where to, and how many.

Needs the extra `otel`; nothing else imports it. A collector that is away costs its spans, no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from threading import Thread
from typing import Self

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from consumer import __version__, tracing
from consumer.errors import ScoringError

# The SDK would try for half a minute to reach a collector that is away.
CLOSE_S = 3.0

_KINDS: Mapping[tracing.Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
    "producer": SpanKind.PRODUCER,
}
_W3C = TraceContextTextMapPropagator()


class Span(tracing.Span):
    """See tracing.Span."""

    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        self._context = set_span_in_context(span, Context())
        self._token: Token[Context] | None = None

    @property
    def trace(self) -> Mapping[str, str]:
        """See tracing.Span."""
        return _headers(self._context)

    def note(self, attributes: tracing.Attributes) -> None:
        """See tracing.Span."""
        self._span.set_attributes(attributes)

    def event(self, name: str, attributes: tracing.Attributes) -> None:
        """See tracing.Span."""
        self._span.add_event(name, attributes)

    def fail(self, kind: str) -> None:
        """See tracing.Span."""
        self._span.set_status(StatusCode.ERROR)
        self._span.set_attribute("error.type", kind)

    def end(self, error: BaseException | None = None) -> None:
        """See tracing.Span."""
        if not self._span.is_recording():
            return
        if error is not None:
            # Not its message: that may tell more than a trace should hold.
            self.fail(error.code.value if isinstance(error, ScoringError) else type(error).__name__)
        self._span.end()

    def __enter__(self) -> Self:
        self._token = context.attach(self._context)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._token is not None:
            context.detach(self._token)
        self.end(error)


class Tracer(tracing.Tracer):
    """See tracing.Tracer."""

    on = True

    def __init__(self) -> None:
        ours = Resource({"service.name": "score-consumer", "service.version": __version__})
        resource = Resource.create().merge(ours).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("score-consumer", __version__)

    def span(
        self,
        name: str,
        *,
        kind: tracing.Kind = "internal",
        trace: Mapping[str, str] | None = None,
        attributes: tracing.Attributes | None = None,
    ) -> Span:
        """See tracing.Tracer."""
        parent = None if trace is None else _W3C.extract(trace, context=Context())
        return Span(self._tracer.start_span(name, parent, _KINDS[kind], attributes))

    def headers(self) -> Mapping[str, str]:
        """See tracing.Tracer."""
        return _headers(context.get_current())

    def close(self) -> None:
        """Sends what is left, as far as that takes no longer than a few seconds."""
        closing = Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def _headers(of: Context) -> Mapping[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=of)
    return carrier
