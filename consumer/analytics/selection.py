"""Which scores are asked for, and where a page of them ends."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from consumer.error_codes import State

DEFAULT_DAYS = 30
# Names are nearly as many as scores: counting those of a year takes longer than anyone waits.
NAMES_DAYS = 92
_CRITERIA_HASH = re.compile("[0-9a-f]{12,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a report is about: UTC days, both included, and what its scores have in common.

    `criteria_hash` may be the beginning of one. Raises ValueError where it is none, and where a
    profile's version is given without the profile.
    """

    first: date
    last: date
    profile: str | None = None
    label: str | None = None
    agent: str | None = None
    model: str | None = None
    criteria_hash: str | None = None
    profile_version: int | None = None

    def __post_init__(self) -> None:
        if self.profile_version is not None and self.profile is None:
            raise ValueError("a profile version says nothing without its profile: give both")
        if self.criteria_hash is not None and not _CRITERIA_HASH.fullmatch(self.criteria_hash):
            raise ValueError("criteria: 12 to 64 hexadecimal digits of a hash in report criteria")


def days(
    first: date | None, last: date | None, *, today: date, at_most: int | None = None
) -> tuple[date, date]:
    """These days; without a last one until today, without a first one thirty days up to the last.

    Raises ValueError where they are the wrong way round, or more than `at_most`.
    """
    last = last or today
    first = first or last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise ValueError(f"from {first} is after to {last}")
    if at_most and last - first >= timedelta(days=at_most):
        raise ValueError(f"from {first} to {last} are more than {at_most} days")
    return first, last


class Band(StrEnum):
    """A score's band; an override's, where there is one."""

    FAILED = "failed"
    WEAK = "weak"
    ADEQUATE = "adequate"
    GOOD = "good"
    NEAR_PERFECT = "near-perfect"


class Availability(StrEnum):
    """Whether a tool that a judge missed was there."""

    EXISTS_UNUSED = "exists_unused"
    EXISTS_USED = "exists_used"
    DOES_NOT_EXIST = "does_not_exist"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFilter:
    """What scorecards have in common; None is anything. Times: from `since`, before `until`.

    `history`: former scores too, not only each session's current one by a profile.
    """

    session: str | None = None
    agent: str | None = None
    label: str | None = None
    model: str | None = None
    profile: str | None = None
    criteria_hash: str | None = None
    band: Band | None = None
    state: State | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    history: bool = False

    @property
    def requests_too(self) -> bool:
        """Whether requests without a score may be meant: nothing is asked that only a score has."""
        only_scores_have = (
            self.agent, self.label, self.model, self.criteria_hash, self.band, self.text,
        )  # fmt: skip
        return self.state is not State.COMPLETED and not any(only_scores_have)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The last card of a page: the next page begins below it, whatever came in above meanwhile."""

    at: datetime
    id: UUID

    def encode(self) -> str:
        """As callers get it: opaque, and safe in a URL."""
        raw = json.dumps([self.at.astimezone(UTC).isoformat(), self.id.hex], separators=(",", ":"))
        return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Raises ValueError where it is none of ours."""
        try:
            padded = text + "=" * (-len(text) % 4)
            at, identifier = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            moment = datetime.fromisoformat(at)
            if moment.tzinfo is None:
                raise ValueError("no time zone")
            return cls(at=moment.astimezone(UTC), id=UUID(identifier))
        except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error) as error:
            raise ValueError("cursor: not one that this API gave") from error
