"""The judge's verdict: the schema it is asked to follow, and the checks of what it answers.

The judge has no power: a verdict counts only where schema, ranges and step numbers hold in code.
Evidence and reasoning come before numbers, so that a model reasons before it decides.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from consumer.scoring.json_objects import DoubledKeys, TooDeep, objects
from consumer.scoring.profile import Criterion, Profile, describe
from consumer.scoring.session import Session
from consumer.scoring.text import shortened, storable_json
from consumer.scoring.transcript import Transcript, fold

SCHEMA_VERSION = 1
MAX_APPROACHES = 3
# Fewer letters and digits than this occur in nearly every step, so they show nothing.
MIN_QUOTE_CHARACTERS = 4
# Longer texts lose their end, no verdict is lost for them. A reasoning of that length can be stored
# with its index of words, which has room for 1 MB, whatever its words are.
MAX_TEXT = 50_000
# What a judge is told of its wrong quotes: enough to find them again.
TOLD_QUOTES = 5
TOLD_CHARACTERS = 80
# It is told what is wrong in the next prompt, which is paid for: a flood of faults is cut.
MAX_PROBLEMS = 50
# Of any object: each that is unknown is a problem with a path of its own.
MAX_KEYS = 255
MAX_PROBLEM_CHARACTERS = 2000

# What a line of the transcript holds whatever was recorded: keys, its number, kind, role, stage.
_FRAME = re.compile(
    r'"?\b(?:step": \d+|(?:kind|role|stage|parallel_agent)": "[^"]*"?'
    r'|(?:tool|arguments|result|text|failure|error)":)'
)

Availability = Literal["exists_unused", "exists_used", "does_not_exist", "unknown"]


class VerdictInvalid(ValueError):
    """An answer that can't be accepted; `problems` is written to be read by the judge. Of very many
    the first are told, of a very long one its beginning.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = [problem[:MAX_PROBLEM_CHARACTERS] for problem in problems[:MAX_PROBLEMS]]
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A quote that the judge gave; `verified`: that step says it, and it says something."""

    step: int
    quote: str
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionVerdict:
    points: int
    reasoning: str
    evidence: tuple[Evidence, ...]

    @property
    def quotes(self) -> dict[tuple[int, str], bool]:
        """Whether each different (step, quote) is verified."""
        return {(e.step, fold(e.quote)): e.verified for e in self.evidence}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTool:
    """A tool the judge missed; `availability` is checked against the session's own list."""

    tool_name: str
    rationale: str
    availability: Availability


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    name: str
    description: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verdict that passed every check. With criteria `total_score` is None: code computes it."""

    criteria: dict[str, CriterionVerdict]
    total_score: int | None
    score_breakdown: dict[str, int]
    reasoning: str
    missing_tools: tuple[MissingTool, ...]
    approaches: tuple[Approach, ...]
    disqualified: bool
    disqualifier_triggered: str | None
    injection_suspected: bool

    @property
    def points(self) -> dict[str, int]:
        return {criterion: verdict.points for criterion, verdict in self.criteria.items()}

    @property
    def verified_share(self) -> float | None:
        """Verified quotes over quotes given, 0-1; None where none was given.

        A quote that a criterion repeats counts once, so that repeating a good one hides no bad one.
        """
        quotes = [ok for verdict in self.criteria.values() for ok in verdict.quotes.values()]
        return sum(quotes) / len(quotes) if quotes else None


def _few_keys(raw: Any) -> Any:
    if isinstance(raw, dict) and len(raw) > MAX_KEYS:
        raise ValueError(f"{len(raw)} keys are too many")
    return raw


class _Answer(BaseModel):
    """Strict: the number 22 is a score, the string "22" is not. Lists end at their first wrong
    item, for each problem takes memory.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_keys(cls, raw: Any) -> Any:
        return _few_keys(raw)


_Points = Annotated[int, Field(ge=0, le=100)]
_Prose = Annotated[str, AfterValidator(lambda text: shortened(text, MAX_TEXT))]
# Of a breakdown as the judge likes it: it goes into an event, which has its limit.
_Name = Annotated[str, Field(max_length=255)]


