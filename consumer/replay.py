"""A stored judgement again: the same prompt, byte for byte, and on wish a new answer to it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

from consumer.errors import ConfigError, InternalError
from consumer.judge.line import Question
from consumer.judge.panel import Judge
from consumer.judge.sample import TEMPERATURE, Member
from consumer.ports import ChatMessage, Completion, Errand
from consumer.scoring.elision import Fitted, fit
from consumer.scoring.inputs import request_sha256, session_in
from consumer.scoring.profile import Profile, parse_profile
from consumer.scoring.score import Score
from consumer.scoring.scorers.base import Subject, subject
from consumer.scoring.verdict import Verdict, VerdictInvalid, check, output_schema

SEND_LIMIT_S = 600.0


class Stored(Protocol):
    """Where judgements are stored."""

    async def score(self, score_id: UUID) -> Score | None:
        """A score by its id."""

    async def criteria(self, criteria_hash: str) -> dict[str, Any]:
        """What scores under this hash were made by."""

    async def inputs(self, sha256: str) -> bytes | None:
        """What judges were shown; None where it was pruned."""


class CannotReplay(InternalError):
    """There is nothing to replay; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One sample's request, rebuilt. `matches`: it is what was sent then, byte for byte."""

    sample: Mapping[str, Any]
    rebuilt_sha256: str
    subject: Subject
    profile: Profile
    fitted: Fitted

    @property
    def matches(self) -> bool:
        return bool(self.rebuilt_sha256 == self.sample["request_sha256"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a judge says now to what it was asked then; points by criterion."""

    before: Mapping[str, int]
    now: Mapping[str, int]
    verdict: Verdict
    completion: Completion

    @property
    def changes(self) -> Iterator[tuple[str, int | None, int | None]]:
        """(criterion, points then, points now) of all criteria, in order."""
        for name in dict.fromkeys([*self.before, *self.now]):
            yield name, self.before.get(name), self.now.get(name)


async def rebuild(stored: Stored, score_id: UUID) -> list[Replayed]:
    """The requests of all samples of a score. Raises CannotReplay."""
    score = await stored.score(score_id)
    if score is None:
        raise CannotReplay(f"there is no score {score_id}")
    if not score.samples:
        raise CannotReplay(f"score {score_id} was made by rules only: no judge was asked")
    content = await stored.criteria(score.criteria_hash)
    profile, template = parse_profile(content["profile"]), content["judge"]["prompt"]
    sessions: dict[str, Subject] = {}
    for sha256 in dict.fromkeys(sample["inputs_sha256"] for sample in score.samples):
        inputs = await stored.inputs(sha256)
        if inputs is None:
            raise CannotReplay(f"what the judge of score {score_id} was shown is pruned")
        sessions[sha256] = _shown(inputs, score_id)
    return [
        _rebuilt(sample, sessions[sample["inputs_sha256"]], profile, template)
        for sample in score.samples
    ]


def _shown(inputs: bytes, score_id: UUID) -> Subject:
    try:
        session = session_in(inputs)
    except ValueError as error:
        raise CannotReplay(f"what the judge of score {score_id} was shown is damaged") from error
    return subject(session, price=lambda *_: None, cost_usd=None)


def _rebuilt(
    sample: Mapping[str, Any], about: Subject, profile: Profile, template: str
) -> Replayed:
    fitted = fit(
        template,
        about,
        profile,
        nonce=sample["nonce"],
        budget_tokens=sample["budget_tokens"],
        correction=sample["correction"],
    )
    rebuilt = request_sha256(
        model=sample["asked_model"],
        temperature=TEMPERATURE,
        profile=profile,
        prompt=fitted.prompt,
    )
    return Replayed(
        sample=sample, rebuilt_sha256=rebuilt, subject=about, profile=profile, fitted=fitted
    )


async def send(replayed: Replayed, judge: Judge) -> Again:
    """Asks the same judge the same once more.

    Raises ConfigError where it is not configured any more, JudgeInvalidOutput's cause as
    CannotReplay, and what Line.ask raises.
    """
    member = _member(replayed.sample, judge)
    question = Question(
        messages=(ChatMessage(role="user", text=replayed.fitted.prompt),),
        schema=output_schema(replayed.profile),
        max_tokens=member.provider.max_output_tokens,
        errand=Errand(request_id=uuid.uuid4(), lease_token=uuid.uuid4(), left_s=SEND_LIMIT_S),
        asked_at=monotonic(),
    )
    completion = await member.line.ask(member.provider, question)
    session, transcript = replayed.subject.session, replayed.fitted.transcript
    try:
        verdict = check(completion.text, replayed.profile, session, transcript)
    except VerdictInvalid as error:
        raise CannotReplay(f"the answer is not acceptable: {error}") from error
    return Again(
        before=replayed.sample["points"],
        now=verdict.points or verdict.score_breakdown,
        verdict=verdict,
        completion=completion,
    )


def _member(sample: Mapping[str, Any], judge: Judge) -> Member:
    """The judge that was asked. Raises ConfigError."""
    wanted = (sample["provider"], sample["asked_model"])
    known = {(m.provider.name, m.provider.model): m for m in judge.members.values()}
    if wanted not in known:
        names = ", ".join(f"{name} / {model}" for name, model in known) or "none"
        raise ConfigError([f"{wanted[0]} / {wanted[1]} is not configured; there are: {names}"])
    return known[wanted]


def as_json(replayed: Sequence[Replayed], answers: Sequence[Again]) -> list[dict[str, Any]]:
    """All samples for scripts."""
    rows: list[dict[str, Any]] = []
    for n, sample in enumerate(replayed):
        row: dict[str, Any] = {
            "provider": sample.sample["provider"],
            "model": sample.sample["asked_model"],
            "request_sha256": sample.sample["request_sha256"],
            "rebuilt_sha256": sample.rebuilt_sha256,
            "matches": sample.matches,
            "prompt_bytes": len(sample.fitted.prompt.encode()),
        }
        if n < len(answers):
            again = answers[n]
            row["changes"] = [
                {"criterion": name, "then": then, "now": now} for name, then, now in again.changes
            ]
        rows.append(json.loads(json.dumps(row)))
    return rows
