"""Tools that may be there: from PATH, the environment's own, or `.cache/tools` (`make tools`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.places import CHART, TOOLS

KUBERNETES = "1.34"
# All that must be given: the rest has defaults.
LEAST: dict[str, Any] = {"secrets": {"existingSecret": "scores"}}

Objects = list[dict[str, Any]]
Render = Callable[[dict[str, Any]], Objects]
HelmTemplate = Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]
# The one in C is there wherever PyYAML comes as a wheel.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def tool(name: str) -> str:
    """The tool's path, of a program or a folder. Skips the test where it is not there."""
    if (TOOLS / name).exists():
        return str(TOOLS / name)
    ours = str(Path(sys.executable).parent)
    if found := shutil.which(name, path=os.pathsep.join((ours, os.environ.get("PATH", "")))):
        return found
    pytest.skip(f"there is no {name}: `make tools` puts it there where its registry is reached")


def run(*command: str, told: str = "") -> str:
    """What the command printed, told this on standard input. Fails the test with it where the
    command fails.
    """
    done = subprocess.run(
        command, input=told, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def helm() -> str:
    return tool("helm")


@pytest.fixture(scope="session")
def helm_template(helm: str, tmp_path_factory: pytest.TempPathFactory) -> HelmTemplate:
    """Renders the chart with these values; the database's Secret is named where they name none."""
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    version = f"--kube-version={KUBERNETES}"
    command = [helm, "template", "scores", str(CHART), version, "--namespace=ns", f"-f{file}"]

    def template(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        file.write_text(yaml.safe_dump({**LEAST, **values}), encoding="utf-8")
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return template


@pytest.fixture(scope="session")
def render(helm_template: HelmTemplate) -> Render:
    """The chart's objects; equal values are rendered once."""

    @lru_cache
    def rendered(values: str) -> str:
        done = helm_template(json.loads(values))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(values: dict[str, Any]) -> Objects:
        text = rendered(json.dumps(values))
        return [one for one in yaml.load_all(text, Loader=Loader) if one]

    return objects


@pytest.fixture(scope="session")
def refusal(helm_template: HelmTemplate) -> Callable[[dict[str, Any]], str]:
    """What Helm says where the values must be refused."""

    def refused(values: dict[str, Any]) -> str:
        done = helm_template(values)
        assert done.returncode != 0, f"rendered with {values}"
        return done.stderr

    return refused
