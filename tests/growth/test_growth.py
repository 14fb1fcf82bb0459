"""No input can stop the event loop: what strangers send costs no more than n log n of its size.

Each shape goes through all its steps at a size and at an eighth of it; the CPU of this thread is
compared, step by step. `make growth` goes up to what is let in.
"""

from __future__ import annotations

import pytest

from tests.growth.measure import too_fast
from tests.growth.shapes import SHAPES, Shape


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_work_grows_no_faster_than_n_log_n(shape: Shape, request: pytest.FixtureRequest) -> None:
    largest = shape.most if request.config.getoption("--growth-full") else shape.quick
    found = too_fast(shape.make, shape.steps, largest)
    assert not found, f"{shape.name}: seconds of {largest // 8} and of {largest} bytes: {found}"
