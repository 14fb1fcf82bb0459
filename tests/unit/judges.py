"""Stand-ins around the judge: providers that follow a script, prices, an account; lines to them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from prometheus_client import REGISTRY
from pydantic_core import to_json

from consumer.judge.line import Line
from consumer.judge.panel import Judge
from consumer.judge.sample import Member
from consumer.limits.breaker import Breaker
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.limits.rate import RateLimiter
from consumer.ports import ChatMessage, Completion, Errand, Sent
from consumer.scoring.profile import Seat
from tests.unit.builders import REQUEST_ID, TEMPLATE, completion

LEASE = UUID("00000000-0000-4000-8000-00000000000a")
ERRAND = Errand(request_id=REQUEST_ID, lease_token=LEASE, left_s=600)


@dataclass(frozen=True)
class Call:
    """What one call sent, and when."""

    messages: tuple[ChatMessage, ...]
    schema: Mapping[str, Any]
    max_tokens: int
    temperature: float
    at: float

    @property
    def prompt(self) -> str:
        return self.messages[0].text


@dataclass
class FakeProvider:
    """Gives these answers in order, and the last one for ever; an exception is raised. It takes no
    temperature where it is `picky`.
    """

    script: list[Completion | Exception] = field(default_factory=lambda: [completion()])
    name: str = "main"
    model: str = "judge-1"
    max_output_tokens: int = 1000
    takes_s: float = 0.0
    picky: bool = False
    calls: list[Call] = field(default_factory=list)
    repeated: list[Sent] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """When it was called, in seconds since the first call."""
        return [call.at - self.calls[0].at for call in self.calls]

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        temperature: float,
    ) -> Completion:
        self.calls.append(Call(tuple(messages), schema, max_tokens, temperature, now()))
        told = {"model": self.model, "messages": list(messages), "schema": schema}
        sampling = {} if self.picky else {"temperature": temperature}
        sent = Sent(
            path="judge",
            body=to_json({**told, **sampling}),
            dialect="json_schema",
            max_tokens=max_tokens,
            temperature=sampling.get("temperature"),
        )
        return replace(await self._answer(), sent=sent)

    async def repeat(self, sent: Sent) -> Completion:
        self.repeated.append(sent)
        return replace(await self._answer(), sent=sent)

    async def _answer(self) -> Completion:
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FakePrices:
    """USD for every thousand tokens read and written, of models with a known name."""

    read: float = 1.0
    written: float = 1.0
    asked: list[dict[str, Any]] = field(default_factory=list)

    def cost_usd(
        self, *, provider: str | None, model: str | None, input_tokens: int, output_tokens: int
    ) -> float | None:
        self.asked.append({"provider": provider, "model": model})
        if provider is None or not (model or "").startswith(("gpt", "judge")):
            return None
        return (input_tokens * self.read + output_tokens * self.written) / 1000


@dataclass
class FakeSpend:
    """An account with room for so many USD; each reservation is settled once."""

    room_usd: float = 1e9
    trouble: Exception | None = None
    takes_s: float = 0.0
    reserved: list[dict[str, Any]] = field(default_factory=list)
    settled: dict[UUID, float] = field(default_factory=dict)

    async def reserve(self, **asked: Any) -> UUID | None:
        self.reserved.append(asked)
        return UUID(int=len(self.reserved)) if asked["amount_usd"] <= self.room_usd else None

    async def settle(self, reservation_id: UUID, spent_usd: float) -> None:
        await asyncio.sleep(self.takes_s)
        if self.trouble is not None:
            raise self.trouble
        assert reservation_id not in self.settled
        self.settled[reservation_id] = spent_usd

    @property
    def spent(self) -> list[float]:
        """What was booked for each reservation, in their order."""
        return [self.settled[reservation] for reservation in sorted(self.settled)]


def now() -> float:
    """The running loop's time."""
    return asyncio.get_running_loop().time()


def line(**changes: Any) -> Line:
    """A line without limits that matter; its breaker goes by the running loop's time."""
    fields: dict[str, Any] = {
        "name": "main",
        "prices": FakePrices(),
        "concurrency": AdaptiveConcurrency(64),
        "breaker": Breaker(clock=now),
    }
    return Line(**{**fields, **changes})


def limiter(per_minute: float) -> RateLimiter:
    """A limiter by the running loop's time."""
    return RateLimiter(per_minute, clock=now)


def member(provider: FakeProvider, **changes: Any) -> Member:
    """A judge on a line of its own."""
    fields: dict[str, Any] = {
        "line": changes.pop("line", None) or line(name=provider.name),
        "provider": provider,
        "context_window": 128_000,
    }
    return Member(**{**fields, **changes})


def seat(provider: FakeProvider) -> Seat:
    """Where a profile names this judge."""
    return Seat(provider=provider.name, model=provider.model)


def judge(*members: Member | FakeProvider, **changes: Any) -> Judge:
    """These judges, the first one also as the default."""
    asked = [one if isinstance(one, Member) else member(one) for one in members]
    seats = {Seat(provider=m.provider.name, model=m.provider.model): m for m in asked}
    fields: dict[str, Any] = {
        "members": {**({Seat(): asked[0]} if asked else {}), **seats},
        "prompts": {"judge_prompt": TEMPLATE},
        "prices": FakePrices(),
    }
    return Judge(**{**fields, **changes})


def measured(metric: str, **labels: str) -> float:
    """A metric's value by now, 0 where there is none yet."""
    return REGISTRY.get_sample_value(f"scoring_{metric}", labels) or 0.0
