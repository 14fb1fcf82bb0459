"""Files that people name: none is read without end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

MIB = 1024 * 1024


def read_bytes(path: Path, most: int) -> bytes:
    """All of the file. Raises OSError, also where it has more than `most` bytes."""
    with path.open("rb") as file:
        return read_all(file, most)


def read_all(file: BinaryIO, most: int) -> bytes:
    """As read_bytes, of an open file."""
    content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"has more than {most} bytes, which is all that is allowed")
    return content
