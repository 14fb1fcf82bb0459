"""Alerts, dashboards, runbooks: they name what there is, and each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from consumer import metrics
from tests.deploy.conftest import run, tool
from tests.deploy.places import ALERTS, CHART, DASHBOARDS, ROOT, RUNBOOKS

# What Prometheus adds to each series.
ADDED_LABELS = {"namespace", "job"}
DASHBOARD_FILES = sorted(DASHBOARDS.glob("*.json"))
ALERT_TESTS = sorted((ROOT / "deploy" / "prometheus").glob("*_test.yaml"))
GRID_WIDTH = 24


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["panels"])


def expressions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, and where it stands."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for path in DASHBOARD_FILES:
        for panel in panels(path):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]


def exported() -> Mapping[str, set[str]]:
    """The labels of each series that /metrics can have, by its name."""
    found: dict[str, set[str]] = {}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            described = next(iter(metric.describe()))
            labels = {*metric._labelnames, *ADDED_LABELS}
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            for ending in endings.get(described.type, [""]):
                more = {"le"} if ending == "_bucket" else set()
                found[described.name + ending] = labels | more
    return found


def test_expressions_name_series_and_labels_that_the_consumer_has() -> None:
    known = exported()
    for place, expression in expressions():
        names = re.findall(r"\bscoring_\w+", expression)
        assert names, place
        assert set(names) <= known.keys(), place
        for name, selector in re.findall(r"\b(scoring_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*[=!]~?", selector))
            assert labels <= known[name], f"{place}: {name} has no such label"
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression)
                   for label in group.split(",")}  # fmt: skip
        of_all = set.union(*(known[name] for name in names))
        assert grouped <= of_all, place


def test_every_metric_is_on_a_dashboard_but_for_few() -> None:
    shown = " ".join(expression for _, expression in expressions())
    # For whoever looks deeper; an alert or another figure tells the same sooner.
    left_out = {
        "scoring_dlq_redriven_total",
        "scoring_dlq_shortened_total",
        "scoring_intake_batch_records",
        "scoring_intake_batch_seconds",
        "scoring_server_unreachable_total",
        "scoring_ready",
        "scoring_figures_age_seconds",
        "scoring_intake_lag_records",
        "scoring_judge_last_error",
        "scoring_replicas_wanted",
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    assert {name for name in families if name not in shown} == left_out


def test_every_alert_has_its_runbook_and_the_reverse() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [name for name in sections if name in {r["alert"] for r in rules()}]
    for rule in rules():
        section = sections[rule["alert"]]
        assert [part for part in ("**Means:**", "**Look at:**", "**Do:**") if part in section] == [
            "**Means:**",
            "**Look at:**",
            "**Do:**",
        ]
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_runbooks_link_to_sections_that_exist() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    anchors = {name.lower() for name in re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= anchors


@pytest.mark.parametrize("path", DASHBOARD_FILES, ids=lambda path: path.stem)
def test_panels_are_explained_and_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    found = panels(path)
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        assert panel["description"]
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= GRID_WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    promtool = tool("promtool")
    run(promtool, "check", "rules", str(ALERTS))
    interval = {"$__rate_interval": "5m", "$__interval": "5m"}
    recordings = []
    for number, (_, expression) in enumerate(expressions()):
        for name, value in interval.items():
            expression = expression.replace(name, value)  # noqa: PLW2901  one after the other
        recordings.append({"record": f"expression_{number}", "expr": expression})
    file = tmp_path / "expressions.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recordings}]}))
    run(promtool, "check", "rules", str(file))


@pytest.mark.parametrize("path", ALERT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(path: Path) -> None:
    run(tool("promtool"), "test", "rules", str(path))


def test_every_alert_is_tested() -> None:
    tested = " ".join(path.read_text(encoding="utf-8") for path in ALERT_TESTS)
    assert [rule["alert"] for rule in rules() if rule["alert"] not in tested] == []


def test_the_chart_holds_no_other_files() -> None:
    """What is not one of these would be in every release's Secret, for nothing."""
    files = {str(path.relative_to(CHART / "files")) for path in (CHART / "files").rglob("*.*")}
    assert files == {
        "alerts.yaml",
        "providers.yaml",
        *(f"dashboards/{path.name}" for path in DASHBOARD_FILES),
    }
