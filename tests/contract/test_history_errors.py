"""What the History Service does not answer as it should is tried again, and told for what it is."""

import asyncio
import json
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

from consumer.demo.servers import HOST, free_port
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.http import open_client
from consumer.errors import HistoryInvalid, HistoryUnavailable, SessionNotFound
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


def said(status: int, body: str | dict[str, Any] = "", **headers: str) -> bytes:
    """A whole answer; an object is one in JSON."""
    if isinstance(body, dict):
        headers, body = {"content_type": "application/json", **headers}, json.dumps(body)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = [f"HTTP/1.1 {status} X", *lines, f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*head, "", body]).encode()


async def asked(answer: bytes) -> None:
    """Asks who answers this for a session."""
    async with (
        saying(answer) as server,
        open_client(server.url, timeout_s=10, headers={}) as client,
    ):
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=10_000, timeout_s=10)
        await history.fetch("s-1", Place(Room(10_000)))


HIDDEN = "s3cret"
PLAIN, HTML = "text/plain; charset=utf-8", "text/html"
PAGE = "(a web page (text/html), maybe a proxy's, and no API)"
NOT_FOUND = {"detail": "Not Found"}
NO_PATH = ": it has no such path; see HISTORY_URL"
NO_JSON_PATH = f"404 (application/json){NO_PATH}"
NOT_LET_IN = ": it does not let us in; see HISTORY_TOKEN and HISTORY_HEADER"
GATEWAYS: dict[str, tuple[bytes, str]] = {
    "an ingress": (
        said(404, "404 page not found", content_type=PLAIN),
        f"404 (text/plain){NO_PATH}",
    ),
    "an unknown path": (said(404, NOT_FOUND), NO_JSON_PATH),
    "an API gateway": (
        said(404, {"message": "no Route matched"}),
        f"404 (application/json){NO_PATH}",
    ),
    "a 404 page": (said(404, "<html>", content_type=HTML), f"404 {PAGE}{NO_PATH}"),
    "a long 404": (
        said(404, {"detail": "session not found" * 10_000}),
        f"404 (application/json){NO_PATH}",
    ),
    "a nested 404": (said(404, "[" * 60_000), f"404 (no content type){NO_PATH}"),
    "a login": (
        said(302, location=f"https://u:{HIDDEN}@login.example/{HIDDEN}?a={HIDDEN}"),
        "302 (a redirect to login.example)",
    ),
    "308": (said(308, location=f"/{HIDDEN}"), "308 (a redirect to elsewhere)"),
    "304": (said(304), "304 (a redirect to elsewhere)"),
    "a welcome": (said(200, "<html>", content_type=HTML), f"200 {PAGE}"),
    "204": (said(204), "204 (no content type)"),
    "plain http": (said(400, "<html>", content_type=HTML), f"400 {PAGE}"),
    "an odd type": (said(400, HIDDEN, content_type=f"<{HIDDEN}>"), "400 (no content type)"),
    **{
        str(status): (said(status, NOT_FOUND), f"{status} (application/json){hint}")
        for statuses, hint in (((401, 403), NOT_LET_IN), ((405, 407, 421, 429, 451), ""))
        for status in statuses
    },
    "501": (said(501, "x"), "501 (no content type)"),
}


@pytest.mark.parametrize("case", GATEWAYS)
async def test_what_is_not_history_s_own_answer_is_tried_again(case: str) -> None:
    """Of a gateway during a deploy, say: no session is missing or wrong because of it."""
    answer, told = GATEWAYS[case]
    with pytest.raises(HistoryUnavailable) as raised:
        await asked(answer)
    assert str(raised.value) == f"the History Service answers {told}"


@pytest.mark.parametrize("detail", ["Session s-1 not found", "session not found."])
async def test_history_s_own_404_says_that_there_is_no_session(detail: str) -> None:
    with pytest.raises(SessionNotFound, match="knows no session 's-1'"):
        await asked(said(404, {"detail": detail}))


@pytest.mark.parametrize("status", [400, 422])
async def test_history_s_own_refusal_is_final(status: int) -> None:
    with pytest.raises(HistoryInvalid, match=f"answers {status} to the request"):
        await asked(said(status, {"detail": [{"loc": ["path"], "msg": "no id"}]}))


async def test_nobody_listens() -> None:
    assert await unavailable(f"http://{HOST}:{free_port()}") == "connection refused"


async def test_nobody_knows_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nobody)

    assert await unavailable("http://history.invalid") == "its host's name is not known"


async def test_the_connection_is_reset() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await unavailable(f"http://{HOST}:{port}") == "connection reset by peer"


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
async def test_its_certificate_cannot_be_trusted(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("history", f"IP:{HOST}")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        assert await unavailable(f"https://{HOST}:{port}") == "its certificate is not trusted"
