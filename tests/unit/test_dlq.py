"""Which dead letters are sent back, and as what."""

import json
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consumer.cli.base import moment
from consumer.cloudevents import Record, read_request
from consumer.dlq import Choice, Letter, Wanted, judged, place_of, plan, sent_back
from consumer.outgoing import sent_header

TOPIC = "score.requested"
GOOD = b'{"session_id": "s1"}'
AT_MS = 1_750_000_000_000


def letter(offset: int = 0, *, value: bytes | None = GOOD, **changes: Any) -> Letter:
    """A letter about the record at score.requested:2:7."""
    about = {
        "dlq_original_topic": TOPIC,
        "dlq_original_partition": "2",
        "dlq_original_offset": "7",
        "dlq_original_timestamp": str(AT_MS),
        "dlq_error_code": "schema_invalid",
        "dlq_redrive_count": "0",
    } | {f"dlq_{name}": str(given) for name, given in changes.items()}
    headers: list[tuple[str, bytes | None]] = [("mine", b"\xff"[:0]), ("null", None)]
    headers += [(name, text.encode()) for name, text in about.items()]
    record = Record(
        topic="dlq",
        partition=0,
        offset=offset,
        timestamp_ms=AT_MS + 5000,
        key=b"key",
        value=value,
        headers=headers,
    )
    return Letter(record=record)


def again(one: Letter) -> Record:
    """The letter's record as intake reads it after a redrive."""
    row = sent_back(one, TOPIC)
    headers = [sent_header(stored) for stored in row.headers]
    return Record(
        topic=TOPIC,
        partition=3,
        offset=99,
        timestamp_ms=AT_MS + 9000,
        key=row.key,
        value=row.payload,
        headers=headers,
    )


async def planned(
    *letters: Letter,
    known: Iterable[UUID] = (),
    wanted: Wanted = Wanted(),  # noqa: B008
    **options: Any,
) -> list[Choice]:
    async def lying() -> AsyncIterator[Letter]:
        for one in letters:
            yield one

    async def accepted(ids: Iterable[UUID]) -> set[UUID]:
        return set(ids) & set(known)

    options = {"limit": 100, "max_redrives": 3, "force": False} | options
    return await plan(lying(), wanted, TOPIC, known=accepted, **options)


def obstacle(one: Letter, *, force: bool = False) -> str | None:
    return judged(one, TOPIC, max_redrives=3, force=force).obstacle


# --- what is sent --------------------------------------------------------------------------------


def test_a_record_sent_back_asks_for_the_same_request_with_the_same_time() -> None:
    first = Record(
        topic=TOPIC, partition=2, offset=7, timestamp_ms=AT_MS, key=None, value=GOOD, headers=()
    )
    once = again(letter())
    assert (once.key, once.value) == (b"key", GOOD)
    assert once.headers[:2] == [("mine", b""), ("null", None)]
    found = read_request(once)
    assert found.request_id == read_request(first).request_id
    assert found.requested_at == first.time
    twice = again(letter(redrive_count=1))
    assert read_request(twice).request_id == found.request_id


@pytest.mark.parametrize("count", ["0", "3", "", "-1", "a lot", "9" * 30])
def test_redrives_are_counted_whatever_the_letter_says(count: str) -> None:
    counted = int(count) if count in {"0", "3"} else 0
    one = letter(redrive_count=count)
    assert one.redrives == counted
    assert dict(again(one).headers)["dlq_redrive_count"] == str(counted + 1).encode()


def test_what_intake_said_of_it_is_not_sent() -> None:
    names = {name for name, _ in again(letter()).headers}
    assert "dlq_error_code" not in names
    assert "dlq_original_offset" in names


@pytest.mark.parametrize(
    "wrong",
    [
        {"original_offset": "-7"},
        {"original_partition": "x"},
        {"original_timestamp": "9" * 40},
        {"original_timestamp": "1e9"},
    ],
)
def test_a_letter_that_lies_about_its_place_stands_for_itself(wrong: dict[str, Any]) -> None:
    assert letter(offset=4, **wrong).origin == "dlq:0:4"


