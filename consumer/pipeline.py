"""One request, from its session to its outcome. Decides; stores and sends nothing."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from consumer.error_codes import ErrorCode
from consumer.errors import (
    AlreadyBeingScored,
    BudgetExhausted,
    Final,
    InternalError,
    JudgeHeld,
    NoMatchingProfile,
    ScoringDisabled,
    ScoringError,
    SessionNotCompleted,
    Unavailable,
)
from consumer.events import ID_NAMESPACE
from consumer.judge.panel import Judge
from consumer.limits.room import Place, Room
from consumer.ports import ClaimedRequest, Errand, History, Prices, Scores
from consumer.scoring.aggregate import (
    Findings,
    JudgeView,
    NothingToScore,
    Total,
    aggregate,
    look,
)
from consumer.scoring.criteria import Criteria, criteria
from consumer.scoring.judgement import Judgement, view_of
from consumer.scoring.profile import Profile, by_id, select
from consumer.scoring.score import Score, new_score
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.session import Session
from consumer.scoring.text import storable
from consumer.scoring.tool_report import Price
from consumer.scoring.verdict import Verdict
from consumer.together import LARGE_BYTES, beside, both


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
    """Try again `after_s` seconds from now; `deadline_at` is when to give up.

    `held`: its judge is left alone. It is claimed again when that one is asked again.
    """

    code: ErrorCode
    message: str
    after_s: float
    deadline_at: datetime | None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Not ours to do now: back to the queue, no attempt counted.

    `held`: it needs a judge who is left alone. It is claimed again when that one is asked again,
    and no deadline runs meanwhile.
    """

    after_s: float
    held: bool = False
    why: str = field(default="", compare=False)


Outcome = Completed | Reused | Failed | Retry | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long trouble is borne, in seconds."""

    deadline_s: float = 600.0
    completion_wait_s: float = 60.0
    completion_poll_s: float = 5.0
    backoff_base_s: float = 1.0
    backoff_max_s: float = 60.0
    max_lost_leases: int = 3

    @property
    def alone_at(self) -> int | None:
        """A request that has lost this many leases has one chance left. It is worked on alone, so
        that nothing else can be to blame for the last loss. None where there is but one chance.
        """
        return self.max_lost_leases - 1 or None

    def gives_up(self, request: ClaimedRequest) -> bool:
        """Whether the request has cost too many workers to be given to another."""
        return request.lost_leases >= self.max_lost_leases


BUSY_ELSEWHERE_S = 1.0
MOMENT_S = 0.05
# Of sessions under way, together, where nothing else is said.
MOST_BYTES = 16 * 1024 * 1024
# The last try comes right at the deadline, and shall be a real one.
LEAST_TIME_FOR_JUDGE_S = 60.0
MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Scores requests."""

    history: History
    judge: Judge
    prices: Prices
    scores: Scores
    profiles: Sequence[Profile]
    enabled: bool
    patience: Patience
    room: Room = field(default_factory=lambda: Room(MOST_BYTES))
    # By the profile's identity, and with it: it takes half a millisecond, and few are ever used.
    _hashes: dict[int, tuple[Profile, str]] = field(default_factory=dict, init=False, repr=False)

    async def run(self, request: ClaimedRequest, now: Callable[[], datetime]) -> Outcome:
        """The request's outcome. `now` is the database's clock.

        Raises LeaseLost, and NotReachable where the database is away.
        """
        with self.room.place() as place:
            try:
                return await self._outcome(request, place, now)
            finally:
                if place.size > LARGE_BYTES:
                    # An error holds what it came from until garbage is collected; and the thread
                    # that raised it, and the event loop, hold the error for a moment.
                    await asyncio.sleep(MOMENT_S)
                    gc.collect()

    async def _outcome(
        self, request: ClaimedRequest, place: Place, now: Callable[[], datetime]
    ) -> Outcome:
        try:
            return await self._score(request, place, now)
        except AlreadyBeingScored:
            return Release(BUSY_ELSEWHERE_S)
        except Unavailable as error:
            # What was paid for in vain must not be paid for again for ever.
            if isinstance(error, JudgeHeld) and not error.paid:
                return Release(error.retry_after or BUSY_ELSEWHERE_S, held=True, why=str(error))
            return after_trouble(request, error, now(), self.patience)
        except Final as error:
            return failed(error)

    async def _score(
        self, request: ClaimedRequest, place: Place, now: Callable[[], datetime]
    ) -> Outcome:
        self._refuse_hopeless(request)
        session = await self.history.fetch(request.session_id, place)
        size = place.size
        profile = self._profile(request, session)
        criteria_hash = self._criteria_hash(profile)
        # The tool report is made while the database waits for its disk.
        stored, about = await both(
            self.scores.begin_scoring(request, profile_id=profile.id, criteria_hash=criteria_hash),
            beside(size, self._subject, session, profile),
        )
        if stored is not None:
            return Reused(stored)
        errand = self._errand(request, now())
        scored = await score_session(about, profile, self.judge, errand, size=size)
        return Completed(
            new_score(
                score_id=uuid.uuid5(ID_NAMESPACE, f"score:{request.request_id}"),
                request_id=request.request_id,
                triggered_by=request.triggered_by,
                subject=about,
                profile=profile,
                criteria_hash=criteria_hash,
                total=scored.total,
                judgement=scored.judgement,
                judge_skipped=scored.judge_skipped,
                duration_ms=round((now() - request.claimed_at) / timedelta(milliseconds=1)),
            )
        )

    def _subject(self, session: Session, profile: Profile) -> Subject:
        return subject(
            session,
            price=session_price(session, self.prices),
            cost_usd=session_cost_usd(session, self.prices),
            actions=profile.actions,
        )

    def _criteria_hash(self, profile: Profile) -> str:
        if id(profile) not in self._hashes:
            self._hashes[id(profile)] = (profile, criteria_of(profile, self.judge).hash)
        return self._hashes[id(profile)][1]

    def _refuse_hopeless(self, request: ClaimedRequest) -> None:
        if not self.enabled:
            raise ScoringDisabled("scoring is switched off (SCORING_ENABLED)")
        if self.patience.gives_up(request):
            raise InternalError(_given_up(request.lost_leases, self.patience))

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

    def profiles_out_of_turn(self) -> tuple[frozenset[str], frozenset[str]]:
        """Ids of profiles that can't be scored by now as their judge is left alone, and of those of
        which one request is to find out if it is well again. Where no profile is left, "" is in
        one of the two: requests whose profile is not known yet.
        """
        judged = [p for p in self.profiles if p.needs_judge]
        held = {p.id for p in judged if self.judge.held(p)}
        probing = {p.id for p in judged if self.judge.probing(p)} - held
        if len(held | probing) == len({p.id for p in self.profiles}):
            (probing or held).add("")
        return frozenset(held), frozenset(probing)

    def _errand(self, request: ClaimedRequest, now: datetime) -> Errand:
        """Who asks the judge, and how long: what is left of the deadline, if one runs."""
        left_s = None
        if deadline := request.deadline_at:
            left_s = max((deadline - now).total_seconds(), LEAST_TIME_FOR_JUDGE_S)
        return Errand(
            request_id=request.request_id,
            lease_token=request.lease_token,
            left_s=left_s,
        )


