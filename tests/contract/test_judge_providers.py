"""Every judge provider keeps the same promises, against servers that answer as documented.

Each test counts the requests that arrive: nothing is tried again where nobody sees it.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Protocol, get_args

import httpx
import pytest
import pytest_asyncio
import structlog

from consumer.demo.servers import HOST, free_port
from consumer.edges.http import open_client
from consumer.edges.judge import Dialect, ProviderType, base, headers, provider
from consumer.edges.judge.openai import OpenAIProvider
from consumer.errors import (
    ContextOverflow,
    InternalError,
    JudgeNoAnswer,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
    JudgeUnreadable,
)
from consumer.ports import ChatMessage, Completion, Provider
from consumer.scoring.verdict import output_schema
from tests.support.broken_http import BROKEN, NO_UTF_8, saying
from tests.support.judge_servers import (
    ANTHROPIC,
    APIS,
    FINGERPRINT,
    GEMINI,
    OPENAI,
    PER_MINUTE,
    SECRET,
    SERVED_MODEL,
    TEXT,
    Api,
    Drip,
    JudgeServer,
    JudgeServers,
    Reply,
    anthropic_answer,
    anthropic_error,
    gemini_answer,
    gemini_error,
    hang,
    judge_servers,
    openai_answer,
    openai_error,
    reply,
    retry_info,
)
from tests.unit.builders import free_form_profile, profile

SCHEMA = output_schema(profile())
FREE_FORM_SCHEMA = output_schema(free_form_profile())
PROMPT = f"Judge this, and answer in JSON: {SECRET} é"
ASKED = (ChatMessage(role="user", text=PROMPT),)
KEY = "key-of-the-judge"
TIMEOUT_S = 0.5

# One loop, and one port, for all.
pytestmark = pytest.mark.asyncio(loop_scope="module")
each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)


def cases(name: str) -> pytest.MarkDecorator:
    """Each API with each of its cases of this name."""
    found = [(api, case) for api in APIS for case in getattr(api, name)]
    return pytest.mark.parametrize(
        ("api", "case"), found, ids=[f"{api.kind}-{case}" for api, case in found]
    )


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(base, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


@dataclass(frozen=True)
class Judge:
    """A provider and the server that it asks."""

    provider: Provider
    server: JudgeServer

    async def ask(self, schema: Any = SCHEMA, messages: Any = ASKED) -> Completion:
        return await self.provider.complete(messages, schema, max_tokens=4096, temperature=0.0)

    async def fails(self, error: type[Exception]) -> Any:
        """The error; it is exactly of this class, and repeats nothing that is secret."""
        with pytest.raises(error) as raised:
            await self.ask()
        assert type(raised.value) is error
        told = str(raised.value)
        assert told.startswith("judge main ")
        assert len(told) < 200
        assert SECRET not in told
        assert KEY not in told
        return raised.value

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.server.asked]


@contextlib.asynccontextmanager
async def provider_at(
    url: str,
    kind: ProviderType,
    *,
    dialect: Dialect = "json_schema",
    model: str = "judge-1",
    key: str = KEY,
    timeout_s: float = 10,
) -> AsyncIterator[Provider]:
    client = open_client(url + "/v1", timeout_s=timeout_s, headers=headers(kind, key))
    async with client:
        yield provider(
            kind, client=client, name="main", model=model, max_output_tokens=256, dialect=dialect
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[JudgeServers]:
    async with judge_servers() as opened:
        yield opened


class Judging(Protocol):
    def __call__(
        self, api: Api, *replies: Reply, **options: Any
    ) -> contextlib.AbstractAsyncContextManager[Judge]: ...


@pytest.fixture
def judging(servers: JudgeServers) -> Judging:
    """Opens a provider of this API on a server that gives these answers."""

    @contextlib.asynccontextmanager
    async def opened(api: Api, *replies: Reply, **options: Any) -> AsyncIterator[Judge]:
        server = servers.open(*replies)
        async with provider_at(server.url, api.kind, **options) as asking:
            yield Judge(asking, server)

    return opened


# --- A good answer -----------------------------------------------------------------------------


@each_api
async def test_an_answer_is_its_text_its_model_and_all_its_tokens(
    judging: Judging, api: Api
) -> None:
    async with judging(api, api.ok()) as judge:
        completion = await judge.ask()
        (asked,) = judge.server.asked
        assert completion == Completion(
            text=TEXT,
            model=SERVED_MODEL,
            fingerprint=FINGERPRINT if api is OPENAI else None,
            input_tokens=700,
            output_tokens=50,
            truncated=False,
            sent=completion.sent,
        )
        assert asked.path == api.path
        assert (asked.query, KEY in asked.path) == (b"", False)


@each_api
async def test_what_was_sent_is_told_in_its_bytes(judging: Judging, api: Api) -> None:
    async with judging(api, api.ok()) as judge:
        sent = (await judge.ask()).sent
        (asked,) = judge.server.asked
        base, _, path = asked.path.lstrip("/").partition("/")
        assert (base, sent.path, sent.body) == ("v1", path, asked.raw)
        assert sent.content == path.encode() + b"\n" + asked.raw
        assert (sent.dialect, sent.max_tokens, sent.temperature) == ("json_schema", 4096, 0.0)


@each_api
async def test_a_request_is_repeated_byte_for_byte(judging: Judging, api: Api) -> None:
    async with judging(api, api.ok()) as judge:
        first = await judge.ask()
        assert await judge.provider.repeat(first.sent) == first
        one, other = judge.server.asked
        assert (other.path, other.raw, other.headers["content-type"]) == (
            one.path,
            one.raw,
            one.headers["content-type"],
        )


@each_api
async def test_nothing_is_left_out_of_what_is_repeated(judging: Judging, api: Api) -> None:
    words = "temperature is not supported"
    refusal = {
        "openai": openai_error("unsupported_value", message=words),
        "gemini": gemini_error(400, "INVALID_ARGUMENT", words),
        "anthropic": anthropic_error("invalid_request_error", words),
    }[api.kind]
    async with judging(api, api.ok(), reply(400, refusal)) as judge:
        sent = (await judge.ask()).sent
        with pytest.raises(InternalError, match="does not accept our request"):
            await judge.provider.repeat(sent)
        assert len(judge.server.asked) == 2


async def test_what_another_api_was_sent_is_not_repeated(judging: Judging) -> None:
    async with judging(OPENAI, OPENAI.ok()) as judge, judging(GEMINI, GEMINI.ok()) as other:
        sent = (await judge.ask()).sent
        with pytest.raises(InternalError, match=r"^judge main was asked at chat/completions, and"):
            await other.provider.repeat(sent)
        assert other.server.asked == []


async def test_what_openai_is_sent(judging: Judging) -> None:
    async with judging(OPENAI, OPENAI.ok()) as judge:
        await judge.ask()
        (asked,) = judge.server.asked
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.body == {
            "model": "judge-1",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 4096,
            "temperature": 0.0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA},
            },
        }


async def test_what_gemini_is_sent(judging: Judging) -> None:
    async with judging(GEMINI, GEMINI.ok()) as judge:
        await judge.ask()
        (asked,) = judge.server.asked
        assert asked.headers["x-goog-api-key"] == KEY
        assert asked.body == {
            "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
            "generationConfig": {
                "maxOutputTokens": 4096,
                "temperature": 0.0,
                "responseMimeType": "application/json",
                "responseJsonSchema": SCHEMA,
            },
        }


async def test_what_anthropic_is_sent(judging: Judging) -> None:
    async with judging(ANTHROPIC, ANTHROPIC.ok()) as judge:
        await judge.ask()
        (asked,) = judge.server.asked
        assert asked.headers["x-api-key"] == KEY
        assert asked.headers["anthropic-version"] == "2023-06-01"
        assert asked.body == {
            "model": "judge-1",
            "max_tokens": 4096,
            "temperature": 0.0,
            "messages": [{"role": "user", "content": PROMPT}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        }


async def test_an_object_of_free_keys_is_only_asked_for_where_it_can_be(judging: Judging) -> None:
    async with judging(OPENAI, OPENAI.ok()) as judge:
        await judge.ask(FREE_FORM_SCHEMA)
        assert judge.bodies[0]["response_format"]["json_schema"] == {
            "name": "verdict",
            "strict": False,
            "schema": FREE_FORM_SCHEMA,
        }
    async with judging(GEMINI, GEMINI.ok()) as judge:
        await judge.ask(FREE_FORM_SCHEMA)
        config = judge.bodies[0]["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        assert "responseJsonSchema" not in config
    async with judging(ANTHROPIC, ANTHROPIC.ok()) as judge:
        await judge.ask(FREE_FORM_SCHEMA)
        assert "output_config" not in judge.bodies[0]


def _keywords(schema: Any) -> Iterator[str]:
    """The keywords of a JSON Schema, without the names of properties."""
    for keyword, value in schema.items():
        yield keyword
        below = value.values() if keyword == "properties" else [value]
        for part in below:
            if isinstance(part, dict):
                yield from _keywords(part)


async def test_the_schema_sent_has_only_what_strict_decoders_take(judging: Judging) -> None:
    # Anthropic and OpenAI refuse minimum, maximum, maxItems and lengths.
    taken = {"type", "properties", "required", "additionalProperties", "items", "enum"}
    async with judging(ANTHROPIC, ANTHROPIC.ok()) as judge:
        await judge.ask()
        sent = judge.bodies[0]["output_config"]["format"]["schema"]
        assert set(_keywords(sent)) == taken


def _conversation(api: Api, body: dict[str, Any]) -> list[tuple[str, str]]:
    if api is GEMINI:
        return [(turn["role"], turn["parts"][0]["text"]) for turn in body["contents"]]
    return [(turn["role"], turn["content"]) for turn in body["messages"]]


@each_api
async def test_a_conversation_keeps_its_order_and_roles(judging: Judging, api: Api) -> None:
    correction = (
        *ASKED,
        ChatMessage(role="assistant", text="(empty)"),
        ChatMessage(role="user", text="Again."),
    )
    async with judging(api, api.ok()) as judge:
        await judge.ask(messages=correction)
        assistant = "model" if api is GEMINI else "assistant"
        assert _conversation(api, judge.bodies[0]) == [
            ("user", PROMPT),
            (assistant, "(empty)"),
            ("user", "Again."),
        ]


async def test_gemini_s_model_may_be_given_with_its_collection(judging: Judging) -> None:
    async with judging(GEMINI, GEMINI.ok(), model="models/judge-1") as judge:
        await judge.ask()
        assert [asked.path for asked in judge.server.asked] == [GEMINI.path]


async def test_gemini_s_model_stays_one_segment_of_the_path(judging: Judging) -> None:
    async with judging(GEMINI, GEMINI.ok(), model="judge 1?a=b#c%2F") as judge:
        await judge.ask()
        (asked,) = judge.server.asked
        assert asked.path == "/v1/models/judge 1?a=b#c%2F:generateContent"
        assert asked.query == b""


@each_api
async def test_a_cut_off_answer_says_so(judging: Judging, api: Api) -> None:
    async with judging(api, reply(200, api.truncated)) as judge:
        completion = await judge.ask()
        assert completion.truncated
        assert completion.text == '{"verd'
        assert len(judge.server.asked) == 1


@pytest.mark.parametrize(
    ("api", "empty"),
    [
        (OPENAI, openai_answer(None)),
        (GEMINI, gemini_answer(None)),
        (GEMINI, gemini_answer(None, "MALFORMED_FUNCTION_CALL")),
        (ANTHROPIC, anthropic_answer([])),
    ],
    ids=["openai", "gemini", "gemini-malformed", "anthropic"],
)
async def test_an_answer_without_text_is_a_paid_answer_all_the_same(
    judging: Judging, api: Api, empty: Any
) -> None:
    async with judging(api, reply(200, empty)) as judge:
        completion = await judge.ask()
        assert (completion.text, completion.input_tokens) == ("", 700)


@each_api
async def test_text_that_cannot_be_stored_is_mended(judging: Judging, api: Api) -> None:
    body = json.dumps(api.success).replace("ict", "ict\\ud800").encode()
    async with judging(api, reply(200, body)) as judge:
        assert (await judge.ask()).text == TEXT.replace("ict", "ict\ufffd")


async def test_a_server_may_leave_out_what_it_does_not_know(judging: Judging) -> None:
    bare = {
        "choices": [{"message": {"content": TEXT}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": None},
    }
    async with judging(OPENAI, reply(200, bare)) as judge:
        completion = await judge.ask()
        assert (completion.text, completion.model) == (TEXT, "judge-1")
        assert (completion.input_tokens, completion.output_tokens) == (7, 0)
        assert (completion.truncated, completion.fingerprint) == (False, None)


NO_COUNTS = [-5, 2**63, 10**30, 1e300, 12.5, True, "12", [], {}, base.MOST_TOKENS + 1]


def _counting(api: Api, name: str, count: Any) -> dict[str, Any]:
    """The API's answer with this count under one of its names, or under all of them."""
    told = json.loads(json.dumps(api.success))
    usage = told["usageMetadata" if api is GEMINI else "usage"]
    for other in usage:
        if name in {other, ""} and isinstance(usage[other], int):
            usage[other] = count
    return dict(told)


