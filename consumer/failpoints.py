"""Places where a test may end the process: where a crash hurts most. Off, unless a test asks.

Fault tests set RUN_MODE=test and FAILPOINTS, such as `after_insert:kill@3`: the third time that
this point is reached, the process dies as by SIGKILL. In production mode FAILPOINTS is refused.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Point(StrEnum):
    """Where a process may end, in the order in which a request passes by."""

    AFTER_INSERT = "after_insert"
    """Intake: a batch is stored, its offsets are not committed."""
    DURING_JUDGE_CALL = "during_judge_call"
    """The judge has begun to answer; nothing of it was read."""
    AFTER_VERDICT = "after_verdict"
    """The outcome is known, and not stored."""
    BEFORE_COMMIT = "before_commit"
    """A new score and its events are written, in a transaction that is still open."""
    AFTER_COMMIT = "after_commit"
    """The outcome and its events are stored; the relay does not know of them."""
    AFTER_SEND = "after_send"
    """Kafka has acknowledged a page of events; the outbox still holds them."""


class Action(StrEnum):
    """What happens there: the process is killed, or frozen until SIGCONT."""

    KILL = "kill"
    FREEZE = "freeze"


_SIGNALS = {Action.KILL: signal.SIGKILL, Action.FREEZE: signal.SIGSTOP}
_ORDER = re.compile(
    rf"(?P<point>{'|'.join(Point)}):(?P<action>{'|'.join(Action)})@(?P<nth>[1-9]\d*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`action` happens when `point` is reached for the `nth` time, from 1."""

    point: Point
    action: Action
    nth: int


# The hooks stand deep in the loops, and to hand this down to them would touch every signature.
_orders: list[Order] = []
_reached: Counter[Point] = Counter()


def parse(text: str) -> tuple[Order, ...]:
    """The orders in `point:action@nth`, separated by commas. Raises ValueError."""
    return tuple(_order(part.strip()) for part in text.split(",") if part.strip())


def _order(text: str) -> Order:
    match = _ORDER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not match {_ORDER.pattern}")
    return Order(point=Point(match["point"]), action=Action(match["action"]), nth=int(match["nth"]))


def arm(orders: tuple[Order, ...]) -> None:
    """From now on these orders hold, and no others. Counting starts anew."""
    _orders[:] = orders
    _reached.clear()


def reach(point: Point) -> None:
    """The process is at this point; nothing happens unless an order says so."""
    if not _orders:
        return
    _reached[point] += 1
    for order in _orders:
        if order.point is point and order.nth == _reached[point]:
            os.kill(os.getpid(), _SIGNALS[order.action])
