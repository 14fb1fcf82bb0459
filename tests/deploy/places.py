"""Where the files of the deployment are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
CHART = ROOT / "deploy" / "helm" / "score-consumer"
TOOLS = ROOT / ".cache" / "tools"
ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARDS = CHART / "files" / "dashboards"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
OPERATIONS = ROOT / "docs" / "operations.md"