@pytest.mark.parametrize("count", NO_COUNTS)
@pytest.mark.parametrize(
    ("api", "name"),
    [
        *((OPENAI, name) for name in ("", "prompt_tokens", "completion_tokens")),
        *((GEMINI, name) for name in ("", "promptTokenCount", "candidatesTokenCount")),
        *((ANTHROPIC, name) for name in ("", "input_tokens", "output_tokens")),
    ],
)
async def test_a_count_that_is_none_leaves_the_usage_unknown(
    judging: Judging, api: Api, name: str, count: Any
) -> None:
    async with judging(api, reply(200, _counting(api, name, count))) as judge:
        completion = await judge.ask()
        assert (completion.text, completion.model) == (TEXT, SERVED_MODEL)
        assert (completion.input_tokens, completion.output_tokens) == (0, 0)
        assert not completion.tells_usage


@pytest.mark.parametrize("usage", [None, "none", 7, [], {}])
@each_api
async def test_an_answer_without_usage(judging: Judging, api: Api, usage: Any) -> None:
    told = api.success | {"usageMetadata" if api is GEMINI else "usage": usage}
    async with judging(api, reply(200, told)) as judge:
        assert not (await judge.ask()).tells_usage


@each_api
async def test_a_large_count_is_one(judging: Judging, api: Api) -> None:
    async with judging(api, reply(200, _counting(api, "", base.MOST_TOKENS))) as judge:
        completion = await judge.ask()
        assert base.MOST_TOKENS <= completion.input_tokens < 2**40
        assert base.MOST_TOKENS <= completion.output_tokens < 2**40


