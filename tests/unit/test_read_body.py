"""The body of an HTTP answer: unpacked piece by piece, whole, and no larger than it may be."""

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from consumer.edges.http import FAILURES, BodyRefused, read_body


class Body(httpx.AsyncByteStream):
    """These pieces, as they come over the wire."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


async def read(encoding: str, *pieces: bytes, max_bytes: int = 1000) -> bytes:
    headers = {"content-encoding": encoding} if encoding else {}
    return await read_body(httpx.Response(200, headers=headers, stream=Body(*pieces)), max_bytes)


def in_pieces(body: bytes, size: int = 7) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


TEXT = b"some text, " * 90
PACKED = {
    "": TEXT,
    "identity": TEXT,
    "gzip": gzip.compress(TEXT),
    "X-GZIP ": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
}


@pytest.mark.parametrize("encoding", PACKED)
async def test_a_body_is_unpacked_piece_by_piece(encoding: str) -> None:
    body = PACKED[encoding]

    assert await read(encoding, body) == TEXT
    assert await read(encoding, *in_pieces(body), max_bytes=len(TEXT)) == TEXT
    with pytest.raises(BodyRefused, match=f"larger than {len(TEXT) - 1} bytes"):
        await read(encoding, *in_pieces(body), max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_what_is_packed_must_be_whole(encoding: str) -> None:
    body = PACKED[encoding]

    for cut in range(1, len(body)):
        with pytest.raises(FAILURES):
            await read(encoding, body[:cut])
    with pytest.raises(FAILURES):
        await read(encoding, body[:20] + b"\0" + body[21:])
    assert await read(encoding, b"") == b"", "of an empty body nothing is missing"
    assert await read(encoding, body, b"and more") == TEXT
    with pytest.raises(BodyRefused, match="larger"):
        await read(encoding, body, *in_pieces(b"and more" * 200))


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x"])
async def test_what_was_not_asked_for_is_not_read(encoding: str) -> None:
    with pytest.raises(BodyRefused, match="Content-Encoding"):
        await read(encoding, b"whatever it is")


async def test_what_unpacks_to_far_too_much_takes_no_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1_000_000)
    bomb = b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush()

    tracemalloc.start()
    try:
        with pytest.raises(BodyRefused):
            await read("gzip", bomb, max_bytes=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 5_000_000
