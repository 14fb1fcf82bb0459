"""Two things at once."""

import asyncio

import pytest

from consumer.together import both


async def later(done: list[str], name: str, *, fails: bool = False) -> str:
    done.append(f"{name} begins")
    await asyncio.sleep(0.01)
    done.append(f"{name} ends")
    if fails:
        raise ValueError(name)
    return name


async def test_both_are_answered_and_the_first_begins() -> None:
    done: list[str] = []
    assert await both(later(done, "one"), later(done, "other")) == ("one", "other")
    assert done == ["one begins", "other begins", "one ends", "other ends"]


@pytest.mark.parametrize(
    ("one_fails", "other_fails", "told"),
    [(True, False, "one"), (False, True, "other"), (True, True, "one")],
)
async def test_both_end_before_a_failure_is_told(
    one_fails: bool, other_fails: bool, told: str
) -> None:
    done: list[str] = []
    with pytest.raises(ValueError, match=f"^{told}$"):
        await both(later(done, "one", fails=one_fails), later(done, "other", fails=other_fails))
    assert done[2:] == ["one ends", "other ends"]


async def test_who_is_cancelled_leaves_nothing_behind() -> None:
    ended: list[str] = []

    async def endless(name: str) -> None:
        try:
            await asyncio.Future()
        finally:
            ended.append(name)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await both(endless("one"), endless("other"))
    assert ended == ["one", "other"]