class _EvidenceAnswer(_Answer):
    step: int
    quote: str = Field(max_length=4000)


class _CriterionAnswer(_Answer):
    evidence: list[_EvidenceAnswer] = Field(max_length=50, fail_fast=True)
    reasoning: _Prose
    score: int


class _MissingToolAnswer(_Answer):
    tool_name: str = Field(min_length=1, max_length=255)
    rationale: _Prose


class _ApproachAnswer(_Answer):
    name: str = Field(min_length=1, max_length=255)
    description: _Prose
    steps: list[_Prose] = Field(max_length=50, fail_fast=True)


class _CommonAnswer(_Answer):
    score_reasoning: _Prose = Field(min_length=1)
    missing_tools: list[_MissingToolAnswer] = Field(max_length=50, fail_fast=True)
    alternative_approaches: list[_ApproachAnswer] = Field(max_length=MAX_APPROACHES, fail_fast=True)
    disqualified: bool
    disqualifier_triggered: str | None
    injection_suspected: bool


class _CriteriaAnswer(_CommonAnswer):
    criteria: dict[str, _CriterionAnswer]


class _FreeFormAnswer(_CommonAnswer):
    total_score: _Points
    score_breakdown: Annotated[
        dict[_Name, _Points], BeforeValidator(_few_keys), Field(max_length=50)
    ]


_FIELDS = frozenset(
    name
    for shape in (
        _CriteriaAnswer,
        _CriterionAnswer,
        _EvidenceAnswer,
        _MissingToolAnswer,
        _ApproachAnswer,
        _FreeFormAnswer,
    )
    for name in shape.model_fields
)
# Problems that name no field, as far as their words are ours.
_TWICE, _FOLLOWS = "keys occur twice", "text follows the JSON object"
_SENTENCES = frozenset({_TWICE, _FOLLOWS})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """A closed object with every property required: what strict structured output asks for."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_POINTS = {"type": "integer", "minimum": 0, "maximum": 100}


def _criterion_schema(criterion: Criterion) -> dict[str, Any]:
    evidence = _object({"step": {"type": "integer"}, "quote": _TEXT})
    return _object(
        {
            "evidence": {"type": "array", "items": evidence},
            "reasoning": _TEXT,
            "score": {"type": "integer", "enum": list(range(criterion.max_points + 1))},
        }
    )


def _scores_schema(profile: Profile) -> dict[str, Any]:
    if profile.judge_criteria:
        return {"criteria": _object({c.id: _criterion_schema(c) for c in profile.judge_criteria})}
    return {
        "score_breakdown": {"type": "object", "additionalProperties": _POINTS},
        "total_score": _POINTS,
    }


@lru_cache(maxsize=64)
def output_schema(profile: Profile) -> dict[str, Any]:
    """The JSON Schema of a verdict by this profile. Shared: do not change it."""
    return _object(
        {
            **_scores_schema(profile),
            "score_reasoning": _TEXT,
            "missing_tools": {
                "type": "array",
                "items": _object({"tool_name": _TEXT, "rationale": _TEXT}),
            },
            "alternative_approaches": {
                "type": "array",
                "items": _object(
                    {
                        "name": _TEXT,
                        "description": _TEXT,
                        "steps": {"type": "array", "items": _TEXT},
                    }
                ),
            },
            "disqualified": {"type": "boolean"},
            "disqualifier_triggered": {"type": ["string", "null"]},
            "injection_suspected": {"type": "boolean"},
        }
    )


def check(text: str, profile: Profile, session: Session, transcript: Transcript) -> Verdict:
    """The verdict in a judge's answer. Raises VerdictInvalid with everything that is wrong."""
    raw = last_object(text)
    unknown = _unknown_criteria(raw, profile)
    answer_type = _CriteriaAnswer if profile.judge_criteria else _FreeFormAnswer
    try:
        answer = answer_type.model_validate(raw)
    except ValidationError as error:
        raise VerdictInvalid([*unknown, *_shape_problems(error)]) from error
    if problems := _problems(answer, unknown, profile, len(transcript.steps)):
        raise VerdictInvalid(problems)
    verdict = _verdict(answer, session, transcript)
    if problems := _evidence_problems(verdict, profile.judge.min_verified_quotes):
        raise VerdictInvalid(problems)
    return verdict


