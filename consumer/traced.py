"""History and judges, each call in a span. Wired in where there are traces, and only there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from consumer.errors import ConfigError
from consumer.limits.room import Place
from consumer.ports import ChatMessage, Completion, History, Provider, Sent
from consumer.scoring.session import Session
from consumer.tracing import OFF, Attributes, Tracer

# The conventions' names for providers; others go by the name that the configuration gives them.
_PROVIDERS = {"anthropic": "anthropic", "gemini": "gcp.gemini"}


@contextlib.asynccontextmanager
async def open_tracer(*, wanted: bool) -> AsyncIterator[Tracer]:
    """Traces where they are wanted. Raises ConfigError where OpenTelemetry is not installed."""
    if not wanted:
        yield OFF
        return
    try:
        from consumer.edges.otel import Tracer as OtelTracer  # noqa: PLC0415  it takes its time
    except ModuleNotFoundError as error:
        raise ConfigError(
            [f"TRACING_ENABLED: needs `pip install 'score-consumer[otel]'`: {error}"]
        ) from error
    tracer = OtelTracer()
    try:
        yield tracer
    finally:
        await asyncio.to_thread(tracer.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedHistory:
    """See ports.History."""

    history: History
    tracer: Tracer
    server: Attributes

    async def fetch(self, session_id: str, place: Place) -> Session:
        """See ports.History."""
        about = {**self.server, "gen_ai.conversation.id": session_id}
        with self.tracer.span("fetch session", kind="client", attributes=about):
            return await self.history.fetch(session_id, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedProvider:
    """See ports.Provider. One span a call, as the GenAI conventions have it."""

    provider: Provider
    tracer: Tracer
    about: Attributes

    @property
    def name(self) -> str:
        """See ports.Provider."""
        return self.provider.name

    @property
    def model(self) -> str:
        """See ports.Provider."""
        return self.provider.model

    @property
    def max_output_tokens(self) -> int:
        """See ports.Provider."""
        return self.provider.max_output_tokens

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        temperature: float,
    ) -> Completion:
        """See ports.Provider."""
        about = {
            **self.about,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self.model,
            "gen_ai.request.max_tokens": max_tokens,
        }
        with self.tracer.span(f"chat {self.model}", kind="client", attributes=about) as span:
            completion = await self.provider.complete(
                messages, schema, max_tokens=max_tokens, temperature=temperature
            )
            span.note(_of(completion))
            return completion

    async def repeat(self, sent: Sent) -> Completion:
        """See ports.Provider; only commands repeat anything, and they have no traces."""
        return await self.provider.repeat(sent)


def traced_history(history: History, tracer: Tracer, client: httpx.AsyncClient) -> History:
    """The same, in spans where there are traces; the service is told whose child its own are."""
    if not tracer.on:
        return history

    async def tell(request: httpx.Request) -> None:
        request.headers.update(tracer.headers())

    client.event_hooks = {"request": [tell]}
    return TracedHistory(history=history, tracer=tracer, server=_server(client))


def traced_provider(
    provider: Provider, tracer: Tracer, client: httpx.AsyncClient, kind: str
) -> Provider:
    """The same, in spans where there are traces. `kind`: the provider's type."""
    if not tracer.on:
        return provider
    name = _PROVIDERS.get(kind, provider.name)
    about = {**_server(client), "gen_ai.provider.name": name}
    return TracedProvider(provider=provider, tracer=tracer, about=about)


def _server(client: httpx.AsyncClient) -> dict[str, str | int]:
    url = client.base_url
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"server.address": url.host, "server.port": port}


def _of(completion: Completion) -> Attributes:
    usage: dict[str, str | int | Sequence[str]] = {
        "gen_ai.response.model": completion.model,
        "gen_ai.response.finish_reasons": ["length" if completion.truncated else "stop"],
    }
    if completion.tells_usage:
        usage["gen_ai.usage.input_tokens"] = completion.input_tokens
        usage["gen_ai.usage.output_tokens"] = completion.output_tokens
    return usage
