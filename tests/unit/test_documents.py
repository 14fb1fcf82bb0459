"""Commands, settings and metrics that the documents name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client import Counter, Gauge, Histogram

from consumer import metrics
from consumer.cli.base import app
from consumer.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS: Any = typer.main.get_command(app)
# Options by their names; no prose begins with two dashes.
_COMMAND = re.compile(r"(?<![=/\w])(?<!--group )score-consumer ((?:[a-z]+ ?)*)((?:[^`\n|;]|\\\n)*)")
_LINE = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def commands(text: str) -> Iterator[tuple[str, Any, list[str]]]:
    """Each command as it is written, what it is of ours, and its options."""
    for found in _COMMAND.finditer(text):
        command, words = COMMANDS, found[1].split()
        while words and hasattr(command, "commands"):
            name = words.pop(0)
            assert name in command.commands, f"there is no {found[0]!r}"
            command = command.commands[name]
        yield found[0], command, re.findall(r"(?<!\S)--[a-z-]+", found[2])


@_LINE
def test_commands_and_their_options_exist(path: Path) -> None:
    for written, command, options in commands(path.read_text(encoding="utf-8")):
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(options) <= known | {"--help"}, written


@_LINE
def test_metrics_exist(path: Path) -> None:
    known = {
        next(iter(metric.describe())).name
        for metric in vars(metrics).values()
        if isinstance(metric, Counter | Gauge | Histogram)
    }
    named = set(re.findall(r"\bscoring_[a-z_]+[a-z]\b", path.read_text(encoding="utf-8")))
    named = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in named}
    others = {"scoring_config", "scoring_criteria_definitions", "scoring_disabled"}
    assert named - others <= known


def test_settings_of_runbooks_exist() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    known = {name.upper() for name in Settings.model_fields}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)(?:=[^`]*)?`", text))
    assert named - {"SCORING_ENABLED"} <= known
