"""Judge profiles: how sessions with certain labels are scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from consumer.scoring.patterns import MAX_CHARACTERS, MAX_PATTERNS, compiled
from consumer.scoring.scorers import SCORERS
from consumer.scoring.scorers.base import Params

JUDGE = "judge"
ANY_LABEL = "*"
DEFAULT_JUDGE_POINTS = 25
TOKEN_BUDGET = "token_budget"  # noqa: S105  a count of tokens, no secret
COST_BUDGET = "cost_budget"
BUDGETS = (TOKEN_BUDGET, COST_BUDGET)
PATTERN_PREFIX = "pattern:"
SHOWN_CHARACTERS = 80
# Beyond them a weight is a mistake; and no sum of weights leaves what a float can hold.
LEAST_WEIGHT, MOST_WEIGHT = 0.000_001, 1_000_000

Method = Literal["heuristic", "llm", "hybrid", "two_tier"]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PromptName = Annotated[str, Field(min_length=1, max_length=64)]


class ProfileInvalid(ValueError):
    """A profile that can't be used; each problem names the key and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @cached_property
    def fingerprint(self) -> int:
        """Parameters are mappings, which have no hash; their JSON tells all."""
        return hash(self.model_dump_json())

    def __hash__(self) -> int:
        return self.fingerprint


def known_scorer(scorer: str) -> str:
    """The name, where there is such a scorer. Raises ValueError with those there are."""
    if scorer != JUDGE and scorer not in SCORERS:
        allowed = ", ".join([JUDGE, *sorted(SCORERS)])
        raise ValueError(f"unknown scorer {scorer!r}; allowed: {allowed}")
    return scorer


class ScorerUse(_Strict):
    """A scorer with its parameters: a rule scorer's name, or `judge`."""

    scorer: str
    params: dict[str, Any] = {}

    @field_validator("scorer")
    @classmethod
    def _known(cls, scorer: str) -> str:
        return known_scorer(scorer)

    @model_validator(mode="after")
    def _params_fit(self) -> Self:
        if self.scorer != JUDGE:
            typed_params(self.scorer, self.params)
        elif self.params:
            raise ValueError("params: the judge takes none")
        return self

    @property
    def by_judge(self) -> bool:
        return self.scorer == JUDGE

    @cached_property
    def typed_params(self) -> Params:
        """The parameters as the scorer takes them."""
        return typed_params(self.scorer, self.params)


def typed_params(scorer: str, params: Mapping[str, Any]) -> Params:
    """The scorer's parameters. Raises ValueError that names what is wrong and what is allowed."""
    model = SCORERS[scorer].params
    try:
        return _shared(model.model_validate(params))
    except ValidationError as error:
        allowed = ", ".join(model.model_fields) or "none"
        problems = "; ".join(describe(problem) for problem in error.errors())
        raise ValueError(f"params of {scorer}: {problems}; allowed: {allowed}") from error


@lru_cache(maxsize=1024)
def _shared(params: Params) -> Params:
    """One object for equal parameters."""
    return params


class Criterion(_Strict):
    """One thing that is scored, by one scorer or by the mean of several."""

    id: Identifier
    name: str = ""
    description: str = ""
    weight: float = Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)
    scorer: str | None = None
    params: dict[str, Any] = {}
    scorers: tuple[ScorerUse, ...] = ()
    max_points: int = Field(default=DEFAULT_JUDGE_POINTS, ge=1, le=100)

    @field_validator("scorer")
    @classmethod
    def _known_scorer(cls, scorer: str | None) -> str | None:
        return None if scorer is None else known_scorer(scorer)

    @model_validator(mode="after")
    def _one_way_to_score(self) -> Self:
        if (self.scorer is None) == (not self.scorers):
            raise ValueError("needs either scorer or scorers")
        if self.scorers and self.params:
            raise ValueError("params: belong to each of the scorers")
        if sum(use.by_judge for use in self.uses) > 1:
            raise ValueError("scorers: the judge is asked once")
        if not self.by_judge and self.max_points != DEFAULT_JUDGE_POINTS:
            raise ValueError("max_points is for criteria of the judge only")
        return self

    @cached_property
    def uses(self) -> tuple[ScorerUse, ...]:
        """The scorers whose mean this criterion is."""
        return self.scorers or (ScorerUse(scorer=self.scorer or "", params=self.params),)

    @cached_property
    def by_judge(self) -> bool:
        """Whether the judge has a say in it."""
        return any(use.by_judge for use in self.uses)

    @cached_property
    def by_rules(self) -> bool:
        """Whether a rule scorer has a say in it."""
        return any(not use.by_judge for use in self.uses)


