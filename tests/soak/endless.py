"""Stand-ins for an endless run: any session is there, and nothing is kept but the counts."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import Any

from consumer.demo import sample_sessions
from consumer.demo.sample_sessions import SampleSession
from tests.support.stand_ins import StandIns

# Three of four need the judge; the last is scored by rules alone.
CASES = ("good", "adequate", "good", "simple")
_NUMBER = re.compile(r"s-(\d+)")
_NAMED = re.compile(r"\[(s-\d+)\]")


class Sessions(dict[str, SampleSession]):
    """`s-<number>` for every number, made when it is asked for."""

    def __contains__(self, session_id: object) -> bool:
        return isinstance(session_id, str) and _NUMBER.fullmatch(session_id) is not None

    def __missing__(self, session_id: str) -> SampleSession:
        return _made(session_id, CASES[int(session_id.removeprefix("s-")) % len(CASES)])


@cache
def _sample(case: str) -> SampleSession:
    return next(s for s in sample_sessions.load().values() if s.case == case)


def _made(session_id: str, case: str) -> SampleSession:
    maker = StandIns()
    maker.add(session_id, case)
    return maker.sessions[session_id]


class Endless(StandIns):
    """Stand-ins whose memory does not grow with the number of sessions."""

    def session_in(self, text: str) -> str | None:
        found = _NAMED.search(text)
        return found[1] if found else None


class _Forgetful(list[dict[str, Any]]):
    def append(self, _: dict[str, Any]) -> None:
        """Nothing is kept."""


def endless() -> Endless:
    """Stand-ins for an endless run, not served yet."""
    return Endless(sessions=Sessions(), prompts=defaultdict(_Forgetful))
