"""What PostgreSQL means to do for a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a query was planned to do."""

    indexes: set[str]
    scanned: set[str]  # tables that are read from end to end
    sorts: bool


def plan_of(explained: str) -> Plan:
    """Out of EXPLAIN (FORMAT JSON)."""
    nodes = list(_nodes(json.loads(explained)[0]["Plan"]))
    return Plan(
        indexes={node["Index Name"] for node in nodes if "Index Name" in node},
        scanned={node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"},
        sorts=any("Sort" in node["Node Type"] for node in nodes),
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
