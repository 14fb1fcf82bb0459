"""One provider: every call of any of its models goes through the same limits.

A call is up to four tries. It holds one permit of the circuit breaker, and for each try a slot of
the concurrency limit; between tries it holds no slot. What may be billed is reserved before a try
and booked after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any
from uuid import UUID

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
)

from consumer import metrics
from consumer.errors import (
    BudgetExhausted,
    InternalError,
    JudgeHeld,
    JudgeNoAnswer,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
    JudgeUnreadable,
    NotReachable,
)
from consumer.judge.estimate import TokenEstimate
from consumer.limits.breaker import Breaker, Permit, State
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.limits.rate import RateLimiter
from consumer.ports import ChatMessage, Completion, Errand, Prices, Provider, Sent, Spend

log = structlog.get_logger()

RETRY_DELAYS_S = (1.0, 2.0, 4.0)
# A longer Retry-After is waited for in the queue, where it holds no worker's slot.
LONGEST_WAIT_IN_CALL_S = 10.0
# While another call probes, its outcome is known soon.
WAIT_FOR_PROBE_S = 5.0
# Of a round's calls; see AdaptiveConcurrency.
TOLERATED_CONGESTION = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnErrand:
    """On whose behalf a model is asked, and when (monotonic seconds)."""

    errand: Errand
    asked_at: float

    @property
    def left_s(self) -> float:
        """Seconds until whoever asks gives up."""
        left_s = self.errand.left_s
        return inf if left_s is None else left_s - (monotonic() - self.asked_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(_OnErrand):
    """What a model is asked."""

    messages: tuple[ChatMessage, ...]
    schema: Mapping[str, Any]
    max_tokens: int
    temperature: float

    @property
    def text(self) -> str:
        return "\n".join(message.text for message in self.messages)

    async def put_to(self, provider: Provider) -> Completion:
        """One call."""
        return await provider.complete(
            self.messages, self.schema, max_tokens=self.max_tokens, temperature=self.temperature
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition(_OnErrand):
    """What a model was asked before, in the same bytes; `text` is what it reads."""

    sent: Sent
    text: str

    @property
    def max_tokens(self) -> int:
        return self.sent.max_tokens

    async def put_to(self, provider: Provider) -> Completion:
        """One call."""
        return await provider.repeat(self.sent)


Asked = Question | Repetition


@dataclass(slots=True, kw_only=True)
class _Course:
    """How a call goes: how often the breaker had opened before it, what it met since."""

    opened: int
    paid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where a provider's cost is kept, and how many USD it may be a UTC day."""

    spend: Spend
    cap_usd: float


