"""What the scorers of grounding share: are the analysis' numbers, names and citations real?

Evidence is what the agent was given or found: `Subject.evidence`. Each number and each name counts
once, however often it is repeated. TARSy's frame around the analysis (header and footer) is not the
agent's: `Subject.own_text` is without. All patterns consume what they match and look back a fixed
number of characters, so the time is linear in the texts; of the evidence, only what the analysis
mentions is kept in memory.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from consumer.scoring.scorers.base import Measured, in_analysis
from consumer.scoring.text import Spot

Words = tuple[Annotated[str, Field(min_length=1), AfterValidator(str.lower)], ...]

CITATION = re.compile(r"\[\^?(\d{1,9}(?:\s?[,;\u2013-]\s?\^?\d{1,9})*)\](?!\()")


def share(text: str, wrong: list[Spot], total: int) -> Measured:
    """1 - wrong / total, with the first places that are wrong."""
    return Measured(1 - len(wrong) / total, in_analysis(text, wrong))
