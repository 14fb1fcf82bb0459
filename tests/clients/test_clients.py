"""What clients that others made send and read: the JVM's own, librdkafka, and one in Go.

`make test` tries librdkafka alone; `make clients` all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID, uuid5

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from consumer.events import ID_NAMESPACE, ScoreCompleted
from tests.clients.programs import CODECS, COMMANDS, Client, Message, Place, running
from tests.contract.schema_files import event_validator, header_validator
from tests.support.servers import KafkaServer
from tests.support.stage import Stage

PARTITIONS = 4
BATCH = 4  # requests that are sent together
# Far below the five minutes after which a Kafka client looks for partitions by itself.
NEW_PARTITIONS_TIMEOUT_S = 60

ALL = pytest.param(tuple(COMMANDS), marks=pytest.mark.clients, id="all")
# Whatever a request comes with besides what it says.
ODD_HEADERS = (
    (b"empty", b""),
    (b"null", None),
    (b"twice", b"1"),
    (b"twice", b"\xc3\xbc"),
    ("größe".encode(), b"1"),
    (b"", b"no name"),
)


@pytest_asyncio.fixture(params=[pytest.param(("librdkafka",), id="librdkafka"), ALL])
async def clients(
    request: pytest.FixtureRequest, idempotent_kafka: KafkaServer
) -> AsyncIterator[dict[str, Client]]:
    """The clients at work, by name."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(running(name, idempotent_kafka.bootstrap))
            for name in request.param
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it is sent, and what has to answer it."""

    message: Message
    request_id: UUID
    session_id: str
    traceparent: str


# ── requests in each form ───────────────────────────────────────────────────


def bare(session_id: str, traceparent: str) -> tuple[Message, UUID]:
    request_id = uuid5(ID_NAMESPACE, session_id)
    data = {"session_id": session_id, "request_id": str(request_id), **said_besides(session_id)}
    headers = ((b"traceparent", traceparent.encode()), *ODD_HEADERS)
    return Message(key=session_id.encode(), value=as_json(data), headers=headers), request_id


def binary(session_id: str, traceparent: str) -> tuple[Message, UUID]:
    headers = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": session_id,
        "ce_source": "/clients",
        "ce_type": "score.requested",
        "ce_time": "2026-01-05T09:30:00Z",
        "traceparent": traceparent,
    }
    named = tuple((name.encode(), value.encode()) for name, value in headers.items())
    data = {"session_id": session_id, **said_besides(session_id)}
    message = Message(key=None, value=as_json(data), headers=named + ODD_HEADERS)
    return message, named_event("/clients", session_id)


def structured(session_id: str, traceparent: str) -> tuple[Message, UUID]:
    event = {
        "specversion": "1.0",
        "id": session_id,
        "source": "/clients/structured",
        "type": "score.requested",
        "datacontenttype": "application/json",
        "traceparent": traceparent,
        "data": {"session_id": session_id, **said_besides(session_id)},
    }
    headers = ((b"content-type", b"application/cloudevents+json; charset=utf-8"), *ODD_HEADERS)
    message = Message(key=b"\xff\x00", value=as_json(event), headers=headers)
    return message, named_event("/clients/structured", session_id)


FORMS: dict[str, Callable[[str, str], tuple[Message, UUID]]] = {
    "bare": bare,
    "binary": binary,
    "structured": structured,
}


def said_besides(session_id: str) -> dict[str, str]:
    """So much that a batch is more than one block to any codec, and less when it is compressed."""
    drawn = Random(session_id)
    note = " ".join(str(drawn.randrange(1000)) for _ in range(10_000))
    return {"triggered_by": "clients", "note": note}


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def named_event(source: str, event_id: str) -> UUID:
    """The request id of a CloudEvent that brings none, as it is promised."""
    return uuid5(ID_NAMESPACE, f"event:{json.dumps([source, event_id])}")


def ask(session_id: str, form: str = "bare") -> Asked:
    trace = uuid5(ID_NAMESPACE, session_id).hex
    traceparent = f"00-{trace}-{trace[:16]}-01"
    message, request_id = FORMS[form](session_id, traceparent)
    return Asked(
        message=message, request_id=request_id, session_id=session_id, traceparent=traceparent
    )


def asks(stage: Stage, *session_ids: str, form: str = "bare") -> list[Asked]:
    """Requests for sessions that History has."""
    return [ask(stage.stand_ins.add(session_id, "simple"), form) for session_id in session_ids]


def messages(asked: Sequence[Asked]) -> list[Message]:
    return [one.message for one in asked]


async def answered(stage: Stage, asked: Sequence[Asked], timeout_s: float = 90) -> None:
    """Waits until there is an answer to each."""

    def all_are() -> bool:
        events = stage.events[stage.topics.completed] + stage.events[stage.topics.failed]
        return wanted <= {event.data["request_id"] for event in events}

    wanted = {str(one.request_id) for one in asked}
    await stage.until(all_are, timeout_s)


async def stored(stage: Stage) -> Counter[str]:
    """The sessions of all requests that were taken in."""
    rows = await stage.rows("SELECT session_id FROM score_requests")
    return Counter(row["session_id"] for row in rows)


# ── what is sent is scored, and what is answered can be read ────────────────


async def test_requests_of_every_codec_and_form_are_answered_once(
    clients: dict[str, Client], stage: Stage
) -> None:
    asked = []
    async with stage.consumer():
        for (n, codec), form in itertools.product(enumerate(CODECS), FORMS):
            for client in clients.values():
                names = [f"{client.name}-{codec}-{form}-{i}" for i in range(BATCH)]
                batch = asks(stage, *names, form=form)
                await client.produce(
                    stage.topics.requested, n % PARTITIONS, messages(batch), codec=codec
                )
                asked += batch
        await answered(stage, asked)
        reading = await read_alike(clients, stage.topics.completed, stage.topics.failed)
    check_answers(reading, asked)
    assert await stored(stage) == Counter(one.session_id for one in asked)
    if "franz-go" in clients:  # it alone tells
        batches = (await clients["franz-go"].read(stage.topics.requested)).batches
        each = len(FORMS) * len(clients)
        assert Counter(batches) == {(codec, BATCH): each for codec in CODECS}


def check_answers(reading: Mapping[Place, Message], asked: Sequence[Asked]) -> None:
    """Each request has its one answer, a score, by our contract."""
    answers = {}
    for message in reading.values():
        data = json.loads(message.value or b"")
        event_validator(ScoreCompleted).validate(data)
        assert data["request_id"] not in answers, "answered once"
        answers[data["request_id"]] = message, data
    assert len(answers) == len(asked)
    for one in asked:
        message, data = answers[str(one.request_id)]
        headers = {name.decode(): (value or b"").decode() for name, value in message.headers}
        header_validator("ScoreCompleted").validate(headers)
        assert message.key == one.session_id.encode()
        assert (data["session_id"], data["triggered_by"]) == (one.session_id, "clients")
        assert headers["traceparent"] == one.traceparent


async def read_alike(clients: dict[str, Client], *topics: str) -> Mapping[Place, Message]:
    """What these topics hold; all clients read the same."""
    first, *others = [(await client.read(*topics)).messages for client in clients.values()]
    assert all(other == first for other in others)
    return first


async def test_dead_letters_are_the_records_unchanged(
    clients: dict[str, Client], stage: Stage
) -> None:
    broken = b'{"session_id": "s-broken", ' + b"x" * 200
    bad = [
        Message(key=b"tombstone", value=None, headers=ODD_HEADERS),
        Message(key=b"\xff\x00", value=broken, headers=(*ODD_HEADERS, (b"bytes?", b"?"))),
        Message(key=None, value=broken),
    ]
    sent = [message for _ in clients for _ in CODECS for message in bad]
    async with stage.consumer():
        for (n, codec), client in itertools.product(enumerate(CODECS), clients.values()):
            await client.produce(stage.topics.requested, n % PARTITIONS, bad, codec=codec)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) >= len(sent))
        came = await read_alike(clients, stage.topics.requested)
        letters = (await read_alike(clients, stage.topics.dlq)).values()
    assert Counter(came.values()) == Counter(sent), "as they were sent"
    assert {place_of(letter): without_reasons(letter) for letter in letters} == came
    assert len(letters) == len(sent)
    for letter in letters:
        reason = "bad_json" if letter.value else "tombstone"
        header_validator("DeadLetter").validate(reasons(letter))
        assert reasons(letter)["dlq_error_code"] == reason
    assert await stored(stage) == {}


@pytest.mark.parametrize("clients", [ALL], indirect=True)
async def test_a_header_name_that_is_no_text_is_told_and_holds_up_nothing(
    clients: dict[str, Client], stage: Stage
) -> None:
    """The JVM's client sends text alone, and so does the binding of librdkafka."""
    odd = Message(key=b"odd", value=b"{}" + b" " * 200, headers=((b"\xff\xfeME", None),))
    asked = []
    async with stage.consumer():
        for n, codec in enumerate(CODECS):
            first, last = asks(stage, f"{codec}-first", f"{codec}-last")
            batch = [first.message, odd, odd, last.message]
            await clients["franz-go"].produce(
                stage.topics.requested, n % PARTITIONS, batch, codec=codec
            )
            asked += [first, last]
        await answered(stage, asked)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) >= 2 * len(CODECS))
        letters = await read_alike(clients, stage.topics.dlq)
    expected = replace(odd, headers=((rb"\xff\xfeME", None),))
    assert [without_reasons(letter) for letter in letters.values()] == [expected] * 2 * len(CODECS)
    assert {reasons(letter)["dlq_error_code"] for letter in letters.values()} == {"bad_header"}