@pytest.mark.parametrize(
    ("told", "model"),
    [(None, "judge-1"), (7, "judge-1"), ("m" * 1000, "m" * 254 + "\u2026"), ("", "judge-1")],
)
@each_api
async def test_the_model_s_name_costs_no_answer(
    judging: Judging, api: Api, told: Any, model: str
) -> None:
    answer = api.success | {"modelVersion" if api is GEMINI else "model": told}
    async with judging(api, reply(200, answer)) as judge:
        assert (await judge.ask()).model == model


@each_api
async def test_a_server_of_one_s_own_may_want_no_key(judging: Judging, api: Api) -> None:
    async with judging(api, api.ok(), key="") as judge:
        await judge.ask()
        (asked,) = judge.server.asked
        assert {"authorization", "x-api-key", "x-goog-api-key"}.isdisjoint(asked.headers)


# --- Errors ------------------------------------------------------------------------------------


@each_api
async def test_a_rate_limit_with_seconds(judging: Judging, api: Api) -> None:
    async with judging(api, reply(429, api.rate_limited, {"retry-after": "17"})) as judge:
        error = await judge.fails(JudgeRateLimited)
        assert error.retry_after == 17
        assert len(judge.server.asked) == 1


@each_api
async def test_a_rate_limit_with_a_date(judging: Judging, api: Api) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    async with judging(api, reply(429, api.rate_limited, {"retry-after": at})) as judge:
        error = await judge.fails(JudgeRateLimited)
        assert 30 < error.retry_after <= 40
        assert len(judge.server.asked) == 1


