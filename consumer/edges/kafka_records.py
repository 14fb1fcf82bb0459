"""Records whose header names are no text. To clients in C and Go a header's name is any bytes.

aiokafka decodes every name as UTF-8 and raises out of its poll: a single such record would block
its partition for ever, and the records of other partitions that were polled with it would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import (
    _DefaultRecordBatchPy,  # the one whose buffer can be changed
)
from aiokafka.record.memory_records import MemoryRecords

# A batch begins with its first offset (8 bytes) and the size of all that follows (4 bytes).
_BEFORE_SIZE, _BEFORE_BATCH = 8, 12


def read_any_header_name() -> None:
    """From now on, what is no UTF-8 in a header's name is read as lone surrogates (PEP 383)."""
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
    """aiokafka's batch, until it meets a name that it can't decode."""

    def __init__(self, batch: Any, data: bytes) -> None:
        self._batch = batch
        self._data = data
        self._records: Iterator[Any] | None = None
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._records is None:  # not before: it uncompresses what is to be checked first
            self._records = iter(self._batch)
        try:
            record = next(self._records)
        except (UnicodeDecodeError, CorruptRecordException):
            # In C it is the one, in Python the other. What is really corrupt raises again.
            self._records = islice(_leniently(self._data), self._read, None)
            record = next(self._records)
        self._read += 1
        return record


def _leniently(data: bytes) -> Iterator[Any]:
    batch = _DefaultRecordBatchPy(data)
    records: Iterator[Any] = iter(batch)  # uncompresses
    batch._buffer = _AnyText(batch._buffer)  # noqa: SLF001
    return records


class _AnyText(bytearray):
    """Bytes whose parts decode whatever they are."""

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        return _AnyText(part) if isinstance(place, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)
