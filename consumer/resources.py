"""Where the files that ship with the product are: beside the package in a checkout, inside it
when installed from a wheel.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def resource(name: str) -> Path:
    """The shipped folder of this name (`config`, `sql`, `schemas`)."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.exists() else _PACKAGE.parent / name