def reasons(letter: Message) -> dict[str, str]:
    """What intake wrote about it."""
    headers = ((name.decode(), (value or b"").decode()) for name, value in letter.headers)
    return {name: value for name, value in headers if name.startswith("dlq_")}


def without_reasons(letter: Message) -> Message:
    kept = (header for header in letter.headers if not header[0].startswith(b"dlq_"))
    return Message(key=letter.key, value=letter.value, headers=tuple(kept))


def place_of(letter: Message) -> Place:
    about = reasons(letter)
    return (
        about["dlq_original_topic"],
        int(about["dlq_original_partition"]),
        int(about["dlq_original_offset"]),
    )


# ── transactions ────────────────────────────────────────────────────────────


async def test_of_transactions_what_was_committed_is_scored(
    clients: dict[str, Client], stage: Stage
) -> None:
    """Each client has a partition of its own: what is behind an open transaction waits."""
    topic, scored = stage.topics.requested, list[Asked]()

    async def sent(kind: str, *, ended: bool | None = None, plain: bool = False) -> list[Asked]:
        """Two requests by each client in a transaction, which ends so, stays open, or is none."""
        asked = []
        for partition, client in enumerate(clients.values()):
            batch = asks(stage, *(f"{client.name}-{kind}-{n}" for n in range(2)))
            asked += batch
            transaction = "" if plain else f"{topic}-{client.name}-{kind}"
            await client.produce(topic, partition, messages(batch), transaction=transaction)
            if ended is not None:
                await client.end(transaction, commit=ended)
        return asked

    async def end(kind: str, *, commit: bool) -> None:
        for client in clients.values():
            await client.end(f"{topic}-{client.name}-{kind}", commit=commit)

    async def are_scored(*asked: Asked) -> None:
        """These are, beside those before them, and nothing else."""
        scored.extend(asked)
        # What is sent last, elsewhere, comes with whatever was to be had by then.
        (last,) = asks(stage, f"elsewhere-{len(scored)}")
        await next(iter(clients.values())).produce(topic, PARTITIONS - 1, [last.message])
        scored.append(last)
        await answered(stage, scored)
        assert await stored(stage) == Counter(one.session_id for one in scored)

    async with stage.consumer():
        committed = await sent("committed", ended=True)
        await sent("aborted", ended=False)
        behind = await sent("behind-aborted", plain=True)
        opened = await sent("open")
        behind_open = await sent("behind-open", plain=True)
        await are_scored(*committed, *behind)
        await end("open", commit=True)
        await are_scored(*opened, *behind_open)
        await sent("given-up")
        behind_open = await sent("behind-given-up", plain=True)
        await are_scored()
        await end("given-up", commit=False)
        await are_scored(*behind_open)
        check_answers(await read_alike(clients, stage.topics.completed), scored)


# ── new partitions ──────────────────────────────────────────────────────────


async def test_new_partitions_are_read_within_seconds(
    clients: dict[str, Client], stage: Stage
) -> None:
    topic = stage.topics.requested
    async with stage.consumer():
        (first,) = asks(stage, "first")
        await stage.send(first.message.value)
        await answered(stage, [first])
        await raise_partitions(stage, PARTITIONS + len(clients))
        asked = asks(stage, *clients)
        for n, (client, one) in enumerate(zip(clients.values(), asked, strict=True)):
            await client.produce(topic, PARTITIONS + n, [one.message])
        await answered(stage, asked, NEW_PARTITIONS_TIMEOUT_S)


async def raise_partitions(stage: Stage, count: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=stage.kafka.bootstrap)
    try:
        await admin.start()
        await admin.create_partitions({stage.topics.requested: NewPartitions(count)})
    finally:
        await admin.close()
