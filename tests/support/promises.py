"""The promises of delivery.md, checked from outside: from topics, tables and the judge's count.

`kept` waits until a stage is quiet, and fails with every promise that was broken. It reads each
topic from its beginning, as a plain consumer does, and knows nothing of the consumer's inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from consumer.edges.postgres.connect import UNREACHABLE
from tests.support.stage import Stage
from tests.support.topics import Topics

Raw: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
Row: TypeAlias = Any  # of a table, by the names of its columns
Place = tuple[int, int]
# Where a record was at first, and how often it was sent back since.
Origin = tuple[int, int, int]
T = TypeVar("T")

QUIET_TIMEOUT_S = 90.0
READ_TIMEOUT_S = 60.0
PARTITIONS = 4
UNFINISHED = ("pending", "in_progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An event as its readers get it; `times` is how often it was sent, each time the same."""

    ce_id: str
    topic: str
    request_id: UUID
    data: Mapping[str, Any]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a run left behind."""

    topics: Topics
    asked: Mapping[Place, Raw]
    committed: Mapping[int, int]
    events: list[Sent]
    letters: Mapping[Origin, list[Raw]]
    requests: Mapping[UUID, Row]
    scores: list[Row]
    outbox: list[Row]
    judge_calls: Counter[str]
    unreadable: list[str] = field(default_factory=list)

    @property
    def answers(self) -> dict[UUID, list[Sent]]:
        """Distinct score.completed and score.failed events, by request."""
        found: dict[UUID, list[Sent]] = defaultdict(list)
        for event in self.events:
            if event.topic in (self.topics.completed, self.topics.failed):
                found[event.request_id].append(event)
        return found

    @property
    def repeats(self) -> int:
        """How many events were sent again, under the `ce_id` that they had before."""
        return sum(event.times - 1 for event in self.events)


async def kept(
    stage: Stage,
    *,
    crashes: int = 0,
    tries: Mapping[str, int] | None = None,
    timeout_s: float = QUIET_TIMEOUT_S,
) -> Seen:
    """Waits until everything asked for is answered and sent; then every promise must hold.

    For each session the judge may have been asked once for each score, once more for each of
    `crashes`, and as often again as `tries` says, where the judge itself was at fault.
    """
    await quiet(stage, timeout_s=timeout_s)
    seen = await look(stage)
    if broken := problems(seen, crashes=crashes, tries=tries or {}):
        shown = "\n".join(f"- {problem}" for problem in broken[:30])
        raise AssertionError(f"{len(broken)} broken promise(s):\n{shown}")
    return seen


async def quiet(stage: Stage, *, timeout_s: float = QUIET_TIMEOUT_S) -> None:
    """Waits until every record asked is durable, every request ended, and the outbox empty."""
    deadline = monotonic() + timeout_s
    asked = await _patiently(
        lambda: _read(stage.kafka.bootstrap, [stage.topics.requested]), timeout_s
    )
    left = "the database does not answer"
    while monotonic() < deadline:
        with contextlib.suppress(*UNREACHABLE):
            left = await _unfinished(stage, asked)
            if not left:
                return
        await asyncio.sleep(0.2)
    raise AssertionError(f"not quiet after {timeout_s:.0f} s: {left}\n{stage.last_words()}")


async def _unfinished(stage: Stage, asked: list[Raw]) -> str:
    async with _database(stage) as connection:
        rows = await connection.fetch("SELECT request_id, state FROM score_requests")
        outbox = await connection.fetchval("SELECT count(*) FROM outbox")
    known = {row["request_id"] for row in rows}
    missing = {
        request_id for raw in asked if (request_id := asked_id(raw)) and request_id not in known
    }
    waiting = Counter(row["state"] for row in rows if row["state"] in UNFINISHED)
    if not (missing or waiting or outbox):
        return ""
    return f"{len(missing)} not stored, {dict(waiting)}, {outbox} events not sent"


async def _patiently(action: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """What `action` answers, once its server is there."""
    deadline = monotonic() + timeout_s
    while True:
        try:
            return await action()
        except Exception:  # whatever a client says of a server that is just starting
            if monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


async def look(stage: Stage) -> Seen:
    """Everything there is to see now."""
    topics = stage.topics
    asked = await _read(stage.kafka.bootstrap, [topics.requested])
    sent = await _read(
        stage.kafka.bootstrap, [topics.completed, topics.failed, topics.quality_risk]
    )
    letters: dict[Origin, list[Raw]] = defaultdict(list)
    for raw in await _read(stage.kafka.bootstrap, [topics.dlq]):
        letters[_origin(raw)].append(raw)
    async with _database(stage) as connection:
        requests = await connection.fetch("SELECT * FROM score_requests")
        scores = await connection.fetch("SELECT * FROM session_scores")
        outbox = await connection.fetch("SELECT * FROM outbox")
    unreadable: list[str] = []
    return Seen(
        topics=topics,
        asked={(raw.partition, raw.offset): raw for raw in asked},
        committed=await committed(stage),
        events=list(_events(sent, unreadable)),
        letters=letters,
        requests={row["request_id"]: row for row in requests},
        scores=scores,
        outbox=outbox,
        judge_calls=Counter(stage.stand_ins.judge_calls),
        unreadable=unreadable,
    )


def asked_id(raw: Raw) -> UUID | None:
    """The request id in a record of score.requested; None where it has none that can be read."""
    try:
        for _, value in raw.headers:
            (value or b"").decode()
        return UUID(json.loads(raw.value or b"")["request_id"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _origin(raw: Raw) -> Origin:
    """Of a record of score.requested or of its dead letters; `dlq redrive` keeps it."""
    headers = {name: value or b"" for name, value in raw.headers}
    return (
        int(headers.get("dlq_original_partition", raw.partition)),
        int(headers.get("dlq_original_offset", raw.offset)),
        int(headers.get("dlq_redrive_count", 0)),
    )


def _events(sent: Iterable[Raw], unreadable: list[str]) -> Iterator[Sent]:
    """Each distinct event once. What is sent under one `ce_id` has to be the same each time."""
    by_id: dict[str, list[Raw]] = defaultdict(list)
    for raw in sent:
        by_id[dict(raw.headers).get("ce_id", b"").decode()].append(raw)
    for ce_id, same in by_id.items():
        first = same[0]
        if not ce_id or len({(raw.topic, raw.key, raw.value) for raw in same}) > 1:
            unreadable.append(f"ce_id {ce_id!r} stands for different events")
        data = json.loads(first.value or b"{}")
        yield Sent(
            ce_id=ce_id,
            topic=first.topic,
            request_id=UUID(data["request_id"]),
            data=data,
            times=len(same),
        )


# ── reading ─────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def _database(stage: Stage) -> Any:
    connection = await asyncpg.connect(stage.database_url, timeout=5)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


async def _read(bootstrap: str, topics: Iterable[str]) -> list[Raw]:
    """All records of these topics, from the beginning to where they end now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=32 * 1024 * 1024,
    )
    async with asyncio.timeout(READ_TIMEOUT_S), _started(consumer):
        places = _partitions(topics)
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        await consumer.seek_to_beginning(*places)
        found: list[Raw] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            batch = await consumer.getmany(timeout_ms=500)
            found += [raw for records in batch.values() for raw in records]
        return [raw for raw in found if raw.offset < ends[TopicPartition(raw.topic, raw.partition)]]


