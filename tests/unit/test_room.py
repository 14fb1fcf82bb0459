"""No more bytes are held than there is room for, and everybody gets their turn."""

import asyncio
import random

import pytest

from consumer.limits.room import Place, Room


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_wants_more_than_is_free_waits_and_those_behind_too() -> None:
    room = Room(10)
    with room.place() as first, room.place() as large, room.place() as small:
        await first.resize(6)
        waiting = [asyncio.create_task(large.resize(8)), asyncio.create_task(small.resize(1))]
        await settle()
        assert (room.taken, room.waiting) == (6, 2)
        assert not first.grow(7), "others wait"
        first.shrink(2)
        await settle()
        assert (large.size, small.size) == (8, 0), "the first come is served first"
        large.shrink(4)
        await asyncio.gather(*waiting)
        assert (first.size, large.size, small.size, room.taken) == (2, 4, 1, 7)
    assert (room.taken, room.waiting) == (0, 0)


async def test_what_is_larger_than_all_takes_all() -> None:
    room = Room(10)
    with room.place() as place:
        await place.resize(1000)
        assert place.size == room.taken == 10
        assert place.grow(5000)
    assert room.taken == 0


async def test_growing_takes_what_is_free_and_shrinking_gives_it_back() -> None:
    room = Room(10)
    with room.place() as one, room.place() as other:
        assert one.grow(4)
        assert one.grow(3), "it has more already"
        assert not other.grow(7)
        assert other.grow(6)
        one.shrink(1)
        assert (one.size, other.size, room.taken) == (1, 6, 7)
        one.shrink(5)
        assert one.size == 1
    assert room.taken == 0


async def test_who_waits_holds_nothing() -> None:
    """Or two that both want more would wait for each other."""
    room = Room(10)
    with room.place() as one, room.place() as other:
        await one.resize(5)
        await other.resize(5)
        await asyncio.gather(_worked(one, 10), _worked(other, 10))
    assert room.taken == 0


async def _worked(place: Place, size: int) -> None:
    await place.resize(size)
    place.shrink(0)


@pytest.mark.parametrize("seed", range(20))
async def test_any_mixture_ends_with_all_room_free(seed: int) -> None:
    chance = random.Random(seed)
    room = Room(100)
    done = 0

    async def use() -> None:
        nonlocal done
        with room.place() as place:
            for _ in range(chance.randrange(1, 5)):
                size = chance.choice([1, 30, 60, 100, 400])
                if not place.grow(size):
                    await place.resize(size)
                assert room.taken <= 100
                await asyncio.sleep(0)
                place.shrink(chance.randrange(size))
        done += 1

    tasks = [asyncio.create_task(use()) for _ in range(40)]
    await asyncio.sleep(0)
    cancelled = chance.sample(tasks, 10)
    for task in cancelled:
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done >= 30
    assert (room.taken, room.waiting) == (0, 0)
