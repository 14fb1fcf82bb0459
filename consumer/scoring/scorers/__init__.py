"""Rule scorers: pure functions from a session to 0-1, by the formulas of scoring.md.

base         what they look at and answer
figures      time, tokens, tool calls, cost
grounding    are numbers, names and citations of the analysis in the evidence?
wording      what the analysis holds, and how it reads
consistency  how it reasons, and whether it contradicts itself

A scorer that has nothing to measure answers `NotApplicable` with the reason: its criterion is then
left out of the total, never scored "in the middle".
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer.scoring.scorers import consistency, figures, grounding, wording
from consumer.scoring.scorers.base import NoParams, RuleScorer

_ALL = (
    RuleScorer(name="response_time", params=NoParams, score=figures.response_time),
    RuleScorer(name="token_efficiency", params=NoParams, score=figures.token_efficiency),
    RuleScorer(name="tool_count", params=NoParams, score=figures.tool_count),
    RuleScorer(name="tool_effectiveness", params=NoParams, score=figures.tool_effectiveness),
    RuleScorer(name="tool_error_rate", params=NoParams, score=figures.tool_error_rate),
    RuleScorer(
        name="numeric_grounding",
        params=grounding.NumericGrounding,
        score=grounding.numeric_grounding,
    ),
    RuleScorer(
        name="entity_grounding", params=grounding.EntityGrounding, score=grounding.entity_grounding
    ),
    RuleScorer(
        name="citation_validity",
        params=grounding.CitationValidity,
        score=grounding.citation_validity,
    ),
    RuleScorer(name="coverage", params=wording.Coverage, score=wording.coverage),
    RuleScorer(name="structure", params=wording.Structure, score=wording.structure),
    RuleScorer(name="policy", params=wording.Policy, score=wording.policy),
    RuleScorer(name="readability", params=wording.Readability, score=wording.readability),
    RuleScorer(name="conciseness", params=wording.Conciseness, score=wording.conciseness),
    RuleScorer(
        name="reasoning_structure",
        params=consistency.ReasoningStructure,
        score=consistency.reasoning_structure,
    ),
    RuleScorer(
        name="internal_consistency",
        params=consistency.InternalConsistency,
        score=consistency.internal_consistency,
    ),
    RuleScorer(name="latency_band", params=figures.LatencyBands, score=figures.latency_band),
    RuleScorer(name="cost_band", params=figures.CostBands, score=figures.cost_band),
    RuleScorer(
        name="cost_efficiency", params=figures.ReferenceEfficiency, score=figures.cost_efficiency
    ),
)
SCORERS: Mapping[str, RuleScorer] = {scorer.name: scorer for scorer in _ALL}