@each_api
async def test_a_rate_limit_without_a_time(judging: Judging, api: Api) -> None:
    async with judging(api, reply(429, api.rate_limited)) as judge:
        error = await judge.fails(JudgeRateLimited)
        assert error.retry_after is None
        assert error.code == "judge_unavailable"
        assert len(judge.server.asked) == 1


@pytest.mark.parametrize(("delay", "seconds"), [("58.8s", 58.8), ("20s", 20.0), ("soon", None)])
async def test_gemini_tells_the_time_in_its_error(
    judging: Judging, delay: str, seconds: float | None
) -> None:
    body = gemini_error(429, "RESOURCE_EXHAUSTED", SECRET, PER_MINUTE, retry_info(delay))
    async with judging(GEMINI, reply(429, body)) as judge:
        assert (await judge.fails(JudgeRateLimited)).retry_after == seconds


@each_api
async def test_a_server_that_is_unwell(judging: Judging, api: Api) -> None:
    statuses = (408, 409, 425, 500, 502, 504)
    page = f"<html>{SECRET}".encode()
    pages = [reply(status, page, {"retry-after": "3"}) for status in statuses]
    async with judging(api, *pages) as judge:
        for status in statuses:
            error = await judge.fails(JudgeUnavailable)
            assert error.retry_after == 3
            assert str(error) == f"judge main answers {status}: it is unwell"
        assert len(judge.server.asked) == len(statuses)


@each_api
async def test_a_server_that_is_overloaded(judging: Judging, api: Api) -> None:
    busy = {"retry-after": "3"}
    pages = [reply(503, b"", busy), reply(529, b"", busy), reply(*api.overloaded)]
    async with judging(api, *pages) as judge:
        assert (await judge.fails(JudgeOverloaded)).retry_after == 3
        assert (await judge.fails(JudgeOverloaded)).retry_after == 3
        assert (await judge.fails(JudgeOverloaded)).retry_after is None
        assert len(judge.server.asked) == 3


async def test_a_server_that_is_unwell_is_so_whatever_it_says(judging: Judging) -> None:
    text = openai_error(None, "server_error", "no worker with this context length is free")
    async with judging(OPENAI, reply(500, text)) as judge:
        await judge.fails(JudgeUnavailable)
        assert len(judge.server.asked) == 1


@cases("rejections")
async def test_a_refused_key_or_quota(judging: Judging, api: Api, case: str) -> None:
    async with judging(api, reply(*api.rejections[case])) as judge:
        await judge.fails(JudgeRejected)
        assert len(judge.server.asked) == 1


@cases("refusals")
async def test_a_refusal_names_its_reason_only(judging: Judging, api: Api, case: str) -> None:
    async with judging(api, reply(200, api.refusals[case])) as judge:
        error = await judge.fails(JudgeRefused)
        assert str(error) == f"judge main refused: {case}"
        assert len(judge.server.asked) == 1


@pytest.mark.parametrize("api", [OPENAI, ANTHROPIC], ids=lambda api: api.kind)
async def test_a_filter_may_answer_with_an_error(judging: Judging, api: Api) -> None:
    assert api.blocked is not None
    async with judging(api, reply(*api.blocked)) as judge:
        await judge.fails(JudgeRefused)
        assert len(judge.server.asked) == 1


@cases("overflows")
async def test_a_prompt_that_does_not_fit(judging: Judging, api: Api, case: str) -> None:
    async with judging(api, reply(*api.overflows[case])) as judge:
        await judge.fails(ContextOverflow)
        assert len(judge.server.asked) == 1


@each_api
async def test_a_bad_request_is_our_fault(judging: Judging, api: Api) -> None:
    async with judging(api, reply(*api.bad_request)) as judge:
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 1


