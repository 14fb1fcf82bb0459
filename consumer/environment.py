"""Environment variables, and files in their place: NAME_FILE holds the path of what NAME would be.

That is how Docker and Kubernetes hand out secrets: as files that no list of processes shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from consumer.files import MIB, read_bytes

FILE_SUFFIX = "_FILE"
MAX_BYTES = MIB


def from_files(
    names: Iterable[str], environment: Mapping[str, str], problems: list[str]
) -> dict[str, str]:
    """The variables among `names` whose text is in a file. Problems are added to the list.

    Line ends after the text are left out: most editors add one, and no secret has one.
    """
    read = ((name, _read(name, environment, problems)) for name in names)
    return {name: text for name, text in read if text}


def text_in(path: Path) -> str:
    """The file's text without line ends after it. Raises OSError or UnicodeDecodeError."""
    return read_bytes(path, MAX_BYTES).decode().rstrip("\r\n")


def _read(name: str, environment: Mapping[str, str], problems: list[str]) -> str:
    variable = name + FILE_SUFFIX
    path = environment.get(variable)
    if not path:
        return ""
    if environment.get(name):
        problems.append(f"{variable}: {name} is set as well; unset one of them")
        return ""
    try:
        text = text_in(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        problems.append(f"{variable}: {path}: {why}")
        return ""
    if not text:
        problems.append(f"{variable}: {path}: is empty")
    return text
