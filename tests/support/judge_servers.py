"""The three judge APIs as HTTP stand-ins that answer as their providers document it.

`Api` holds what one provider answers in each case; a `JudgeServer` gives answers in turn, and keeps
what it was asked. Many of them live on one port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from consumer.demo.world import served
from consumer.edges.judge import ProviderType

Json = dict[str, Any]
# A whole ASGI answer: it may be slow, endless or broken.
Reply = Callable[[Scope, Receive, Send], Awaitable[None]]

TEXT = '{"verdict": "é \\" 1"}'
SERVED_MODEL = "judge-1-2026-01-01"
FINGERPRINT = "fp_44709d6fcb"
# What no message and no log may repeat.
SECRET = "sk-secret-1234567890"  # noqa: S105 - it opens nothing


def reply(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """This body at once; bytes go as they are, anything else as JSON."""
    if isinstance(body, bytes):
        return Response(body, status_code=status, headers=headers)
    return JSONResponse(body, status_code=status, headers=headers)


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    """No answer, until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class Drip:
    """The body chunk by chunk, with a pause after each, until the client leaves."""

    body: bytes
    pause_s: float
    chunk_bytes: int = 1
    sent: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(hang(scope, receive, send))
        for start in range(0, len(self.body), self.chunk_bytes):
            if gone.done():
                break
            chunk = self.body[start : start + self.chunk_bytes]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.sent += len(chunk)
            await asyncio.sleep(self.pause_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        gone.cancel()
        self.ended.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    path: str
    query: bytes
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        """The body, decoded."""
        return dict(json.loads(self.raw))


@dataclass(slots=True)
class JudgeServer:
    """Gives these answers in turn; the last one again and again."""

    url: str
    replies: list[Reply]
    asked: list[Asked] = field(default_factory=list)

    async def answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        asked = Asked(
            path=path,
            query=scope["query_string"],
            headers=dict(request.headers),
            raw=await request.body(),
        )
        self.asked.append(asked)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        await reply(scope, receive, send)


@dataclass(slots=True)
class JudgeServers:
    """Any number of servers on one port, told apart by the first segment of the path."""

    url: str = ""
    opened: dict[str, JudgeServer] = field(default_factory=dict)

    def open(self, *replies: Reply) -> JudgeServer:
        name = str(len(self.opened))
        self.opened[name] = JudgeServer(f"{self.url}/{name}", list(replies))
        return self.opened[name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, name, path = scope["path"].split("/", 2)
        await self.opened[name].answer(f"/{path}", scope, receive, send)


@contextlib.asynccontextmanager
async def judge_servers() -> AsyncIterator[JudgeServers]:
    """Servers on a free port."""
    servers = JudgeServers()
    async with served(servers) as url:
        servers.url = url
        yield servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One provider's answers. `success` uses 700 tokens in and 50 out."""

    kind: ProviderType
    path: str
    success: Json
    truncated: Json
    refusals: Mapping[str, Json]
    empty: Json
    rate_limited: Json
    # (status, body) by what is wrong.
    rejections: Mapping[str, tuple[int, Json]]
    overflows: Mapping[str, tuple[int, Json]]
    blocked: tuple[int, Json] | None
    bad_request: tuple[int, Json]
    overloaded: tuple[int, Json]

    def ok(self) -> Reply:
        return reply(200, self.success)


# --- OpenAI ------------------------------------------------------------------------------------


def openai_answer(content: str | None, finish: str = "stop", refusal: str | None = None) -> Json:
    message: Json = {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1767225600,
        "model": SERVED_MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 700,
            "completion_tokens": 50,
            "total_tokens": 750,
            "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def openai_error(
    code: str | int | None, kind: str = "invalid_request_error", message: str = SECRET,
    param: str | None = None,
) -> Json:  # fmt: skip
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


OPENAI = Api(
    kind="openai",
    path="/v1/chat/completions",
    success=openai_answer(TEXT),
    truncated=openai_answer('{"verd', "length"),
    refusals={
        "refusal": openai_answer(None, refusal=f"I can't help with {SECRET}"),
        "content_filter": openai_answer('{"verd', "content_filter"),
    },
    empty={**openai_answer(None), "choices": []},
    rate_limited=openai_error("rate_limit_exceeded", "requests"),
    rejections={
        "key": (401, openai_error("invalid_api_key", message=f"Incorrect API key: {SECRET}")),
        "permission": (403, openai_error("unsupported_country_region_territory")),
        "credit": (402, openai_error("invalid_request_error")),
        "quota": (429, openai_error("insufficient_quota", "insufficient_quota")),
        "billing": (400, openai_error("billing_hard_limit_reached")),
    },
    overflows={
        "openai": (400, openai_error("context_length_exceeded", param="messages")),
        "vllm": (400, {
            "object": "error",
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's "
            f"maximum context length is 4096 tokens. {SECRET}",
            "type": "BadRequestError", "param": None, "code": 400,
        }),
        "llama.cpp": (400, openai_error(400, "exceed_context_size_error")),
        "groq": (413, openai_error("rate_limit_exceeded", "tokens")),
        "account": (429, openai_error(
            "rate_limit_exceeded", "tokens", "Request too large for gpt-4o on tokens per min"
        )),
    },
    blocked=(400, openai_error("content_filter", param="prompt")),
    bad_request=(400, openai_error("invalid_value")),
    overloaded=(503, openai_error(None, "server_error")),
)  # fmt: skip

# --- Gemini ------------------------------------------------------------------------------------


def gemini_answer(parts: list[Json] | None, finish: str = "STOP") -> Json:
    content = {"role": "model", **({} if parts is None else {"parts": parts})}
    return {
        "candidates": [{"content": content, "finishReason": finish, "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 700,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 30,
            "totalTokenCount": 750,
            "cachedContentTokenCount": 100,
        },
        "modelVersion": SERVED_MODEL,
        "responseId": "r-1",
    }


def gemini_error(status: int, name: str, message: str = SECRET, *details: Json) -> Json:
    return {"error": {"code": status, "message": message, "status": name, "details": list(details)}}


def error_info(reason: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def quota_failure(quota: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [
            {
                "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
                "quotaId": quota,
                "quotaDimensions": {"location": "global", "model": "judge-1"},
                "quotaValue": "20",
            }
        ],
    }


def retry_info(delay: str) -> Json:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


PER_MINUTE = quota_failure("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
PER_DAY = quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
# Google says this of every quota.
QUOTA_TEXT = f"You exceeded your current quota, please check your plan and billing. {SECRET}"
_USED = {"promptTokenCount": 700, "totalTokenCount": 700}

GEMINI = Api(
    kind="gemini",
    path="/v1/models/judge-1:generateContent",
    success=gemini_answer(
        [
            {"text": "Thinking: {", "thought": True},
            {"text": TEXT[:5], "thoughtSignature": "c2ln"},
            {"text": TEXT[5:]},
        ]
    ),
    truncated=gemini_answer([{"text": '{"verd'}], "MAX_TOKENS"),
    refusals={
        **{
            reason: gemini_answer(None, reason)
            for reason in ("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII")
        },
        "OTHER": {"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": _USED},
    },
    empty={"candidates": [], "usageMetadata": _USED, "modelVersion": SERVED_MODEL},
    rate_limited=gemini_error(429, "RESOURCE_EXHAUSTED", QUOTA_TEXT, PER_MINUTE),
    rejections={
        "key": (400, gemini_error(400, "INVALID_ARGUMENT", SECRET, error_info("API_KEY_INVALID"))),
        "permission": (403, gemini_error(403, "PERMISSION_DENIED")),
        "credit": (402, gemini_error(402, "RESOURCE_EXHAUSTED")),
        "quota": (429, gemini_error(
            429, "RESOURCE_EXHAUSTED", QUOTA_TEXT, PER_MINUTE, PER_DAY, retry_info("20s")
        )),
        "billing": (400, gemini_error(400, "FAILED_PRECONDITION")),
        "cap": (429, gemini_error(
            429, "RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap."
        )),
    },
    overflows={
        "gemini": (400, gemini_error(400, "INVALID_ARGUMENT",
            "The input token count (1054016) exceeds the maximum number of tokens allowed "
            f"(1048576). {SECRET}")),
        "body": (413, {}),
    },
    blocked=None,
    bad_request=(400, gemini_error(400, "INVALID_ARGUMENT")),
    overloaded=(503, gemini_error(503, "UNAVAILABLE")),
)  # fmt: skip

# --- Anthropic ---------------------------------------------------------------------------------


def anthropic_answer(content: list[Json], stop: str = "end_turn") -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": SERVED_MODEL,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 400,
            "cache_creation_input_tokens": 200,
            "cache_read_input_tokens": 100,
            "output_tokens": 50,
            "service_tier": "standard",
        },
    }


def anthropic_error(kind: str, message: str = SECRET) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


ANTHROPIC = Api(
    kind="anthropic",
    path="/v1/messages",
    success=anthropic_answer(
        [
            {"type": "thinking", "thinking": "Hm: {", "signature": "c2ln"},
            {"type": "text", "text": TEXT[:5]},
            {"type": "text", "text": TEXT[5:]},
        ]
    ),
    truncated=anthropic_answer([{"type": "text", "text": '{"verd'}], "max_tokens"),
    refusals={"refusal": anthropic_answer([], "refusal")},
    empty={**anthropic_answer([]), "content": None},
    rate_limited=anthropic_error("rate_limit_error", "Your usage limit of tokens per minute"),
    rejections={
        "key": (401, anthropic_error("authentication_error", f"invalid x-api-key {SECRET}")),
        "permission": (403, anthropic_error("permission_error")),
        "billing": (402, anthropic_error("billing_error")),
        "credit": (400, anthropic_error(
            "invalid_request_error", "Your credit balance is too low to access the API."
        )),
        "quota": (400, anthropic_error(
            "invalid_request_error", "You have reached your specified API usage limits."
        )),
    },
    overflows={
        "prompt": (400, anthropic_error(
            "invalid_request_error", f"prompt is too long: 210000 tokens > 200000 {SECRET}"
        )),
        "both": (400, anthropic_error(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        )),
        "body": (413, anthropic_error("request_too_large")),
        "stop": (200, anthropic_answer(
            [{"type": "text", "text": "{"}], "model_context_window_exceeded"
        )),
    },
    blocked=(400, anthropic_error(
        "invalid_request_error", "Output blocked by content filtering policy"
    )),
    bad_request=(400, anthropic_error("invalid_request_error")),
    overloaded=(529, anthropic_error("overloaded_error")),
)  # fmt: skip

APIS = (OPENAI, GEMINI, ANTHROPIC)