class Gate(_Strict):
    """A hard check before the judge: a rule scorer's score (0-100), or a budget's use."""

    id: Identifier
    check: str
    threshold: float = Field(ge=0)
    params: dict[str, Any] = {}
    pass_if_not_applicable: bool = False

    @field_validator("check")
    @classmethod
    def _known_check(cls, check: str) -> str:
        if check not in SCORERS and check not in BUDGETS:
            allowed = ", ".join([*BUDGETS, *sorted(SCORERS)])
            raise ValueError(f"unknown check {check!r}; allowed: {allowed}")
        return check

    @model_validator(mode="after")
    def _params_fit(self) -> Self:
        if self.check in BUDGETS:
            if self.params:
                raise ValueError(f"params: {self.check} takes none")
            return self
        typed_params(self.check, self.params)
        if self.threshold > 100:
            raise ValueError(f"threshold: a score is 0-100 (got {self.threshold:g})")
        return self

    @cached_property
    def typed_params(self) -> Params:
        """The parameters as the check's scorer takes them."""
        return typed_params(self.check, self.params)


class Scale(_Strict):
    """The range of criterion scores and totals."""

    min: int = Field(default=0, ge=0, le=100)
    max: int = Field(default=100, ge=0, le=100)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min >= self.max:
            raise ValueError(f"min {self.min} must be below max {self.max}")
        return self


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable, in one line")
    return text


Printable = AfterValidator(_printable)
ProviderName = Annotated[str, Field(max_length=64), Printable]
ModelName = Annotated[str, Field(max_length=255), Printable]
ToolName = Annotated[str, Field(min_length=1, max_length=255), Printable]


class Seat(_Strict):
    """One judge: a provider's name in the configuration, and its model. Empty: the default."""

    provider: ProviderName = ""
    model: ModelName = ""


