"""Dead letters: read, judged again, and sent back to score.requested.

A letter that is sent back keeps its key, value and headers, and tells its first place and time: its
request gets the same id every time, so that sending it twice asks for nothing twice. What was sent
back and could not be accepted again is a new letter, with a higher count; the former one is past.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from consumer.cloudevents import Record, Unacceptable, before_redrives, read_request, redrives
from consumer.edges.kafka import Producer
from consumer.edges.kafka_reader import Span, read
from consumer.errors import NotReachable
from consumer.events import ID_NAMESPACE, ScoreRequested
from consumer.outgoing import OutboxRow, stored_header
from consumer.requesting import Pace

SEND_TIMEOUT_S = 20.0
KNOWN_AT_A_TIME = 1000

Place = tuple[int, int]
Known = Callable[[Iterable[UUID]], Awaitable[set[UUID]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record of the dead-letter topic. Anyone may write there: nothing of it is certain."""

    record: Record

    @property
    def place(self) -> Place:
        """Partition and offset in the dead-letter topic."""
        return self.record.partition, self.record.offset

    @property
    def first(self) -> Record:
        """The record with the place and time that it had at first."""
        return before_redrives(self.record)

    @property
    def origin(self) -> str:
        """Where the record was at first."""
        return f"{self.first.topic}:{self.first.partition}:{self.first.offset}"

    @property
    def about(self) -> bytes:
        """The same for letters about the same record. What it holds counts, too: any sender may
        claim another's place.
        """
        place = f"{self.origin} {self.first.timestamp_ms}".encode()
        parts = [place, self.record.key or b"", self.record.value or b""]
        return sha256(b"".join(sha256(part).digest() for part in parts)).digest()

    @property
    def reason(self) -> str:
        return self.said("dlq_error_code")

    @property
    def redrives(self) -> int:
        """How often it was sent back before it came here."""
        return redrives(self.record)

    @property
    def cut(self) -> bool:
        """Whether the relay had to leave part of it out: it is gone, but for its size and hash."""
        return bool(self.said("dlq_original_sha256"))

    @property
    def session_id(self) -> str:
        """The session that it is about, as far as that can be told; else the record's key."""
        try:
            value = json.loads(self.record.value or b"")
            data = value.get("data", value)
            return str(data["session_id"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return (self.record.key or b"").decode(errors="replace")

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """The headers that it came with."""
        return [(n, v) for n, v in self.record.headers if not n.startswith("dlq_")]

    def said(self, name: str) -> str:
        """What intake wrote about it under this header; empty where it did not."""
        return (dict(self.record.headers).get(name) or b"").decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters; None: whatever it is."""

    places: frozenset[Place] | None = None
    reason: str | None = None
    session_id: str | None = None

    def fits(self, letter: Letter) -> bool:
        return (
            (self.places is None or letter.place in self.places)
            and self.reason in (None, letter.reason)
            and self.session_id in (None, letter.session_id)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where they lie, and how to get there."""

    bootstrap: str
    topic: str
    options: Mapping[str, Any] = field(default_factory=dict)

    async def read(self, span: Span) -> AsyncGenerator[Letter, None]:
        """Raises NotReachable."""
        async with aclosing(read(self.bootstrap, self.topic, span, self.options)) as records:
            async for record in records:
                yield Letter(record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to become of a letter: sent back, unless there is an `obstacle`."""

    place: Place
    origin: str
    reason: str
    session_id: str
    redrives: int
    request_id: UUID | None
    obstacle: str | None


def sent_back(letter: Letter, topic: str) -> OutboxRow:
    """The record as it goes to score.requested once more."""
    first = letter.first
    about = {
        "dlq_original_topic": first.topic,
        "dlq_original_partition": str(first.partition),
        "dlq_original_offset": str(first.offset),
        "dlq_original_timestamp": str(first.timestamp_ms or ""),
        "dlq_redrive_count": str(letter.redrives + 1),
    }
    return OutboxRow(
        event_id=uuid.uuid5(ID_NAMESPACE, f"redrive:{letter.place}"),
        topic=topic,
        key=letter.record.key,
        type=ScoreRequested.type,
        payload=letter.record.value,
        headers=[
            *(stored_header(name, value) for name, value in letter.headers),
            *(stored_header(name, value.encode()) for name, value in about.items()),
        ],
    )


def judged(letter: Letter, topic: str, *, max_redrives: int, force: bool) -> Choice:
    """Whether a letter should be sent back, as far as it alone can tell.

    With `force` also one that is sure to come back: that shows what a consumer of another version
    makes of it.
    """
    request_id, problem = _as_of_now(letter)
    if letter.cut:
        obstacle: str | None = "its value was cut: ask anew for its score"
    elif letter.first.topic != topic:
        obstacle = f"it came from {letter.first.topic}, not from {topic}"
    elif force:
        obstacle = None
    elif letter.redrives >= max_redrives:
        obstacle = f"it was sent back {letter.redrives} times: --force does it once more"
    else:
        obstacle = problem
    return Choice(
        place=letter.place,
        origin=letter.origin,
        reason=letter.reason,
        session_id=letter.session_id,
        redrives=letter.redrives,
        request_id=request_id,
        obstacle=obstacle,
    )


def _as_of_now(letter: Letter) -> tuple[UUID | None, str | None]:
    """The id of the request that this version of intake would find in it; or what is wrong."""
    try:
        return read_request(letter.record).request_id, None
    except Unacceptable as error:
        return None, f"still {error.code}: {error}"


async def plan(
    letters: AsyncIterator[Letter],
    wanted: Wanted,
    topic: str,
    *,
    limit: int,
    max_redrives: int,
    force: bool,
    known: Known,
) -> list[Choice]:
    """What to do with each letter, in the order they lie; `limit` are to be sent at most.

    Of letters about the same record only the newest counts, wanted or not: so `letters` are all
    there are. What `known` says to be accepted already is not sent: intake would only count it as a
    duplicate.
    """
    newest: dict[bytes, tuple[int, Choice | None]] = {}
    async for letter in letters:
        if letter.redrives < newest.get(letter.about, (0, None))[0]:
            continue
        choice = judged(letter, topic, max_redrives=max_redrives, force=force)
        newest[letter.about] = letter.redrives, choice if wanted.fits(letter) else None
    choices = [choice for _, choice in newest.values() if choice is not None]
    return _limited(await _without_known(choices, known), limit)


async def _without_known(choices: list[Choice], known: Known) -> list[Choice]:
    ids = [c.request_id for c in choices if c.obstacle is None and c.request_id is not None]
    accepted: set[UUID] = set()
    for start in range(0, len(ids), KNOWN_AT_A_TIME):
        accepted |= await known(ids[start : start + KNOWN_AT_A_TIME])
    return [
        replace(c, obstacle=f"accepted already, as request {c.request_id}")
        if c.obstacle is None and c.request_id in accepted
        else c
        for c in choices
    ]


def _limited(choices: Sequence[Choice], limit: int) -> list[Choice]:
    left, kept = limit, []
    for choice in choices:
        if choice.obstacle is None:
            left -= 1
        if left >= 0 or choice.obstacle is not None:
            kept.append(choice)
    return kept


async def redrive(
    letters: AsyncIterator[Letter],
    places: set[Place],
    *,
    topic: str,
    producer: Producer,
    rate: float,
    sent: Callable[[int], None],
) -> None:
    """Sends the letters at these places back, `rate` a second; tells how many went each time.

    Raises NotReachable; what was sent until then needs no second time, and bears it.
    """
    pace = Pace(rate)
    page: list[OutboxRow] = []

    async def send() -> None:
        await pace.wait(len(page))
        await _send(producer, page)
        sent(len(page))
        page.clear()

    async for letter in letters:
        if letter.place in places:
            page.append(sent_back(letter, topic))
        if len(page) >= pace.turn:
            await send()
    if page:
        await send()


async def _send(producer: Producer, rows: Sequence[OutboxRow]) -> None:
    errors = [e for e in await producer.send(rows, timeout_s=SEND_TIMEOUT_S) if e is not None]
    if errors:
        raise NotReachable(
            f"Kafka did not take {len(errors)} of {len(rows)} letters: "
            f"{str(errors[0]) or type(errors[0]).__name__}",
            server="kafka",
        )


def place_of(text: str) -> Place:
    """`partition:offset`. Raises ValueError."""
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise ValueError(f"{text!r} is no place such as 0:17")
    return int(partition), int(offset)
