"""Rule scorers: pure functions from a session to 0-1, by the formulas of docs/scoring.md.

base         what they look at and answer
figures      time, tokens, tool calls, cost
grounding    numbers, identifiers, proper names, citations of the analysis: are they real?
advice       where a text says what to do: no claims about the data
derived      figures that are computed, rounded or counted
keywords     words that profiles give, and where a text holds them
prose        lines, sentences and words of an analysis
wording      what the analysis holds, and how it reads
reasoning    is it a complete argument?
consistency  does it contradict itself?

A scorer that has nothing to measure answers `NotApplicable` with the reason: its criterion is then
left out of the total, never scored "in the middle".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from consumer.scoring.scorers import (
    citations,
    consistency,
    figures,
    names,
    numbers,
    proper_names,
    reasoning,
    wording,
)
from consumer.scoring.scorers.base import NoParams, Params, Result, RuleScorer, Subject

_ALL = (
    RuleScorer(name="response_time", params=NoParams, score=figures.response_time),
    RuleScorer(name="token_efficiency", params=NoParams, score=figures.token_efficiency),
    RuleScorer(name="tool_count", params=NoParams, score=figures.tool_count),
    RuleScorer(name="tool_effectiveness", params=NoParams, score=figures.tool_effectiveness),
    RuleScorer(name="tool_error_rate", params=NoParams, score=figures.tool_error_rate),
    RuleScorer(
        name="numeric_grounding",
        params=numbers.NumericGrounding,
        score=numbers.numeric_grounding,
    ),
    RuleScorer(
        name="name_grounding",
        params=proper_names.NameGrounding,
        score=proper_names.name_grounding,
    ),
    RuleScorer(name="entity_grounding", params=names.EntityGrounding, score=names.entity_grounding),
    RuleScorer(
        name="citation_validity",
        params=citations.CitationValidity,
        score=citations.citation_validity,
    ),
    RuleScorer(name="coverage", params=wording.Coverage, score=wording.coverage),
    RuleScorer(name="structure", params=wording.Structure, score=wording.structure),
    RuleScorer(name="policy", params=wording.Policy, score=wording.policy),
    RuleScorer(name="readability", params=wording.Readability, score=wording.readability),
    RuleScorer(name="conciseness", params=wording.Conciseness, score=wording.conciseness),
    RuleScorer(
        name="reasoning_structure",
        params=reasoning.ReasoningStructure,
        score=reasoning.reasoning_structure,
    ),
    RuleScorer(
        name="internal_consistency",
        params=consistency.InternalConsistency,
        score=consistency.internal_consistency,
    ),
    RuleScorer(name="latency_band", params=figures.LatencyBands, score=figures.latency_band),
    RuleScorer(name="cost_band", params=figures.CostBands, score=figures.cost_band),
    RuleScorer(
        name="cost_efficiency",
        params=figures.ReferenceEfficiency,
        score=figures.cost_efficiency,
        by_quality=True,
    ),
)
SCORERS: Mapping[str, RuleScorer] = {scorer.name: scorer for scorer in _ALL}


@dataclass(frozen=True, slots=True)
class Measurements:
    """A subject's results. Gates and criteria often ask for the same: it is measured once."""

    subject: Subject
    _kept: dict[tuple[str, int], Result] = field(default_factory=dict)

    def result(self, scorer: str, params: Params, *, quality_so_far: float | None = None) -> Result:
        """What this scorer says with these parameters."""
        rule = SCORERS[scorer]
        if rule.by_quality:
            return rule.score(replace(self.subject, quality_so_far=quality_so_far), params)
        # Equal parameters are one object (see `typed_params`), and that is quicker to look up.
        key = (scorer, id(params))
        if key not in self._kept:
            self._kept[key] = rule.score(self.subject, params)
        return self._kept[key]