@dataclass(slots=True, kw_only=True)
class Line:
    """The way to one provider. Without an account it may cost what it costs."""

    name: str
    prices: Prices
    concurrency: AdaptiveConcurrency
    breaker: Breaker = field(default_factory=Breaker)
    requests: RateLimiter | None = None
    tokens: RateLimiter | None = None
    account: Account | None = None
    retry_delays_s: tuple[float, ...] = RETRY_DELAYS_S
    _estimates: dict[str, TokenEstimate] = field(default_factory=dict)

    def estimate(self, model: str) -> TokenEstimate:
        """The estimate of this model's tokens, which its usage keeps correcting."""
        return self._estimates.setdefault(model, TokenEstimate())

    @property
    def held(self) -> bool:
        """Whether a call would be refused now because the provider is unwell."""
        return self.breaker.retry_after_s > 0

    @property
    def probing(self) -> bool:
        """Whether the next call is to find out if the provider is well again."""
        return self.breaker.state is State.HALF_OPEN and not self.held

    async def ask(self, provider: Provider, question: Asked) -> Completion:
        """The provider's answer.

        Raises JudgeHeld while the provider is left alone, another JudgeUnavailable where all tries
        failed, JudgeRefused, ContextOverflow, BudgetExhausted, InternalError or LeaseLost.
        """
        permit = self.breaker.enter()
        if permit is None:
            raise self._held("is left alone")
        course = _Course(opened=self.breaker.opened_total)
        try:
            completion = await self._tried(provider, question, course)
        except JudgeUnavailable as error:
            error.paid = course.paid
            if isinstance(error, JudgeRateLimited | JudgeHeld):  # it wants less, or was not asked
                permit.dropped()
                raise
            self._failed(permit, error)
            if self.held:
                raise self._held(f"failed and is left alone: {error}", paid=error.paid) from error
            raise
        except BaseException:
            permit.dropped()
            raise
        was = self.breaker.state
        permit.succeeded()
        if was is not self.breaker.state:
            log.warning("breaker_closed", provider=self.name)
        return completion

    def _failed(self, permit: Permit, error: JudgeUnavailable) -> None:
        opened = self.breaker.opened_total
        permit.failed()
        metrics.tell_last_error(self.name, type(error).__name__)
        if self.breaker.opened_total > opened:
            metrics.JUDGE_BREAKER_OPENED.labels(self.name).inc()
            log.warning(
                "breaker_opened",
                provider=self.name,
                error_class=type(error).__name__,
                error=str(error),
                probe_in_s=self.breaker.retry_after_s,
            )

    def _held(self, why: str, *, paid: bool = False) -> JudgeHeld:
        wait_s = min(self.breaker.retry_after_s, WAIT_FOR_PROBE_S)
        held = JudgeHeld(f"judge {self.name} {why}", retry_after=wait_s)
        held.paid = paid
        return held

    async def _tried(self, provider: Provider, question: Asked, course: _Course) -> Completion:
        """One call, tried again by the schedule while the provider is unwell; a probe is not."""
        # Not the question itself: tenacity's objects refer to themselves, and would keep the prompt
        # until garbage is collected, which is after a thousand calls.
        until = monotonic() + question.left_s
        retrying = AsyncRetrying(
            stop=stop_after_attempt(1 + len(self.retry_delays_s)),
            wait=self._delay,
            retry=retry_if_exception(lambda error: self._worth_waiting(error, until)),
            reraise=True,
        )
        completion: Completion = await retrying(self._try, provider, question, course)
        return completion

    def _delay(self, state: RetryCallState) -> float:
        """What the provider wishes, who knows better; else as scheduled."""
        error = state.outcome.exception() if state.outcome else None
        wished: float | None = getattr(error, "retry_after", None)
        # tenacity asks after the last try as well, before it stops.
        scheduled = self.retry_delays_s[state.attempt_number - 1 : state.attempt_number]
        return wished or max((0.0, *scheduled))

    def _worth_waiting(self, error: BaseException, until: float) -> bool:
        """Whether to wait inside the call: not for a refused key, nor for long, nor once others
        found out that the provider is unwell; nor where this call is the probe. `until`: monotonic.
        """
        hopeless = isinstance(error, JudgeRejected | JudgeHeld)
        if not isinstance(error, JudgeUnavailable) or hopeless:
            return False
        wished = error.retry_after or 0.0
        return wished <= min(LONGEST_WAIT_IN_CALL_S, until - monotonic()) and not self.held

    async def _try(self, provider: Provider, question: Asked, course: _Course) -> Completion:
        estimate = self.estimate(provider.model)
        tokens = estimate.tokens(question.text) + question.max_tokens
        async with self.concurrency.slot() as slot:
            await self._wait_for_rates(tokens)
            if self.breaker.opened_total != course.opened:  # while this call waited for its turn
                raise self._held("is left alone")
            async with self._account(provider, question) as bill:
                try:
                    with metrics.judge_call(self.name):
                        bill.completion = completion = await question.put_to(provider)
                except (JudgeRateLimited, JudgeOverloaded):
                    slot.congested()
                    raise
                except JudgeUnreadable:
                    course.paid = True
                    raise
            slot.succeeded()
        estimate.learn(question.text, completion.input_tokens)
        if self.tokens is not None and completion.tells_usage:
            # Those who wait are told: most answers are far shorter than they might be.
            self.tokens.refund(tokens - completion.input_tokens - completion.output_tokens)
        return completion

    async def _wait_for_rates(self, tokens: int) -> None:
        if self.requests is not None:
            await self.requests.acquire()
        if self.tokens is not None:
            try:
                await self.tokens.acquire(tokens)
            except asyncio.CancelledError:
                if self.requests is not None:
                    self.requests.refund(1)
                raise

    @asynccontextmanager
    async def _account(self, provider: Provider, question: Asked) -> AsyncIterator[_Bill]:
        """Reserves the worst case, and books what the call came to, however it ended."""
        bill = _Bill(name=self.name, provider=provider, prices=self.prices)
        prompt_tokens = self.estimate(provider.model).tokens(question.text)
        worst = bill.usd(prompt_tokens, question.max_tokens)
        reservation = await self._reserve(worst, question)
        # Until the answer tells better: of what is cut off, the prompt may have been billed.
        spent = bill.usd(prompt_tokens, 0)
        try:
            yield bill
        except (JudgeNoAnswer, JudgeRefused, asyncio.CancelledError):
            raise
        except Exception:
            spent = 0.0
            raise
        else:
            spent = bill.booked()
        finally:
            if reservation is not None and self.account is not None:
                # Not to be cancelled half-way: the money would stay reserved until the lease ends.
                # An answer that does not tell its usage is taken for the longest.
                booked = worst if spent is None else spent
                spend = self.account.spend
                await asyncio.shield(self._settle(spend, reservation, booked or 0.0))

    async def _reserve(self, usd: float | None, question: Asked) -> UUID | None:
        account, errand = self.account, question.errand
        if account is None:
            return None
        if usd is None:
            raise InternalError(f"judge {self.name} has a spend cap and a model without a price")
        reservation = await account.spend.reserve(
            provider=self.name,
            cap_usd=account.cap_usd,
            amount_usd=usd,
            request_id=errand.request_id,
            lease_token=errand.lease_token,
        )
        if reservation is None:
            metrics.JUDGE_BUDGET_EXHAUSTED.labels(self.name).inc()
            raise BudgetExhausted(
                f"judge {self.name} may cost {account.cap_usd:g} USD a day (UTC); "
                f"{usd:.4f} more is too much"
            )
        return reservation

    async def _settle(self, spend: Spend, reservation: UUID, usd: float) -> None:
        try:
            await spend.settle(reservation, usd)
        except NotReachable as error:
            # The reservation holds the money until the lease ends.
            log.warning("spend_not_settled", provider=self.name, usd=usd, error=str(error))


@dataclass(slots=True, kw_only=True)
class _Bill:
    """What one try costs; the completion is set once there is one."""

    name: str
    provider: Provider
    prices: Prices
    completion: Completion | None = None

    def usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """USD of so many tokens, None where the price is unknown."""
        return self.prices.cost_usd(
            provider=self.name,
            model=self.provider.model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )

    def booked(self) -> float | None:
        """USD of the answer, which is counted as spent whatever becomes of it."""
        if self.completion is None:
            return 0.0
        read, written = self.completion.input_tokens, self.completion.output_tokens
        metrics.JUDGE_TOKENS.labels("input").inc(read)
        metrics.JUDGE_TOKENS.labels("output").inc(written)
        usd = self.usd(read, written) if self.completion.tells_usage else None
        if usd is None:
            metrics.JUDGE_UNPRICED.inc()
        else:
            metrics.JUDGE_COST.inc(usd)
        return usd
