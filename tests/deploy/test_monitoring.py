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
ADDED_LABELS = {"namespace", "job", "instance"}
# prometheus_client's own of each process, on Linux; and Prometheus' own of each target.
OF_PROCESSES = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "up",
}
SERIES = re.compile(r"\b((?:scoring|process)[_:][\w:]+|up)\b(?:\{([^}]*)\})?")
# What stands for Grafana's variables where Prometheus reads an expression.
VARIABLES = {
    "$__rate_interval": "5m",
    "$__interval": "5m",
    "$namespace": ".*",
    "$job": ".*",
}
DASHBOARD_FILES = sorted(DASHBOARDS.glob("*.json"))
ALERT_TESTS = sorted((ROOT / "deploy" / "prometheus").glob("*_test.yaml"))
GRID_WIDTH = 24


def rules(kind: str = "alert") -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def panels(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["panels"])


def expressions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, and where it stands."""
    for kind in ("record", "alert"):
        for rule in rules(kind):
            yield rule[kind], rule["expr"]
    for path in DASHBOARD_FILES:
        for panel in panels(path):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]


def exported() -> Mapping[str, set[str]]:
    """The labels of each series of /metrics, by its name."""
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


def known_series() -> Mapping[str, set[str]]:
    """The labels of each series that Prometheus has: those of rules are of what they are made."""
    found = {**exported(), **dict.fromkeys(OF_PROCESSES, ADDED_LABELS)}
    for rule in rules("record"):
        found[rule["record"]] = ADDED_LABELS.union(*grouped_by(rule["expr"]))
    return found


def grouped_by(expression: str) -> Iterator[set[str]]:
    """The labels of each `by (...)` and `on (...)`."""
    for labels in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression):
        yield {label.strip() for label in labels.split(",") if label.strip()}


def test_expressions_name_series_and_labels_that_the_consumer_has() -> None:
    known = known_series()
    for place, expression in expressions():
        series = SERIES.findall(re.sub(r"\b(by|on) ?\([^)]*\)", "", expression))
        assert series or expression.startswith("vector("), place
        for name, selector in series:
            assert name in known, place
            labels = set(re.findall(r"(\w+)\s*[=!]~?", selector))
            assert labels <= known[name], f"{place}: {name} has no such label"
        of_all = set[str]().union(*(known[name] for name, _ in series))
        assert set[str]().union(*grouped_by(expression)) <= of_all, place


def test_every_metric_is_on_a_dashboard_but_for_few() -> None:
    shown = " ".join(expression for _, expression in expressions())
    # For whoever looks deeper; an alert or another figure tells the same sooner.
    left_out = {
        "scoring_dlq_redriven_total",
        "scoring_dlq_shortened_total",
        "scoring_intake_batch_records",
        "scoring_intake_batch_seconds",
        "scoring_log_lines_dropped_total",
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
        assert re.search(r"(^|[.?] )Normal: \S.*\.$", panel["description"]), panel["title"]
        if panel["type"] in {"stat", "gauge"}:  # what is now, not the last that was known
            assert all(target["instant"] for target in panel["targets"]), panel["title"]
            assert panel["fieldConfig"]["defaults"]["noValue"]
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= GRID_WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells


def filled(expression: str) -> str:
    """The expression as Grafana asks it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    promtool = tool("promtool")
    run(promtool, "check", "rules", str(ALERTS))
    recordings = [
        {"record": f"expression_{number}", "expr": filled(expression)}
        for number, (_, expression) in enumerate(expressions())
    ]
    file = tmp_path / "expressions.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recordings}]}))
    run(promtool, "check", "rules", str(file))


# Two of three processes are there; one can't write, and was started anew. Of 1 000 answers a minute
# 4 are failures; 90 requests are cancelled beside. Another program has a process, too.
SEEN = {
    'scoring_replicas_wanted{job="a",instance="1"}': "3x90",
    'scoring_replicas_wanted{job="a",instance="2"}': "3x90",
    'scoring_replicas_wanted{job="b",instance="1"}': "1x60 stale",
    'scoring_ready{job="a",instance="1",part="postgres_writes"}': "1x90",
    'scoring_ready{job="a",instance="2",part="postgres_writes"}': "0x90",
    'scoring_intake_lag_records{job="a",instance="1"}': "7x90",
    'scoring_intake_lag_records{job="a",instance="2"}': "7x90",
    'process_start_time_seconds{job="a",instance="2"}': "1000x80 5000x10",
    'process_start_time_seconds{job="other",instance="2"}': "1x85 2x5",
    'process_resident_memory_bytes{job="a",instance="2"}': "9x90",
    'process_resident_memory_bytes{job="other",instance="2"}': "8x90",
    'scoring_server_unreachable_total{job="a",loop="relay",server="kafka"}': "_x86 1x4",
    'scoring_requests_finished_total{job="a",outcome="completed"}': "0+996x90",
    'scoring_requests_finished_total{job="a",outcome="judge_unavailable"}': "0+4x90",
    'scoring_requests_finished_total{job="a",outcome="cancelled"}': "0+90x90",
    'scoring_requests_late_total{job="a"}': "0+1x90",
    'scoring_objective_ratio{job="a",objective="answered"}': "0.995x90",
    'scoring_request_seconds_count{job="a"}': "0+100x90",
}
SHOWN: list[tuple[str, str, dict[str, float]]] = [
    ("Dependencies", "{{part}}", {'{part="postgres_writes"}': 0}),
    ("Processes", "there", {"{}": 2}),
    ("Processes", "wanted", {"{}": 4}),
    ("Processes", "missing", {"{}": 2}),
    ("Left in Kafka", "records", {"{}": 14}),
    ("Servers that were away", "{{loop}}: {{server}}", {'{loop="relay",server="kafka"}': 1}),
    ("Answered without a score", "1 hour", {"{}": 0.004}),
    ("Error budget left", "left", {"{}": 0.2}),
    ("Answered in time", "1 hour", {"{}": 0.99}),
    ("Restarts", "restarted", {"{}": 1}),
    ("Memory", "{{instance}}", {'{job="a",instance="2"}': 9}),
]


def test_the_health_dashboard_shows_what_is(tmp_path: Path) -> None:
    told = {
        (panel["title"], target["legendFormat"]): filled(target["expr"])
        for panel in panels(DASHBOARDS / "health.json")
        for target in panel["targets"]
    }
    questions = [
        {
            "expr": f"round(1000 * ({told[title, legend]}))",
            "eval_time": "88m",
            "exp_samples": [
                {"labels": labels, "value": round(1000 * value)} for labels, value in shown.items()
            ],
        }
        for title, legend, shown in SHOWN
    ]
    series = [{"series": name, "values": values} for name, values in SEEN.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": questions}
    file = tmp_path / "health_test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    run(tool("promtool"), "test", "rules", str(file))


CASES = [
    pytest.param(path, n, id=f"{path.stem}: {case['name']}")
    for path in ALERT_TESTS
    for n, case in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))["tests"])
]


@pytest.mark.parametrize(("path", "n"), CASES)
def test_alerts_fire_when_they_should(path: Path, n: int, tmp_path: Path) -> None:
    """One case at a time: they are hours of a server's time."""
    made = yaml.safe_load(path.read_text(encoding="utf-8"))
    made["tests"] = [made["tests"][n]]
    made["rule_files"] = [str((path.parent / file).resolve()) for file in made["rule_files"]]
    alone = tmp_path / "alone_test.yaml"
    alone.write_text(yaml.safe_dump(made))
    run(tool("promtool"), "test", "rules", str(alone))


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
