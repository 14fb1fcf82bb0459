"""What the pipeline and the live events need from the outside, as small protocols. The edges
implement them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from consumer.limits.room import Place
from consumer.scoring.score import Score
from consumer.scoring.session import Session


class History(Protocol):
    """Where sessions come from."""

    async def fetch(self, session_id: str, place: Place) -> Session:
        """The completed session, for whose bytes `place` is made large enough before they are read.

        Raises SessionNotFound, SessionNotCompleted, SessionEnded, HistoryInvalid or
        HistoryUnavailable.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message to or from the judge."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request to a judge as it went out; `path` is below the base URL.

    `dialect`: how the verdict's shape was asked for. `temperature`: None where none was sent.
    """

    path: str
    body: bytes = field(repr=False)
    dialect: str
    max_tokens: int
    temperature: float | None

    @property
    def content(self) -> bytes:
        """All of it, as it is stored: path, newline, body."""
        return b"%b\n%b" % (self.path.encode(), self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The judge's raw answer to one call, what it used, and what it was the answer to.

    `model` is what the provider says answered; `fingerprint` its name for the system behind it,
    where it has one.
    """

    text: str
    model: str
    fingerprint: str | None = None
    input_tokens: int
    output_tokens: int
    truncated: bool
    sent: Sent

    @property
    def tells_usage(self) -> bool:
        """Some servers do not count: 0 tokens are then no fact, and cost nobody knows what."""
        return self.input_tokens > 0


class Provider(Protocol):
    """One judge model behind one provider. It never retries by itself."""

    @property
    def name(self) -> str:
        """The provider's name in the configuration."""

    @property
    def model(self) -> str:
        """The model that is asked."""

    @property
    def max_output_tokens(self) -> int:
        """How long an answer may be, to begin with."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        temperature: float,
    ) -> Completion:
        """One call. Raises JudgeUnavailable, JudgeRefused, ContextOverflow or InternalError."""

    async def repeat(self, sent: Sent) -> Completion:
        """One call with the same request, byte for byte. Raises as `complete` does; InternalError
        too where this model is by now asked elsewhere.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """On whose behalf a judge is asked: a request under its lease, with so many seconds left.

    None: there was no trouble yet, so no deadline runs. To wait for one's turn is no trouble.
    """

    request_id: UUID
    lease_token: UUID
    left_s: float | None


class Spend(Protocol):
    """The accounts of what judges cost, a provider and a UTC day each."""

    async def reserve(
        self,
        *,
        provider: str,
        cap_usd: float,
        amount_usd: float,
        request_id: UUID,
        lease_token: UUID,
    ) -> UUID | None:
        """A reservation; None where it would pass the cap. Raises LeaseLost."""

    async def settle(self, reservation_id: UUID, spent_usd: float) -> None:
        """Books what was really spent, once, and frees what was reserved."""


class Prices(Protocol):
    """What tokens cost."""

    def cost_usd(
        self, *, provider: str | None, model: str | None, input_tokens: int, output_tokens: int
    ) -> float | None:
        """USD, or None where the price is unknown: never 0 for want of knowledge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRequest:
    """A request under our lease. Times are the database's; `deadline_at` is set by trouble."""

    request_id: UUID
    session_id: str
    profile_id: str | None
    force_rescore: bool
    triggered_by: str
    attempt: int
    lost_leases: int
    lease_token: UUID
    received_at: datetime
    started_at: datetime
    claimed_at: datetime
    deadline_at: datetime | None
    trace: Mapping[str, str]


class Scores(Protocol):
    """What the pipeline asks the store before it pays for anything."""

    async def begin_scoring(
        self, request: ClaimedRequest, *, profile_id: str, criteria_hash: str
    ) -> Score | None:
        """The current score under these criteria, where one answers the request (not forced).

        Raises LeaseLost, or AlreadyBeingScored where another request is at it.
        """


_ID = re.compile(r"(\d{1,20})-(\d{1,19})-(\d{1,9})")
_MOST = (2**64 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in the order of changes: transaction, number of the statement, place in it."""

    xid: int
    seq: int
    n: int

    def __str__(self) -> str:
        return f"{self.xid}-{self.seq}-{self.n}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """An id as listeners have it. Raises ValueError."""
        found = _ID.fullmatch(text)
        place = tuple(map(int, found.groups())) if found else (0, 0, 0)
        if found is None or place[0] > _MOST[0] or place[1] > _MOST[1]:
            raise ValueError("an event's id is three numbers joined by -")
        return cls(*place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that happened, as it is sent to everyone who listens."""

    at: Cursor
    session_id: str
    text: bytes


class Changes(Protocol):
    """Where changes are kept, for an hour. Raises NotReachable."""

    async def now(self) -> Cursor:
        """A place behind all that can be read by now."""

    async def missed(self, after: Cursor) -> bool:
        """Whether something after this place is no longer kept, or the place is not of here."""

    async def after(self, place: Cursor, limit: int) -> Sequence[Change]:
        """The next changes: those of up to `limit` statements."""
