"""Traces: one from a request's traceparent to the events that answer it. Off unless switched on.

Spans hold ids, names and figures, never what a session, a prompt or a judge says. `OFF` does
nothing; `edges.otel` sends spans. Names: OpenTelemetry's semantic conventions (messaging, GenAI),
and our own under `scoring.`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

from consumer.scoring.score import Score

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
Kind = Literal["internal", "client", "consumer", "producer"]


class Span:
    """Something that takes time. In its `with` block it is the parent of what begins there.

    This one is of no trace: it does nothing.
    """

    __slots__ = ()

    @property
    def trace(self) -> Mapping[str, str]:
        """The W3C headers by which this span is a parent elsewhere."""
        return {}

    def note(self, attributes: Attributes) -> None:
        """Adds to what the span tells."""

    def event(self, name: str, attributes: Attributes) -> None:
        """Something that happened at this moment."""

    def fail(self, kind: str) -> None:
        """It did not succeed, for a reason of this kind: one of few words, no message."""

    def end(self, error: BaseException | None = None) -> None:
        """It is over. Only the first time counts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)


NO_SPAN = Span()


class Tracer:
    """Where spans come from. This one has none, and costs next to nothing."""

    on = False

    def span(
        self,
        name: str,  # noqa: ARG002  others need them
        *,
        kind: Kind = "internal",  # noqa: ARG002
        trace: Mapping[str, str] | None = None,  # noqa: ARG002
        attributes: Attributes | None = None,  # noqa: ARG002
    ) -> Span:
        """A span that begins now, below the one that is current, or below `trace`, W3C headers from
        elsewhere; where these are empty it begins a trace.
        """
        return NO_SPAN

    def headers(self) -> Mapping[str, str]:
        """The W3C headers of the current span."""
        return {}

    def close(self) -> None:
        """Sends what is left."""


OFF = Tracer()


@contextlib.contextmanager
def ended(spans: Sequence[Span]) -> Iterator[None]:
    """Ends them all with the block, by its error if it has one."""
    try:
        yield
    except BaseException as error:
        for span in spans:
            span.end(error)
        raise
    for span in spans:
        span.end()


def kafka(operation: Literal["process", "send"], topic: str) -> dict[str, str | int]:
    """What the messaging conventions want to be told of any operation."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def evaluation(score: Score) -> Attributes:
    """The attributes of a `gen_ai.evaluation.result` event. The score is out of 100; its label is
    `quality_risk` or `ok`.
    """
    return {
        "gen_ai.evaluation.name": score.profile_id,
        "gen_ai.evaluation.score.value": float(score.total_score),
        "gen_ai.evaluation.score.label": "quality_risk" if score.risk else "ok",
        "gen_ai.conversation.id": score.session_id,
        "scoring.score_id": str(score.score_id),
        "scoring.profile_version": score.profile_version,
        "scoring.criteria_hash": score.criteria_hash,
    }
