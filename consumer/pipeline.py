"""One request, from its session to its outcome. Decides; stores and sends nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from consumer.errors import (
    AlreadyBeingScored,
    Final,
    InternalError,
    JudgeNotConfigured,
    NoMatchingProfile,
    ScoringDisabled,
    ScoringError,
    SessionNotCompleted,
    Unavailable,
)
from consumer.events import ID_NAMESPACE, ErrorCode
from consumer.judge import Judge
from consumer.ports import ClaimedRequest, History, Prices, Scores
from consumer.scoring.aggregate import (
    Findings,
    JudgeView,
    NothingToScore,
    Total,
    aggregate,
    look,
)
from consumer.scoring.criteria import Criteria, criteria
from consumer.scoring.profile import Profile, by_id, select
from consumer.scoring.score import Judgement, Score, new_score
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.session import Session
from consumer.scoring.text import storable
from consumer.scoring.tool_report import Price


@dataclass(frozen=True, slots=True)
class Completed:
    """A new score, not yet stored."""

    score: Score


@dataclass(frozen=True, slots=True)
class Reused:
    """A stored score under the same criteria answers the request."""

    score: Score


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ends without a score."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again `after_s` seconds from now; `deadline_at` is when to give up."""

    code: ErrorCode
    message: str
    after_s: float
    deadline_at: datetime | None


@dataclass(frozen=True, slots=True)
class Release:
    """Not ours to do now: back to the queue, no attempt counted."""

    after_s: float


Outcome = Completed | Reused | Failed | Retry | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long trouble is borne, in seconds."""

    deadline_s: float = 600.0
    completion_wait_s: float = 60.0
    completion_poll_s: float = 5.0
    backoff_base_s: float = 1.0
    backoff_max_s: float = 60.0
    max_lost_leases: int = 10


BUSY_ELSEWHERE_S = 1.0
MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Scores requests. `judge` is None where no provider is configured."""

    history: History
    judge: Judge | None
    prices: Prices
    scores: Scores
    profiles: Sequence[Profile]
    enabled: bool
    patience: Patience

    async def run(self, request: ClaimedRequest, now: Callable[[], datetime]) -> Outcome:
        """The request's outcome. `now` is the database's clock.

        Raises LeaseLost, and NotReachable where the database is away.
        """
        try:
            return await self._score(request, now)
        except AlreadyBeingScored:
            return Release(BUSY_ELSEWHERE_S)
        except Unavailable as error:
            return after_trouble(request, error, now(), self.patience)
        except Final as error:
            return failed(error)

    async def _score(self, request: ClaimedRequest, now: Callable[[], datetime]) -> Outcome:
        self._refuse_hopeless(request)
        session = await self.history.fetch(request.session_id)
        profile = self._profile(request, session)
        criteria_ = criteria_of(profile, self.judge)
        if stored := await self.scores.begin_scoring(
            request, profile_id=profile.id, criteria_hash=criteria_.hash
        ):
            return Reused(stored)
        about = subject(
            session,
            price=session_price(session, self.prices),
            cost_usd=session_cost_usd(session, self.prices),
        )
        total, judgement = await self._total(about, profile)
        return Completed(
            new_score(
                score_id=uuid.uuid5(ID_NAMESPACE, f"score:{request.request_id}"),
                request_id=request.request_id,
                triggered_by=request.triggered_by,
                subject=about,
                profile=profile,
                criteria_hash=criteria_.hash,
                total=total,
                judgement=judgement,
                duration_ms=round((now() - request.claimed_at) / timedelta(milliseconds=1)),
            )
        )

    def _refuse_hopeless(self, request: ClaimedRequest) -> None:
        if not self.enabled:
            raise ScoringDisabled("scoring is switched off (SCORING_ENABLED)")
        if request.lost_leases >= self.patience.max_lost_leases:
            raise InternalError(
                f"given up: {request.lost_leases} workers were lost while working on it"
            )

    def _profile(self, request: ClaimedRequest, session: Session) -> Profile:
        known = ", ".join(profile.id for profile in self.profiles)
        if request.profile_id is not None:
            profile = by_id(self.profiles, request.profile_id)
            if profile is None:
                raise NoMatchingProfile(
                    f"there is no profile {request.profile_id!r}; there are: {known}"
                )
            return profile
        if (profile := select(self.profiles, session.label)) is None:
            raise NoMatchingProfile(
                f"no profile covers label {session.label!r}; there are: {known}"
            )
        return profile

    async def _total(self, subject: Subject, profile: Profile) -> tuple[Total, Judgement | None]:
        """The total; rules and gates first, for what they refuse is not paid for."""
        findings = look(profile, subject)
        judgement = None
        if profile.needs_judge and (findings.refused is None or profile.judge_anyway):
            judgement = await self._ask_judge(subject, profile)
        return combine(profile, findings, judgement), judgement

    async def _ask_judge(self, subject: Subject, profile: Profile) -> Judgement:
        if self.judge is None:
            raise JudgeNotConfigured(
                f"profile {profile.id!r} needs a judge and no LLM provider is configured: "
                "set SCORING_LLM_PROVIDER"
            )
        return await self.judge.judge(subject, profile)


