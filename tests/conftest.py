"""What every test may ask for: see `tests/support/fixtures.py`."""

pytest_plugins = ["tests.support.fixtures"]
