"""Writes what is made from other files: `python -m tests.deploy`."""

from tests.deploy import generated

generated.write()
