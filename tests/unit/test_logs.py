"""Log lines: one JSON object each, with the ids that are bound to the task."""

import asyncio
import json
import logging
import os
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog

from consumer import metrics
from consumer.logs import ONLY_ERRORS, QUIET, Bounded, NeverBlocking, catch_up, set_up

Capture = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("logging_as_before")


def lines(capsys: Capture) -> list[dict[str, Any]]:
    """What was logged, one object a line."""
    return [json.loads(line) for line in capsys.readouterr().err.split("\n")[:-1]]


def test_our_lines_are_json_with_time_level_and_logger(capsys: Capture) -> None:
    set_up("INFO", "json")
    structlog.get_logger("consumer.test").warning("failed", error_code="x", attempts=2)
    (line,) = lines(capsys)
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == timedelta(0)
    assert line == {
        "event": "failed",
        "error_code": "x",
        "attempts": 2,
        "level": "warning",
        "logger": "consumer.test",
    }


def test_libraries_lines_look_the_same(capsys: Capture) -> None:
    set_up("INFO", "json")
    logging.getLogger("somelib").error("lost %s of %d", "one", 3)
    (line,) = lines(capsys)
    assert line.pop("timestamp")
    assert line == {"event": "lost one of 3", "level": "error", "logger": "somelib"}


async def test_ids_are_bound_to_their_task(capsys: Capture) -> None:
    set_up("INFO", "json")
    log = structlog.get_logger("consumer.test")

    async def work(request_id: str) -> None:
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await asyncio.sleep(0)
            log.info("ours")
            logging.getLogger("somelib").warning("theirs")
        log.info("after")

    await asyncio.gather(work("r-1"), work("r-2"))
    found = [(line["event"], line.get("request_id")) for line in lines(capsys)]
    assert sorted(found, key=str) == sorted(
        [(e, r) for r in ("r-1", "r-2") for e in ("ours", "theirs")] + [("after", None)] * 2,
        key=str,
    )


def test_whatever_is_logged_stays_on_its_line(capsys: Capture) -> None:
    set_up("INFO", "json")
    text = 'a\nb\r\n{"level": "fake"}\u2028\x00\ud800'
    structlog.get_logger("consumer.test").info("event\nevent", text=text)
    (line,) = lines(capsys)
    assert (line["event"], line["text"]) == ("event\nevent", text)


def test_an_exception_comes_with_its_trace_on_one_line(capsys: Capture) -> None:
    set_up("INFO", "json")
    try:
        raise ValueError("what happened")
    except ValueError:
        structlog.get_logger("consumer.test").exception("internal_error")
        logging.getLogger("somelib").exception("library_error")
    ours, theirs = lines(capsys)
    for line in (ours, theirs):
        assert line["level"] == "error"
        assert line["exception"].startswith("Traceback")
        assert line["exception"].endswith("ValueError: what happened")


def test_lines_below_the_level_are_left_out(capsys: Capture) -> None:
    set_up("WARNING", "json")
    structlog.get_logger("consumer.test").info("quiet")
    logging.getLogger("somelib").info("quiet")
    structlog.get_logger("consumer.test").warning("heard")
    assert [line["event"] for line in lines(capsys)] == ["heard"]


@pytest.mark.parametrize("name", QUIET)
def test_chatty_libraries_are_heard_from_warnings_on(capsys: Capture, name: str) -> None:
    set_up("DEBUG", "json")
    logging.getLogger(name).info("chatter")
    logging.getLogger(name).warning("trouble")
    assert [line["event"] for line in lines(capsys)] == ["trouble"]


@pytest.mark.parametrize("name", ONLY_ERRORS)
def test_libraries_whose_warnings_we_tell_ourselves_are_heard_from_errors_on(
    capsys: Capture, name: str
) -> None:
    set_up("DEBUG", "json")
    logging.getLogger(name).warning("chatter")
    logging.getLogger(name).error("trouble")
    assert [line["event"] for line in lines(capsys)] == ["trouble"]