def session_price(session: Session, prices: Prices) -> Price:
    """What (input, output) tokens of the session's own model cost, in USD."""
    model, provider = session.model
    return lambda read, written: prices.cost_usd(
        provider=provider, model=model, input_tokens=read, output_tokens=written
    )


def session_cost_usd(session: Session, prices: Prices) -> float | None:
    """USD of the agent's own model calls; unknown as soon as one of them is."""
    costs = [
        prices.cost_usd(
            provider=call.provider,
            model=call.model,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
        )
        for call in session.llm_calls
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def criteria_of(profile: Profile, judge: Judge | None) -> Criteria:
    """The criteria of this profile with this judge, if it asks one at all."""
    settings = judge.settings(profile) if judge and profile.needs_judge else None
    return criteria(profile, settings)


def combine(profile: Profile, findings: Findings, judgement: Judgement | None) -> Total:
    """Findings and verdict as one total. Raises InternalError where nothing applies."""
    view = None
    if judgement is not None:
        verdict = judgement.verdict
        view = JudgeView(
            points=verdict.points,
            total=verdict.total_score,
            breakdown=verdict.score_breakdown,
            disqualifier=verdict.disqualifier_triggered,
        )
    try:
        return aggregate(profile, findings, view)
    except NothingToScore as error:
        raise InternalError(str(error)) from error


def after_trouble(
    request: ClaimedRequest, error: Unavailable, now: datetime, patience: Patience
) -> Retry | Failed:
    """Another try, or the end where the time for it is over.

    The deadline starts with the first trouble, not with the request: waiting in the queue is no
    trouble. A session still running is waited for from its first fetch.
    """
    if isinstance(error, SessionNotCompleted):
        deadline = None
        limit = request.started_at + timedelta(seconds=patience.completion_wait_s)
        delay = patience.completion_poll_s
    else:
        limit = deadline = request.deadline_at or now + timedelta(seconds=patience.deadline_s)
        delay = max(backoff_s(request.attempt, patience), error.retry_after or 0.0)
    remaining = (limit - now).total_seconds()
    if remaining <= 0:
        return failed(error)
    # The last try comes right at the limit, not after it.
    return Retry(error.code, reason(error), min(delay, remaining), deadline)


def backoff_s(attempt: int, patience: Patience) -> float:
    """Base * 2^(attempt-1), at most the maximum, for the attempt just made (from 1)."""
    exponent = min(max(attempt - 1, 0), 30)
    return min(patience.backoff_max_s, patience.backoff_base_s * float(2**exponent))


def failed(error: ScoringError) -> Failed:
    """The end that this error brings."""
    return Failed(error.code, reason(error))


def reason(error: ScoringError) -> str:
    """The error's message, fit to be stored and published."""
    return storable(str(error))[:MAX_MESSAGE]