def _unknown_criteria(raw: dict[str, Any], profile: Profile) -> list[str]:
    """Takes the criteria that the profile has not out of the answer, and says so: pydantic would
    copy their ids, of any length, into the path of each problem within.
    """
    told = raw.get("criteria")
    if not profile.judge_criteria or not isinstance(told, dict):
        return []
    wanted = {criterion.id: None for criterion in profile.judge_criteria}
    raw["criteria"] = {i: told[i] for i in told if i in wanted}
    unknown = (i[:MAX_PROBLEM_CHARACTERS] for i in told if i not in wanted)
    allowed = ", ".join(wanted)
    return [f"criteria.{i}: unknown; allowed: {allowed}" for i in islice(unknown, MAX_PROBLEMS)]


def place(problem: str, profile: Profile) -> str:
    """Where a problem of an answer is, in words of ours alone: an answer may have named its fields
    with what a session says. `?` stands for such a name.
    """
    path, colon, _ = problem.partition(":")
    if not colon or path in _SENTENCES:
        return path
    ours = _FIELDS | {criterion.id for criterion in profile.judge_criteria}
    return ".".join(part if part in ours or part.isdecimal() else "?" for part in path.split("."))


def _shape_problems(error: ValidationError) -> list[str]:
    return [describe(problem) for problem in error.errors(include_url=False)[:MAX_PROBLEMS]]


def last_object(text: str) -> dict[str, Any]:
    """The last complete JSON object of the text; nothing but a code fence may follow it.

    Raises VerdictInvalid where there is none, where more text follows, or where a key is doubled.
    """
    spot = None
    try:
        for spot in objects(text):  # noqa: B007  the last one is asked for
            pass
    except DoubledKeys as error:
        raise VerdictInvalid([f"{_TWICE}: {error}"]) from error
    except TooDeep as error:
        raise VerdictInvalid(["the JSON is nested too deeply"]) from error
    if spot is None:
        raise VerdictInvalid(["there is no complete JSON object in the answer"])
    start, end = spot
    if rest := text[end:].strip().strip("`").strip():
        raise VerdictInvalid([f"{_FOLLOWS}: {rest[:80]!r}"])
    return dict(storable_json(json.loads(text[start:end])))


def _problems(
    answer: _CriteriaAnswer | _FreeFormAnswer, unknown: list[str], profile: Profile, steps: int
) -> list[str]:
    problems: list[str] = []
    problems += _disqualifier_problems(answer, profile.judge_disqualifiers)
    if isinstance(answer, _CriteriaAnswer):
        problems += _criteria_problems(answer.criteria, unknown, profile, steps)
    return problems


def _disqualifier_problems(answer: _CommonAnswer, allowed: tuple[str, ...]) -> list[str]:
    """A session is disqualified for a listed reason, or not at all."""
    if not answer.disqualified:
        return []
    if not allowed:
        return ["disqualified: this profile has no disqualifiers, so it must be false"]
    if answer.disqualifier_triggered not in allowed:
        return [f"disqualifier_triggered: must be one of {list(allowed)}, word for word"]
    return []


def _criteria_problems(
    answers: dict[str, _CriterionAnswer], unknown: list[str], profile: Profile, steps: int
) -> list[str]:
    wanted = {criterion.id: criterion for criterion in profile.judge_criteria}
    problems = [f"criteria.{i}: missing" for i in wanted if i not in answers]
    problems += unknown
    for i, answer in answers.items():
        if not 0 <= answer.score <= wanted[i].max_points:
            problems.append(
                f"criteria.{i}.score: {_short(answer.score)} is not in 0..{wanted[i].max_points}"
            )
        problems += [
            f"criteria.{i}.evidence: there is no step {_short(e.step)}; steps are 1 to {steps}"
            for e in answer.evidence
            if not 1 <= e.step <= steps
        ]
    return problems