class JudgeChoice(Seat):
    """How a profile asks the judge: one provider and model, or a panel of several."""

    prompt: PromptName = "judge_prompt"
    samples: int = Field(default=1, ge=1, le=10, description="answers asked of each judge")
    panel: tuple[Seat, ...] = Field(default=(), max_length=5)
    adaptive_within: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="ask for more than one answer only where the first one's total is within "
        "this distance of quality_risk_threshold",
    )
    min_verified_quotes: float = Field(
        default=0, ge=0, le=1, description="share below which an answer is not accepted"
    )
    on_budget_exhausted: Literal["rules_only", "fail"] = "fail"

    @model_validator(mode="after")
    def _panel_or_seat(self) -> Self:
        if self.panel and (self.provider or self.model):
            raise ValueError("panel: provider and model belong to each of its members")
        if len(set(self.panel)) < len(self.panel):
            raise ValueError("panel: its members must differ; give samples for more answers")
        if self.adaptive_within is not None and self.samples * len(self.seats) == 1:
            raise ValueError("adaptive_within: needs samples or a panel to choose from")
        return self

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Who judges: the panel, or the one judge."""
        return self.panel or (Seat(provider=self.provider, model=self.model),)


class Profile(_Strict):
    """A judge profile. `version` is raised whenever its criteria change."""

    id: Identifier
    version: int = Field(ge=1, le=2**31 - 1)
    name: str = ""
    match_labels: tuple[str, ...] = Field(min_length=1)
    method: Method
    criteria: tuple[Criterion, ...] = ()
    gates: tuple[Gate, ...] = ()
    judge_anyway: bool = Field(default=False, description="Ask the judge even where a gate failed.")
    disqualifiers: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    scale: Scale = Scale()
    quality_risk_threshold: float = Field(default=40, ge=0, le=100)
    judge: JudgeChoice = JudgeChoice()
    actions: tuple[ToolName, ...] = Field(
        default=(),
        max_length=1000,
        description="tools that change something (`tool` or `server.tool`), beside those whose "
        "server or name says so",
    )

    @model_validator(mode="before")
    @classmethod
    def _few_patterns(cls, raw: Any) -> Any:
        if (count := _patterns_in(raw)) > MAX_PATTERNS:
            raise ValueError(f"it holds {count} patterns; at most {MAX_PATTERNS} are allowed")
        return raw

    @field_validator("disqualifiers")
    @classmethod
    def _usable_patterns(cls, disqualifiers: tuple[str, ...]) -> tuple[str, ...]:
        for text in disqualifiers:
            if text.startswith(PATTERN_PREFIX):
                pattern = text.removeprefix(PATTERN_PREFIX)
                if len(pattern) > MAX_CHARACTERS:
                    raise ValueError(
                        f"a pattern has {len(pattern)} characters; at most {MAX_CHARACTERS} are "
                        "allowed"
                    )
                if compiled(pattern).search(""):
                    raise ValueError(
                        f"the pattern {pattern!r} matches the empty text, so it is found everywhere"
                    )
        return disqualifiers

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        for key, ids in (
            ("criteria", [criterion.id for criterion in self.criteria]),
            ("gates", [gate.id for gate in self.gates]),
        ):
            if twice := sorted(i for i, count in Counter(ids).items() if count > 1):
                raise ValueError(f"{key}: ids must be unique, twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _method_fits_criteria(self) -> Self:
        rules = [c.id for c in self.criteria if c.by_rules]
        judged = [c.id for c in self.criteria if c.by_judge]
        wrong = {
            "llm": "judge criteria only" if rules else "",
            "heuristic": "rule scorers, and nothing else" if judged or not rules else "",
            "hybrid": "rule scorers and judge criteria" if not (rules and judged) else "",
            "two_tier": "gates and criteria" if not (self.gates and self.criteria) else "",
        }[self.method]
        if wrong:
            raise ValueError(
                f"criteria: method {self.method} takes {wrong}; got by rules: {rules}, "
                f"by the judge: {judged}, gates: {[gate.id for gate in self.gates]}"
            )
        if self.judge_disqualifiers and not self.needs_judge:
            raise ValueError(
                f"disqualifiers: method {self.method} asks no judge; {PATTERN_PREFIX} is allowed"
            )
        return self

    def body(self) -> dict[str, Any]:
        """The profile as JSON, without what is at its default: a setting that a later version of
        the product adds changes neither what is stored nor the criteria hash.
        """
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def needs_judge(self) -> bool:
        return self.method == "llm" or any(criterion.by_judge for criterion in self.criteria)

    @property
    def judge_criteria(self) -> tuple[Criterion, ...]:
        return tuple(criterion for criterion in self.criteria if criterion.by_judge)

    @property
    def judge_disqualifiers(self) -> tuple[str, ...]:
        """What the judge is asked about."""
        return tuple(d for d in self.disqualifiers if not d.startswith(PATTERN_PREFIX))

    @property
    def disqualifying_patterns(self) -> tuple[str, ...]:
        """What code looks for."""
        return tuple(
            d.removeprefix(PATTERN_PREFIX)
            for d in self.disqualifiers
            if d.startswith(PATTERN_PREFIX)
        )


def _patterns_in(raw: Any) -> int:
    """How many patterns are written in it. Counted before the first one is compiled."""
    count, left = 0, [raw]
    while left:
        match left.pop():
            case str() as text:
                count += text.startswith(PATTERN_PREFIX)
            case list() | tuple() as values:
                left += values
            case dict() as values:
                left += values.values()
                prohibited = values.get("prohibited")
                count += len(prohibited) if isinstance(prohibited, list | tuple) else 0
    return count


def parse_profile(raw: Any) -> Profile:
    """A profile from a plain mapping. Raises ProfileInvalid with every problem found."""
    try:
        return Profile.model_validate(raw)
    except ValidationError as error:
        raise ProfileInvalid([_profile_problem(problem) for problem in error.errors()]) from error


def _profile_problem(problem: Any) -> str:
    """The problem; for an unknown key also the keys that there are."""
    text = describe(problem)
    if problem["type"] != "extra_forbidden":
        return text
    inside = [part for part in problem["loc"][:-1] if part in _MODELS]
    model = _MODELS[inside[-1]] if inside else Profile
    return f"{text}; allowed: {', '.join(model.model_fields)}"


def describe(problem: Any) -> str:
    """One pydantic problem as `key.path: what is wrong (got value)`; without what it got where the
    problem does not hold it.
    """
    where = ".".join(str(part) for part in problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    shown = ""
    if problem["type"] not in {"missing", "value_error"} and "input" in problem:
        shown = f" (got {repr(problem['input'])[:SHOWN_CHARACTERS]})"
    return f"{where}: {text}{shown}" if where else f"{text}{shown}"


_MODELS: Mapping[Any, type[BaseModel]] = {
    "criteria": Criterion,
    "scorers": ScorerUse,
    "gates": Gate,
    "scale": Scale,
    "judge": JudgeChoice,
    "panel": Seat,
}


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
