"""What a benchmark answers: figures, each measured several times, with the mark it is to reach."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that was measured, once a repetition. Without a mark it is for information."""

    name: str
    unit: str
    values: Sequence[float]
    mark: float | None = None
    better: Literal["more", "less"] = "more"
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the mark; None where there is none."""
        if self.mark is None:
            return None
        return self.median >= self.mark if self.better == "more" else self.median <= self.mark

    @property
    def wanted(self) -> str:
        if self.mark is None:
            return ""
        return f"{'≥' if self.better == 'more' else '≤'} {shown(self.mark)}"

    @property
    def spread(self) -> str:
        return f"{shown(min(self.values))} to {shown(max(self.values))}"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
            "mark": self.mark,
            "better": self.better,
            "met": self.met,
            "note": self.note,
        }


def shown(value: float) -> str:
    """Three digits that count, thousands apart."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def steady(ends_s: Sequence[float], first: float = 0.1, last: float = 0.9) -> float:
    """How many end a second between these shares of all."""
    ends = sorted(ends_s)
    low, high = int(first * len(ends)), int(last * len(ends)) - 1
    return (high - low) / (ends[high] - ends[low])


def table(figures: list[Figure]) -> Table:
    """Figures and marks, for people."""
    made = Table("what", "median", "spread", "mark", "", "note", title="Benchmarks")
    for figure in figures:
        verdict = {None: "", True: "met", False: "missed"}[figure.met]
        median = f"{shown(figure.median)} {figure.unit}".strip()
        made.add_row(figure.name, median, figure.spread, figure.wanted, verdict, figure.note)
    return made


def report(figures: list[Figure], out: Console, path: Path | None, **about: object) -> None:
    """Prints the table; writes all figures as JSON, with what they are about, where told."""
    out.print(table(figures))
    if path:
        found = {**about, "figures": [figure.as_json() for figure in figures]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n")
