"""Standard output as a command finds it: closed, full, or with a reader that has gone."""

from __future__ import annotations

import io
import os
import sys

from consumer.errors import OutputLost


class _Output(io.TextIOWrapper):
    """Says by an error of ours what can't be written: Click and Rich use OSError otherwise."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _lost(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _lost(error) from error


def _lost(error: OSError) -> OutputLost:
    return OutputLost(
        f"standard output: {error.strerror}", nobody_reads=isinstance(error, BrokenPipeError)
    )


def open_streams() -> None:
    """Gives closed streams a place that takes all, before a socket gets their numbers."""
    sys.stdin, sys.stdout, sys.stderr = (
        stream or open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
        for stream, mode in ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w"))
    )
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        encoding, errors, by_lines = out.encoding, out.errors, out.line_buffering
        sys.stdout = _Output(out.detach(), encoding, errors, line_buffering=by_lines)


def give_up_output() -> None:
    """What is left goes nowhere: Python would complain once more while closing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
