"""Judges behind Google's Gemini API.

Sources: the API reference of models.generateContent, and its page of error codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from consumer.edges.judge.base import (
    DIALECTS,
    Answer,
    Call,
    Dialect,
    HttpProvider,
    Name,
    Part,
    Problem,
    Shape,
    Tokens,
    Usage,
    problem_in,
)
from consumer.errors import ContextOverflow, JudgeRejected, JudgeUnreadable, ScoringError
from consumer.ports import Completion, Sent

# Finish reasons that mean the model may not answer. Others mean that it could not: then the answer
# is empty or broken, and asked for again.
_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
)
_ROLES = {"user": "user", "assistant": "model"}
# A google.protobuf.Duration as JSON.
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


class _Part(Shape):
    text: str = ""
    thought: bool = False


class _Content(Shape):
    parts: tuple[_Part, ...] = ()


class _Candidate(Shape):
    content: _Content = _Content()
    finish_reason: Annotated[str, Field(alias="finishReason")] = ""


class _Feedback(Shape):
    block_reason: Annotated[str, Field(alias="blockReason")] = ""


class _Usage(Usage):
    prompt: Annotated[Tokens, Field(alias="promptTokenCount")] = 0  # cached ones included
    candidates: Annotated[Tokens, Field(alias="candidatesTokenCount")] = 0
    thoughts: Annotated[Tokens, Field(alias="thoughtsTokenCount")] = 0


class _Answer(Shape):
    candidates: tuple[_Candidate, ...] = ()
    feedback: Annotated[_Feedback, Field(alias="promptFeedback")] = _Feedback()
    usage: Annotated[_Usage, Field(alias="usageMetadata")] = _Usage()
    model: Annotated[Name, Field(alias="modelVersion")] = ""


class _Violation(Shape):
    quota: Annotated[str, Field(alias="quotaId")] = ""


class _Detail(Shape):
    """One of google.rpc's ErrorInfo, QuotaFailure and RetryInfo."""

    reason: str = ""
    violations: tuple[_Violation, ...] = ()
    retry_delay: Annotated[str, Field(alias="retryDelay")] = ""


class _Error(Shape):
    details: tuple[_Detail, ...] = ()


class _ErrorAnswer(Shape):
    error: _Error = _Error()


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiProvider(HttpProvider):
    """A model behind POST {base_url}/models/{model}:generateContent.

    A used-up quota of a day counts as a refused quota, one of a minute as a rate limit.
    """

    dialects: ClassVar[tuple[Dialect, ...]] = DIALECTS
    dialects_for_free_keys: ClassVar[tuple[Dialect, ...]] = ("json_object", "none")
    codes: ClassVar[Mapping[str, type[ScoringError]]] = {
        "API_KEY_INVALID": JudgeRejected,  # comes with status 400
        "FAILED_PRECONDITION": JudgeRejected,  # no billing where the free tier is not offered
    }
    phrases: ClassVar[Mapping[str, type[ScoringError]]] = {
        "perday": JudgeRejected,
        "prepay": JudgeRejected,
        "spend cap": JudgeRejected,
        "spending cap": JudgeRejected,
        "exceeds the maximum number of tokens": ContextOverflow,
    }
    droppable: ClassVar[Mapping[Part, tuple[str, ...]]] = {
        # A schema may also have "too many states for serving".
        "json_schema": ("schema",),
        "json_object": ("mime", "json mode"),
        "temperature": ("temperature",),
    }

    @staticmethod
    def headers(api_key: str) -> dict[str, str]:
        # Not in the URL, where the API takes it too: URLs are logged.
        return {"x-goog-api-key": api_key} if api_key else {}

    def _path(self) -> str:
        return f"models/{quote(self.model.removeprefix('models/'), safe='')}:generateContent"

    def _request(self, call: Call) -> dict[str, Any]:
        contents = [{"role": _ROLES[m.role], "parts": [{"text": m.text}]} for m in call.messages]
        config: dict[str, Any] = {"maxOutputTokens": call.max_tokens, **call.sampling}
        if call.dialect != "none":
            config["responseMimeType"] = "application/json"
        if call.dialect == "json_schema":
            config["responseJsonSchema"] = call.schema
        return {"contents": contents, "generationConfig": config}

    def _completion(self, answer: Any, sent: Sent) -> Completion:
        read = _Answer.model_validate(answer)
        if read.feedback.block_reason:
            raise self._refusal(read.feedback.block_reason)
        if not read.candidates:
            raise JudgeUnreadable(f"judge {self.name} answered without a candidate")
        candidate = read.candidates[0]
        if candidate.finish_reason in _REFUSALS:
            raise self._refusal(candidate.finish_reason)
        return Completion(
            text="".join(part.text for part in candidate.content.parts if not part.thought),
            model=read.model or self.model,
            input_tokens=read.usage.prompt,
            output_tokens=read.usage.candidates + read.usage.thoughts,
            truncated=candidate.finish_reason == "MAX_TOKENS",
            sent=sent,
        )

    def _problem(self, answer: Answer) -> Problem:
        """With what Google tells beside the status: why, which quotas, and when to come back."""
        problem = problem_in(answer)
        details = _details(answer)
        quotas = [violation.quota for detail in details for violation in detail.violations]
        delays = [float(found[1]) for d in details if (found := _DELAY.fullmatch(d.retry_delay))]
        return replace(
            problem,
            codes=(*(d.reason for d in details if d.reason), *problem.codes),
            text=" ".join([problem.text, *quotas]).lower(),
            retry_after=problem.retry_after or max(delays, default=None),
        )


def _details(answer: Answer) -> tuple[_Detail, ...]:
    try:
        return _ErrorAnswer.model_validate(answer.json()).error.details
    except ValueError:
        return ()