PAGE = {"content-type": "Text/HTML; charset=utf-8"}
NO_PAGE = "a web page (text/html), maybe a proxy's, and no API; see base_url"
MOVED = "a redirect to elsewhere; see base_url"
NOTHING = "there is no such path or model; see base_url and model"
ELSEWHERE: dict[str, tuple[Reply, str]] = {
    "redirect": (
        reply(302, b"", {"location": f"https://u:{SECRET}@login.example:8443/{SECRET}?a={SECRET}"}),
        "302: a redirect to login.example; see base_url",
    ),
    "path": (reply(307, b"", {"location": f"/{SECRET}"}), f"307: {MOVED}"),
    "odd host": (reply(308, b"", {"location": f"https://{SECRET}_/"}), f"308: {MOVED}"),
    "no host": (reply(301, b"", {"location": "http://[x"}), f"301: {MOVED}"),
    "not changed": (reply(304, b""), f"304: {MOVED}"),
    "no page": (reply(404, f"<html>{SECRET}".encode(), PAGE), f"404: {NO_PAGE}"),
    "plain http": (reply(400, b"<html>", PAGE), f"400: {NO_PAGE}"),
    "welcome": (reply(200, b"<html>", PAGE), f"200: {NO_PAGE}"),
    "no path": (reply(404, {"detail": "Not Found"}), f"404: {NOTHING}"),
    "no model": (reply(404, openai_error("model_not_found")), f"404 model_not_found: {NOTHING}"),
    "no method": (reply(405, b"no"), f"405: {NOTHING}"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
@each_api
async def test_what_is_no_judge_s_costs_no_request(judging: Judging, api: Api, case: str) -> None:
    """It is told as what needs a human, who has time to mend it. No redirect is followed."""
    answer, told = ELSEWHERE[case]
    async with judging(api, answer) as judge:
        error = await judge.fails(JudgeRejected)
        assert str(error) == f"judge main answers {told}"
        assert len(judge.server.asked) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, JudgeRejected), (413, ContextOverflow), (429, JudgeRateLimited), (503, JudgeOverloaded)],
)
async def test_a_page_whose_status_tells_more_goes_by_that(
    judging: Judging, status: int, error: type[Exception]
) -> None:
    async with judging(OPENAI, reply(status, b"<html>", PAGE)) as judge:
        assert "page" not in str(await judge.fails(error))


async def test_an_error_is_told_by_the_provider_s_code(judging: Judging) -> None:
    async with judging(OPENAI, reply(*OPENAI.rejections["key"])) as judge:
        error = await judge.fails(JudgeRejected)
        expected = "judge main answers 401 invalid_api_key: it refuses our key or quota"
        assert str(error) == expected


@pytest.mark.parametrize(
    "code", [SECRET, f"no {SECRET}", "x" * 65, "a\nb", "", "<b>", 7, None, ["a"], {"a": "b"}, True]
)
async def test_what_is_no_plain_code_is_not_told(judging: Judging, code: Any) -> None:
    body = openai_error(code, kind=SECRET)
    async with judging(OPENAI, reply(400, body)) as judge:
        error = await judge.fails(InternalError)
        assert str(error) == "judge main answers 400: it does not accept our request"


ODD_ERRORS: tuple[Any, ...] = (
    {"error": "Not Found"},
    {"error": None},
    {"detail": "Not Found"},
    {"detail": []},
    {"detail": [{"loc": "?"}]},
    {"detail": {"a": 1}},
    {"error": {"details": "?", "message": {"a": 1}, "param": ["b"]}},
    [],
    "x",
    None,
    b"{",
    b"[" * 100_000,
    b"\xff\xfe",
    b"",
)


@each_api
async def test_errors_of_any_shape_go_by_their_status(judging: Judging, api: Api) -> None:
    async with judging(api, *(reply(400, body) for body in ODD_ERRORS)) as judge:
        for _ in ODD_ERRORS:
            await judge.fails(InternalError)
        assert len(judge.server.asked) == len(ODD_ERRORS)


async def test_an_error_may_come_in_a_list(judging: Judging) -> None:
    # Gemini's endpoint for OpenAI's clients does that.
    body = [openai_error("insufficient_quota")]
    async with judging(OPENAI, reply(429, body)) as judge:
        await judge.fails(JudgeRejected)
        assert len(judge.server.asked) == 1


@each_api
async def test_nothing_of_an_error_s_text_is_logged(
    judging: Judging, api: Api, logged: list[Any]
) -> None:
    text = f"temperature and schema and response_format are wrong: {SECRET} {PROMPT}"
    body = {"error": {"message": text, "type": "invalid_request_error"}}
    async with judging(api, reply(400, body)) as judge:
        await judge.fails(InternalError)
    assert logged
    assert SECRET not in json.dumps(logged)


# --- Answers that can't be read ----------------------------------------------------------------


NO_ANSWERS = (
    b"",
    b"{",
    b"<html>welcome</html>",
    b"null",
    b"[]",
    b"{}",
    b'{"error": {"code": 502}}',
    b"[" * 100_000,
    b"\xff\xff",
    b'{"choices": 1, "candidates": 1, "content": 1}',
)


