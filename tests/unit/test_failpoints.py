"""Failpoints: off in production, exact where a test asks for them."""

import subprocess
import sys
from signal import SIGKILL

import pytest

from consumer import failpoints
from consumer.errors import ConfigError
from consumer.failpoints import Action, Order, Point
from consumer.settings import load_settings

_PROGRAM = """
from consumer import failpoints
from consumer.failpoints import Point
failpoints.arm(failpoints.parse("after_insert:kill@2"))
for place in (Point.AFTER_INSERT, Point.AFTER_SEND, Point.AFTER_SEND, Point.AFTER_INSERT):
    failpoints.reach(place)
    print(place, flush=True)
"""


def test_orders_are_read_as_they_are_written() -> None:
    assert failpoints.parse("after_insert:kill@3, after_send:freeze@1") == (
        Order(point=Point.AFTER_INSERT, action=Action.KILL, nth=3),
        Order(point=Point.AFTER_SEND, action=Action.FREEZE, nth=1),
    )
    assert failpoints.parse("") == ()


@pytest.mark.parametrize(
    "text", ["kill", "nowhere:kill@1", "after_send:maim@1", "after_send:kill@0", "after_send:kill"]
)
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"after_insert\|.*kill\|freeze"):
        failpoints.parse(text)


def test_the_process_dies_at_the_nth_time_and_not_before() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=False)
    assert done.returncode == -SIGKILL, done.stderr
    assert done.stdout.split() == [b"after_insert", b"after_send", b"after_send"]


def test_production_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILPOINTS", "after_send:kill@1")
    with pytest.raises(ConfigError) as error:
        load_settings()
    (problem,) = error.value.problems
    assert problem.startswith("FAILPOINTS: ")
    assert "only with RUN_MODE=test" in problem
    monkeypatch.setenv("RUN_MODE", "test")
    assert load_settings().failpoints == "after_send:kill@1"


def test_a_wrong_order_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_MODE", "test")
    monkeypatch.setenv("FAILPOINTS", "after_lunch:kill@1")
    with pytest.raises(ConfigError, match=r"FAILPOINTS: .*'after_lunch:kill@1' does not match"):
        load_settings()
