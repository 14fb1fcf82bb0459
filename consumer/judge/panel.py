"""The judge of a profile: who is asked, how often, and what the answers come to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from consumer import metrics
from consumer.errors import BudgetExhausted, Final, JudgeNotConfigured, JudgeUnavailable
from consumer.judge.line import Line
from consumer.judge.sample import TEMPERATURE, Asking, Member, sample
from consumer.limits.breaker import State
from consumer.ports import Errand, Prices
from consumer.scoring import injection
from consumer.scoring.criteria import JudgeSettings
from consumer.scoring.judgement import Judgement, Sample, total_cost_usd
from consumer.scoring.profile import Profile, Seat
from consumer.scoring.prompt import render
from consumer.scoring.scorers.base import Subject
from consumer.scoring.session import Session
from consumer.scoring.transcript import transcript
from consumer.scoring.verdict import Verdict
from consumer.together import beside, both, let_others

log = structlog.get_logger()

_STATES = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}

TotalOf = Callable[[Verdict], int]

# Samples of one request by their place, for its next attempt: they are paid for.
_Kept = dict[int, Sample]
# Requests between two attempts, and bytes of what their judges were sent; those under way are
# limited by slots.
MAX_KEPT_REQUESTS = 1000
MAX_KEPT_BYTES = 64 * 1024 * 1024
# What a prompt has beside its session: the template, the criteria, the tools that there were.
PROMPT_TOKENS = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Tokens and USD of one sample; USD is None where the price is unknown."""

    input_tokens: int
    output_tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """All judges. `members` are by seat, as profiles write it; `prompts` by name."""

    members: Mapping[Seat, Member]
    prompts: Mapping[str, str]
    prices: Prices
    _kept: dict[UUID, _Kept] = field(default_factory=dict)

    def settings(self, profile: Profile) -> JudgeSettings | None:
        """What about the judges can change a score by this profile; None where one is missing."""
        if not self.knows(profile):
            return None
        members = self._members(profile)
        return JudgeSettings(
            seats=tuple((member.provider.name, member.provider.model) for member in members),
            prompt=self.prompts[profile.judge.prompt],
            temperature=TEMPERATURE,
            samples=profile.judge.samples,
        )

    def knows(self, profile: Profile) -> bool:
        """Whether every judge that the profile names is configured."""
        return all(seat in self.members for seat in profile.judge.seats)

    def held(self, profile: Profile) -> bool:
        """Whether asking would be in vain now: one of the profile's providers is left alone."""
        return self.knows(profile) and any(m.line.held for m in self._members(profile))

    def probing(self, profile: Profile) -> bool:
        """Whether the profile's next call is to find out if some provider is well again."""
        return self.knows(profile) and any(m.line.probing for m in self._members(profile))

    @property
    def lines(self) -> tuple[Line, ...]:
        """Each provider's line once."""
        return tuple({line.name: line for line in self._lines()}.values())

    def _lines(self) -> Iterator[Line]:
        return (member.line for member in self.members.values())

    def _members(self, profile: Profile) -> tuple[Member, ...]:
        try:
            return tuple(self.members[seat] for seat in profile.judge.seats)
        except KeyError as error:
            raise JudgeNotConfigured(
                f"profile {profile.id!r} needs a judge and no LLM provider is configured: "
                "set SCORING_LLM_PROVIDER"
            ) from error

    async def judge(
        self,
        subject: Subject,
        profile: Profile,
        *,
        total_of: TotalOf,
        errand: Errand,
        size: int = 0,
    ) -> Judgement:
        """What the judges say; `size`: bytes of the session, see `beside`.

        Raises what `sample` raises, JudgeNotConfigured, and JudgeUnavailable where the errand's
        time is over. A BudgetExhausted tells which samples were paid for before it.
        """
        members = self._members(profile)
        asking = Asking(
            subject=subject,
            profile=profile,
            template=self.prompts[profile.judge.prompt],
            prices=self.prices,
            errand=errand,
            size=size,
        )
        with self._samples_of(errand.request_id) as kept:
            try:
                async with asyncio.timeout(errand.left_s):
                    judgement, flags = await both(
                        _judgement(asking, members, total_of, kept),
                        _flags(subject.session, size),
                    )
            except TimeoutError as error:
                raise JudgeUnavailable(f"no verdict within {errand.left_s or 0:.0f} s") from error
            except BudgetExhausted as error:
                raise _told_what_was_paid(error, tuple(kept.values())) from error
        return replace(judgement, flags=flags)

    @contextlib.contextmanager
    def _samples_of(self, request_id: UUID) -> Iterator[_Kept]:
        """What its attempts before were answered. It is this attempt's alone while that lasts, and
        kept after it where another may follow; of too many that wait, the oldest are forgotten.
        """
        kept = self._kept.pop(request_id, {})
        try:
            yield kept
        except Final:
            raise
        except BaseException:
            if kept:
                self._kept[request_id] = kept
            while self._keeps_too_much:
                self._kept.pop(next(iter(self._kept)))
            raise

    @property
    def _keeps_too_much(self) -> bool:
        samples = (sample for kept in self._kept.values() for sample in kept.values())
        size = sum(sample.request.size for sample in samples)
        return len(self._kept) > MAX_KEPT_REQUESTS or size > MAX_KEPT_BYTES

    def expected(self, subject: Subject, profile: Profile) -> Iterator[Expected]:
        """What each sample may come to at most, about. Raises JudgeNotConfigured."""
        template = self.prompts[profile.judge.prompt]
        prompt = render(template, subject, transcript(subject.session), profile, nonce="")
        for member in self._members(profile):
            provider = member.provider
            read = min(member.line.estimate(provider.model).tokens(prompt), member.budget_tokens)
            usd = self.prices.cost_usd(
                provider=provider.name,
                model=provider.model,
                input_tokens=read,
                output_tokens=provider.max_output_tokens,
            )
            use = Expected(input_tokens=read, output_tokens=provider.max_output_tokens, usd=usd)
            yield from [use] * profile.judge.samples

    def most_usd(self, profile: Profile, tokens: int | None) -> float | None:
        """What judging a session of so many tokens costs at most; unknown: as many as fit. None
        where a judge is missing, or its price.
        """
        if not self.knows(profile):
            return None
        costs = [self._most_usd(member, tokens) for member in self._members(profile)]
        known = [cost for cost in costs if cost is not None]
        return sum(known) * profile.judge.samples if len(known) == len(costs) else None

    def _most_usd(self, member: Member, tokens: int | None) -> float | None:
        fits = member.budget_tokens
        return self.prices.cost_usd(
            provider=member.provider.name,
            model=member.provider.model,
            input_tokens=fits if tokens is None else min(tokens + PROMPT_TOKENS, fits),
            output_tokens=member.provider.max_output_tokens,
        )

    def observe(self) -> None:
        """The state of every line as metrics."""
        for line in self.lines:
            _observe(line)


