"""What every test may ask for: see `tests/support/fixtures.py`."""

from hypothesis import settings

pytest_plugins = ["tests.support.fixtures"]

# How long an example takes says nothing about whether it is right, on a machine that is shared.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
