"""How much memory a process has held. Linux; nothing but the standard library."""

from __future__ import annotations

from pathlib import Path


def peak_mib(pid: int | str = "self") -> float:
    """The most that it ever held.

    `ru_maxrss` does not tell: a child begins with what its parent had.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no VmHWM")
