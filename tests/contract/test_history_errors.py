"""What the History Service does not answer as it should is tried again, and told for what it is."""

import asyncio
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

from consumer.demo.servers import HOST, free_port
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.http import open_client
from consumer.errors import HistoryUnavailable
from consumer.limits.room import Place, Room
from tests.support.broken_http import BROKEN, NO_UTF_8, saying
from tests.support.certificates import OPENSSL, Authority


async def unavailable(url: str) -> str:
    """What is told of a service that can't be asked."""
    async with open_client(url, timeout_s=10, headers={}) as client:
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=10_000, timeout_s=10)
        with pytest.raises(HistoryUnavailable, match="the History Service does not answer") as told:
            await history.fetch("s-1", Place(Room(10_000)))
    return str(told.value).rpartition(": ")[2]


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN)
async def test_a_service_that_breaks_the_protocol(said: bytes) -> None:
    async with saying(said) as server:
        await unavailable(server.url)
    assert server.asked


async def test_a_reason_phrase_that_is_not_utf_8() -> None:
    async with (
        saying(NO_UTF_8) as server,
        open_client(server.url, timeout_s=10, headers={}) as client,
    ):
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=10_000, timeout_s=10)
        with pytest.raises(HistoryUnavailable, match="answers 503") as told:
            await history.fetch("s-1", Place(Room(10_000)))
    assert told.value.retry_after == 7


async def test_nobody_listens() -> None:
    assert await unavailable(f"http://{HOST}:{free_port()}") == "ClientConnectorError"


async def test_nobody_knows_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nobody)

    assert await unavailable("http://history.invalid") == "ClientConnectorDNSError"


async def test_the_connection_is_reset() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await unavailable(f"http://{HOST}:{port}") == "ClientOSError"


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
async def test_its_certificate_cannot_be_trusted(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("history", f"IP:{HOST}")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        assert await unavailable(f"https://{HOST}:{port}") == "ClientConnectorCertificateError"