@each_api
async def test_an_answer_that_is_no_answer(judging: Judging, api: Api) -> None:
    async with judging(api, *(reply(200, body) for body in NO_ANSWERS)) as judge:
        for _ in NO_ANSWERS:
            await judge.fails(JudgeUnreadable)
        assert len(judge.server.asked) == len(NO_ANSWERS)


@each_api
async def test_an_answer_without_a_choice(judging: Judging, api: Api) -> None:
    async with judging(api, reply(200, api.empty)) as judge:
        await judge.fails(JudgeUnreadable)
        assert len(judge.server.asked) == 1


@each_api
async def test_an_answer_in_a_wrong_encoding(judging: Judging, api: Api) -> None:
    async with judging(api, reply(200, b"no gzip", {"content-encoding": "gzip"})) as judge:
        await judge.fails(JudgeUnreadable)
        assert len(judge.server.asked) == 1


@each_api
async def test_an_error_that_can_t_be_read_goes_by_its_status(judging: Judging, api: Api) -> None:
    packed = {"content-encoding": "br", "retry-after": "3"}
    long = b" " * (base.MAX_ANSWER_BYTES + 1)
    replies = [reply(429, b"no gzip", packed), reply(401, b"x", {"content-encoding": "gzip"})]
    async with judging(api, *replies, reply(500, long)) as judge:
        assert (await judge.fails(JudgeRateLimited)).retry_after == 3
        await judge.fails(JudgeRejected)
        await judge.fails(JudgeUnavailable)
        assert len(judge.server.asked) == 3


# --- Connections -------------------------------------------------------------------------------


@each_api
async def test_nobody_listens(api: Api) -> None:
    async with provider_at(f"http://{HOST}:{free_port()}", api.kind) as nobody:
        await Judge(nobody, JudgeServer("", [])).fails(JudgeUnavailable)


async def test_nobody_accepts_a_connection() -> None:
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind((HOST, 0))
        deaf.listen(0)
        for _ in range(4):  # they fill the queue that nobody empties
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        url = f"http://{HOST}:{deaf.getsockname()[1]}"
        async with open_client(url, timeout_s=10, headers={}) as client:
            client.timeout = httpx.Timeout(10, connect=TIMEOUT_S)
            asking = provider(
                "openai", client=client, name="main", model="m", max_output_tokens=256
            )
            error = await Judge(asking, JudgeServer("", [])).fails(JudgeUnavailable)
    assert str(error) == "judge main does not answer: no connection in time"


@each_api
async def test_no_answer_in_time(judging: Judging, api: Api) -> None:
    async with judging(api, hang, timeout_s=TIMEOUT_S) as judge:
        started = time.monotonic()
        error = await judge.fails(JudgeNoAnswer)
        assert TIMEOUT_S <= time.monotonic() - started < TIMEOUT_S + 2
        assert str(error) == "judge main does not answer in time"
        assert len(judge.server.asked) == 1


@each_api
async def test_an_answer_that_drips_ends_with_the_whole_call_s_time(
    judging: Judging, api: Api
) -> None:
    # Each byte comes long before a read would time out.
    drip = Drip(json.dumps(api.success).encode(), pause_s=TIMEOUT_S / 10)
    async with judging(api, drip, timeout_s=TIMEOUT_S) as judge:
        started = time.monotonic()
        error = await judge.fails(JudgeNoAnswer)
        assert TIMEOUT_S <= time.monotonic() - started < TIMEOUT_S + 2
        assert str(error) == "judge main does not answer in time"
        assert len(judge.server.asked) == 1
    await drip.ended.wait()
    assert 0 < drip.sent < 20


@each_api
async def test_refused_parts_do_not_buy_more_time(judging: Judging, api: Api) -> None:
    refusal = reply(400, {"error": {"message": "temperature", "type": "invalid_request_error"}})
    async with judging(api, refusal, hang, timeout_s=TIMEOUT_S) as judge:
        started = time.monotonic()
        await judge.fails(JudgeNoAnswer)
        assert time.monotonic() - started < TIMEOUT_S + 2
        assert len(judge.server.asked) == 2


@each_api
async def test_an_answer_that_is_too_long_is_not_read_to_its_end(
    judging: Judging, api: Api
) -> None:
    whole = 25 * base.MAX_ANSWER_BYTES
    flood = Drip(b" " * whole, pause_s=0, chunk_bytes=500_000)
    async with judging(api, flood) as judge:
        await judge.fails(JudgeUnreadable)
        assert len(judge.server.asked) == 1
    await flood.ended.wait()
    assert base.MAX_ANSWER_BYTES <= flood.sent < whole


@each_api
async def test_an_answer_of_the_greatest_length_is_read(judging: Judging, api: Api) -> None:
    body = json.dumps(api.success).encode().ljust(base.MAX_ANSWER_BYTES)
    async with judging(api, reply(200, body)) as judge:
        assert (await judge.ask()).text == TEXT


