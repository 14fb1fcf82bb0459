"""A stored judgement again: the request as it was sent, and on wish a new answer to it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

from consumer.errors import ConfigError, InternalError
from consumer.judge.line import Repetition
from consumer.judge.panel import Judge
from consumer.judge.sample import Member
from consumer.ports import Completion, Errand, Sent
from consumer.scoring.score import Score
from consumer.scoring.sent import Content, prompt_of, unpacked, whole
from consumer.scoring.verdict import VerdictInvalid, last_object

SEND_LIMIT_S = 600.0


class Stored(Protocol):
    """Where judgements are stored."""

    async def score(self, score_id: UUID) -> Score | None:
        """A score by its id."""

    async def criteria(self, criteria_hash: str) -> dict[str, Any]:
        """What scores under this hash were made by."""

    async def sent(self, sha256s: Sequence[str]) -> dict[str, Content]:
        """What judges were sent, by SHA-256; what was pruned is not there."""


class CannotReplay(InternalError):
    """There is nothing to replay; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One sample's request; `parts` are what it is made up of, none where `why_not` tells why it
    can't be. `schema` is the verdict's.
    """

    sample: Mapping[str, Any]
    schema: Mapping[str, Any]
    parts: tuple[bytes, ...] = ()
    why_not: str | None = None

    @property
    def request(self) -> bytes | None:
        """Path, newline and body, as they were sent."""
        return whole(self.parts, self.sample["nonce"]) if self.parts else None

    @property
    def prompt(self) -> str:
        """What the judge read first; empty where it can't be rebuilt."""
        return prompt_of(self.parts, self.sample["nonce"]) if self.parts else ""

    @property
    def rebuilt_sha256(self) -> str | None:
        """Of the request, in hex."""
        return hashlib.sha256(self.request).hexdigest() if self.request else None

    @property
    def matches(self) -> bool:
        """Whether it is what was sent then, byte for byte."""
        return bool(self.rebuilt_sha256 == self.sample["request_sha256"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a judge says now to what it was asked then; points by criterion."""

    before: Mapping[str, int]
    now: Mapping[str, int]
    completion: Completion

    @property
    def changes(self) -> Iterator[tuple[str, int | None, int | None]]:
        """(criterion, points then, points now) of all criteria, in order."""
        for name in dict.fromkeys([*self.before, *self.now]):
            yield name, self.before.get(name), self.now.get(name)


async def rebuild(stored: Stored, score_id: UUID) -> list[Replayed]:
    """The requests of all samples of a score. Raises CannotReplay where there never was any."""
    score = await stored.score(score_id)
    if score is None:
        raise CannotReplay(f"there is no score {score_id}")
    if not score.samples:
        raise CannotReplay(f"score {score_id} was made by rules only: no judge was asked")
    criteria = await stored.criteria(score.criteria_hash)
    wanted = {sha256 for sample in score.samples for sha256 in sample.get("sent_sha256", ())}
    contents = await stored.sent(sorted(wanted))
    return [_rebuilt(sample, score_id, criteria, contents) for sample in score.samples]


def _rebuilt(
    sample: Mapping[str, Any],
    score_id: UUID,
    criteria: Mapping[str, Any],
    contents: Mapping[str, Content],
) -> Replayed:
    schema = criteria["judge"]["output_schema"]
    try:
        parts = _parts(sample, score_id, criteria, contents)
    except CannotReplay as error:
        return Replayed(sample=sample, schema=schema, why_not=str(error))
    return Replayed(sample=sample, schema=schema, parts=parts)


def _parts(
    sample: Mapping[str, Any],
    score_id: UUID,
    criteria: Mapping[str, Any],
    contents: Mapping[str, Content],
) -> tuple[bytes, ...]:
    names = sample.get("sent_sha256")
    if names is None:
        raise CannotReplay(
            f"score {score_id} can't be rebuilt: another program made it (scoring version "
            f"{criteria['scoring_version']}), and did not store what it sent"
        )
    if not contents.keys() >= set(names):
        raise CannotReplay(f"what the judge of score {score_id} was sent is pruned")
    try:
        return tuple(unpacked(contents[name]) for name in names)
    except ValueError as error:
        raise CannotReplay(f"what the judge of score {score_id} was sent is damaged") from error


async def send(replayed: Replayed, judge: Judge) -> Again:
    """Sends the same judge the same request once more.

    Raises ConfigError where it is not configured any more, CannotReplay where there is no request,
    or no answer to compare with, and what Line.ask raises.
    """
    if replayed.request is None:
        raise CannotReplay(replayed.why_not or "")
    sample, member = replayed.sample, _member(replayed.sample, judge)
    path, _, body = replayed.request.partition(b"\n")
    sent = Sent(
        path=path.decode(),
        body=body,
        dialect=sample["dialect"],
        max_tokens=sample["max_tokens"],
        temperature=sample["temperature"],
    )
    repetition = Repetition(
        sent=sent,
        text=replayed.prompt,
        errand=Errand(request_id=uuid.uuid4(), lease_token=uuid.uuid4(), left_s=SEND_LIMIT_S),
        asked_at=monotonic(),
    )
    completion = await member.line.ask(member.provider, repetition)
    try:
        now = points_in(completion.text, replayed.schema)
    except VerdictInvalid as error:
        raise CannotReplay(f"the answer is not acceptable: {error}") from error
    return Again(before=sample["points"], now=now, completion=completion)


def points_in(text: str, schema: Mapping[str, Any]) -> dict[str, int]:
    """The points in an answer by a verdict's schema, whatever program wrote that: of all criteria,
    or of a breakdown. Raises VerdictInvalid. The rest of a verdict is compared with nothing.
    """
    answer, fields = last_object(text), schema["properties"]
    if "criteria" not in fields:
        given = answer.get("score_breakdown")
        points = given if isinstance(given, dict) else {}
        allowed: Mapping[str, Sequence[int]] = dict.fromkeys(points, range(101))
    else:
        criteria = fields["criteria"]["properties"]
        allowed = {i: shape["properties"]["score"]["enum"] for i, shape in criteria.items()}
        points = {i: _score(answer.get("criteria"), i) for i in allowed}
    wrong = [i for i, score in points.items() if type(score) is not int or score not in allowed[i]]
    if wrong or not points:
        raise VerdictInvalid([f"no valid points for {', '.join(wrong) or 'anything'}"])
    return points


def _score(criteria: Any, name: str) -> Any:
    said = criteria.get(name) if isinstance(criteria, dict) else None
    return said.get("score") if isinstance(said, dict) else None


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
            "temperature": sample.sample.get("temperature"),
            "request_sha256": sample.sample["request_sha256"],
            "rebuilt_sha256": sample.rebuilt_sha256,
            "matches": None if sample.why_not else sample.matches,
            "why_not": sample.why_not,
            "prompt_bytes": len(sample.prompt.encode()),
        }
        if n < len(answers):
            again = answers[n]
            row["answered"] = {
                "then": {name: sample.sample[name] for name in ("model", "fingerprint")},
                "now": {
                    "model": again.completion.model,
                    "fingerprint": again.completion.fingerprint,
                },
            }
            row["changes"] = [
                {"criterion": name, "then": then, "now": now} for name, then, now in again.changes
            ]
        rows.append(json.loads(json.dumps(row)))
    return rows
