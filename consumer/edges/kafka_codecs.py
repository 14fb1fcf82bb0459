"""The codecs of Kafka's record batches, each within bounds: a megabyte may hold ten gigabytes.

Sources: Kafka's protocol guide, "Compression"; snappy-java's framing, which Kafka took over; RFC
1952 (gzip).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import cramjam

#: A dead letter of ours may be as large; no producer's batch is, unless it is meant to do harm.
MAX_BYTES = 32 * 1024 * 1024
# Requests are a tenth of their size when compressed. Hundreds of small batches come at once.
MAX_RATIO = 32
ANY_RATIO_BYTES = 128 * 1024
MAX_MEMBERS = 16
# snappy-java's blocks have 32 kB. More than these are no batch, but take long.
MAX_BLOCKS = 16_384
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16
_SIZE = 4
_FIRST_TRY = 64 * 1024
_GROWTH = 8

# The data, and how many bytes it may be uncompressed.
Codec = Callable[[bytes, int], bytes]


class Undecodable(ValueError):
    """Data that can't be uncompressed, or not within the bound."""


def uncompress(codec: int, data: bytes) -> bytes:
    """The data as it was before; `codec` is the number that Kafka has for it, not 0.

    Raises Undecodable.
    """
    if codec not in _CODECS:
        raise Undecodable(f"codec {codec} is unknown")
    try:
        return _CODECS[codec](data, _most(data))
    except (cramjam.DecompressionError, zlib.error) as error:
        raise Undecodable(f"{type(error).__name__}: {error}") from error


def _most(data: bytes) -> int:
    """How many bytes this may be uncompressed."""
    return min(MAX_BYTES, max(ANY_RATIO_BYTES, MAX_RATIO * len(data)))


def _gzip(data: bytes, most: int) -> bytes:
    """One member after the other; zeros may follow the last."""
    members: list[bytes] = []
    while data.strip(b"\0"):
        if len(members) == MAX_MEMBERS:
            raise Undecodable(f"more than {MAX_MEMBERS} gzip members")
        stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        members.append(stream.decompress(data, most - sum(map(len, members)) + 1))
        if sum(map(len, members)) > most:
            raise _too_large(most)
        if not stream.eof:
            raise Undecodable("the gzip data is cut")
        data = stream.unused_data
    return b"".join(members)


def _snappy(data: bytes, most: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, most)
    blocks: list[bytes] = []
    room, at = most, _XERIAL_HEAD
    while at < len(data):
        if len(blocks) == MAX_BLOCKS:
            raise Undecodable(f"more than {MAX_BLOCKS} snappy blocks")
        start = at + _SIZE
        at = start + int.from_bytes(data[at:start])
        blocks.append(_snappy_block(data[start:at], room))
        room -= len(blocks[-1])
    return b"".join(blocks)


def _snappy_block(data: bytes, room: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > room:
        raise _too_large(room)
    return bytes(cramjam.snappy.decompress_raw(data))


def _growing(decompress_into: Callable[[bytes, bytearray], int]) -> Codec:
    """For codecs that do not tell the size beforehand: room is made until the data fits."""

    def decompress(data: bytes, most: int) -> bytes:
        size = max(_FIRST_TRY, _GROWTH * len(data))
        while size < most:
            room = bytearray(size)
            try:
                return bytes(room[: decompress_into(data, room)])
            except cramjam.DecompressionError:  # too small, or damaged: it has one word for both
                size *= _GROWTH
        room = bytearray(most)
        try:
            return bytes(room[: decompress_into(data, room)])
        except cramjam.DecompressionError as error:
            told = f"it is damaged, or has more than {most} bytes when uncompressed"
            raise Undecodable(f"{told}: {error}") from error

    return decompress


def _too_large(most: int) -> Undecodable:
    return Undecodable(f"it has more than {most} bytes when uncompressed")


_CODECS: Mapping[int, Codec] = {
    1: _gzip,
    2: _snappy,
    3: _growing(cramjam.lz4.decompress_into),
    4: _growing(cramjam.zstd.decompress_into),
}
