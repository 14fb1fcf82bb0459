"""Addresses in settings: those that a client can use, and nothing told of the others."""

import pytest

from consumer.addresses import http_address, shown
from consumer.edges.http import open_client

GOOD = [
    "http://history",
    "HTTPS://history:8000/v1/",
    "http://127.0.0.1:8001",
    "http://[::1]:80",
    "http://his_tory.example./a%20b",
    "http://b\u00fccher.example",
    "https://me:se%3Acret@history",
    "http://\u00e9:%C3%A9@history",
]
BAD = {
    "hunter2": "must begin with http",
    "ftp://me:hunter2@h": "must begin with http",
    "http://": "must name a host",
    "http:///hunter2": "must name a host",
    "http://:8000": "must name a host",
    "http://h:0": "a port from 1",
    "http://h:65536": "a port from 1",
    "http://me:hunter2": "a port from 1",
    "http://me:hunter2/x@h": "a port from 1",
    "http://me:12/hunter2@h": "percent-encoded",
    "http://h/?token=hunter2": "no query",
    "http://h?": "no query",
    "http://me:hunter#2@h": "no fragment",
    "http://h h": "no blanks",
    "http://hunter2\n": "no control characters",
    "http://h\x7f": "no control characters",
    "http://[hunter2]": "must name a host",
    "http://[::1": "must name a host",
    "http://a..b": "must name a host",
    f"http://{'h' * 64}": "must name a host",
    "http://1.2.3.999": "must name a host",
    "http://me:hunter\u2603@h": "Latin-1",
    "http://me:hunter%E2%98%83@h": "Latin-1",
    "http://hunter\u20ac@h": "Latin-1",
    "http://h,i": "must name a host",
    "http://h\\i": "must name a host",
}


@pytest.mark.parametrize("url", GOOD)
async def test_an_address_that_a_client_can_use(url: str) -> None:
    assert http_address(url, credentials=True) == url
    async with open_client(url, timeout_s=1, headers={}) as client:
        assert client.build_request("GET", "/path").url.host


@pytest.mark.parametrize(("url", "told"), BAD.items())
def test_an_address_that_none_can(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        http_address(url, credentials=True)
    assert "hunter" not in str(refused.value)


def test_credentials_only_where_they_are_sent() -> None:
    with pytest.raises(ValueError, match="no user and no password"):
        http_address("http://me:hunter2@h", credentials=False)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://me:hunter2@h:80/v1", "http://h:80/v1"),
        ("http://me:hunter@2@h", "http://h"),
        ("http://me@[::1]:80", "http://[::1]:80"),
        ("http://h/v1", "http://h/v1"),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, told: str) -> None:
    assert shown(url) == told
