"""Judges behind OpenAI's chat-completions API, which many servers speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from consumer.edges.http import retry_after_s
from consumer.errors import (
    ContextOverflow,
    InternalError,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
)
from consumer.ports import ChatMessage, Completion

TEMPERATURE = 0.0
SHOWN_CHARACTERS = 200


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Message(_Shape):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Shape):
    message: _Message
    finish_reason: str | None = None


class _Usage(_Shape):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(_Shape):
    model: str = ""
    choices: tuple[_Choice, ...]
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIProvider:
    """One model. `client` has the base URL, the key and the time limit of a call."""

    client: httpx.AsyncClient
    name: str
    model: str
    max_output_tokens: int

    async def complete(
        self, messages: Sequence[ChatMessage], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        """See ports.Provider."""
        try:
            response = await self.client.post(
                "chat/completions", json=self._request(messages, schema, max_tokens)
            )
        except httpx.HTTPError as error:
            raise JudgeUnavailable(
                f"judge {self.name} does not answer: {type(error).__name__}"
            ) from error
        if response.status_code != httpx.codes.OK:
            raise _error(self.name, response)
        return _completion(self.name, self.model, response)

    def _request(
        self, messages: Sequence[ChatMessage], schema: Mapping[str, Any], max_tokens: int
    ) -> dict[str, Any]:
        # A map of free keys can't be told to a strict decoder.
        strict = "score_breakdown" not in schema["properties"]
        return {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.text} for m in messages],
            "temperature": TEMPERATURE,
            "max_tokens": max_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": strict, "schema": schema},
            },
        }


def _completion(name: str, model: str, response: httpx.Response) -> Completion:
    try:
        answer = _Answer.model_validate_json(response.content)
    except ValidationError as error:
        # Half an answer, or a proxy's page: the server is unwell, the verdict is not at fault.
        raise JudgeUnavailable(f"judge {name} answered something that can't be read") from error
    if not answer.choices:
        raise JudgeUnavailable(f"judge {name} answered without a choice")
    choice = answer.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        why = choice.message.refusal or "content filter"
        raise JudgeRefused(f"judge {name} refused: {why[:SHOWN_CHARACTERS]}")
    usage = answer.usage or _Usage()
    return Completion(
        text=choice.message.content or "",
        model=answer.model or model,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        truncated=choice.finish_reason == "length",
    )


def _error(name: str, response: httpx.Response) -> Exception:
    """The status as one of our errors. Source: OpenAI's guide to error codes."""
    code, kind = response.status_code, _error_code(response)
    if kind == "context_length_exceeded":
        return ContextOverflow(f"judge {name}: the prompt does not fit the model's context")
    if code in {401, 402, 403} or kind == "insufficient_quota":
        return JudgeRejected(f"judge {name} refuses our key or quota ({code})")
    if code in {408, 409, 425, 429} or code >= 500:
        return JudgeUnavailable(
            f"judge {name} answers {code}", retry_after=retry_after_s(response.headers)
        )
    if kind == "content_filter":
        return JudgeRefused(f"judge {name} refused: content filter")
    return InternalError(f"judge {name} does not accept our request ({code} {kind})".rstrip())


def _error_code(response: httpx.Response) -> str:
    """The error's own code; its text is left out, for it may repeat what we sent."""
    try:
        error = response.json()["error"]
        return str(error.get("code") or error.get("type") or "")[:64]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
