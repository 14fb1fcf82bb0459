"""Judges behind OpenAI's chat-completions API, which many servers speak.

Sources: OpenAI's API reference and guide to error codes; what vLLM, llama.cpp, DeepSeek, Groq and
Azure answer where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from consumer.edges.judge.base import (
    DIALECTS,
    Call,
    Dialect,
    HttpProvider,
    Name,
    Part,
    Shape,
    Tokens,
    Usage,
    has_free_keys,
)
from consumer.errors import ContextOverflow, JudgeRefused, JudgeRejected, ScoringError
from consumer.ports import Completion, Sent

_JSON_WORDS = (
    "response_format",
    "response format",
    "json_schema",
    "json schema",
    "json_object",
    "structured output",
    "grammar",
)


class _Message(Shape):
    content: str | None = None
    refusal: str | None = None


class _Choice(Shape):
    message: _Message
    finish_reason: str | None = None


class _Usage(Usage):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0  # those of reasoning included


class _Answer(Shape):
    model: Name = ""
    system_fingerprint: Name = ""  # the only API of the three that has one
    choices: Annotated[tuple[_Choice, ...], Field(min_length=1)]
    usage: _Usage = _Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIProvider(HttpProvider):
    """A model behind POST {base_url}/chat/completions."""

    dialects: ClassVar[tuple[Dialect, ...]] = DIALECTS
    dialects_for_free_keys: ClassVar[tuple[Dialect, ...]] = DIALECTS
    codes: ClassVar[Mapping[str, type[ScoringError]]] = {
        "insufficient_quota": JudgeRejected,  # a 429 that waiting does not mend
        "billing_hard_limit_reached": JudgeRejected,
        "billing_not_active": JudgeRejected,
        "invalid_api_key": JudgeRejected,
        "content_filter": JudgeRefused,
        "content_policy_violation": JudgeRefused,
        "invalid_prompt": JudgeRefused,
        "context_length_exceeded": ContextOverflow,
        "exceed_context_size_error": ContextOverflow,
        "string_above_max_length": ContextOverflow,
    }
    phrases: ClassVar[Mapping[str, type[ScoringError]]] = {
        "context length": ContextOverflow,
        "context size": ContextOverflow,
        "context window": ContextOverflow,
        # More tokens than the account may send in a minute: waiting does not mend it.
        "request too large": ContextOverflow,
    }
    droppable: ClassVar[Mapping[Part, tuple[str, ...]]] = {
        "json_schema": _JSON_WORDS,
        "json_object": _JSON_WORDS,
        "max_tokens": ("max_completion_tokens",),
        "temperature": ("temperature",),
    }

    @staticmethod
    def headers(api_key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def _path(self) -> str:
        return "chat/completions"

    def _request(self, call: Call) -> dict[str, Any]:
        # Reasoning models take the newer name only, most other servers the older one only.
        refused = "max_tokens" in call.refused
        limit = "max_completion_tokens" if refused else "max_tokens"
        return {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.text} for m in call.messages],
            limit: call.max_tokens,
            **call.sampling,
            **_response_format(call),
        }

    def _completion(self, answer: Any, sent: Sent) -> Completion:
        read = _Answer.model_validate(answer)
        choice = read.choices[0]
        if choice.finish_reason == "content_filter":
            raise self._refusal("content_filter")
        if choice.message.refusal:
            raise self._refusal("refusal")
        usage = read.usage
        return Completion(
            text=choice.message.content or "",
            model=read.model or self.model,
            fingerprint=read.system_fingerprint or None,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            truncated=choice.finish_reason == "length",
            sent=sent,
        )


def _response_format(call: Call) -> dict[str, Any]:
    if call.dialect == "none":
        return {}
    if call.dialect == "json_object":
        return {"response_format": {"type": "json_object"}}
    # A map of free keys can't be told to a strict decoder.
    strict = not has_free_keys(call.schema)
    schema = {"name": "verdict", "strict": strict, "schema": call.schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
