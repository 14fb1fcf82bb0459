"""Addresses of HTTP services and who we are to them, as people write both into settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from urllib.parse import SplitResult, unquote, urlsplit

_SCHEMES = ("http://", "https://")
_NAME = re.compile(rb"[A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"[0-9.]+")


def http_address(url: str, *, credentials: bool) -> str:
    """The same address. Raises ValueError where no client could use it; what that says repeats
    nothing of the address, which may hold a password.
    """
    if not url.isprintable() or " " in url:
        raise ValueError("must have no blanks and no control characters")
    if not url.lower().startswith(_SCHEMES):
        raise ValueError("must begin with http:// or https://")
    if "?" in url or "#" in url:
        raise ValueError("must have no query and no fragment: paths are appended to it")
    try:
        parts = urlsplit(url)
        usable = _has_host(parts) and parts.port != 0
    except ValueError:  # the port is no number, the brackets hold no address, a label is too long
        usable = False
    if not usable:
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    _check_user(parts, credentials=credentials)
    return url


def _check_user(parts: SplitResult, *, credentials: bool) -> None:
    if "@" in parts.path:
        raise ValueError("must have / and @ in the user and the password percent-encoded")
    if "@" in parts.netloc and not credentials:
        raise ValueError("must have no user and no password")
    if not _in_latin_1(parts.netloc.rpartition("@")[0]):
        raise ValueError("must have a user and a password in Latin-1, which headers hold")


def _in_latin_1(text: str) -> bool:
    return max(unquote(text), default="") <= "\xff"


def _has_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if ":" in host:  # within brackets, which urlsplit has looked into
        return True
    if _NUMBERS.fullmatch(host):
        IPv4Address(host)
        return True
    return _NAME.fullmatch(host.encode("idna")) is not None


def shown(url: str) -> str:
    """The address as it may be told: without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def bearer_token(text: str) -> str:
    """The same text. Raises ValueError where no header can hold it."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be one word of printable ASCII characters")
    return text


def header(text: str) -> Mapping[str, str]:
    """The header in `Name: value`. Raises ValueError where it is none."""
    name, colon, value = text.partition(":")
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    value = value.strip()
    if not colon or not plain or not value or not (value.isascii() and value.isprintable()):
        raise ValueError("must be `Name: value`, in printable ASCII characters")
    return {name.lower(): value}