def test_setting_up_twice_writes_once(capsys: Capture) -> None:
    set_up("INFO", "json")
    set_up("INFO", "json")
    logging.getLogger("somelib").warning("once")
    assert len(lines(capsys)) == 1


def test_the_console_format_is_for_people(capsys: Capture) -> None:
    set_up("INFO", "console")
    structlog.get_logger("consumer.test").info("started", roles=["api"])
    try:
        raise ValueError("what happened")
    except ValueError:
        structlog.get_logger("consumer.test").exception("internal_error")
    told = capsys.readouterr().err
    assert "started" in told
    assert "api" in told
    assert "what happened" in told
    with pytest.raises(json.JSONDecodeError):
        json.loads(told.splitlines()[0])


def test_what_a_library_repeats_is_told_seldom() -> None:
    now = 0.0
    bounded = Bounded(clock=lambda: now)

    def told(name: str, line: int, text: str) -> str | None:
        record = logging.LogRecord(name, logging.ERROR, "client.py", line, "%s", (text,), None)
        return record.getMessage() if bounded.filter(record) else None

    assert told("aiokafka.client", 1, "node 1 is away") == "node 1 is away"
    assert told("aiokafka.client", 2, "of another kind") == "of another kind"
    assert [told("aiokafka.client", 1, "node 2 is away") for _ in range(3)] == [None] * 3
    assert [told("consumer.intake", 1, "ours") for _ in range(2)] == ["ours"] * 2
    now = 10.0
    assert told("aiokafka.client", 1, "away") == "away (3 more such lines)"
    now = 20.0
    assert told("aiokafka.client", 1, "away") == "away"


def dropped() -> float:
    value: float = metrics.LOG_LINES_DROPPED._value.get()
    return value


def test_a_reader_that_stands_still_holds_up_nobody() -> None:
    """Lines wait, then they are dropped; once it reads again it is told how many those were."""
    reader, writer = os.pipe()
    log, before = logging.getLogger("consumer.test"), dropped()
    try:
        set_up("INFO", "json", handler=NeverBlocking(writer, most=100_000))
        for n in range(5_000):
            log.warning("line %d %s", n, "x" * 10_000 * (n == 0))
        lost = dropped() - before
        assert 0 < lost < 5_000

        os.set_blocking(reader, False)
        read = b""
        while piece := _piece(reader):
            read += piece
            catch_up()
        *told, last = [json.loads(line)["event"] for line in read.splitlines()]
        assert [text.split()[1] for text in told] == [str(n) for n in range(len(told))]
        assert len(told) + lost == 5_000
        assert last == f"{lost:.0f} log line(s) dropped: nobody read them"

        log.warning("well again")
        assert json.loads(_piece(reader))["event"] == "well again"
    finally:
        logging.getLogger().handlers.clear()
        os.close(reader)
        os.close(writer)


def _piece(reader: int) -> bytes:
    try:
        return os.read(reader, 65_536)
    except BlockingIOError:
        return b""


def test_a_reader_that_has_gone_holds_up_nobody() -> None:
    reader, writer = os.pipe()
    before = dropped()
    try:
        set_up("INFO", "json", handler=NeverBlocking(writer))
        os.close(reader)
        for _ in range(10):
            logging.getLogger("consumer.test").warning("said to nobody")
        assert dropped() - before == 10
    finally:
        logging.getLogger().handlers.clear()
        os.close(writer)


def test_of_asyncio_s_errors_each_kind_is_told_now_and_then() -> None:
    bounded = Bounded(clock=lambda: 0.0)

    def told(text: str) -> bool:
        made = logging.LogRecord("asyncio", logging.ERROR, "base_events.py", 1, text, (), None)
        return bounded.filter(made)

    full = "socket.accept() out of system resource\nsocket: <{}>"
    assert [told(full.format(n)) for n in range(3)] == [True, False, False]
    assert told("Task exception was never retrieved\nfuture: <1>")
