"""Judges behind Anthropic's Messages API.

Sources: its API reference, and the pages on errors, stop reasons and structured outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from consumer.edges.judge.base import (
    Call,
    Dialect,
    HttpProvider,
    Name,
    Part,
    Shape,
    Tokens,
    Usage,
)
from consumer.errors import (
    ContextOverflow,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
    ScoringError,
)
from consumer.ports import Completion, Sent

API_VERSION = "2023-06-01"


class _Block(Shape):
    type: str
    text: str = ""


class _Usage(Usage):
    input_tokens: Tokens = 0
    cache_creation_input_tokens: Tokens = 0
    cache_read_input_tokens: Tokens = 0
    output_tokens: Tokens = 0


class _Answer(Shape):
    model: Name = ""
    content: tuple[_Block, ...]
    stop_reason: str | None = None
    usage: _Usage = _Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicProvider(HttpProvider):
    """A model behind POST {base_url}/messages."""

    dialects: ClassVar[tuple[Dialect, ...]] = ("json_schema", "none")
    dialects_for_free_keys: ClassVar[tuple[Dialect, ...]] = ("none",)
    codes: ClassVar[Mapping[str, type[ScoringError]]] = {
        "authentication_error": JudgeRejected,
        "permission_error": JudgeRejected,
        "billing_error": JudgeRejected,
        "rate_limit_error": JudgeRateLimited,
        "overloaded_error": JudgeOverloaded,
        "timeout_error": JudgeUnavailable,
        "api_error": JudgeUnavailable,
        "request_too_large": ContextOverflow,
    }
    # All of these are an invalid_request_error.
    phrases: ClassVar[Mapping[str, type[ScoringError]]] = {
        "prompt is too long": ContextOverflow,
        "exceed context limit": ContextOverflow,
        "credit balance is too low": JudgeRejected,
        "usage limit": JudgeRejected,
        "spend limit": JudgeRejected,
        "content filtering policy": JudgeRefused,
    }
    droppable: ClassVar[Mapping[Part, tuple[str, ...]]] = {
        "json_schema": ("output_config", "output format", "structured output", "schema", "grammar"),
        # Newer models take no sampling parameters at all.
        "temperature": ("temperature",),
    }

    @staticmethod
    def headers(api_key: str) -> dict[str, str]:
        version = {"anthropic-version": API_VERSION}
        return {**version, "x-api-key": api_key} if api_key else version

    def _path(self) -> str:
        return "messages"

    def _request(self, call: Call) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": call.max_tokens,
            "messages": [{"role": m.role, "content": m.text} for m in call.messages],
            **call.sampling,
        }
        if call.dialect == "json_schema":
            body["output_config"] = {"format": {"type": "json_schema", "schema": call.schema}}
        return body

    def _completion(self, answer: Any, sent: Sent) -> Completion:
        read = _Answer.model_validate(answer)
        if read.stop_reason == "refusal":
            raise self._refusal("refusal")
        if read.stop_reason == "model_context_window_exceeded":
            # More output tokens would not help: prompt and answer fill the context together.
            raise ContextOverflow(f"judge {self.name} stopped: prompt and answer do not fit")
        usage = read.usage
        cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        return Completion(
            text="".join(block.text for block in read.content if block.type == "text"),
            model=read.model or self.model,
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            truncated=read.stop_reason == "max_tokens",
            sent=sent,
        )