def _evidence_problems(verdict: Verdict, minimum: float) -> list[str]:
    """What is wrong if too few quotes are verified. Free-form answers give none."""
    share = verdict.verified_share
    if minimum == 0 or not verdict.criteria or (share is not None and share >= minimum):
        return []
    if share is None:
        return ["criteria: no evidence at all; quote the steps that decide, word for word"]
    wrong = [
        f"criteria.{i}.evidence: step {step} does not say {quote[:TOLD_CHARACTERS]!r}"
        for i, criterion in verdict.criteria.items()
        for (step, quote), verified in criterion.quotes.items()
        if not verified
    ]
    rule = (
        f"criteria: {share:.0%} of the quotes were found in their steps, {minimum:.0%} must be; "
        f"quote word for word, {MIN_QUOTE_CHARACTERS} letters or digits at least"
    )
    return [rule, *wrong[:TOLD_QUOTES]]


def _short(number: int) -> str:
    """A number fit for a message: int() of a huge one would raise."""
    return str(number) if abs(number) < 10**12 else "a huge number"


def _verdict(
    answer: _CriteriaAnswer | _FreeFormAnswer, session: Session, transcript: Transcript
) -> Verdict:
    if isinstance(answer, _CriteriaAnswer):
        criteria = {i: _criterion(c, transcript) for i, c in answer.criteria.items()}
        total_score, breakdown = None, {}
    else:
        criteria, total_score, breakdown = {}, answer.total_score, answer.score_breakdown
    return Verdict(
        criteria=criteria,
        total_score=total_score,
        score_breakdown=breakdown,
        reasoning=answer.score_reasoning,
        missing_tools=tuple(
            MissingTool(
                tool_name=tool.tool_name,
                rationale=tool.rationale,
                availability=availability(tool.tool_name, session),
            )
            for tool in answer.missing_tools
        ),
        approaches=tuple(
            Approach(name=a.name, description=a.description, steps=tuple(a.steps))
            for a in answer.alternative_approaches
        ),
        disqualified=answer.disqualified,
        disqualifier_triggered=answer.disqualifier_triggered if answer.disqualified else None,
        injection_suspected=answer.injection_suspected,
    )


def _criterion(answer: _CriterionAnswer, transcript: Transcript) -> CriterionVerdict:
    return CriterionVerdict(
        points=answer.score,
        reasoning=answer.reasoning,
        evidence=tuple(
            Evidence(step=e.step, quote=e.quote, verified=_verified(e, transcript))
            for e in answer.evidence
        ),
    )


def _verified(evidence: _EvidenceAnswer, transcript: Transcript) -> bool:
    """Whether the step holds the quote, and the quote is more than punctuation or framing."""
    said = _FRAME.sub("", fold(evidence.quote))
    if sum(map(str.isalnum, said)) >= MIN_QUOTE_CHARACTERS:
        return transcript.quotes(evidence.step, evidence.quote)
    # Little can be all there is: "ok", "[]".
    quote = evidence.quote.strip()
    return bool(quote) and quote in transcript.steps[evidence.step - 1].whole


def availability(tool_name: str, session: Session) -> Availability:
    """What the session's own tool list says of a tool that the judge missed.

    The name may stand with or without its server. `exists_used`: the agent did call it, so the
    judge's claim is wrong.
    """
    if not session.available_tools:
        return "unknown"
    meant = _meant(tool_name)
    if meant.isdisjoint(session.tool_names):
        return "does_not_exist"
    return "exists_unused" if meant.isdisjoint(session.called_names) else "exists_used"


def _meant(name: str) -> frozenset[str]:
    """The tools that the name may mean. A tool's own name may hold dots too."""
    dots = (n for n, character in enumerate(name) if character == ".")
    return frozenset((name, *(name[n + 1 :] for n in dots)))
