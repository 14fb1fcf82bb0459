"""Many score requests at once: from a list of sessions, or from History by time and filters.

A batch is stored first, then worked on by one process at a time, under a lease: its sessions are
listed, then published at its rate. Whoever goes on after a crash publishes a chunk once more, with
the same request ids, which intake knows already.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, Self
from uuid import UUID

import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, FailFast, Field, model_validator

from consumer import metrics
from consumer.errors import HistoryUnavailable, NotReachable, ScoringError
from consumer.events import ID_NAMESPACE, ScoreRequested, StorableText
from consumer.loops import Backoff, Heartbeat
from consumer.scoring.aggregate import band
from consumer.scoring.profile import Profile

log = structlog.get_logger()

Band = Literal["near-perfect", "good", "adequate", "weak", "failed"]
State = Literal["listing", "publishing", "cancelling", "completed", "cancelled", "failed"]

# What PostgreSQL and History can tell apart from nonsense, in any time zone.
Time = Annotated[
    AwareDatetime,
    Field(ge=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(3000, 1, 1, tzinfo=UTC)),
]

MAX_SESSIONS = 100_000
CHUNK = 500
AT_A_TIME = 4
LEASE_S = 30.0
POLL_S = 1.0
# What was published before a cancellation is on its way through Kafka for so many seconds at most.
STRAGGLERS_S = 30


class Selection(BaseModel):
    """Which completed sessions of History are meant: all that is given must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: Time | None = Field(default=None, description="Started at or after this time.")
    end: Time | None = Field(default=None, description="Started at or before it; default: now.")
    alert_type: StorableText | None = Field(default=None, min_length=1, max_length=255)
    agent: StorableText | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="As History's list tells it (TARSy: the chain), or as a score does.",
    )
    # Else each of a hundred thousand wrong ones is listed, which takes its time.
    bands: Annotated[tuple[Band, ...], FailFast()] = Field(
        default=(), max_length=5, description="Bands of the current score; none: any, or no score."
    )
    not_current: bool = Field(
        default=False, description="Only those without a score under today's criteria."
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Self:
        if self.start is not None and self.start >= (self.end or datetime.now(UTC)):
            raise ValueError("start must be before end, which is now where it is not given")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A session as History lists it. `label` is what its alert type says; `agent` may be only the
    name of a chain of agents: who they are is told by the session itself.
    """

    session_id: str
    agent: str | None
    label: str
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A session's current score by one profile, as far as it matters here."""

    session_id: str
    profile_id: str
    criteria_hash: str
    total_score: int
    agent: str
    label: str
    judge_skipped: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """What somebody wants. Either sessions are named, or there is a selection."""

    sessions: Sequence[str]
    selection: Selection | None
    profile_id: str | None
    force_rescore: bool
    priority: int
    per_second: float | None
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch under our lease."""

    batch_id: UUID
    state: State
    selection: Selection | None
    profile_id: str | None
    force_rescore: bool
    priority: int
    per_second: float | None
    created_by: str
    created_at: datetime
    lease_token: UUID


class Sessions(Protocol):
    """What History has."""

    def pages(
        self, *, start: datetime | None, end: datetime, alert_type: str | None
    ) -> AsyncIterator[Sequence[Listed]]:
        """Completed sessions that started in this time.

        Raises HistoryUnavailable, HistoryInvalid.
        """


class Criteria(Protocol):
    """The profiles in use."""

    def by_id(self, profile_id: str) -> Profile | None:
        """The profile of this id."""

    def for_label(self, label: str) -> Profile | None:
        """The profile that sessions with this label are scored by."""

    def hash_of(self, profile_id: str) -> str | None:
        """The criteria hash that a new score by this profile would have."""

    def most_usd(self, profile: Profile, tokens: int | None) -> float | None:
        """What judging a session of so many tokens costs at most; None where a price is unknown."""


class Asking(Protocol):
    """The way to intake."""

    async def publish(self, requests: Sequence[ScoreRequested]) -> None:
        """Returns once Kafka has acknowledged all of them. Raises NotReachable."""


class Batches(Protocol):
    """Where batches are kept. Raises NotReachable. What holds the lease answers False when it is
    lost, or the batch was cancelled.
    """

    async def claim(self, *, lease_s: float, only: UUID | None = None) -> Batch | None:
        """An unfinished batch that nobody works on."""

    async def renew(self, batch: Batch, *, lease_s: float) -> bool:
        """Keeps the lease."""

    async def release(self, batch: Batch) -> None:
        """Lets others go on."""

    async def add_items(self, batch: Batch, items: Mapping[str, UUID], *, lease_s: float) -> bool:
        """More sessions with their request ids; what is there already stays."""

    async def listed(self, batch: Batch) -> bool:
        """All sessions are there: on to publishing."""

    async def next_items(self, batch: Batch, count: int) -> Mapping[str, UUID]:
        """Sessions not published yet."""

    async def published(self, batch: Batch, sessions: Iterable[str], *, lease_s: float) -> bool:
        """Kafka has acknowledged these."""

    async def finish(self, batch: Batch, state: State, *, message: str | None = None) -> bool:
        """The end."""

    async def unanswered(self, batch: Batch, count: int) -> tuple[Sequence[UUID], bool]:
        """Requests of the batch that wait, and whether others are not yet through Kafka."""

    async def known(self, session_ids: Sequence[str]) -> Sequence[Known]:
        """The current scores of these sessions."""

    async def mean_usd(self, profile_id: str, criteria_hash: str) -> float | None:
        """What the latest scores under these criteria cost on average; None: there are none."""


class Requests(Protocol):
    """What can be ended."""

    async def cancel(self, request_id: UUID, *, by: str) -> bool:
        """Ends an unfinished request with its score.failed."""


def request_id(batch_id: UUID, session_id: str) -> UUID:
    """The same for the same batch and session, whoever publishes it how often."""
    return uuid.uuid5(ID_NAMESPACE, f"batch:{batch_id}:{session_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A session of a batch, and the profile that it would be scored by."""

    session_id: str
    profile: Profile | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """Decides which sessions are meant. What History lists is narrowed by what is stored here."""

    sessions: Sessions
    batches: Batches
    criteria: Criteria

    async def pages(
        self, selection: Selection, profile_id: str | None, now: datetime
    ) -> AsyncIterator[list[Chosen]]:
        """What is meant, page by page. `now` ends an open range: it shall not grow meanwhile."""
        async for page in self.sessions.pages(
            start=selection.start, end=selection.end or now, alert_type=selection.alert_type
        ):
            yield await self._narrowed(page, selection, profile_id)

    async def named(self, session_ids: Sequence[str], profile_id: str | None) -> list[Chosen]:
        """These sessions. Without a score the label is not known, and the default one is taken."""
        listed = [Listed(session_id=s, agent=None, label="", tokens=None) for s in session_ids]
        return await self._narrowed(listed, Selection(), profile_id)

    async def _narrowed(
        self, listed: Sequence[Listed], selection: Selection, profile_id: str | None
    ) -> list[Chosen]:
        scores: dict[str, list[Known]] = defaultdict(list)
        for score in await self.batches.known([session.session_id for session in listed]):
            scores[score.session_id].append(score)
        return [
            Chosen(session_id=session.session_id, profile=profile, tokens=session.tokens)
            for session in listed
            if selection.agent
            in {None, session.agent, *(s.agent for s in scores[session.session_id])}
            for profile in [self._profile(session, scores[session.session_id], profile_id)]
            if self._is_meant(scores[session.session_id], profile, selection)
        ]

    def _profile(
        self, session: Listed, scores: Sequence[Known], profile_id: str | None
    ) -> Profile | None:
        """By its id, else by the label that the session was scored with, else by its alert type."""
        if profile_id is not None:
            return self.criteria.by_id(profile_id)
        return self.criteria.for_label(scores[0].label if scores else session.label)

    def _is_meant(
        self, scores: Sequence[Known], profile: Profile | None, selection: Selection
    ) -> bool:
        own = [s for s in scores if profile is not None and s.profile_id == profile.id]
        if selection.bands and not any(band(s.total_score) in selection.bands for s in own):
            return False
        return not (selection.not_current and any(self._is_current(score) for score in own))

    def _is_current(self, score: Known) -> bool:
        now = self.criteria.hash_of(score.profile_id)
        return score.criteria_hash == now and score.judge_skipped is None


class Plan(BaseModel):
    """What a batch would come to. `cost_usd` is null where a price is unknown."""

    sessions: int
    judged: int = Field(description="Sessions whose profile asks a judge.")
    by_profile: dict[str, int]
    cost_usd: float | None
    cost_basis: Literal["none", "recent_scores", "upper_bound", "unknown"] = Field(
        description="recent_scores: what the latest under today's criteria cost on average. "
        "upper_bound: from tokens and prices, where some profile has no such score yet."
    )


async def plan(selecting: Selecting, chosen: AsyncIterator[Sequence[Chosen]]) -> Plan:
    """The plan of what is chosen. Raises TooMany."""
    sessions: Counter[str] = Counter()
    judged = 0
    bounds: dict[str, float | None] = defaultdict(float)
    profiles: dict[str, Profile] = {}
    async for page in chosen:
        for one in page:
            sessions[one.profile.id if one.profile else "none"] += 1
            if one.profile and one.profile.needs_judge:
                judged += 1
                profiles[one.profile.id] = one.profile
                bounds[one.profile.id] = _sum(
                    bounds[one.profile.id], selecting.criteria.most_usd(one.profile, one.tokens)
                )
        require_not_too_many(sessions.total())
    cost, basis = await _cost(selecting, sessions, bounds)
    return Plan(
        sessions=sessions.total(),
        judged=judged,
        by_profile=dict(sorted(sessions.items())),
        cost_usd=None if cost is None else round(cost, 6),
        cost_basis=basis,
    )


async def _cost(
    selecting: Selecting, sessions: Mapping[str, int], bounds: Mapping[str, float | None]
) -> tuple[float | None, Literal["none", "recent_scores", "upper_bound", "unknown"]]:
    """What the profiles that ask a judge cost together, and how that is known."""
    total: float | None = 0.0
    measured = True
    for profile_id, bound in bounds.items():
        criteria_hash = selecting.criteria.hash_of(profile_id) or ""
        mean = await selecting.batches.mean_usd(profile_id, criteria_hash)
        measured = measured and mean is not None
        total = _sum(total, bound if mean is None else mean * sessions[profile_id])
    if not bounds:
        return 0.0, "none"
    if total is None:
        return None, "unknown"
    return total, "recent_scores" if measured else "upper_bound"


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


class TooMany(Exception):
    """More sessions than a batch may have."""

    def __init__(self) -> None:
        super().__init__(f"more than {MAX_SESSIONS} sessions; choose a shorter time, or filter")


def require_not_too_many(count: int) -> None:
    """Raises TooMany."""
    if count > MAX_SESSIONS:
        raise TooMany


class Runner:
    """Works on batches, several at a time, until stopped."""

    def __init__(
        self, batches: Batches, selecting: Selecting, asking: Asking, requests: Requests
    ) -> None:
        self._batches, self._selecting = batches, selecting
        self._asking, self._requests = asking, requests
        self._stop = asyncio.Event()
        self._due: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Claims what nobody works on."""
        self._stop = stop
        backoff = Backoff("batches", Heartbeat("batches", limit_s=60), stop)
        working: set[asyncio.Task[None]] = set()
        ending = asyncio.create_task(stop.wait())
        while not stop.is_set():
            async with backoff.bear():
                await self._begin(working)
            metrics.BATCHES.set(len(working))
            done, _ = await asyncio.wait(
                {ending, *working},
                timeout=self._until_due_s(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in working & done:
                working.discard(task)
                task.result()
        await asyncio.gather(*working)

    async def _begin(self, working: set[asyncio.Task[None]]) -> None:
        """As many batches as may be, one task each."""
        while len(working) < AT_A_TIME and (batch := await self._batches.claim(lease_s=LEASE_S)):
            working.add(asyncio.create_task(self._bear(batch)))

    def _until_due_s(self) -> float:
        """Seconds until one that was put off here is due; others' are looked for now and then."""
        now = asyncio.get_running_loop().time()
        self._due = [due for due in self._due if due > now]
        return min([POLL_S, *(due - now for due in self._due)])

    async def _bear(self, batch: Batch) -> None:
        """Servers that are away are tried again by whoever claims the batch next."""
        try:
            if pause_s := await self.work(batch):
                self._due.append(asyncio.get_running_loop().time() + pause_s)
        except (NotReachable, HistoryUnavailable) as error:
            log.warning("batch_interrupted", batch_id=str(batch.batch_id), error=str(error))

    async def work_on(self, batch_id: UUID, stop: asyncio.Event) -> None:
        """One batch, to its end or until somebody else has it: the lease is kept through pauses."""
        self._stop = stop
        while not stop.is_set() and (
            batch := await self._batches.claim(lease_s=LEASE_S, only=batch_id)
        ):
            while pause_s := await self.work(batch):
                await self._batches.renew(batch, lease_s=pause_s + LEASE_S)
                await self._wait(pause_s)
                if not await self._batches.renew(batch, lease_s=LEASE_S):
                    break  # cancelled meanwhile: that comes next

    async def work(self, batch: Batch) -> float:
        """What comes next for this batch, as long as the lease is ours; seconds until there is
        more, where its rate puts it off. Raises NotReachable and HistoryUnavailable: the lease
        then keeps everyone from trying at once.
        """
        pause_s = 0.0
        try:
            if batch.state == "listing":
                await self._list(batch)
            elif batch.state == "publishing":
                pause_s = await self._publish(batch)
            else:
                await self._cancel(batch)
        except HistoryUnavailable:
            raise
        except (ScoringError, TooMany) as error:
            await self._batches.finish(batch, "failed", message=str(error))
        if self._stop.is_set() and not pause_s:
            await self._batches.release(batch)
        return pause_s

    async def _list(self, batch: Batch) -> None:
        selection = batch.selection or Selection()
        count = 0
        async for page in self._selecting.pages(selection, batch.profile_id, batch.created_at):
            items = {c.session_id: request_id(batch.batch_id, c.session_id) for c in page}
            if self._stop.is_set() or not await self._batches.add_items(
                batch, items, lease_s=LEASE_S
            ):
                return
            count += len(items)
            require_not_too_many(count)
        await self._batches.listed(batch)

    async def _publish(self, batch: Batch) -> float:
        """All of it; or what its rate lets out in a second, and the seconds until there is more.
        Meanwhile it is nobody's: it takes no place, and its lease ends when it is due.
        """
        turn = math.inf if batch.per_second is None else math.ceil(batch.per_second)
        out = 0
        while items := await self._batches.next_items(batch, int(min(CHUNK, turn - out))):
            if self._stop.is_set():
                return 0
            await self._asking.publish([_request(batch, s, i) for s, i in items.items()])
            out += len(items)
            pause_s = out / batch.per_second if batch.per_second and out >= turn else 0
            if not await self._batches.published(batch, items, lease_s=pause_s or LEASE_S):
                return 0
            metrics.BATCH_REQUESTS.inc(len(items))
            if pause_s:
                return pause_s
        await self._batches.finish(batch, "completed")
        return 0

    async def _cancel(self, batch: Batch) -> None:
        """Ends what waits; what is being scored is paid for already, and goes on."""
        for _ in range(STRAGGLERS_S):
            waiting, more_to_come = await self._batches.unanswered(batch, CHUNK)
            while waiting:
                for one in waiting:
                    await self._requests.cancel(one, by=f"ending batch {batch.batch_id}")
                if not await self._batches.renew(batch, lease_s=LEASE_S):
                    return
                waiting, more_to_come = await self._batches.unanswered(batch, CHUNK)
            if not more_to_come:
                break
            await self._wait(POLL_S)
            if self._stop.is_set() or not await self._batches.renew(batch, lease_s=LEASE_S):
                return
        await self._batches.finish(batch, "cancelled")

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _request(batch: Batch, session_id: str, request: UUID) -> ScoreRequested:
    return ScoreRequested(
        session_id=session_id,
        request_id=request,
        force_rescore=batch.force_rescore,
        profile_id=batch.profile_id,
        triggered_by=batch.created_by,
        priority=batch.priority,
        requested_at=datetime.now(UTC),
    )