async def committed(stage: Stage) -> dict[int, int]:
    """What the consumer group has acknowledged: the next offset, by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=stage.kafka.bootstrap, group_id=stage.group_id, enable_auto_commit=False
    )
    async with asyncio.timeout(READ_TIMEOUT_S), _started(consumer):
        places = _partitions([stage.topics.requested])
        consumer.assign(places)
        return {place.partition: await consumer.committed(place) or 0 for place in places}


def _partitions(topics: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in topics for n in range(PARTITIONS)]


@contextlib.asynccontextmanager
async def _started(consumer: AIOKafkaConsumer) -> Any:
    try:
        await consumer.start()
        yield
    finally:
        await consumer.stop()


# ── judging ─────────────────────────────────────────────────────────────────


def problems(seen: Seen, *, crashes: int, tries: Mapping[str, int]) -> list[str]:
    """Every promise that does not hold, in words."""
    return [
        *seen.unreadable,
        *_each_request_has_one_answer(seen),
        *_scores_belong_to_their_requests(seen),
        *_events_and_rows_agree(seen),
        *_nothing_is_acknowledged_before_it_is_stored(seen),
        *_dead_letters_are_exact(seen),
        *_the_judge_is_asked_no_more_than_needed(seen, crashes, tries),
    ]


def _each_request_has_one_answer(seen: Seen) -> Iterator[str]:
    answers = seen.answers
    for request_id, row in seen.requests.items():
        found = answers.get(request_id, [])
        if row["state"] in UNFINISHED:
            yield f"{request_id} is still {row['state']}"
        elif len(found) != 1:
            yield f"{request_id} ({row['state']}) has {len(found)} answers: {_kinds(found)}"
    for request_id in answers.keys() - seen.requests.keys():
        yield f"{request_id} has an answer and no row"
    for raw in seen.asked.values():
        if not _durable(seen, raw):
            yield f"{raw.partition}:{raw.offset} is neither a request nor a dead letter"
    if seen.outbox:
        yield f"{len(seen.outbox)} events are still in the outbox"


def _durable(seen: Seen, raw: Raw) -> bool:
    return asked_id(raw) in seen.requests or _origin(raw) in seen.letters


def _kinds(events: list[Sent]) -> list[str]:
    return [f"{event.topic} {event.ce_id}" for event in events]


def _scores_belong_to_their_requests(seen: Seen) -> Iterator[str]:
    for request_id, times in Counter(score["request_id"] for score in seen.scores).items():
        if times > 1:
            yield f"{request_id} has {times} scores"
    for score in seen.scores:
        row = seen.requests.get(score["request_id"])
        if row is None or row["score_id"] != score["score_id"]:
            yield f"score {score['score_id']} belongs to no completed request"
    current = Counter(
        (s["session_id"], s["judge_profile_id"]) for s in seen.scores if s["is_current"]
    )
    for place, times in current.items():
        if times > 1:
            yield f"{place} has {times} current scores"


def _events_and_rows_agree(seen: Seen) -> Iterator[str]:
    scores = {str(score["score_id"]): score for score in seen.scores}
    risks = Counter(e.data["score_id"] for e in seen.events if e.topic == seen.topics.quality_risk)
    for event in seen.events:
        row = seen.requests.get(event.request_id)
        if event.topic == seen.topics.failed:
            if row is None or row["error_code"] != event.data["error_code"]:
                yield f"score.failed {event.ce_id} has no row that says the same"
            continue
        score = scores.get(event.data["score_id"])
        if row is None or score is None or row["score_id"] != score["score_id"]:
            yield f"{event.topic} {event.ce_id} has no row with its score"
        elif score["total_score"] != event.data["total_score"]:
            yield f"{event.topic} {event.ce_id} tells another total than its row"
    for score_id, score in scores.items():
        if risks[score_id] != bool(score["quality_risk"]):
            yield f"score {score_id} has {risks[score_id]} quality_risk events"


def _nothing_is_acknowledged_before_it_is_stored(seen: Seen) -> Iterator[str]:
    for (partition, offset), raw in seen.asked.items():
        if offset < seen.committed[partition] and not _durable(seen, raw):
            yield f"{partition}:{offset} is acknowledged, and stored nowhere"
    for request_id, row in seen.requests.items():
        place = (row["source_partition"], row["source_offset"])
        if row["source_topic"] == seen.topics.requested and (
            place not in seen.asked or asked_id(seen.asked[place]) not in (request_id, None)
        ):
            yield f"{request_id} says it came from {place}, where it is not"


def _dead_letters_are_exact(seen: Seen) -> Iterator[str]:
    sent_back = {_origin(raw)[:2] for raw in seen.asked.values() if _origin(raw)[2]}
    for (partition, offset, redrives), letters in seen.letters.items():
        place = partition, offset
        original = seen.asked.get(place)
        if original is None or any(not _same(letter, original) for letter in letters):
            yield f"the dead letter of {place} is not the record that is there"
        elif asked_id(original) in seen.requests and place not in sent_back:
            yield f"the record at {place} is accepted, and a dead letter too ({redrives})"


def _same(letter: Raw, original: Raw) -> bool:
    """What is too large for the topic is cut; its hash then stands for it."""
    if hash_ := dict(letter.headers).get("dlq_original_sha256"):
        return bool(hash_.decode() == hashlib.sha256(original.value or b"").hexdigest())
    return bool((letter.key, letter.value) == (original.key, original.value))


def _the_judge_is_asked_no_more_than_needed(
    seen: Seen, crashes: int, tries: Mapping[str, int]
) -> Iterator[str]:
    needed: Counter[str] = Counter()
    for score in seen.scores:
        needed[score["session_id"]] += score["judge_samples"]
    for session_id, calls in seen.judge_calls.items():
        allowed = needed[session_id] + crashes + tries.get(session_id, 0)
        if calls > allowed:
            yield f"the judge was asked {calls} times about {session_id}; {allowed} are allowed"
