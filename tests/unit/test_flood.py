"""A source that sends mostly what can't be accepted is read slowly, and only while it does."""

from hypothesis import given
from hypothesis import strategies as st

from consumer.limits.flood import ENOUGH_RECORDS, RECORDS_PER_S, WINDOW, Flood

Batches = st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), max_size=12)


@given(batches=Batches, limit=st.floats(0.05, 1.0))
def test_the_share_is_that_of_the_last_records(
    batches: list[tuple[int, int]], limit: float
) -> None:
    flood, seen = Flood(limit), list[bool]()
    for valid, invalid in batches:
        wait_s = flood.add(valid=valid, invalid=invalid)
        seen = [*seen, *[False] * valid, *[True] * invalid][-WINDOW:]
        assert flood.share == sum(seen) / max(1, len(seen))
        assert flood.flooded == (len(seen) >= ENOUGH_RECORDS and flood.share > limit)
        assert wait_s == ((valid + invalid) / RECORDS_PER_S if flood.flooded else 0)


def test_a_few_bad_records_are_no_flood() -> None:
    flood = Flood(0.5)
    assert flood.add(valid=0, invalid=ENOUGH_RECORDS - 1) == 0
    assert flood.add(valid=0, invalid=1) == 1 / RECORDS_PER_S


def test_a_share_of_all_is_never_passed() -> None:
    flood = Flood(1.0)
    assert flood.add(valid=0, invalid=5 * WINDOW) == 0


def test_it_is_over_once_enough_good_ones_came() -> None:
    flood = Flood(0.5)
    flood.add(valid=0, invalid=WINDOW)
    assert flood.add(valid=WINDOW // 2 - 1, invalid=0) > 0
    assert flood.add(valid=1, invalid=0) == 0
