"""Every exception of the product, drawn once.

ScoreConsumerError
├── ConfigError            wrong settings or files: stops the start, lists everything
├── NotReachable           Postgres or Kafka does not answer: wait and try again
├── TooLarge               Kafka refuses an event because of its size: as it is it will never go
├── OutputLost             standard output takes no more of what a command tells
├── LeaseLost              someone else owns the request now: drop the work, write nothing
├── AlreadyBeingScored     another request is scoring this session by this profile: come back later
├── LoopDied               a loop stopped making progress: the process must not go on pretending
└── ScoringError           why one request got no score; carries the wire's `error_code`
    ├── Unavailable        may pass by itself: tried again until the request's deadline
    │   ├── HistoryUnavailable
    │   ├── JudgeUnavailable
    │   │   ├── JudgeRateLimited   we ask too often: `retry_after` tells when to come back
    │   │   ├── JudgeOverloaded    it has too much to do: ask less of it
    │   │   ├── JudgeNoAnswer      it took our request and gave no usable answer
    │   │   │   └── JudgeUnreadable   it gave an answer, and nobody can read it
    │   │   ├── JudgeRejected      our key, quota or address is wrong: needs a human, no quick retry
    │   │   └── JudgeHeld          it is not asked at all for now: its circuit breaker is open
    │   └── SessionNotCompleted
    └── Final              will not get better by waiting: answered at once
        ├── SessionNotFound
        ├── SessionEnded
        ├── HistoryInvalid
        ├── NoMatchingProfile
        ├── JudgeNotConfigured
        ├── JudgeInvalidOutput
        ├── JudgeRefused
        ├── ContextOverflow
        ├── BudgetExhausted    the day's spend cap is reached
        ├── ScoringDisabled
        └── InternalError
"""

from __future__ import annotations

from typing import ClassVar

from consumer.error_codes import ErrorCode


class ScoreConsumerError(Exception):
    """Root of the tree: everything the product raises on purpose."""


class ConfigError(ScoreConsumerError):
    """Settings or files that can't be used; `problems` names each place and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"- {problem}" for problem in problems))


class NotReachable(ScoreConsumerError):
    """A needed server does not answer; the message names it without its password.

    `server` is its kind in one word: postgres or kafka.
    """

    def __init__(self, message: str, *, server: str = "postgres") -> None:
        super().__init__(message)
        self.server = server


class TooLarge(ScoreConsumerError):
    """An event has more bytes than its topic takes."""


class OutputLost(ScoreConsumerError):
    """What a command tells can't be written; `nobody_reads` where a pipe's reader has gone."""

    def __init__(self, message: str, *, nobody_reads: bool) -> None:
        super().__init__(message)
        self.nobody_reads = nobody_reads


class LeaseLost(ScoreConsumerError):
    """The request's lease token is no longer ours."""


class AlreadyBeingScored(ScoreConsumerError):
    """Another request in progress already scores this session by this profile."""


class LoopDied(ScoreConsumerError):
    """A loop ended or stands still although it should run."""


class ScoringError(ScoreConsumerError):
    """Why a request got no score. The message is published: it never holds secrets."""

    code: ClassVar[ErrorCode]


class Unavailable(ScoringError):
    """May pass by itself. `retry_after` is the server's own wish in seconds, where it gave one."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class HistoryUnavailable(Unavailable):
    code = ErrorCode.HISTORY_UNAVAILABLE


class JudgeUnavailable(Unavailable):
    code = ErrorCode.JUDGE_UNAVAILABLE
    paid = False
    """Whether the same request met a JudgeUnreadable on the way: asked for ever, it costs for ever.
    """


class JudgeRateLimited(JudgeUnavailable):
    """The provider is well, but we ask more than it lets us."""


class JudgeOverloaded(JudgeUnavailable):
    """The provider is up, and has more to do than it can (503, 529)."""


class JudgeNoAnswer(JudgeUnavailable):
    """The provider took our request and gave no usable answer: it may have been billed."""


class JudgeUnreadable(JudgeNoAnswer):
    """The provider answered, and nobody can read it: it was billed, most likely."""

    paid = True


class JudgeHeld(JudgeUnavailable):
    """The provider is known to be unwell and is not asked; the request waits, and loses nothing."""


class JudgeRejected(JudgeUnavailable):
    """The provider refuses our key, our quota is used up, or something else answers at its address:
    permanent until someone mends it.
    """


class SessionNotCompleted(Unavailable):
    """The session may still reach `completed`; waited for up to the completion wait."""

    code = ErrorCode.SESSION_NOT_COMPLETED


class Final(ScoringError):
    """Waiting does not help."""


class SessionNotFound(Final):
    code = ErrorCode.SESSION_NOT_FOUND


class SessionEnded(Final):
    """The session ended otherwise than `completed`."""

    code = ErrorCode.SESSION_NOT_COMPLETED


class HistoryInvalid(Final):
    code = ErrorCode.HISTORY_INVALID


class NoMatchingProfile(Final):
    code = ErrorCode.NO_MATCHING_PROFILE


class JudgeNotConfigured(Final):
    """A profile needs a judge and none is set up, or the provider refuses our credentials."""

    code = ErrorCode.JUDGE_UNAVAILABLE


class JudgeInvalidOutput(Final):
    code = ErrorCode.JUDGE_INVALID_OUTPUT


class JudgeRefused(Final):
    code = ErrorCode.JUDGE_REFUSED


class ContextOverflow(Final):
    code = ErrorCode.CONTEXT_OVERFLOW


class BudgetExhausted(Final):
    code = ErrorCode.BUDGET_EXHAUSTED


class ScoringDisabled(Final):
    code = ErrorCode.SCORING_DISABLED


class InternalError(Final):
    code = ErrorCode.INTERNAL_ERROR