def test_a_record_without_a_timestamp_keeps_none() -> None:
    assert letter(original_timestamp="").first.timestamp_ms is None


# --- which are sent ------------------------------------------------------------------------------


def test_what_would_be_accepted_now_goes() -> None:
    assert obstacle(letter()) is None


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (letter(value=b"{"), "still bad_json"),
        (letter(value=None), "still tombstone"),
        (letter(redrive_count=3), "sent back 3 times"),
    ],
)
def test_what_would_come_back_goes_by_force_only(one: Letter, why: str) -> None:
    assert why in (obstacle(one) or "")
    assert obstacle(one, force=True) is None


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (letter(original_sha256="ab"), "was cut"),
        (letter(original_topic="other"), "it came from other"),
    ],
)
def test_what_is_no_request_of_ours_or_not_whole_never_goes(one: Letter, why: str) -> None:
    assert why in (obstacle(one, force=True) or "")


async def test_of_letters_about_one_record_the_newest_counts() -> None:
    letters = [letter(n, redrive_count=count) for n, count in enumerate((0, 1, 2, 1))]
    (choice,) = await planned(*letters)
    assert (choice.place, choice.redrives) == ((0, 2), 2)
    # Even where another is asked for: its successor is known to have come back.
    assert await planned(*letters, wanted=Wanted(places=frozenset({(0, 0)}))) == []
    # Who claims another's place hides nothing of it.
    forged = letter(1, value=b'{"session_id": "mine"}', redrive_count=9)
    assert [c.place for c in await planned(letter(0), forged)] == [(0, 0), (0, 1)]
    # The same place in a topic that was made anew is another record.
    assert len(await planned(letter(0), letter(1, original_timestamp=5))) == 2


async def test_what_is_accepted_already_is_left() -> None:
    request_id = read_request(letter().record).request_id
    other = letter(1, original_offset=8)
    choices = await planned(letter(), other, known=[request_id], force=True)
    assert [c.obstacle for c in choices] == [f"accepted already, as request {request_id}", None]


async def test_a_limit_counts_only_what_goes() -> None:
    bad = [letter(n, value=b"{", original_offset=n) for n in range(3)]
    good = [letter(10 + n, original_offset=10 + n) for n in range(3)]
    choices = await planned(*bad, *good, limit=2)
    assert [c.place[1] for c in choices if c.obstacle is None] == [10, 11]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(reason="bad_json"), [1]),
        (Wanted(session_id="s2"), [2]),
        (Wanted(session_id="key"), [1]),
        (Wanted(places=frozenset({(0, 0), (0, 1)}), reason="schema_invalid"), [0]),
        (Wanted(), [0, 1, 2]),
    ],
)
async def test_letters_are_chosen(wanted: Wanted, expected: list[int]) -> None:
    structured = json.dumps({"data": {"session_id": "s2"}}).encode()
    letters = [
        letter(0),
        letter(1, value=b"[1]", error_code="bad_json", original_offset=1),
        letter(2, value=structured, original_offset=2),
    ]
    choices = await planned(*letters, wanted=wanted)
    assert [choice.place[1] for choice in choices] == expected


# --- what people write ---------------------------------------------------------------------------


def test_moments() -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert moment("90m", now) == datetime(2026, 3, 10, 10, 30, tzinfo=UTC)
    assert moment("12h", now) == datetime(2026, 3, 10, 0, tzinfo=UTC)
    assert moment("7d", now) == datetime(2026, 3, 3, 12, tzinfo=UTC)
    assert moment("2026-03-01", now) == datetime(2026, 3, 1, tzinfo=UTC)
    assert moment("2026-03-01T05:00+02:00", now) == datetime(2026, 3, 1, 3, tzinfo=UTC)
    for wrong in ("", "h", "-1h", "soon", "1.5h"):
        with pytest.raises(ValueError, match="no time such as"):
            moment(wrong, now)


def test_places() -> None:
    assert place_of("3:17") == (3, 17)
    for wrong in ("3", "3:", ":3", "a:1", "1:-1", "1:2:3"):
        with pytest.raises(ValueError, match="no place such as"):
            place_of(wrong)
