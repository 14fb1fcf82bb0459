"""Batches as other clients write them, and as nobody should: each is read as far as it goes."""

from __future__ import annotations

import contextlib
import gzip
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from consumer.cloudevents import UnreadableBatch
from consumer.edges import kafka_codecs
from consumer.edges.kafka_codecs import Undecodable, uncompress
from consumer.edges.kafka_records import CHECKSUM_TRIES, MAX_HEADERS, MAX_RECORDS, _Records

PLACE = TopicPartition("score.requested", 3)
FIRST = 120
Compress = Callable[[bytes], bytes]
CODECS: dict[int, Sequence[Compress]] = {
    1: [gzip.compress],
    2: [snappy_encode, lambda data: bytes(cramjam.snappy.compress_raw(data))],
    3: [lz4_encode, lambda data: bytes(cramjam.lz4.compress(data))],
    4: [zstd_encode, lambda data: bytes(cramjam.zstd.compress(data, level=19))],
}
EVERY_CODEC = [(codec, compress) for codec, ways in CODECS.items() for compress in ways]


def batch(values: Sequence[bytes], first: int = FIRST) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for n, value in enumerate(values):
        builder.append(n, 1_700_000_000_000, b"key", value, [("name", b"x")])
    return _sealed(first.to_bytes(8, "big") + bytes(builder.build())[8:])


def _sealed(data: bytes) -> bytes:
    """With the size and the checksum of what it holds."""
    data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    checksum: int = calc_crc32c(data[21:])
    return data[:17] + checksum.to_bytes(4, "big") + data[21:]


def compressed(data: bytes, codec: int, records: bytes) -> bytes:
    head = bytearray(data[:61])
    head[22] |= codec
    return _sealed(bytes(head) + records)


def read(data: bytes, first: int = FIRST, aborted: Sequence[tuple[int, int]] = ()) -> list[Any]:
    """What aiokafka's own reader makes of a fetch. `aborted`: producers, and from which offset."""
    return list(PartitionRecords(PLACE, _Records(data), aborted, first, None, None, True, 1))


def unreadable(record: Any) -> UnreadableBatch:
    assert isinstance(record.value, UnreadableBatch), record
    return record.value


@pytest.mark.parametrize(("codec", "compress"), EVERY_CODEC)
def test_every_codec_is_read(codec: int, compress: Compress) -> None:
    values = [b'{"session_id": "s%d"}' % n for n in range(500)]
    plain = batch(values)
    found = read(compressed(plain, codec, compress(plain[61:])))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(FIRST, FIRST + 500))
    assert found[0].headers == (("name", b"x"),)


def test_batches_of_old_clients_are_read() -> None:
    builder = LegacyRecordBatchBuilder(1, 1, 10_000)
    for n in range(3):
        builder.append(n, 1_700_000_000_000, b"key", b"v%d" % n)
    assert [record.value for record in read(bytes(builder.build()), first=0)] == [
        b"v0",
        b"v1",
        b"v2",
    ]
    (twice,) = read(bytes(builder.build()), first=0)
    assert "double-compressed" in unreadable(twice).why


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 6, 7])
def test_what_can_not_be_uncompressed_is_one_record_and_the_next_batch_is_read(codec: int) -> None:
    broken = compressed(batch([b"a", b"b", b"c"]), codec, b"\x00not compressed at all")
    first, second = read(broken + batch([b"after"], FIRST + 3))
    assert second.value == b"after"
    assert (first.offset, first.key, first.headers) == (FIRST + 2, None, ())
    found = unreadable(first)
    assert bytes(found) == broken
    assert (found.first, found.last) == (FIRST, FIRST + 2)
    assert ("codec" in found.why) if codec > 4 else found.why


def test_the_records_before_the_damage_are_read() -> None:
    plain = batch([b"a" * 50, b"b" * 50, b"c" * 50])
    damaged = plain.replace(b"c" * 50 + b"\x02\x08name", b"c" * 50 + b"\x7f\x7fname")
    assert damaged != plain
    first, second, rest = read(_sealed(damaged))
    assert (first.value, second.value) == (b"a" * 50, b"b" * 50)
    assert bytes(unreadable(rest)) == _sealed(damaged)


def test_a_wrong_checksum_is_fetched_again_and_then_given_up() -> None:
    damaged = batch([b"value"]).replace(b"value", b"vague")
    for _ in range(2):  # another fetch, another count
        for _ in range(CHECKSUM_TRIES - 1):
            with pytest.raises(CorruptRecordException):
                read(damaged)
        (record,) = read(damaged)
        assert "checksum" in unreadable(record).why


