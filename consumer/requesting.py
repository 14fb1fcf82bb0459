"""Asking for scores: score.requested, from a list of sessions or a file."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from types import MappingProxyType

from pydantic import ValidationError

from consumer.edges.kafka import Producer
from consumer.errors import ConfigError, NotReachable
from consumer.events import ScoreRequested, headers
from consumer.outgoing import OutboxRow
from consumer.scoring.profile import describe

SEND_TIMEOUT_S = 20.0
PAGE = 500
# So often a second records are sent at a given rate; in between they are sent together.
TURNS_A_SECOND = 10


class Pace:
    """So many records a second, in turns."""

    def __init__(self, rate: float) -> None:
        self.turn = max(1, round(rate / TURNS_A_SECOND))
        self._rate = rate
        self._started, self._gone = monotonic(), 0

    async def wait(self, count: int) -> None:
        """Waits until so many more may go."""
        await asyncio.sleep(self._started + self._gone / self._rate - monotonic())
        self._gone += count


def read_requests(content: bytes) -> list[ScoreRequested]:
    """Requests from lines: a session id each, or score.requested data as a JSON object.

    Raises ConfigError that names every line that can't be used.
    """
    requests: list[ScoreRequested] = []
    problems: list[str] = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            if not (text := line.decode().strip()):
                continue
            data = text if text.startswith("{") else json.dumps({"session_id": text})
            requests.append(ScoreRequested.model_validate_json(data, strict=True))
        except ValidationError as error:
            problems += [f"line {number}: {describe(problem)}" for problem in error.errors()]
        except UnicodeDecodeError:
            problems.append(f"line {number}: not UTF-8")
    if problems:
        raise ConfigError(problems)
    return requests


def with_ids(requests: Iterable[ScoreRequested]) -> list[ScoreRequested]:
    """The requests, each with a request id of its own."""
    return [
        request if request.request_id else request.model_copy(update={"request_id": uuid.uuid4()})
        for request in requests
    ]


async def publish(
    requests: Sequence[ScoreRequested],
    *,
    producer: Producer,
    topic: str,
    source: str,
    trace: Mapping[str, str] = MappingProxyType({}),
    pace: Pace | None = None,
    sent: Callable[[int], None] = lambda _: None,
) -> None:
    """Sends requests, all of this trace; returns once Kafka has acknowledged all of them. `sent` is
    told how many went each time.

    Raises NotReachable with how many were not sent.
    """
    size = min(PAGE, pace.turn) if pace else PAGE
    for start in range(0, len(requests), size):
        rows = [_row(request, topic, source, trace) for request in requests[start : start + size]]
        if pace:
            await pace.wait(len(rows))
        errors = [e for e in await producer.send(rows, timeout_s=SEND_TIMEOUT_S) if e is not None]
        if errors:
            left = len(requests) - start - size
            raise NotReachable(
                f"Kafka did not take {len(errors) + max(0, left)} of {len(requests)} requests: "
                f"{str(errors[0]) or type(errors[0]).__name__}",
                server="kafka",
            )
        sent(len(rows))


def _row(request: ScoreRequested, topic: str, source: str, trace: Mapping[str, str]) -> OutboxRow:
    now = datetime.now(UTC)
    ce_id = request.request_id or uuid.uuid4()
    return OutboxRow(
        event_id=ce_id,
        topic=topic,
        key=request.session_id.encode(),
        type=request.type,
        payload=request.model_dump_json(exclude_none=True).encode(),
        headers=[
            [name, value]
            for name, value in headers(
                request, ce_id=ce_id, time=now, source=source, trace=dict(trace)
            ).items()
        ],
    )
