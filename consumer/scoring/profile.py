"""Judge profiles: how sessions with certain labels are scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from consumer.scoring.rules import SCORERS

JUDGE = "judge"
ANY_LABEL = "*"
DEFAULT_JUDGE_POINTS = 25

Method = Literal["heuristic", "llm"]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PromptName = Annotated[str, Field(min_length=1, max_length=64)]


class ProfileInvalid(ValueError):
    """A profile that can't be used; each problem names the key and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Criterion(_Strict):
    """One thing that is scored, by a rule scorer or by the judge."""

    id: Identifier
    name: str = ""
    description: str = ""
    weight: float = Field(gt=0, allow_inf_nan=False)
    scorer: str
    max_points: int = Field(default=DEFAULT_JUDGE_POINTS, ge=1, le=100)

    @field_validator("scorer")
    @classmethod
    def _known_scorer(cls, scorer: str) -> str:
        if scorer != JUDGE and scorer not in SCORERS:
            allowed = ", ".join([JUDGE, *sorted(SCORERS)])
            raise ValueError(f"unknown scorer {scorer!r}; allowed: {allowed}")
        return scorer

    @model_validator(mode="after")
    def _points_of_the_judge(self) -> Self:
        if self.scorer != JUDGE and "max_points" in self.model_fields_set:
            raise ValueError("max_points is for criteria of the judge only")
        return self

    @property
    def by_judge(self) -> bool:
        return self.scorer == JUDGE


class Scale(_Strict):
    """The range of criterion scores and totals."""

    min: int = Field(default=0, ge=0, le=100)
    max: int = Field(default=100, ge=0, le=100)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min >= self.max:
            raise ValueError(f"min {self.min} must be below max {self.max}")
        return self


class JudgeChoice(_Strict):
    """How a profile asks the judge."""

    prompt: PromptName = "judge_prompt"


class Profile(_Strict):
    """A judge profile. `version` is raised whenever its criteria change."""

    id: Identifier
    version: int = Field(ge=1, le=2**31 - 1)
    name: str = ""
    match_labels: tuple[str, ...] = Field(min_length=1)
    method: Method
    criteria: tuple[Criterion, ...] = ()
    scale: Scale = Scale()
    quality_risk_threshold: float = Field(default=40, ge=0, le=100)
    judge: JudgeChoice = JudgeChoice()

    @model_validator(mode="after")
    def _method_fits_criteria(self) -> Self:
        ids = [criterion.id for criterion in self.criteria]
        if twice := sorted({i for i in ids if ids.count(i) > 1}):
            raise ValueError(f"criteria: ids must be unique, twice: {', '.join(twice)}")
        rules = [criterion.id for criterion in self.criteria if not criterion.by_judge]
        judged = [criterion.id for criterion in self.criteria if criterion.by_judge]
        if self.method == "llm" and rules:
            raise ValueError(f"criteria: method llm allows judge criteria only, not {rules}")
        if self.method == "heuristic" and (judged or not rules):
            raise ValueError(
                f"criteria: method heuristic needs rule scorers and allows nothing else, got {ids}"
            )
        return self

    @property
    def needs_judge(self) -> bool:
        return self.method != "heuristic"

    @property
    def judge_criteria(self) -> tuple[Criterion, ...]:
        return tuple(criterion for criterion in self.criteria if criterion.by_judge)

    @property
    def rule_criteria(self) -> tuple[Criterion, ...]:
        return tuple(criterion for criterion in self.criteria if not criterion.by_judge)


def parse_profile(raw: Any) -> Profile:
    """A profile from a plain mapping. Raises ProfileInvalid with every problem found."""
    try:
        return Profile.model_validate(raw)
    except ValidationError as error:
        raise ProfileInvalid([describe(problem) for problem in error.errors()]) from error


def describe(problem: Any) -> str:
    """One pydantic problem as `key.path: what is wrong (got value)`."""
    where = ".".join(str(part) for part in problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    got = "" if problem["type"] in {"missing", "value_error"} else f" (got {problem['input']!r})"
    return f"{where}: {text}{got}" if where else f"{text}{got}"


def select(profiles: Sequence[Profile], label: str) -> Profile | None:
    """The first profile with exactly this label, else the first for any label, else none."""
    for wanted in (label, ANY_LABEL):
        for profile in profiles:
            if wanted in profile.match_labels:
                return profile
    return None


def by_id(profiles: Iterable[Profile], profile_id: str) -> Profile | None:
    """The profile of this id, if there is one."""
    return next((profile for profile in profiles if profile.id == profile_id), None)
