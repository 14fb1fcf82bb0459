"""The reports, as HTTP and the command line give them. docs/analytics.md tells what each means.

All but `cost` and `criteria` are about current scores: a session that was scored again counts once
a profile. An override counts in place of its total; figures named `stored` are without overrides.
Disqualified and gate-failed scores that nobody has overridden are counted apart, in no average.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from consumer.analytics.agreement import Agreement, agreement
from consumer.analytics.models import ModelFigures, Runs, compare
from consumer.analytics.selection import Availability, Selection

# More runs make no figure surer that anyone can see; they would only take time.
NEWEST_RUNS = 20_000
NEWEST_OVERRIDES = 2_000

Rows = Sequence[Mapping[str, Any]]


class Figures(Protocol):
    """What reports are made of. Each method is one consistent look."""

    async def trend(self, wanted: Selection) -> Rows:
        """By day."""

    async def mixture(self, wanted: Selection, *, of_overrides: bool = False) -> Rows:
        """By profile, where its scores were made under several criteria; those that reports on
        scores count, or those overridden on these days.
        """

    async def distribution(self, wanted: Selection) -> tuple[Mapping[str, Any], Rows]:
        """All scores, and each profile's criteria."""

    async def missing_tools(
        self, wanted: Selection, *, limit: int, availability: Availability | None
    ) -> tuple[int, Rows]:
        """How many scores have a judge, and the tools."""

    async def approaches(self, wanted: Selection, *, limit: int) -> Rows:
        """By name."""

    async def criteria(self, wanted: Selection) -> Rows:
        """By profile and hash."""

    async def runs(
        self, wanted: Selection, *, limit: int
    ) -> tuple[list[Runs], datetime | None, Rows]:
        """The newest runs of each model, since when, and how many there are of each in all."""

    async def tools(self, wanted: Selection) -> Rows:
        """By agent."""

    async def cost(self, wanted: Selection) -> tuple[Rows, Rows]:
        """By day and model, and what was booked by day and provider."""

    async def overrides(self, wanted: Selection, *, limit: int) -> list[tuple[int, int]]:
        """(total, override) of the newest override of each score."""


