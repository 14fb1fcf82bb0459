"""Where all is installed a skipped test fails the run; with xdist too."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
SKIPPING = """
import pytest

def test_that_runs():
    assert True

def test_that_does_not():
    pytest.skip("no Kafka today")
"""


@pytest.mark.parametrize("workers", [[], ["-n2"]])
@pytest.mark.parametrize(("options", "code"), [([], 0), (["--no-skips"], 1)])
def test_a_skipped_test_fails_the_run_where_it_must_not_be(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    workers: list[str],
    options: list[str],
    code: int,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest_subprocess("-p", "tests.support.skips", *options, *workers)
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == code
    told = [line for line in result.outlines if "not in tests/support/skips.py" in line]
    assert len(told) == code
    assert all("test_that_does_not: Skipped: no Kafka today" in line for line in told)
