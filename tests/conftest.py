"""What every test may ask for: see `tests/support/fixtures.py`."""

import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.fixtures", "tests.support.skips"]

# How long an example takes says nothing about whether it is right, on a machine that is shared.
settings.register_profile("quick", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("quick")  # or `make thorough`


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the tests of random faults run: `pytest tests/faults -m "" --kills 200`; and those
    of how work grows.
    """
    parser.addoption("--kills", type=int, default=10, help="random kills in a fault test")
    parser.addoption("--growth-full", action="store_true", help="up to the largest that is let in")
