"""What the API needs from the outside. The composition root puts it together, routes take it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Protocol
from uuid import UUID

from fastapi import Depends, Request

from consumer.analytics.reports import Figures
from consumer.analytics.selection import CardFilter, Cursor
from consumer.api.feed import Feed
from consumer.batches import Batches as RunnersBatches
from consumer.batches import NewBatch, Selecting
from consumer.events import ScoreRequested
from consumer.scoring.profile import Profile

Row = Mapping[str, Any]


class Answers(Protocol):
    """Requests and the scores that answer them, as they are stored. Raises NotReachable."""

    async def request(self, request_id: UUID) -> Row | None:
        """One request."""

    async def last_request(self, session_id: str) -> Row | None:
        """The session's newest request."""

    async def score(self, score_id: UUID) -> Row | None:
        """One score, in full."""

    async def current_score(self, session_id: str, profile_id: str | None) -> Row | None:
        """The session's current score by this profile; without one the newest by any."""

    async def scores(
        self, session_id: str, *, before: datetime | None, limit: int
    ) -> Sequence[Row]:
        """The session's scores, current and former, the newest first."""

    async def cancel(self, request_id: UUID, *, by: str) -> bool:
        """Ends an unfinished request with its score.failed; False where there is none."""


class Criteria(Protocol):
    """The profiles in use, and what scores by them are made by now."""

    def by_id(self, profile_id: str) -> Profile | None:
        """The profile of this id."""

    def for_label(self, label: str) -> Profile | None:
        """The profile that sessions with this label are scored by."""

    def hash_of(self, profile_id: str) -> str | None:
        """The criteria hash that a new score by this profile would have."""

    @property
    def ids(self) -> Sequence[str]:
        """Every profile's id."""

    def is_activated(self, profile_id: str) -> bool:
        """Whether it is used in place of a file, or beside them."""

    def checked(self, raw: Any) -> Profile:
        """A profile that can be used here. Raises ProfileInvalid."""

    async def refresh_now(self) -> None:
        """Uses what is activated by now."""


class Profiles(Protocol):
    """Stored profile versions. Raises NotReachable."""

    async def known(self) -> Sequence[Row]:
        """Each stored profile with its newest version."""

    async def versions(self, profile_id: str) -> Sequence[Row]:
        """All versions of a profile, the newest first."""

    async def version(self, profile_id: str, version: int) -> Row | None:
        """One version, with its content."""

    async def add(self, profile: Profile, *, by: str) -> bool:
        """Keeps a version; False where there is one of this number."""

    async def activate(self, profile_id: str, version: int | None, *, by: str) -> None:
        """Has this version used in place of the file's; None: the file's again."""

    async def activations(self, profile_id: str) -> Sequence[Row]:
        """What was activated of a profile, the newest first."""


class Overrides(Protocol):
    """Humans' scores. Raises NotReachable."""

    async def add(self, score_id: UUID, *, score: int, annotator: str, reason: str) -> Row | None:
        """The override, stored with its event; None where there is no such score."""

    async def of(self, score_id: UUID) -> Sequence[Row]:
        """A score's overrides, the newest first."""


class Batches(RunnersBatches, Protocol):
    """Many requests at once. Raises NotReachable."""

    async def create(self, new: NewBatch) -> UUID:
        """Stores a batch; somebody will work on it."""

    async def batch(self, batch_id: UUID) -> Row | None:
        """One batch."""

    async def batches(self, *, before: datetime | None, limit: int) -> Sequence[Row]:
        """Batches, the newest first."""

    async def progress(self, batch_id: UUID) -> Row:
        """How far it is."""

    async def cancel(self, batch_id: UUID, *, by: str) -> bool:
        """Has it ended; False where there is nothing to end."""


class Cards(Protocol):
    """Scorecards, the newest first. Raises NotReachable."""

    async def scorecards(
        self, wanted: CardFilter, *, below: Cursor | None, limit: int
    ) -> Sequence[Row]:
        """Up to `limit` cards, from below the cursor on."""

    def export(self, wanted: CardFilter) -> AsyncIterator[Sequence[Row]]:
        """All cards, batch by batch, as they were when it began."""

    async def session_tools(self, session_id: str) -> Row | None:
        """The tool report of a session's newest score; None where it has none."""


class Asking(Protocol):
    """The way to intake."""

    async def publish(
        self, requests: Sequence[ScoreRequested], *, trace: Mapping[str, str] = ...
    ) -> None:
        """Returns once Kafka has acknowledged all of them. Raises NotReachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All of them. `stopping` is set when the process ends: nothing waits longer then."""

    answers: Answers
    criteria: Criteria
    asking: Asking
    overrides: Overrides
    profiles: Profiles
    batches: Batches
    selecting: Selecting
    cards: Cards
    figures: Figures
    feed: Feed
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


async def _ports(request: Request) -> Ports:
    ports: Ports = request.app.state.ports
    return ports


Wired = Annotated[Ports, Depends(_ports)]
