"""Retry-After, whatever a server makes of it."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer.edges.http import LONGEST_RETRY_AFTER_S, retry_after_s

# What dates are made of, right and wrong.
_PARTS = st.sampled_from(
    [
        "Mon,",
        "01",
        "Jan",
        "2024",
        "00:00:00",
        "GMT",
        "-0000",
        "+9999",
        "-",
        ":",
        ",",
        "(",
        '"',
        "\\",
    ]
)
_NUMBERS = st.integers(min_value=-(10**30), max_value=10**30).map(str)
_DATES = st.lists(_PARTS | _NUMBERS | st.text(max_size=3), max_size=9).map(" ".join)


@given(st.text() | _DATES)
@example("Mon, 01 Jan 99999999999999999999 00:00:00 GMT")
@example("Mon, 01 Jan 2024 00:00:00 -999999999999999999999999")
@example("Mon, 01 Jan 0001 00:00:00 +2359")
@example("9" * 400)
@example("\u0663")
def test_any_text_is_a_number_of_seconds_or_none(value: str) -> None:
    wait_s = retry_after_s({"retry-after": value})

    assert wait_s is None or 0 <= wait_s <= LONGEST_RETRY_AFTER_S


@pytest.mark.parametrize("ahead_s", [-60, 3600, 10**7])
def test_a_date_is_read(ahead_s: int) -> None:
    at = datetime.now(UTC) + timedelta(seconds=ahead_s)

    wait_s = retry_after_s({"retry-after": format_datetime(at, usegmt=True)})

    assert wait_s == pytest.approx(min(max(0, ahead_s), LONGEST_RETRY_AFTER_S), abs=60)
