"""Scoring at one's desk: session files; no Kafka, no Postgres, a provider only if asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from uuid import uuid4

from consumer.edges.history.tarsy_python_shape import Detail, FinalAnalysis, parse, session
from consumer.errors import HistoryInvalid, ScoringError, SessionEnded
from consumer.files import MIB, read_bytes
from consumer.judge.panel import Expected, Judge
from consumer.pipeline import (
    asks_judge,
    combine,
    score_session,
    session_cost_usd,
    session_price,
)
from consumer.ports import Errand, Prices
from consumer.scoring.aggregate import Total, look
from consumer.scoring.judgement import Judgement
from consumer.scoring.profile import Profile
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.session import Session

# Someone waits for it.
JUDGE_LIMIT_S = 600.0
# The most that HISTORY_MAX_BYTES may be.
MAX_FILE_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskScore:
    """One file's score by one profile, or why there is none."""

    file: str
    profile: str
    subject: Subject | None
    total: Total | None
    error: str | None
    judgement: Judgement | None = None

    @property
    def name(self) -> str:
        """The session's id, or the file's name where it could not be read."""
        return self.subject.session.id if self.subject else self.file


def read_session(path: Path, labels: Mapping[str, str]) -> Session:
    """A session from a file: the History Service's detail, or `{"detail": ..., "final": ...}`.

    Raises HistoryInvalid or SessionEnded.
    """
    try:
        raw = json.loads(read_bytes(path, MAX_FILE_BYTES))
    except OSError as error:
        raise HistoryInvalid(f"can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise HistoryInvalid(f"can't be read as JSON: {error}") from error
    combined = isinstance(raw, dict) and "detail" in raw
    detail = parse(Detail, json.dumps(raw["detail"] if combined else raw).encode())
    if detail.status != "completed":
        raise SessionEnded(f"the session is {detail.status}; only completed ones are scored")
    final = detail.final_analysis
    if final is None and combined and raw.get("final"):
        final = parse(FinalAnalysis, json.dumps(raw["final"]).encode()).final_analysis
    return session(detail, final_analysis=final, labels=labels)


def read_subject(
    path: Path, profile: Profile, labels: Mapping[str, str], prices: Prices
) -> Subject:
    """What of a file is scored. Raises HistoryInvalid or SessionEnded."""
    return _subject(read_session(path, labels), prices, profile.actions)


def _subject(found: Session, prices: Prices, actions: tuple[str, ...]) -> Subject:
    return subject(
        found,
        price=session_price(found, prices),
        cost_usd=session_cost_usd(found, prices),
        actions=actions,
    )


def score_file(
    path: Path, profiles: Sequence[Profile], labels: Mapping[str, str], prices: Prices
) -> Iterator[DeskScore]:
    """The file's score by each profile's rule scorers; the judge's criteria are left out."""
    try:
        found = read_session(path, labels)
    except ScoringError as error:
        for profile in profiles:
            yield _failed(path, profile, None, error)
        return
    subject_by = cache(partial(_subject, found, prices))  # made once for most profiles
    for profile in profiles:
        about = subject_by(profile.actions)
        try:
            total = combine(profile, look(profile, about), None)
        except ScoringError as error:
            yield _failed(path, profile, about, error)
        else:
            yield DeskScore(
                file=str(path), profile=profile.id, subject=about, total=total, error=None
            )


async def judge_file(
    path: Path, profile: Profile, labels: Mapping[str, str], prices: Prices, judge: Judge
) -> DeskScore:
    """The file's score as the consumer makes it: rules, gates and judge."""
    about = None
    try:
        about = read_subject(path, profile, labels, prices)
        scored = await score_session(about, profile, judge, _errand(), size=_size(path))
    except ScoringError as error:
        return _failed(path, profile, about, error)
    return DeskScore(
        file=str(path),
        profile=profile.id,
        subject=about,
        total=scored.total,
        judgement=scored.judgement,
        error=None,
    )


def _size(path: Path) -> int:
    return path.stat().st_size


def _errand() -> Errand:
    return Errand(request_id=uuid4(), lease_token=uuid4(), left_s=JUDGE_LIMIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What judging may come to at most: answers that are as long as they may be, none invalid.

    `usd` is None where a price is unknown.
    """

    prompts: int
    input_tokens: int
    output_tokens: int
    usd: float | None


def estimate(
    paths: Iterable[Path],
    profile: Profile,
    labels: Mapping[str, str],
    prices: Prices,
    judge: Judge,
) -> Estimate:
    """What judging these files may cost. What is unreadable, or behind a failed gate, is free."""
    uses = [use for path in paths for use in _expected(path, profile, labels, prices, judge)]
    known = [use.usd for use in uses if use.usd is not None]
    return Estimate(
        prompts=len(uses),
        input_tokens=sum(use.input_tokens for use in uses),
        output_tokens=sum(use.output_tokens for use in uses),
        usd=sum(known) if len(known) == len(uses) else None,
    )


def _expected(
    path: Path, profile: Profile, labels: Mapping[str, str], prices: Prices, judge: Judge
) -> Iterator[Expected]:
    try:
        about = read_subject(path, profile, labels, prices)
    except ScoringError:
        return
    if asks_judge(profile, look(profile, about)):
        yield from judge.expected(about, profile)


def _failed(path: Path, profile: Profile, about: Subject | None, error: ScoringError) -> DeskScore:
    return DeskScore(
        file=str(path), profile=profile.id, subject=about, total=None, error=str(error)
    )