WASTE_OF_VERSION_1 = (
    "the waste of scoring version 1 is left out: most of what it called wasted (unreferenced) was "
    "not. Scores made again tell the waste by version 2"
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class _Report(_Model):
    """`from` and `to` are UTC days, both included."""

    from_: date = Field(alias="from")
    to: date


class Mixture(_Model):
    """A profile whose scores were made under more than one criteria hash: they do not compare."""

    profile: str
    criteria_hashes: int
    profile_versions: list[int]


class _Mixable(_Report):
    """A report whose figures may be about scores that do not compare."""

    mixed: list[Mixture] = Field(
        description="profiles under several criteria: limit by criteria_hash or profile_version"
    )


class Bands(_Model):
    """How many scores are in which band."""

    failed: int
    weak: int
    adequate: int
    good: int
    near_perfect: int


class TrendDay(Bands):
    """One day with scores."""

    day: date
    scores: int
    average_score: float | None
    average_stored_score: float | None
    overridden: int
    disqualified: int
    gate_failed: int


class Trend(_Mixable):
    """Scores by day; days without any are left out."""

    days: list[TrendDay]


async def trend(figures: Figures, wanted: Selection) -> Trend:
    """How scores went."""
    rows = [
        {
            **row,
            "average_score": _ratio(row["total_sum"], row["scores"]),
            "average_stored_score": _ratio(row["stored_sum"], row["stored_scores"]),
        }
        for row in await figures.trend(wanted)
    ]
    return Trend(
        days=[TrendDay.model_validate(row) for row in rows], **await _head(figures, wanted)
    )


class CriterionBands(Bands):
    """One criterion of a profile. Overrides are about totals: they change nothing here."""

    profile: str
    criterion: str
    scores: int
    not_applicable: int
    average_score: float | None


class Distribution(_Mixable):
    """Scores by band, in all and by criterion."""

    scores: int
    bands: Bands
    stored_bands: Bands
    overridden: int
    disqualified: int
    gate_failed: int
    criteria: list[CriterionBands]


async def distribution(figures: Figures, wanted: Selection) -> Distribution:
    """How scores spread over the bands."""
    total, criteria = await figures.distribution(wanted)
    stored = {name: total[f"stored_{name}"] for name in Bands.model_fields}
    lines = [{**row, "average_score": _ratio(row["score_sum"], row["scores"])} for row in criteria]
    return Distribution(
        scores=total["scores"],
        bands=Bands.model_validate(total),
        stored_bands=Bands.model_validate(stored),
        overridden=total["overridden"],
        disqualified=total["disqualified"],
        gate_failed=total["gate_failed"],
        criteria=[CriterionBands.model_validate(line) for line in lines],
        **await _head(figures, wanted),
    )


class MissingTool(_Model):
    """A tool that judges missed; `scores` name it, so many under each availability."""

    tool_name: str
    scores: int
    share: float | None = Field(description="of all scores that have a judge")
    exists_unused: int
    exists_used: int
    does_not_exist: int
    unknown: int
    agents: int
    last_day: date


class MissingTools(_Mixable):
    """The most often missed first."""

    judged: int = Field(description="scores that have a judge")
    tools: list[MissingTool]


async def missing_tools(
    figures: Figures,
    wanted: Selection,
    *,
    limit: int = 50,
    availability: Availability | None = None,
) -> MissingTools:
    """Which tools judges missed."""
    judged, rows = await figures.missing_tools(wanted, limit=limit, availability=availability)
    tools = [{**row, "share": _ratio(row["scores"], judged)} for row in rows]
    return MissingTools(
        judged=judged,
        tools=[MissingTool.model_validate(tool) for tool in tools],
        **await _head(figures, wanted),
    )


class Approach(_Model):
    """What judges would rather have seen; names are compared without case and blanks."""

    name: str
    scores: int
    average_steps: float
    last_day: date
    example_score_id: UUID


class Approaches(_Mixable):
    """The most often named first."""

    approaches: list[Approach]


async def approaches(figures: Figures, wanted: Selection, *, limit: int = 50) -> Approaches:
    """Which alternative approaches judges named."""
    rows = await figures.approaches(wanted, limit=limit)
    return Approaches(
        approaches=[Approach.model_validate(row) for row in rows], **await _head(figures, wanted)
    )


class Criteria(_Model):
    """The scores that were made under one criteria hash."""

    profile: str
    criteria_hash: str
    is_current: bool = Field(description="what this profile would be scored by now")
    registered_at: datetime | None
    first_scored_at: datetime
    last_scored_at: datetime
    scores: int
    current_scores: int = Field(description="those that no later score of the session replaced")


class ProfileShare(_Model):
    """How far a profile's current scores are up to date."""

    profile: str
    current_scores: int
    under_current_criteria: int
    share: float | None


class CriteriaHistory(_Report):
    """Which criteria scores were made by, and which share of them is up to date."""

    profiles: list[ProfileShare]
    criteria: list[Criteria]


async def criteria(
    figures: Figures, wanted: Selection, *, current: Mapping[str, str]
) -> CriteriaHistory:
    """The history of criteria; `current` is each profile's hash now."""
    found = [
        Criteria.model_validate(
            {**row, "is_current": current.get(row["profile"]) == row["criteria_hash"]}
        )
        for row in await figures.criteria(wanted)
    ]
    profiles = sorted({line.profile for line in found})
    return CriteriaHistory(
        profiles=[
            _share(name, [line for line in found if line.profile == name]) for name in profiles
        ],
        criteria=found,
        **_days(wanted),
    )


def _share(profile: str, lines: Sequence[Criteria]) -> ProfileShare:
    scores = sum(line.current_scores for line in lines)
    up_to_date = sum(line.current_scores for line in lines if line.is_current)
    return ProfileShare(
        profile=profile,
        current_scores=scores,
        under_current_criteria=up_to_date,
        share=_ratio(up_to_date, scores),
    )


class ModelComparison(_Mixable):
    """Agents' models. Of more runs than are read, the newest are compared: those since `since`."""

    runs: int = Field(description="counted runs in these days")
    compared: int
    since: datetime | None
    models: list[ModelFigures]


async def models(
    figures: Figures, wanted: Selection, *, newest: int = NEWEST_RUNS
) -> ModelComparison:
    """What agents' models score, cost and take."""
    runs, since, counted = await figures.runs(wanted, limit=newest)
    apart = {(row["provider"], row["model"]): row for row in counted}
    # Beside the event loop: a thousand repetitions of each model take a while.
    compared = await asyncio.to_thread(lambda: [_compared(one, apart) for one in runs])
    return ModelComparison(
        runs=sum(row["runs"] for row in counted),
        compared=sum(model.n for model in compared),
        since=since,
        models=compared,
        **await _head(figures, wanted),
    )


def _compared(runs: Runs, apart: Mapping[Any, Mapping[str, Any]]) -> ModelFigures:
    counts = apart.get((runs.provider, runs.model), {"disqualified": 0, "gate_failed": 0})
    return compare(runs, disqualified=counts["disqualified"], gate_failed=counts["gate_failed"])


class AgentTools(_Model):
    """What became of one agent's tool calls (docs/scoring.md), by one scoring version."""

    agent: str
    scoring_version: int
    sessions: int
    calls: int
    actions: int | None = Field(description="calls that change something; null for version 1")
    failed: int
    failed_share: float | None
    corrections: int
    repeated: int
    not_cited: int | None = Field(
        description="look-ups of whose result nothing is taken up: a neutral fact; null for "
        "version 1"
    )
    wasted: int | None = Field(description="null for version 1, whose waste is left out")
    wasted_tokens: int | None
    wasted_cost_usd: float | None = Field(description="of the calls whose price is known")
    wasted_cost_unknown: int | None
    average_effectiveness: float


class Tools(_Mixable):
    """Tool reports, summed up by agent and scoring version."""

    agents: list[AgentTools]
    note: str | None = Field(description="what is left out, and why")


async def tools(figures: Figures, wanted: Selection) -> Tools:
    """What became of agents' tool calls."""
    rows = [
        {**row, "failed_share": _ratio(row["failed"], row["calls"])}
        for row in await figures.tools(wanted)
    ]
    first = any(row["scoring_version"] == 1 for row in rows)
    return Tools(
        agents=[AgentTools.model_validate(row) for row in rows],
        note=WASTE_OF_VERSION_1 if first else None,
        **await _head(figures, wanted),
    )


class CostLine(_Model):
    """What one judge model used on one day. A panel's cost stands under its first judge."""

    day: date
    provider: str | None
    model: str | None
    scores: int
    samples: int
    input_tokens: int
    output_tokens: int
    cost_usd: float = Field(description="of the scores whose cost is known")
    cost_unknown: int = Field(description="scores whose cost is not known")


class BookedLine(_Model):
    """What was booked on a provider's account; only providers with a cap have one."""

    day: date
    provider: str
    cap_usd: float
    spent_usd: float


class Cost(_Report):
    """What judges cost: for scores (all of them, replaced ones too), and as it was booked."""

    cost_usd: float
    cost_unknown: int
    lines: list[CostLine]
    booked: list[BookedLine]


async def cost(figures: Figures, wanted: Selection) -> Cost:
    """What judges cost."""
    rows, booked = await figures.cost(wanted)
    lines = [CostLine.model_validate(row) for row in rows]
    return Cost(
        cost_usd=sum(line.cost_usd for line in lines),
        cost_unknown=sum(line.cost_unknown for line in lines),
        lines=lines,
        booked=[BookedLine.model_validate(row) for row in booked],
        **_days(wanted),
    )


class AgreementReport(_Mixable, Agreement):
    """Judge against human; the days are those of the overrides."""


async def judge_and_human(figures: Figures, wanted: Selection) -> AgreementReport:
    """How near totals are to what humans gave instead."""
    pairs = await figures.overrides(wanted, limit=NEWEST_OVERRIDES)
    found = await asyncio.to_thread(agreement, pairs)
    return AgreementReport(**found.model_dump(), **await _head(figures, wanted, of_overrides=True))


def _days(wanted: Selection) -> dict[str, Any]:
    return {"from": wanted.first, "to": wanted.last}


async def _head(
    figures: Figures, wanted: Selection, *, of_overrides: bool = False
) -> dict[str, Any]:
    """What reports begin with: their days, and what they mix."""
    mixed = await figures.mixture(wanted, of_overrides=of_overrides)
    return {**_days(wanted), "mixed": [Mixture.model_validate(row) for row in mixed]}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
