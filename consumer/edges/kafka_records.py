"""Record batches that aiokafka can't read: none may stop its partition, or another one.

aiokafka raises out of its poll at a header's name that is not UTF-8 (to clients in C and Go a name
is any bytes), at a checksum that is wrong and at data that can't be uncompressed; it inflates what
is compressed without a bound. Such a batch would be fetched again for ever. Here names that are no
text are read as lone surrogates, and what can't be read for good is one record with the batch's
bytes: an `UnreadableBatch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    _DefaultRecordBatchPy,  # the one whose buffer can be changed
)
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint_py

from consumer.cloudevents import UnreadableBatch
from consumer.edges.kafka_codecs import uncompress

# A batch begins with its first offset (8 bytes) and the size of all that follows (4 bytes).
_BEFORE_SIZE, _BEFORE_BATCH = 8, 12
_MAGIC, _CODEC, _HEAD = 16, 22, 61
_CODEC_BITS = 0x07
# A checksum may be wrong because of the way here, or of another replica's disk: it is fetched anew.
CHECKSUM_TRIES = 3
# Each header takes two bytes on the way, and two hundred in memory; a record of no more bytes than
# twice as many as are allowed need not be looked into.
MAX_HEADERS = 500
# What was read of a batch is read again each time its partition is paused.
MAX_RECORDS = 50_000

# How often the batch with this head had a wrong checksum.
_misread: Counter[bytes] = Counter()


def read_any_batch() -> None:
    """From now on, every batch is read as far as it goes, and none stops its partition."""
    fetcher.MemoryRecords = _Records


class _Records:
    """What a fetch brought from a partition: aiokafka's MemoryRecords, and the bytes of each batch,
    to read one again that aiokafka itself can't read.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._records: Any = MemoryRecords(data)

    def size_in_bytes(self) -> int:
        return len(self._data)

    def has_next(self) -> bool:
        return bool(self._records.has_next())

    def next_batch(self) -> _Batch:
        batch = self._records.next_batch()
        size = self._data[self._at + _BEFORE_SIZE : self._at + _BEFORE_BATCH]
        start, self._at = self._at, self._at + _BEFORE_BATCH + int.from_bytes(size)
        return _Batch(batch, self._data[start : self._at])


class _Batch:
    """aiokafka's batch, and in the end one record in place of all that can't be read."""

    def __init__(self, batch: Any, data: bytes) -> None:
        self._batch = batch
        self._data = data
        self._records: Iterator[Any] | None = None
        self._problem: Exception | None = None

    @property
    def _first(self) -> int:
        return int.from_bytes(self._data[:_BEFORE_SIZE])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def validate_crc(self) -> bool:
        """Also where it is wrong for good: then the batch is not read."""
        if self._batch.validate_crc():
            return True
        head = self._data[:_HEAD]
        _misread[head] += 1
        if _misread[head] < CHECKSUM_TRIES:
            return False
        del _misread[head]
        self._problem = CorruptRecordException("its checksum is wrong")
        return True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._records is None:  # not before: it uncompresses what is to be checked first
            self._records = self._all()
        return next(self._records)

    def _all(self) -> Iterator[Any]:
        try:
            if self._problem:
                raise self._problem
            yield from self._readable()
        except Exception as error:  # noqa: BLE001 - whatever it is, the partition goes on
            yield self._unreadable(error)

    def _readable(self) -> Iterator[Any]:
        if self._data[_MAGIC] < 2:  # of clients from before 2017: no headers
            yield from self._batch
            return
        plain = _uncompressed(self._data)
        bearable = _bearable(plain)
        read = 0
        try:
            for record in islice(DefaultRecordBatch(plain), bearable):
                yield record
                read += 1
        except (UnicodeDecodeError, CorruptRecordException):
            # In C it is the one, in Python the other. What is really corrupt raises again.
            yield from islice(_Lenient(plain), read, bearable)
        if bearable is not None:
            raise CorruptRecordException(f"a record has more than {MAX_HEADERS} headers")

    def _unreadable(self, error: Exception) -> Any:
        last: int = self._batch.next_offset - 1
        why = f"{type(error).__name__}: {error}"
        return SimpleNamespace(
            offset=last,
            # Old formats have a time for each record alone.
            timestamp=getattr(self._batch, "max_timestamp", -1),
            timestamp_type=None,
            key=None,
            value=UnreadableBatch(self._data, first=self._first, last=last, why=why),
            headers=(),
            checksum=None,
        )


def _uncompressed(data: bytes) -> bytes:
    """The batch as it was before its records were compressed."""
    codec = data[_CODEC] & _CODEC_BITS
    if not codec:
        return data
    head = bytearray(data[:_HEAD])
    head[_CODEC] &= ~_CODEC_BITS
    return bytes(head) + uncompress(codec, data[_HEAD:])


def _bearable(plain: bytes) -> int | None:
    """How many records come before the first that has too many headers; None where none has.

    Raises what reading damaged ones raises, and CorruptRecordException for too many records.
    """
    count = int.from_bytes(plain[_HEAD - 4 : _HEAD])
    if count > MAX_RECORDS:
        raise CorruptRecordException(f"it has {count} records; {MAX_RECORDS} are read")
    if len(plain) < _HEAD + 2 * MAX_HEADERS:
        return None
    at = _HEAD
    for n in range(count):
        size, start = decode_varint_py(plain, at)
        if size > 2 * MAX_HEADERS and _headers(plain, start) > MAX_HEADERS:
            return n
        at = start + size
    return None


def _headers(plain: bytes, at: int) -> int:
    """How many headers the record has whose attributes stand here."""
    for _ in range(3):  # attributes, time, offset
        _, at = decode_varint_py(plain, at)
    for _ in range(2):  # key, value
        size, at = decode_varint_py(plain, at)
        at += max(0, size)
    count: int = decode_varint_py(plain, at)[0]
    return count


class _Lenient(_DefaultRecordBatchPy):  # type: ignore[misc]  # aiokafka's base is untyped
    """aiokafka's reader in Python, which takes any name of a header."""

    _buffer: Any

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._buffer = _AnyText(self._buffer)

    def _read_msg(self) -> Any:
        # The one in C reads on behind the buffer's end, and the process ends with SIGSEGV.
        return super()._read_msg(decode_varint_py)


class _AnyText(bytearray):
    """Bytes whose parts decode whatever they are: what is no UTF-8 as lone surrogates (PEP 383)."""

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        return _AnyText(part) if isinstance(place, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)
