"""`score-consumer`: every command. Imports wait until their command runs: --help must be quick.

base      what all commands share
serving   run, migrate, demo, schemas
requests  publish, status, show, cancel, prune
listing   requests, retry
desk      score, profiles
judging   check, replay
dlq       dlq
report    report
"""

from __future__ import annotations

import os
import sys

from consumer.cli import desk, dlq, judging, listing, report, requests, serving
from consumer.cli.base import app, fail
from consumer.errors import ConfigError, ScoreConsumerError

__all__ = ["desk", "dlq", "judging", "listing", "main", "report", "requests", "serving"]


def main() -> None:
    """The command line. Errors of ours are told in words and end with exit code 1."""
    try:
        app()
    except ConfigError as error:
        fail(f"Can't start; {len(error.problems)} thing(s) to mend:\n{error}")
    except ScoreConsumerError as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader had enough. Python would complain once more while closing standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
