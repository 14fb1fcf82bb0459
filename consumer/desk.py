"""Scoring at one's desk: session files, rule scorers, no Kafka, no Postgres, no provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consumer.edges.history.tarsy_python_shape import Detail, FinalAnalysis, parse, session
from consumer.errors import HistoryInvalid, ScoringError, SessionEnded
from consumer.pipeline import combine
from consumer.scoring.aggregate import Total, rule_scores
from consumer.scoring.profile import Profile
from consumer.scoring.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskScore:
    """One file's score, or why there is none."""

    file: str
    session_id: str | None
    total: Total | None
    error: str | None


def read_session(path: Path, labels: Mapping[str, str]) -> Session:
    """A session from a file: the History Service's detail, or `{"detail": ..., "final": ...}`.

    Raises HistoryInvalid or SessionEnded.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise HistoryInvalid(f"can't be read as JSON: {error}") from error
    combined = isinstance(raw, dict) and "detail" in raw
    detail = parse(Detail, json.dumps(raw["detail"] if combined else raw).encode())
    if detail.status != "completed":
        raise SessionEnded(f"the session is {detail.status}; only completed ones are scored")
    final = detail.final_analysis
    if final is None and combined and raw.get("final"):
        final = parse(FinalAnalysis, json.dumps(raw["final"]).encode()).final_analysis
    return session(detail, final_analysis=final, labels=labels)


def score_files(
    paths: Sequence[Path], profile: Profile, labels: Mapping[str, str]
) -> Iterable[DeskScore]:
    """Each file's score by the profile's rule scorers, in order."""
    for path in paths:
        try:
            found = read_session(path, labels)
            total = combine(profile, rule_scores(profile, found), None)
        except ScoringError as error:
            yield DeskScore(file=str(path), session_id=None, total=None, error=str(error))
        else:
            yield DeskScore(file=str(path), session_id=found.id, total=total, error=None)