def test_of_an_aborted_transaction_nothing_is_read_however_damaged() -> None:
    damaged = bytearray(compressed(batch([b"a", b"b"]), 4, b"garbage"))
    damaged[22] |= 0x10  # transactional
    damaged[43:51] = (7).to_bytes(8, "big")  # its producer
    data = _sealed(bytes(damaged)) + batch([b"after"], FIRST + 2)
    found = read(data, aborted=[(7, FIRST)])
    assert [record.value for record in found] == [b"after"]


BOMBS: dict[str, tuple[int, Compress]] = {
    "gzip": (1, lambda data: zlib.compress(data, level=9, wbits=31)),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy blocks": (2, snappy_encode),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_not_inflated(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codec, compress = BOMBS[bomb]
    allowed = kafka_codecs.ANY_RATIO_BYTES
    assert uncompress(codec, compress(bytes(allowed))) == bytes(allowed)
    with pytest.raises(Undecodable):
        uncompress(codec, compress(bytes(32 * 1024 * 1024 + 1)))
    noise = random.Random(1).randbytes(allowed)  # that much is as large as what it came from
    monkeypatch.setattr(kafka_codecs, "MAX_BYTES", 2 * allowed)
    assert uncompress(codec, compress(noise * 2)) == noise * 2
    with pytest.raises(Undecodable):
        uncompress(codec, compress(noise * 3))


def test_several_members_of_gzip_are_read_and_zeros_behind_them() -> None:
    both = gzip.compress(b"one ") + gzip.compress(b"other")
    assert uncompress(1, both) == uncompress(1, both + bytes(9)) == b"one other"
    with pytest.raises(Undecodable, match="members"):
        uncompress(1, gzip.compress(b"") * (kafka_codecs.MAX_MEMBERS + 1))
    with pytest.raises(Undecodable):
        uncompress(1, both + b"more")


@pytest.mark.parametrize("count", [MAX_HEADERS, MAX_HEADERS + 1, 100_000])
def test_a_record_with_too_many_headers_is_not_made(count: int) -> None:
    """Each takes two bytes here, and two hundred in memory. What came before it is read."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for n, headers in enumerate([[("", None)] * MAX_HEADERS, [("", None)] * count, []]):
        builder.append(n, 1_700_000_000_000, None, b"v%d" % n, headers)
    data = _sealed(FIRST.to_bytes(8, "big") + bytes(builder.build())[8:])
    found = read(data)
    if count <= MAX_HEADERS:
        assert [record.value for record in found] == [b"v0", b"v1", b"v2"]
        return
    first, rest = found
    assert first.value == b"v0"
    assert "headers" in unreadable(rest).why
    assert bytes(unreadable(rest)) == data


def test_a_batch_of_too_many_records_is_not_read() -> None:
    data = bytearray(batch([b"a"]))
    data[57:61] = (MAX_RECORDS + 1).to_bytes(4, "big")
    (record,) = read(_sealed(bytes(data)))
    assert "records" in unreadable(record).why


def test_many_empty_blocks_are_refused() -> None:
    head = snappy_encode(b"x")[:16]
    with pytest.raises(Undecodable, match="blocks"):
        uncompress(2, head + b"\x00\x00\x00\x01\x00" * (kafka_codecs.MAX_BLOCKS + 1))


@given(
    way=st.sampled_from(EVERY_CODEC),
    data=st.binary(max_size=300),
    seed=st.integers(0, 2**32),
    garbage=st.booleans(),
)
def test_damage_of_any_kind_is_undecodable_and_nothing_else(
    way: tuple[int, Compress], data: bytes, seed: int, garbage: bool
) -> None:
    codec, compress = way
    packed = bytearray(data if garbage else compress(data))
    chance = random.Random(seed)
    for _ in range(chance.randrange(4)):
        if packed:
            packed[chance.randrange(len(packed))] = chance.randrange(256)
    packed = packed[: chance.randrange(len(packed) + 1)] if chance.random() < 0.5 else packed
    with contextlib.suppress(Undecodable):
        assert isinstance(uncompress(codec, bytes(packed)), bytes)


@given(data=st.binary(max_size=400), codec=st.integers(0, 7), records=st.integers(-3, 2**31 - 1))
def test_a_batch_of_anything_ends_at_its_last_offset(data: bytes, codec: int, records: int) -> None:
    """A record's sizes, counts and numbers may be any."""
    head = bytearray(batch([b"a", b"b", b"c"])[:61])
    head[57:61] = records.to_bytes(4, "big", signed=True)
    head[22] |= codec
    found = read(_sealed(bytes(head) + data) + batch([b"after"], FIRST + 3))
    assert found[-1].value == b"after"
    assert all(record.offset <= FIRST + 3 for record in found[:-1] if _unread(record))


def _unread(record: Any) -> bool:
    return isinstance(record.value, UnreadableBatch)