def _given_up(lost: int, patience: Patience) -> str:
    workers = "1 worker was" if lost == 1 else f"{lost} workers in a row were"
    alone = ", the last one on it alone" if lost - 1 == patience.alone_at else ""
    return (
        f"given up: {workers} lost while working on it{alone}; "
        "see ScoringRequestGivenUp in docs/runbooks.md"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A total and where it came from."""

    total: Total
    judgement: Judgement | None = None
    judge_skipped: str | None = None


async def score_session(
    subject: Subject, profile: Profile, judge: Judge, errand: Errand, *, size: int = 0
) -> Scored:
    """The total; rules and gates first, for what they refuse is not paid for. `size`: bytes of the
    session, where others wait for the same thread.

    Raises BudgetExhausted, InternalError where nothing applies, and what Judge.judge raises.
    """
    findings = await beside(size, look, profile, subject)
    if not asks_judge(profile, findings):
        return Scored(total=combine(profile, findings, None))
    try:
        judgement = await judge.judge(
            subject,
            profile,
            total_of=lambda verdict: total_alone(profile, findings, verdict),
            errand=errand,
            size=size,
        )
    except BudgetExhausted as error:
        return _by_rules_only(profile, findings, error)
    total = combine(profile, findings, judgement)
    return Scored(total=total, judgement=judgement)


def asks_judge(profile: Profile, findings: Findings) -> bool:
    """Whether the judge is asked after these findings."""
    return profile.needs_judge and (findings.refused is None or profile.judge_anyway)


def _by_rules_only(profile: Profile, findings: Findings, error: BudgetExhausted) -> Scored:
    """What the rules say, where the profile wants that and they say anything."""
    if profile.judge.on_budget_exhausted == "fail":
        raise error
    try:
        total = aggregate(profile, findings, None, unasked="the spend cap is reached")
    except NothingToScore:
        raise error from None
    return Scored(total=total, judge_skipped=error.code.value)


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


def criteria_of(profile: Profile, judge: Judge) -> Criteria:
    """The criteria of this profile with this judge, if it asks one at all."""
    return criteria(profile, judge.settings(profile) if profile.needs_judge else None)


def combine(profile: Profile, findings: Findings, judgement: Judgement | None) -> Total:
    """Findings and verdicts as one total. Raises InternalError where nothing applies."""
    return _total(profile, findings, judgement.view if judgement else None)


def total_alone(profile: Profile, findings: Findings, verdict: Verdict) -> int:
    """What the total would be with this verdict alone."""
    return _total(profile, findings, view_of(verdict)).total


def _total(profile: Profile, findings: Findings, view: JudgeView | None) -> Total:
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
    held = isinstance(error, JudgeHeld)
    return Retry(error.code, reason(error), min(delay, remaining), deadline, held)


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
