"""Dead letters, as whoever is on duty meets them: looked at, sent back, never scored twice."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import httpx

from consumer.cloudevents import Record, read_request
from tests.acceptance.test_commands import UNREACHABLE, command
from tests.support.replica import Replica
from tests.support.stage import CliResult, Stage

FIRST_MS = 1_750_000_000_000


async def written(stage: Stage, value: bytes, *, offset: int = 7, **changes: str) -> None:
    """A dead letter of a former version, about a record that has no id of its own."""
    about = {
        "dlq_original_topic": stage.topics.requested,
        "dlq_original_partition": "0",
        "dlq_original_offset": str(offset),
        "dlq_original_timestamp": str(FIRST_MS),
        "dlq_error_code": "schema_invalid",
        "dlq_error_message": "profile: \x1b[31munknown",
        "dlq_redrive_count": "0",
    } | changes
    headers = [(name, text.encode()) for name, text in about.items()]
    async with stage.producer() as producer:
        await producer.send_and_wait(stage.topics.dlq, value, key=b"s-one", headers=headers)


async def dlq(stage: Stage, *arguments: str, **changes: Any) -> Any:
    result = await stage.cli("dlq", *arguments, "--json", **changes)
    assert result.code == 0, result.err
    return result.json


def left(result: Any) -> list[str]:
    return [choice["obstacle"] for choice in result["left"]]


def printable(result: CliResult) -> str:
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    return result.out


async def test_a_letter_sent_back_again_and_again_is_scored_once(stage: Stage) -> None:
    stage.stand_ins.add("s-one", "simple")
    value = b'{"session_id": "s-one"}'
    first = Record(
        topic=stage.topics.requested,
        partition=0,
        offset=7,
        timestamp_ms=FIRST_MS,
        key=None,
        value=value,
        headers=(),
    )
    request_id = read_request(first).request_id
    await written(stage, value)

    tried = await dlq(stage, "redrive", "--dry-run")
    assert [choice["request_id"] for choice in tried["sent"]] == [str(request_id)]
    assert tried["dry_run"] is True
    async with stage.consumer() as consumer:
        assert await stage.rows("SELECT FROM score_requests") == [], "a dry run sends nothing"
        assert len((await dlq(stage, "redrive"))["sent"]) == 1
        event = await stage.answer(request_id)
        assert event.topic == stage.topics.completed
        again = await dlq(stage, "redrive")
        assert again["sent"] == []
        assert left(again) == [f"accepted already, as request {request_id}"]
        # Where nobody can tell, it goes, and intake knows it.
        blind = await stage.cli("dlq", "redrive", database_url=UNREACHABLE)
        assert "1 sent back, 0 left" in blind.out, blind.err
        await counted(consumer, 'scoring_requests_received_total{result="duplicate"}', 1)
        await counted(consumer, "scoring_dlq_redriven_total", 2)
    (row,) = await stage.rows(
        "SELECT requested_at FROM score_requests WHERE request_id = $1", request_id
    )
    assert row["requested_at"] == datetime.fromtimestamp(FIRST_MS / 1000, UTC)
    assert len(stage.answers(request_id)) == 1
    assert stage.events[stage.topics.dlq][1:] == []


async def test_what_is_still_invalid_comes_back_with_a_count_and_only_by_force(
    stage: Stage,
) -> None:
    await stage.send(b"not json", partition=0)
    async with stage.consumer():
        await came_back(stage, 0)
        unforced = await dlq(stage, "redrive")
        assert unforced["sent"] == []
        assert "still bad_json" in left(unforced)[0]
        for count in range(2):
            await came_back(stage, count)
            forced = await dlq(stage, "redrive", "--force")
            assert len(forced["sent"]) == 1, "the former letters are past"
        await came_back(stage, 2)
    unforced = await dlq(stage, "redrive", "--reason", "bad_json", "--max-redrives", "2")
    assert left(unforced) == ["it was sent back 2 times: --force does it once more"]
    listed = await dlq(stage, "list")
    assert [row["redrives"] for row in listed] == [0, 1, 2]
    assert {row["origin"] for row in listed} == {f"{stage.topics.requested}:0:0"}


async def counted(consumer: Replica, sample: str, value: float) -> None:
    """Waits until this process has counted so many."""
    async with httpx.AsyncClient(base_url=consumer.url) as http, asyncio.timeout(20):
        while f"{sample} {value:.1f}" not in (await http.get("/metrics")).text:
            await asyncio.sleep(0.1)


async def came_back(stage: Stage, redrives: int) -> None:
    """Waits for the letter that was sent back so often."""
    await stage.until(lambda: len(stage.events[stage.topics.dlq]) == redrives + 1)
    letter = stage.events[stage.topics.dlq][-1]
    assert letter.headers["dlq_redrive_count"] == str(redrives)
    assert letter.raw.value == b"not json"


async def test_letters_are_listed_and_shown_and_steer_no_terminal(stage: Stage) -> None:
    await written(stage, json.dumps({"session_id": "s-one\x1b[2J", "é": 1}).encode())
    await written(stage, b"\xff\xfe", offset=8, dlq_error_code="bad_json", theirs="\x1b]0;x\x07")
    await stage.until(lambda: len(stage.events[stage.topics.dlq]) == 2)
    one, two = (e.raw for e in stage.events[stage.topics.dlq])

    (bad,) = await dlq(stage, "list", "--reason", "bad_json", "--since", "30d")
    assert bad["place"] == f"{two.partition}:{two.offset}"
    assert len(await dlq(stage, "list", "--limit", "1")) == 1
    assert "schema_invalid" in printable(await stage.cli("dlq", "list"))

    shown = printable(await stage.cli("dlq", "show", f"{one.partition}:{one.offset}"))
    assert '"é": 1' in shown
    assert "dlq_error_message" not in shown
    assert "unknown" in shown
    details = await dlq(stage, "show", bad["place"])
    assert details["value"] == {"base64": "//4="}
    assert ["theirs", "\x1b]0;x\x07"] in details["headers"]
    assert "base64 //4=" in printable(await stage.cli("dlq", "show", bad["place"]))
    assert "still bad_json" in printable(await stage.cli("dlq", "redrive", "--dry-run"))

    missing = await stage.cli("dlq", "show", "3:999")
    assert missing.code == 1
    assert "there is no dead letter at 3:999" in missing.err


async def test_a_rate_is_kept(stage: Stage) -> None:
    for n in range(20):
        await written(stage, b'{"session_id": "s-one"}', offset=n)
    loop = asyncio.get_running_loop()
    started = loop.time()
    sent = await dlq(stage, "redrive", "--rate", "20", "--limit", "15", database_url=UNREACHABLE)
    assert len(sent["sent"]) == 15
    # Two at a time: the last of them 0.7 s after the first. A hundred milliseconds would be enough.
    assert loop.time() - started > 0.7


def test_what_can_not_be_used_is_told() -> None:
    for arguments, told in (
        (("list", "--since", "soon"), "--since: 'soon' is no time"),
        (("redrive", "0:1", "x"), "PLACES: 'x' is no place"),
    ):
        done = command("dlq", *arguments)
        assert done.returncode == 1
        assert told in done.stderr
        assert "Traceback" not in done.stderr
