"""The product's topics under names of a test's own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Names of the product's topics, unique to one test; all exist, with 4 partitions each."""

    requested: str
    completed: str
    quality_risk: str
    failed: str
    overridden: str
    dlq: str
