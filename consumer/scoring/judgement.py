"""What judges said in all: one or more samples, and their mean.

A sample is one accepted verdict of one judge. Several samples are averaged criterion by criterion;
how far their totals lie apart tells how much the mean can be trusted.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from consumer.scoring.aggregate import JudgeView
from consumer.scoring.elision import Elision
from consumer.scoring.injection import Flag
from consumer.scoring.rounding import round_half_up
from consumer.scoring.sent import Content, SentRequest
from consumer.scoring.verdict import MAX_APPROACHES, Approach, MissingTool, Verdict

ONE_SAMPLE_CONFIDENCE = 0.6
ELIDED_COSTS = 0.2
# Totals that lie 25 points apart (standard deviation) say nothing: docs/scoring.md.
WORTHLESS_SD = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One accepted verdict and what it took: tokens and USD over all its calls.

    `model` and `fingerprint` are what the provider says answered. `request` is the first that was
    answered, `dialect`, `max_tokens` and `temperature` (None: none was sent) are of it.
    """

    verdict: Verdict
    provider: str
    model: str
    fingerprint: str | None
    asked_model: str
    dialect: str
    max_tokens: int
    temperature: float | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    nonce: str
    request: SentRequest
    elision: Elision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """At least one sample, and the total that each of them alone would come to (0-100).

    `flags` tell what in the session looks as if it was meant for the judge.
    """

    samples: tuple[Sample, ...]
    totals: tuple[int, ...]
    flags: tuple[Flag, ...] = ()

    @property
    def sd(self) -> float | None:
        """Standard deviation of the totals (of a sample: n - 1); None for one alone."""
        return statistics.stdev(self.totals) if len(self.totals) > 1 else None

    @property
    def contents(self) -> tuple[Content, ...]:
        """What the requests of all samples are made up of, each content once."""
        contents = (content for sample in self.samples for content in sample.request.contents)
        return tuple({content.sha256: content for content in contents}.values())

    @property
    def elision(self) -> Elision | None:
        """What was left out for the judge that saw least."""
        elisions = [sample.elision for sample in self.samples if sample.elision]
        return max(elisions, key=lambda elision: elision.ratio, default=None)

    @property
    def confidence(self) -> float:
        """1 - min(1, SD / 25), 0.6 for one sample; 0.2 less where the transcript was elided."""
        sd = self.sd
        agreed = ONE_SAMPLE_CONFIDENCE if sd is None else 1 - min(1.0, sd / WORTHLESS_SD)
        return round(max(0.0, agreed - ELIDED_COSTS) if self.elision else agreed, 4)

    @property
    def verdict(self) -> Verdict:
        """The verdict that lies nearest to the mean; the first on a tie. Its words are shown."""
        mean = statistics.mean(self.totals)
        nearest = min(range(len(self.totals)), key=lambda n: abs(self.totals[n] - mean))
        return self.samples[nearest].verdict

    @property
    def disqualifier(self) -> str | None:
        """The one named most often, where more than half of the samples disqualify."""
        named = Counter(
            sample.verdict.disqualifier_triggered
            for sample in self.samples
            if sample.verdict.disqualifier_triggered
        )
        return max(named, key=named.__getitem__) if 2 * named.total() > len(self.samples) else None

    @property
    def injection_suspected(self) -> bool:
        """Whether any judge suspects it."""
        return any(sample.verdict.injection_suspected for sample in self.samples)

    @property
    def missing_tools(self) -> tuple[MissingTool, ...]:
        """Those of all samples, each name once, as it was first said."""
        named: dict[str, MissingTool] = {}
        for tool in (tool for sample in self.samples for tool in sample.verdict.missing_tools):
            named.setdefault(tool.tool_name, tool)
        return tuple(named.values())

    @property
    def approaches(self) -> tuple[Approach, ...]:
        """Those of the verdict shown, then others', each name once, at most three."""
        ordered = [self.verdict, *(sample.verdict for sample in self.samples)]
        named: dict[str, Approach] = {}
        for approach in (approach for verdict in ordered for approach in verdict.approaches):
            named.setdefault(approach.name, approach)
        return tuple(named.values())[:MAX_APPROACHES]

    @property
    def view(self) -> JudgeView:
        """The mean of all samples, as the total needs it."""
        verdicts = [sample.verdict for sample in self.samples]
        totals = [v.total_score for v in verdicts if v.total_score is not None]
        means = means_of([verdict.score_breakdown for verdict in verdicts])
        return JudgeView(
            points=means_of([verdict.points for verdict in verdicts]),
            total=_mean(totals) if totals else None,
            breakdown={name: round_half_up(mean) for name, mean in means.items()},
            disqualifier=self.disqualifier,
            confidence=self.confidence,
        )

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviation of each criterion's points, where there is more than one sample."""
        given = points_given([sample.verdict.points for sample in self.samples])
        return {name: statistics.stdev(points) for name, points in given.items() if len(points) > 1}


def view_of(verdict: Verdict) -> JudgeView:
    """One verdict alone, as the total needs it."""
    return JudgeView(
        points=verdict.points,
        total=verdict.total_score,
        breakdown=verdict.score_breakdown,
        disqualifier=verdict.disqualifier_triggered,
    )


def means_of(given: Sequence[Mapping[str, int]]) -> dict[str, Fraction]:
    """The mean of each name's points, over those that give any."""
    return {name: _mean(points) for name, points in points_given(given).items()}


def points_given(given: Sequence[Mapping[str, int]]) -> dict[str, list[int]]:
    """All points of each name, in order."""
    names = dict.fromkeys(name for points in given for name in points)
    return {name: [points[name] for points in given if name in points] for name in names}


def _mean(points: Sequence[int]) -> Fraction:
    return Fraction(sum(points), len(points))


def total_cost_usd(samples: Sequence[Sample]) -> float | None:
    """USD of all samples; None as soon as one price is unknown."""
    costs = [sample.cost_usd for sample in samples if sample.cost_usd is not None]
    return sum(costs) if len(costs) == len(samples) else None