@pytest.mark.parametrize("name", BROKEN)
@each_api
async def test_a_server_that_breaks_the_protocol(api: Api, name: str) -> None:
    error = JudgeUnreadable if "packed" in name else JudgeNoAnswer  # or the answer did not come
    async with saying(BROKEN[name]) as server, provider_at(server.url, api.kind) as broken:
        await Judge(broken, JudgeServer("", [])).fails(error)
    assert server.asked == 1


@each_api
async def test_a_reason_phrase_that_is_not_utf_8(api: Api) -> None:
    async with saying(NO_UTF_8) as server, provider_at(server.url, api.kind) as busy:
        await Judge(busy, JudgeServer("", [])).fails(JudgeOverloaded)
    assert server.asked == 1


@each_api
async def test_our_own_cancellation_stays_one(judging: Judging, api: Api) -> None:
    async with judging(api, hang) as judge:
        asking = asyncio.create_task(judge.ask())
        while not judge.server.asked:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(judge.server.asked) == 1


# --- What servers don't take -------------------------------------------------------------------


def _format(body: dict[str, Any]) -> str:
    return str(body.get("response_format", {}).get("type", "none"))


NO_SCHEMAS = openai_error(
    "invalid_request_error", message="This response_format type is unavailable now"
)
# What servers say that know no `json_schema`, or no `response_format` at all.
REFUSALS = {
    "deepseek": reply(400, NO_SCHEMAS),
    "openai": reply(400, openai_error(None, param="response_format")),
    "groq": reply(400, openai_error(
        None, message="'response_format.type' : value is not one of the allowed values"
    )),
    "fastapi": reply(422, {
        "detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"],
                    "msg": "Extra inputs are not permitted", "input": SECRET}]
    }),
    "rust": reply(422, b'{"message": "response_format.type `json_schema` is unavailable now"}'),
    "llama.cpp": reply(400, openai_error(400, message="failed to parse grammar")),
    "vllm": reply(400, {
        "object": "error", "type": "BadRequestError", "code": 400,
        "message": "The provided JSON schema contains features not supported by xgrammar.",
    }),
}  # fmt: skip


@pytest.mark.parametrize("server", REFUSALS)
async def test_openai_s_dialect_steps_down_once_and_for_all(
    judging: Judging, server: str, logged: list[Any]
) -> None:
    async with judging(OPENAI, REFUSALS[server], OPENAI.ok()) as judge:
        assert (await judge.ask()).text == TEXT
        assert [_format(body) for body in judge.bodies] == ["json_schema", "json_object"]
        await judge.ask()
        await judge.ask(FREE_FORM_SCHEMA)
        formats = [_format(body) for body in judge.bodies]
        assert formats == ["json_schema", *["json_object"] * 3]
    (entry,) = logged
    assert (entry["event"], entry["part"]) == ("judge_refuses_part", "json_schema")
    assert SECRET not in json.dumps(logged)


async def test_openai_s_dialect_steps_down_to_none(judging: Judging, logged: list[Any]) -> None:
    refusal = REFUSALS["deepseek"]
    async with judging(OPENAI, refusal, refusal, OPENAI.ok()) as judge:
        assert (await judge.ask()).text == TEXT
        formats = [_format(body) for body in judge.bodies]
        assert formats == ["json_schema", "json_object", "none"]
        assert "response_format" not in judge.bodies[2]
        await judge.ask()
        assert len(judge.server.asked) == 4
    assert [entry["part"] for entry in logged] == ["json_schema", "json_object"]


async def test_below_none_there_is_nothing(judging: Judging) -> None:
    async with judging(OPENAI, REFUSALS["deepseek"]) as judge:
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 3
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 4


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_the_dialect_that_is_begun_with(judging: Judging, dialect: Dialect) -> None:
    async with judging(OPENAI, OPENAI.ok(), dialect=dialect) as judge:
        await judge.ask()
        assert [_format(body) for body in judge.bodies] == [dialect]


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, JudgeRejected), (404, JudgeRejected), (429, JudgeRateLimited), (500, JudgeUnavailable)],
)
async def test_only_a_refusal_makes_it_step_down(
    judging: Judging, status: int, error: type[Exception]
) -> None:
    async with judging(OPENAI, reply(status, NO_SCHEMAS), OPENAI.ok()) as judge:
        await judge.fails(error)
        assert len(judge.server.asked) == 1


async def test_an_error_about_something_else_does_not_make_it_step_down(judging: Judging) -> None:
    wrong = openai_error("invalid_value", message="max_tokens is too large", param="max_tokens")
    async with judging(OPENAI, reply(400, wrong), OPENAI.ok()) as judge:
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 1


async def test_what_an_error_repeats_further_on_does_not_make_it_step_down(
    judging: Judging,
) -> None:
    wrong = openai_error(None, message="Bad request: " + "x" * 500 + "response_format")
    async with judging(OPENAI, reply(400, wrong), OPENAI.ok()) as judge:
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 1


