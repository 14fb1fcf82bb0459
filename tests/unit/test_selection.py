"""What is asked for, where a page ends, and what exports are safe from."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.analytics.scorecards import Scorecard, csv_header, csv_lines, json_lines, page
from consumer.analytics.selection import Band, CardFilter, Cursor, days
from consumer.error_codes import State
from consumer.scoring.aggregate import BANDS

TODAY = date(2026, 3, 31)


def test_thirty_days_until_today_unless_told_otherwise() -> None:
    assert days(None, None, today=TODAY) == (date(2026, 3, 2), TODAY)
    assert days(date(2026, 1, 1), None, today=TODAY) == (date(2026, 1, 1), TODAY)
    assert days(None, date(2026, 1, 30), today=TODAY) == (date(2026, 1, 1), date(2026, 1, 30))


def test_days_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="from 2026-04-01 is after to 2026-03-31"):
        days(date(2026, 4, 1), None, today=TODAY)
    assert days(date(2026, 3, 25), None, today=TODAY, at_most=7)
    with pytest.raises(ValueError, match="more than 7 days"):
        days(date(2026, 3, 24), None, today=TODAY, at_most=7)


def test_bands_are_those_of_scoring() -> None:
    assert {band.value for band in Band} == {name for _, name in BANDS}


@pytest.mark.parametrize(
    ("wanted", "too"),
    [
        ({}, True),
        ({"session": "s1", "profile": "p1"}, True),
        ({"state": State.FAILED}, True),
        ({"state": State.COMPLETED}, False),
        ({"agent": "a"}, False),
        ({"band": Band.GOOD}, False),
        ({"text": "memory"}, False),
    ],
)
def test_requests_are_meant_unless_only_scores_can_be(wanted: dict[str, Any], too: bool) -> None:
    assert CardFilter(**wanted).requests_too is too


@given(
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2999, 1, 1)),  # noqa: DTZ001
    st.uuids(),
)
def test_a_cursor_comes_back_as_it_was(at: datetime, identifier: UUID) -> None:
    cursor = Cursor(at=at.replace(tzinfo=UTC), id=identifier)
    assert Cursor.decode(cursor.encode()) == cursor


# Not made anew: test processes have to agree on what each test is called.
ID = UUID(int=7).hex


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "äöü",
        "AAAA",
        encoded(1),
        encoded({"a": 1, "b": 2}),
        encoded(["2026-01-01T00:00:00+00:00"]),
        encoded(["2026-01-01T00:00:00", ID]),
        encoded(["yesterday", ID]),
        encoded(["0001-01-01T00:00:00+14:00", ID]),
        encoded(["2026-01-01T00:00:00+00:00", "7"]),
        encoded([None, None]),
    ],
)
def test_anything_else_is_no_cursor(text: str) -> None:
    with pytest.raises(ValueError, match="not one that this API gave"):
        Cursor.decode(text)


def card(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(Scorecard.model_fields)
    return (
        row
        | {
            "at": datetime(2026, 3, 1, tzinfo=UTC),
            "id": UUID(int=1),
            "state": "completed",
            "session_id": "s1",
            "request_id": UUID(int=2),
            "triggered_by": "tests",
        }
        | changes
    )


def test_a_page_tells_where_the_next_begins() -> None:
    rows = [card(id=UUID(int=n)) for n in (9, 8, 7)]

    first = page(rows, 2)
    assert len(first.items) == 2
    assert first.next is not None
    assert Cursor.decode(first.next).id == UUID(int=8)
    assert page(rows, 3).next is None
    assert page([], 3) == page([], 1)


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_begins_a_formula(evil: str) -> None:
    row = card(
        session_id=evil, score_reasoning=f'{evil},"quoted"\nline', score_breakdown={evil: 1.0}
    )

    text = csv_header() + csv_lines([row])

    (cells,) = csv.DictReader(io.StringIO(text, newline=""))
    assert cells["session_id"] == f"'{evil}"
    assert cells["score_reasoning"] == f'\'{evil},"quoted"\nline'
    assert json.loads(cells["score_breakdown"]) == {evil: 1.0}
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells.values())


def test_what_is_unknown_is_empty_and_numbers_stay_numbers() -> None:
    text = csv_header() + csv_lines([card(score=88, is_current=True, missing_tools=["promql"])])

    (cells,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (cells["score"], cells["is_current"], cells["agent"]) == ("88", "true", "")
    assert cells["missing_tools"] == '["promql"]'


def test_json_lines_are_the_cards_of_lists() -> None:
    rows = [card(), card(score_reasoning="=1+1\n")]

    lines = json_lines(rows).splitlines()

    assert [Scorecard.model_validate_json(line) for line in lines] == page(rows, 5).items
