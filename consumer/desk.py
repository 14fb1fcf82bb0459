"""Scoring at one's desk: session files, rule scorers, no Kafka, no Postgres, no provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consumer.edges.history.tarsy_python_shape import Detail, FinalAnalysis, parse, session
from consumer.errors import HistoryInvalid, ScoringError, SessionEnded
from consumer.pipeline import combine, session_cost_usd, session_price
from consumer.ports import Prices
from consumer.scoring.aggregate import Total, look
from consumer.scoring.profile import Profile
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskScore:
    """One file's score by one profile, or why there is none."""

    file: str
    profile: str
    subject: Subject | None
    total: Total | None
    error: str | None

    @property
    def name(self) -> str:
        """The session's id, or the file's name where it could not be read."""
        return self.subject.session.id if self.subject else self.file


def read_session(path: Path, labels: Mapping[str, str]) -> Session:
    """A session from a file: the History Service's detail, or `{"detail": ..., "final": ...}`.

    Raises HistoryInvalid or SessionEnded.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryInvalid(f"can't be read as JSON: {error}") from error
    combined = isinstance(raw, dict) and "detail" in raw
    detail = parse(Detail, json.dumps(raw["detail"] if combined else raw).encode())
    if detail.status != "completed":
        raise SessionEnded(f"the session is {detail.status}; only completed ones are scored")
    final = detail.final_analysis
    if final is None and combined and raw.get("final"):
        final = parse(FinalAnalysis, json.dumps(raw["final"]).encode()).final_analysis
    return session(detail, final_analysis=final, labels=labels)


def score_file(
    path: Path, profiles: Sequence[Profile], labels: Mapping[str, str], prices: Prices
) -> Iterator[DeskScore]:
    """The file's score by each profile's rule scorers; the judge's criteria are left out."""
    try:
        found = read_session(path, labels)
        about = subject(
            found, price=session_price(found, prices), cost_usd=session_cost_usd(found, prices)
        )
    except ScoringError as error:
        for profile in profiles:
            yield _failed(path, profile, None, error)
        return
    for profile in profiles:
        try:
            total = combine(profile, look(profile, about), None)
        except ScoringError as error:
            yield _failed(path, profile, about, error)
        else:
            yield DeskScore(
                file=str(path), profile=profile.id, subject=about, total=total, error=None
            )


def _failed(path: Path, profile: Profile, about: Subject | None, error: ScoringError) -> DeskScore:
    return DeskScore(
        file=str(path), profile=profile.id, subject=about, total=None, error=str(error)
    )
