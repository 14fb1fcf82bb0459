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

import logging

from consumer.cli import desk, dlq, judging, listing, report, requests, serving
from consumer.cli.base import app, fail
from consumer.cli.streams import give_up_output, open_streams
from consumer.errors import ConfigError, OutputLost, ScoreConsumerError

# As a shell tells of who died of SIGPIPE.
EXIT_NOBODY_READS = 128 + 13

__all__ = ["desk", "dlq", "judging", "listing", "main", "report", "requests", "serving"]


def main() -> None:
    """The command line. Errors of ours are told in words and end with exit code 1."""
    open_streams()
    # Of a server that is away they tell up to a hundred times a second; commands say it once. (What
    # `run` logs has a handler of its own.)
    for library in ("aiokafka", "asyncpg"):
        logging.getLogger(library).addHandler(logging.NullHandler())
    try:
        app()
    except OutputLost as error:
        give_up_output()
        if error.nobody_reads:
            raise SystemExit(EXIT_NOBODY_READS) from None
        fail(str(error))
    except ConfigError as error:
        fail(f"Can't start; {len(error.problems)} thing(s) to mend:\n{error}")
    except ScoreConsumerError as error:
        fail(str(error))
