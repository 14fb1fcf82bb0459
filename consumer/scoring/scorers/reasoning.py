"""Is the final analysis a complete argument? Formula: docs/scoring.md."""

from __future__ import annotations

from pydantic import Field

from consumer.scoring.scorers.base import (
    NO_ANALYSIS,
    Measured,
    Params,
    Place,
    Result,
    Subject,
    in_analysis,
    missing,
)
from consumer.scoring.scorers.keywords import Keywords, Text


class ReasoningStructure(Params):
    """What tells each part of an argument; none may be empty."""

    evidence: Keywords = Field(
        default=(
            "evidence", "finding", "findings", "found", "observed", "observation", "observations",
            "according to", "log shows", "logs show", "metrics show", "measured", "shows that",
        ),
        min_length=1,
    )  # fmt: skip
    conclusion: Keywords = Field(
        default=(
            "conclusion", "conclusions", "in conclusion", "conclude", "root cause", "verdict",
            "therefore", "diagnosis", "assessment", "in summary",
        ),
        min_length=1,
    )  # fmt: skip
    causes: Keywords = Field(
        default=(
            "because", "because of", "due to", "caused by", "causes", "therefore", "hence",
            "as a result", "as a consequence", "consequently", "thus", "leads to", "led to",
            "results in", "resulted in", "which is why", "explains", "that is why",
            r"pattern:[,;]\s+so\s",
        ),
        min_length=1,
    )  # fmt: skip
    alternatives: Keywords = Field(
        default=(
            "alternative", "alternatives", "alternatively", "ruled out", "rule out", "other causes",
            "possible causes", "another cause", "another explanation", "other explanations",
            "could also", "might also", "hypothesis", "hypotheses", "less likely", "unlikely",
        ),
        min_length=1,
    )  # fmt: skip
    limitations: Keywords = Field(
        default=(
            "limitation", "limitations", "not known", "unknown", "unclear", "not investigated",
            "not checked", "not verified", "unverified", "not confirmed", "could not", "couldn't",
            "unable to", "did not see", "didn't see", "did not check", "not available", "no access",
            "can't be excluded", "cannot be excluded", "can't be ruled out",
            "cannot be ruled out", "further investigation", "insufficient data", "caveat",
            "caveats", "assumption", "assumptions", "gap", "gaps",
        ),
        min_length=1,
    )  # fmt: skip
    confidence: Keywords = Field(
        default=("confidence", "confident", "certainty", "likelihood", "probability"),
        min_length=1,
    )


def reasoning_structure(subject: Subject, params: ReasoningStructure) -> Result:
    """Share of five: evidence stated before the (first) conclusion, causal connectives,
    alternatives considered, limitations stated, confidence stated (docs/scoring.md).
    """
    text = subject.text
    if text is None:
        return NO_ANALYSIS
    stated = {
        "causal connective": params.causes,
        "alternatives": params.alternatives,
        "limitations": params.limitations,
        "confidence": params.confidence,
    }
    places = (
        *_order_place(text, params),
        *(missing(part) for part, words in stated.items() if not text.has(*words)),
    )
    return Measured((1 + len(stated) - len(places)) / (1 + len(stated)), places)


def _order_place(text: Text, params: ReasoningStructure) -> tuple[Place, ...]:
    """Why evidence does not come before a conclusion; empty if it does."""
    evidence, conclusion = text.first(params.evidence), text.first(params.conclusion)
    if evidence is None:
        return (missing("evidence"),)
    if conclusion is None:
        return (missing("conclusion"),)
    return () if evidence < conclusion else in_analysis(text.raw, [conclusion])
