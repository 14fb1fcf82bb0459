"""Kinds of parameters, each with what is allowed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

# Each room's own: metrics then tell whole paths.
PREFIX = "/api/v1/scoring"

ProfileId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ProfilePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
# Or as much of its beginning as `report criteria` shows.
CriteriaHash = Annotated[str, Field(pattern=r"^[0-9a-f]{12,64}$")]
Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Wait = Annotated[
    float,
    Query(
        ge=0, le=60, allow_inf_nan=False, description="Seconds to wait for the answer, if need be."
    ),
]
# What people write; it may span lines.
Reason = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True,
        min_length=1,
        max_length=4000,
        pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$",
    ),
]
# What filters compare with: names that others gave. Without control characters, which no name has.
Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")]

T = TypeVar("T", date, datetime)


def _sensible(value: T) -> T:
    """Further away, time zones and calendars of others have no such time."""
    if not 1970 <= value.year < 3000:
        raise ValueError("must be from 1970 to 2999")
    return value


Day = Annotated[date, AfterValidator(_sensible)]
Time = Annotated[AwareDatetime, AfterValidator(_sensible)]


def utc_today() -> date:
    """The day that it is for reports."""
    return datetime.now(UTC).date()