async def test_calls_at_the_same_time_step_down_by_one_only(
    judging: Judging, logged: list[Any]
) -> None:
    both = asyncio.Barrier(2)

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await both.wait()
        await REFUSALS["deepseek"](scope, receive, send)

    async with judging(OPENAI, refuse, refuse, OPENAI.ok()) as judge:
        await asyncio.gather(judge.ask(), judge.ask())
        formats = [_format(body) for body in judge.bodies]
        assert formats == ["json_schema", "json_schema", "json_object", "json_object"]
    assert len(logged) == 1


def _unsupported(param: str, code: str = "unsupported_parameter") -> Reply:
    return reply(400, openai_error(code, message=f"Unsupported: '{param}'", param=param))


async def test_openai_s_reasoning_models_take_other_parameters(
    judging: Judging, logged: list[Any]
) -> None:
    refusals = [_unsupported("max_tokens"), _unsupported("temperature", "unsupported_value")]
    async with judging(OPENAI, *refusals, OPENAI.ok()) as judge:
        await judge.ask()
        first, second, third = judge.bodies
        assert (first["max_tokens"], first["temperature"]) == (4096, 0.0)
        assert (second["max_completion_tokens"], second["temperature"]) == (4096, 0.0)
        assert third["max_completion_tokens"] == 4096
        assert {"max_tokens", "temperature"}.isdisjoint(third)
        assert _format(third) == "json_schema"
        sent = (await judge.ask()).sent
        assert (sent.temperature, sent.dialect) == (None, "json_schema")
        assert json.loads(sent.body) == third
        assert len(judge.server.asked) == 4
        assert judge.bodies[3] == third
    assert [entry["part"] for entry in logged] == ["max_tokens", "temperature"]


async def test_a_proxy_may_name_the_newer_parameter_in_words(judging: Judging) -> None:
    words = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    async with judging(OPENAI, reply(400, openai_error(400, message=words)), OPENAI.ok()) as judge:
        await judge.ask()
        assert judge.bodies[1]["max_completion_tokens"] == 4096


async def test_a_part_that_is_refused_again_ends_it(judging: Judging) -> None:
    async with judging(OPENAI, _unsupported("temperature", "unsupported_value")) as judge:
        await judge.fails(InternalError)
        assert len(judge.server.asked) == 2


def _gemini_formats(judge: Judge) -> list[tuple[str | None, bool]]:
    configs = [body["generationConfig"] for body in judge.bodies]
    return [(c.get("responseMimeType"), "responseJsonSchema" in c) for c in configs]


async def test_gemini_steps_down_too(judging: Judging) -> None:
    words = (
        "The specified schema produces a constraint that has too many states for serving.",
        "JSON mode is not enabled for this model",
        "temperature is not supported",
    )
    refusals = [reply(400, gemini_error(400, "INVALID_ARGUMENT", text)) for text in words]
    async with judging(GEMINI, *refusals, GEMINI.ok()) as judge:
        assert (await judge.ask()).text == TEXT
        assert _gemini_formats(judge) == [
            ("application/json", True),
            ("application/json", False),
            (None, False),
            (None, False),
        ]
        assert judge.bodies[3]["generationConfig"] == {"maxOutputTokens": 4096}
        await judge.ask()
        assert len(judge.server.asked) == 5


async def test_anthropic_steps_down_too(judging: Judging) -> None:
    words = (
        "`temperature` is deprecated for this model.",
        "output_config.format: structured outputs are not supported by this model",
    )
    refusals = [reply(400, anthropic_error("invalid_request_error", text)) for text in words]
    async with judging(ANTHROPIC, *refusals, ANTHROPIC.ok()) as judge:
        assert (await judge.ask()).text == TEXT
        assert [sorted(body) for body in judge.bodies] == [
            ["max_tokens", "messages", "model", "output_config", "temperature"],
            ["max_tokens", "messages", "model", "output_config"],
            ["max_tokens", "messages", "model"],
        ]
        await judge.ask()
        assert len(judge.server.asked) == 4


async def test_anthropic_has_nothing_between_a_schema_and_none(judging: Judging) -> None:
    refusal = reply(400, anthropic_error("invalid_request_error", "no such schema"))
    async with judging(ANTHROPIC, refusal, dialect="json_object") as judge:
        await judge.fails(InternalError)
        assert "output_config" not in judge.bodies[0]
        assert len(judge.server.asked) == 1


async def test_a_refused_object_of_free_keys_says_nothing_of_other_schemas(
    judging: Judging,
) -> None:
    refusal = reply(400, anthropic_error("invalid_request_error", "no such schema"))
    async with judging(ANTHROPIC, refusal, ANTHROPIC.ok()) as judge:
        with pytest.raises(InternalError):
            await judge.ask(FREE_FORM_SCHEMA)
        await judge.ask()
        assert "output_config" in judge.bodies[1]


async def test_openai_s_provider_begins_with_a_schema(servers: JudgeServers) -> None:
    server = servers.open(OPENAI.ok())
    async with open_client(server.url + "/v1", timeout_s=10, headers={}) as client:
        opened = OpenAIProvider(client=client, name="main", model="m", max_output_tokens=256)
        await opened.complete(ASKED, SCHEMA, max_tokens=256, temperature=0.0)
    assert [_format(asked.body) for asked in server.asked] == ["json_schema"]
