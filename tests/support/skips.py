"""A skipped test shows nothing. With `--no-skips`, as CI has it, it fails the run unless it is
listed here with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
#: Patterns of what a skipped test says, each with why it may be skipped where all is installed.
ALLOWED: Mapping[str, str] = {
    "*not* in this repo*": "recorded sessions, which are no part of this project",
    "*not part of this repository": "the same",
    "*shared sample sessions are not here": "the same",
}

_SKIPPED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="a skipped test fails the run, unless it is listed"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SKIPPED] = {}
    config.pluginmanager.register(_Watch(config))


class _Watch:
    """Notes what is skipped; with xdist, of all its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._config.stash[_SKIPPED][report.nodeid] = _reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._config.stash[_SKIPPED][report.nodeid] = _reason(report)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def refused(config: pytest.Config) -> dict[str, str]:
    """Tests that were skipped and must not be, each with the reason it gave."""
    if not config.getoption("--no-skips"):
        return {}
    skipped = config.stash[_SKIPPED].items()
    allowed = () if SHARED.exists() else ALLOWED
    return {name: why for name, why in skipped if not any(fnmatch(why, one) for one in allowed)}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for name, why in refused(config).items():
        terminalreporter.write_line(f"SKIPPED, and not in tests/support/skips.py: {name}: {why}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if refused(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
