"""What all judge providers share: one bounded call, one map of errors, one way to ask for less."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import aiohttp
import httpx
import structlog
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json

from consumer import failpoints
from consumer.edges.http import FAILURES, BodyRefused, elsewhere, read_body, retry_after_s, why
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
    ScoringError,
    Unavailable,
)
from consumer.ports import ChatMessage, Completion, Sent
from consumer.scoring.text import short_name, storable_json

log = structlog.get_logger()

# How the verdict's shape is asked for, the strictest first. In the last two the prompt alone tells
# the schema.
Dialect = Literal["json_schema", "json_object", "none"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

# What a server may refuse and a request can do without.
Part = Literal["json_schema", "json_object", "none", "max_tokens", "temperature"]

# A verdict has some ten thousand bytes, and the reasoning that some servers send with it some
# hundred thousand. What is longer by far is no verdict.
MAX_ANSWER_BYTES = 2_000_000
# Where an error's text names its cause; further on it may repeat what we sent.
READ_CHARACTERS = 500

_JSON = {"content-type": "application/json"}
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z_.]{0,63}")
# OpenAI's words for a parameter, or a value of it, that the model does not take.
_UNSUPPORTED = {"unsupported_parameter", "unsupported_value"}
_SAYS: Mapping[type[ScoringError], str] = {
    JudgeRejected: "it refuses our key or quota",
    JudgeRateLimited: "it asks us to slow down",
    JudgeOverloaded: "it has too much to do",
    JudgeUnavailable: "it is unwell",
    JudgeRefused: "it refuses to judge this session",
    ContextOverflow: "the prompt does not fit",
    InternalError: "it does not accept our request",
}

# Far more tokens than any call has, and far fewer than a bigint holds: sums of them fit as well.
MOST_TOKENS = 10**9
# A number of tokens; servers leave it out or give null where it is none.
Tokens = Annotated[
    int,
    Field(strict=True, ge=0, le=MOST_TOKENS),
    BeforeValidator(lambda value: 0 if value is None else value),
]
# A name that the server gives; nothing is lost with a wrong one.
Name = Annotated[
    str, BeforeValidator(lambda value: short_name(value) if isinstance(value, str) else "")
]


class Shape(BaseModel):
    """A part of an answer that we read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Usage(Shape):
    """What a call used. Where one count is none, all are unknown: the answer is paid for, and good
    all the same.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _or_unknown(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(value)
        except ValidationError:
            return read({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked, and how, after all that the server refused."""

    messages: Sequence[ChatMessage]
    schema: Mapping[str, Any]
    max_tokens: int
    temperature: float
    dialect: Dialect
    refused: frozenset[Part]

    @property
    def parts(self) -> list[Part]:
        """What may still be refused."""
        parts: list[Part] = ["max_tokens", "temperature", self.dialect]
        return [part for part in parts if part not in self.refused]

    @property
    def sampling(self) -> dict[str, float]:
        return {} if "temperature" in self.refused else {"temperature": self.temperature}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body with storable strings. Raises ValueError where it is no JSON."""
        try:
            return storable_json(json.loads(self.body))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as the provider tells it.

    `codes` are its own words for it, the most telling first. `text` is lower case, and read only:
    it may repeat what we sent, so it goes into no message and no log.
    """

    status: int
    codes: tuple[str, ...]
    text: str
    param: str
    retry_after: float | None

    def refuses(self, part: Part, words: Sequence[str]) -> bool:
        named = self.param == part and not _UNSUPPORTED.isdisjoint(self.codes)
        return named or any(word in self.text for word in words)

    def __str__(self) -> str:
        """The status and the code, fit to be told."""
        return " ".join([str(self.status), *filter(None, map(identifier, self.codes))][:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProvider(ABC):
    """One model behind HTTP. `client` has the base URL, the key and the time limit of a call.

    A server that refuses a part of the request is asked again at once without that part. Such a
    refusal costs nothing; it is remembered as long as this object lives. There is no other retry.
    """

    client: httpx.AsyncClient
    name: str
    model: str
    max_output_tokens: int
    dialect: Dialect = "json_schema"
    _refused: set[Part] = field(default_factory=set, init=False, repr=False, compare=False)

    # What the provider can be asked for; and where the schema has an object of free keys, which
    # strict decoders don't take. "none" is always there.
    dialects: ClassVar[tuple[Dialect, ...]]
    dialects_for_free_keys: ClassVar[tuple[Dialect, ...]]
    # The provider's codes, and parts of its texts where codes don't tell. All others go by status.
    codes: ClassVar[Mapping[str, type[ScoringError]]]
    phrases: ClassVar[Mapping[str, type[ScoringError]]]
    # By which words in a refusal a part is known.
    droppable: ClassVar[Mapping[Part, tuple[str, ...]]]

    @staticmethod
    @abstractmethod
    def headers(api_key: str) -> dict[str, str]:
        """What the client sends with each request; an empty key is not sent."""

    @abstractmethod
    def _path(self) -> str: ...

    @abstractmethod
    def _request(self, call: Call) -> dict[str, Any]: ...

    @abstractmethod
    def _completion(self, answer: Any, sent: Sent) -> Completion:
        """Raises ValueError where it can't be read."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        temperature: float,
    ) -> Completion:
        """See ports.Provider. The client's read timeout is that of the whole call.

        Of JudgeUnavailable: JudgeRateLimited, JudgeOverloaded and JudgeRejected where the provider
        says so, JudgeNoAnswer where an answer did not come, JudgeUnreadable where it can't be read.
        """
        return await self._completed(self._answer(messages, schema, max_tokens, temperature))

    async def repeat(self, sent: Sent) -> Completion:
        """See ports.Provider. Nothing is left out of it: it would be another request."""
        return await self._completed(self._repeated(sent))

    async def _completed(self, asking: Awaitable[tuple[Answer, Sent]]) -> Completion:
        try:
            async with asyncio.timeout(self.client.timeout.read):
                answer, sent = await asking
        except TimeoutError as error:
            raise JudgeNoAnswer(f"judge {self.name} does not answer in time") from error
        except FAILURES as error:
            kind = JudgeUnavailable if _never_connected(error) else JudgeNoAnswer
            raise kind(f"judge {self.name} does not answer: {why(error)}") from error
        try:
            return self._completion(answer.json(), sent)
        except ValueError as error:  # pydantic's ValidationError is one
            # Half an answer, or a proxy's page: the server is unwell, the verdict is not at fault.
            raise self._unreadable() from error

    async def _answer(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        max_tokens: int,
        temperature: float,
    ) -> tuple[Answer, Sent]:
        """The server's answer to the fullest request that it takes, and that request."""
        while True:
            refused = frozenset(self._refused)
            call = Call(
                messages=messages,
                schema=schema,
                max_tokens=max_tokens,
                temperature=temperature,
                dialect=self._dialect_for(schema, refused),
                refused=refused,
            )
            sent = self._sent(call)
            answer = await self._post(sent)
            if (trouble := self._trouble(answer)) is None:
                return answer, sent
            kind, problem = trouble
            part = self._dropped(problem, call) if kind is InternalError else None
            if part is None:
                raise self._error(kind, problem)
            self._remember(part, problem)

    async def _repeated(self, sent: Sent) -> tuple[Answer, Sent]:
        if sent.path != self._path():
            raise InternalError(
                f"judge {self.name} was asked at {sent.path}, and is by now at {self._path()}"
            )
        answer = await self._post(sent)
        if trouble := self._trouble(answer):
            raise self._error(*trouble)
        return answer, sent

    def _sent(self, call: Call) -> Sent:
        return Sent(
            path=self._path(),
            # Several times quicker than httpx's own way for a prompt of 100 kB.
            body=to_json(self._request(call)),
            dialect=call.dialect,
            max_tokens=call.max_tokens,
            temperature=call.sampling.get("temperature"),
        )

    def _trouble(self, answer: Answer) -> tuple[type[ScoringError], Problem] | None:
        """What is wrong, where this is no answer of a judge's. Raises JudgeRejected where none is
        there.
        """
        no_judge = _no_judge(answer)
        if httpx.codes.is_success(answer.status) and not no_judge:
            return None
        problem = self._problem(answer)
        kind = self._kind(problem)
        if kind is InternalError and no_judge:
            raise JudgeRejected(f"judge {self.name} answers {problem}: {no_judge}")
        return kind, problem

    def _dialect_for(self, schema: Mapping[str, Any], refused: frozenset[Part]) -> Dialect:
        known = self.dialects_for_free_keys if has_free_keys(schema) else self.dialects
        allowed = DIALECTS[DIALECTS.index(self.dialect) :]
        return next((d for d in allowed if d in known and d not in refused), "none")

    async def _post(self, sent: Sent) -> Answer:
        """One request. An answer that grows too long is not read to its end."""
        async with self.client.stream(
            "POST", sent.path, content=sent.body, headers=_JSON
        ) as response:
            failpoints.reach(failpoints.Point.DURING_JUDGE_CALL)
            try:
                answer = await read_body(response, MAX_ANSWER_BYTES)
            except (BodyRefused, httpx.DecodingError) as error:
                if response.is_success:
                    raise self._unreadable() from error
                answer = b""  # an error may be told by its status alone
            return Answer(status=response.status_code, headers=response.headers, body=answer)

    def _problem(self, answer: Answer) -> Problem:
        return problem_in(answer)

    def _kind(self, problem: Problem) -> type[ScoringError]:
        for code in problem.codes:
            if kind := self.codes.get(code):
                return kind
        for phrase, kind in self.phrases.items():
            if problem.status < 500 and phrase in problem.text:
                return kind
        return _by_status(problem.status)

    def _dropped(self, problem: Problem, call: Call) -> Part | None:
        """The part of the request that the server refuses, where we can do without."""
        if problem.status not in {400, 422}:
            return None
        refused = (p for p in call.parts if problem.refuses(p, self.droppable.get(p, ())))
        return next(refused, None)

    def _remember(self, part: Part, problem: Problem) -> None:
        if part not in self._refused:  # another call may have learned it meanwhile
            log.warning("judge_refuses_part", provider=self.name, part=part, answer=str(problem))
        self._refused.add(part)

    def _error(self, kind: type[ScoringError], problem: Problem) -> ScoringError:
        message = f"judge {self.name} answers {problem}: {_SAYS[kind]}"
        if issubclass(kind, Unavailable):
            return kind(message, retry_after=problem.retry_after)
        return kind(message)

    def _unreadable(self) -> JudgeUnreadable:
        return JudgeUnreadable(f"judge {self.name} answered something that can't be read")

    def _refusal(self, reason: str) -> JudgeRefused:
        """The error for an answer that is a refusal; the reason is one of the provider's codes."""
        return JudgeRefused(f"judge {self.name} refused: {identifier(reason) or 'no reason'}")


def _never_connected(error: Exception) -> bool:
    """Whether the request never left. The transport has one name for this and for a hang-up."""
    refusals = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    return isinstance(error.__cause__, refusals)


def _by_status(status: int) -> type[ScoringError]:
    """RFC 9110, and 529, which Anthropic answers when it is overloaded."""
    if status in {401, 402, 403}:
        return JudgeRejected
    if status == 413:
        return ContextOverflow
    if status == 429:
        return JudgeRateLimited
    if status in {503, 529}:
        return JudgeOverloaded
    if status in {408, 409, 425} or status >= 500:
        return JudgeUnavailable
    return InternalError


def _no_judge(answer: Answer) -> str:
    """What shows that the judge is not at this address, or that a proxy answers in its place; else
    empty. That is no fault of the session's.
    """
    if other := elsewhere(answer.status, answer.headers):
        return f"{other}; see base_url"
    if answer.status in {404, 405}:
        return "there is no such path or model; see base_url and model"
    return ""


def problem_in(answer: Answer) -> Problem:
    """The error in an answer, as far as it has the shape that most servers use.

    Read are {"error": {"code", "status", "type", "message", "param"}}, the same without the outer
    object or in a list, and FastAPI's {"detail": [{"loc", "msg"}]}.
    """
    error = _error_in(answer)
    codes = [error.get(name) for name in ("code", "status", "type")]
    param = error.get("param")
    text = f"{param or ''} {error.get('message') or ''}"
    return Problem(
        status=answer.status,
        codes=tuple(code for code in codes if isinstance(code, str)),
        text=text[:READ_CHARACTERS].lower(),
        param=param if isinstance(param, str) else "",
        retry_after=retry_after_s(answer.headers),
    )


def _error_in(answer: Answer) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return {}
    error = body.get("error") or _detail_in(body.get("detail")) or body
    return error if isinstance(error, dict) else {"message": error}


def _detail_in(detail: Any) -> dict[str, Any]:
    """The first place that FastAPI finds wrong; the value there is left out."""
    try:
        return {"param": ".".join(map(str, detail[0]["loc"][1:])), "message": detail[0]["msg"]}
    except (LookupError, TypeError):
        return {"message": detail} if isinstance(detail, str) else {}


def has_free_keys(schema: Mapping[str, Any]) -> bool:
    """Whether the schema holds an object whose keys are left to the judge."""
    fields = schema["properties"].values()
    return any(isinstance(shape.get("additionalProperties"), dict) for shape in fields)


def identifier(code: str) -> str:
    """The code where it is a plain name, else nothing: keys and ids have digits, names none."""
    return code if _IDENTIFIER.fullmatch(code) else ""