async def _flags(session: Session, size: int) -> tuple[injection.Flag, ...]:
    """Found while the judge thinks."""
    await let_others()  # the question leaves first
    return await beside(size, injection.flags, session)


async def _judgement(
    asking: Asking, members: Sequence[Member], total_of: TotalOf, kept: _Kept
) -> Judgement:
    """All samples; where the profile says so the first alone decides whether more are asked."""
    choice = asking.profile.judge
    seats = [member for member in members for _ in range(choice.samples)]
    if choice.adaptive_within is not None:
        first = await _kept_sample(asking, 0, seats[0], kept)
        distance = abs(total_of(first.verdict) - asking.profile.quality_risk_threshold)
        if distance > choice.adaptive_within:
            seats = seats[:1]
    samples = await _all_samples(asking, seats, kept)
    totals = tuple(total_of(taken.verdict) for taken in samples)
    return Judgement(samples=tuple(samples), totals=totals)


async def _all_samples(asking: Asking, seats: Sequence[Member], kept: _Kept) -> list[Sample]:
    """A sample of each seat, all at once. All end before a failure is told: paid ones are kept."""
    if len(seats) == 1:  # without a task of its own
        return [await _kept_sample(asking, 0, seats[0], kept)]
    asked = (_kept_sample(asking, n, seat, kept) for n, seat in enumerate(seats))
    results = await asyncio.gather(*asked, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for first in failures[:1]:
        if isinstance(first, JudgeUnavailable):
            first.paid = any(getattr(failure, "paid", False) for failure in failures)
        raise first
    return [result for result in results if isinstance(result, Sample)]


async def _kept_sample(asking: Asking, n: int, seat: Member, kept: _Kept) -> Sample:
    if n not in kept:
        kept[n] = await sample(asking, seat)
    return kept[n]


def _told_what_was_paid(error: BudgetExhausted, paid: Sequence[Sample]) -> BudgetExhausted:
    """The error with what the samples before it took, if there are any: no score tells of them."""
    if not paid:
        return error
    usd = total_cost_usd(paid)
    use = {
        "samples": len(paid),
        "input_tokens": sum(sample.input_tokens for sample in paid),
        "output_tokens": sum(sample.output_tokens for sample in paid),
        "cost_usd": None if usd is None else round(usd, 6),
    }
    log.warning("paid_samples_unused", **use)
    told = ", ".join(f"{name} {value}" for name, value in use.items())
    return BudgetExhausted(f"{error}; paid for before and not used: {told}")


def _observe(line: Line) -> None:
    name = line.name
    metrics.READY.labels(f"judge:{name}").set(line.breaker.state is State.CLOSED)
    metrics.JUDGE_BREAKER.labels(name).set(_STATES[line.breaker.state])
    metrics.JUDGE_CONCURRENCY.labels(name).set(line.concurrency.limit)
    metrics.JUDGE_IN_FLIGHT.labels(name).set(line.concurrency.in_flight)
    metrics.JUDGE_WAITING.labels(name, "slot").set(line.concurrency.waiting)
    for what, limiter in (("requests", line.requests), ("tokens", line.tokens)):
        if limiter is not None:
            metrics.JUDGE_WAITING.labels(name, what).set(limiter.waiting)
            metrics.JUDGE_RATE_LEFT.labels(name, what).set(limiter.available)
