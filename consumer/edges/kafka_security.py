"""How Kafka's brokers know us, and we them: TLS, SASL, and OAuth's client credentials."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from time import monotonic
from typing import Any, Literal
from urllib.parse import quote_plus

import aiohttp
import httpx
from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from faststream.security import (
    BaseSecurity,
    SASLOAuthBearer,
    SASLPlaintext,
    SASLScram256,
    SASLScram512,
)

from consumer.edges.http import open_client
from consumer.edges.tls import distrust
from consumer.errors import ConfigError, NotReachable

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

# Brokers that answer like this will not change their minds by waiting.
REFUSALS = (SaslAuthenticationFailed, UnsupportedSaslMechanismError, IllegalSaslStateError)
REASON_LIMIT_S = 5.0

TOKEN_LIMIT_S = 10.0
MAX_TOKEN_BYTES = 64 * 1024
# A token is renewed when this share of its life is over: it must not end on its way to the broker.
FRESH_SHARE = 0.8
# RFC 6749, 5.2: what an error code looks like that the token server answers.
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")

_FASTSTREAM = {
    "PLAIN": SASLPlaintext,
    "SCRAM-SHA-256": SASLScram256,
    "SCRAM-SHA-512": SASLScram512,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """What every client of ours shows and asks for. `ssl_context` goes with SSL and SASL_SSL,
    user and password with PLAIN and SCRAM, `tokens` with OAUTHBEARER.
    """

    protocol: Protocol = "PLAINTEXT"
    ssl_context: SSLContext | None = field(default=None, repr=False)
    mechanism: Mechanism | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: AbstractTokenProvider | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """For aiokafka's producer, consumer and admin client."""
        options: dict[str, Any] = {
            "security_protocol": self.protocol,
            "ssl_context": self.ssl_context,
        }
        if self.mechanism == "OAUTHBEARER":
            options |= {"sasl_oauth_token_provider": self.tokens}
        elif self.mechanism:
            options |= {
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options | ({"sasl_mechanism": self.mechanism} if self.mechanism else {})

    @property
    def broker_options(self) -> dict[str, Any]:
        """The same for FastStream's broker."""
        if self.mechanism == "OAUTHBEARER":
            security: BaseSecurity = SASLOAuthBearer(self.ssl_context)
            return {"security": security, "sasl_oauth_token_provider": self.tokens}
        if self.mechanism:
            sasl = _FASTSTREAM[self.mechanism]
            return {"security": sasl(self.username, self.password, self.ssl_context)}
        return {"security": BaseSecurity(self.ssl_context)}


PLAINTEXT = KafkaSecurity()


async def not_connected(
    bootstrap: str, options: Mapping[str, Any], error: Exception
) -> ConfigError | NotReachable:
    """What to raise where a client with these options did not start.

    aiokafka only logs what a broker said, and raises that there is none. So one more connection is
    tried, for the reason. ConfigError: we are refused, and waiting is of no use.
    """
    reason = await _reason(bootstrap, options) or error
    where = f"Kafka at {bootstrap} ({options.get('security_protocol', 'PLAINTEXT')})"
    if isinstance(reason, REFUSALS):
        return ConfigError([f"KAFKA_SASL_*: {where} refuses us: {reason}"])
    if told := distrust(reason):
        return NotReachable(f"{where}: {told}", server="kafka")
    said = str(reason) or type(reason).__name__
    return NotReachable(f"{where} does not answer: {said}", server="kafka")


async def answers(bootstrap: str, options: Mapping[str, Any]) -> bool:
    """Whether Kafka answers a client that is new."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap, **options)
    try:
        async with asyncio.timeout(REASON_LIMIT_S):
            await client.bootstrap()
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await client.close()
    return True


async def _reason(bootstrap: str, options: Mapping[str, Any]) -> Exception | None:
    """The first broker's error that tells us something; None where one answers after all."""
    access = {k: v for k, v in options.items() if k.startswith(("security_", "ssl_", "sasl_"))}
    found: Exception | None = None
    try:
        async with asyncio.timeout(REASON_LIMIT_S):
            for host, port, _ in collect_hosts(bootstrap):
                try:
                    (await create_conn(host, port, **access)).close()
                except REFUSALS as error:
                    refused: Exception = error
                    return refused
                except (KafkaError, OSError) as error:
                    found = found or error
                else:
                    return None
    except TimeoutError as error:
        found = found or error
    return found


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka's base is untyped
    """Tokens by OAuth's client credentials (RFC 6749, 4.4), each used until it is nearly over.

    The server's own error codes are told; tokens and secrets never are.
    """

    def __init__(self, *, url: str, client_id: str, client_secret: str, scope: str = "") -> None:
        self._url = url
        self._where = httpx.URL(url).host  # for messages: a URL may hold more than they should
        # RFC 6749, 2.3.1: encoded like a form's fields, before they go into the header.
        credentials = aiohttp.encode_basic_auth(quote_plus(client_id), quote_plus(client_secret))
        self._headers = {"authorization": credentials}
        self._form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._token = ""
        self._fresh_until = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """A token with some life left; asked for by aiokafka for every connection.

        Raises SaslAuthenticationFailed where the token server refuses us, KafkaConnectionError
        where it is away: aiokafka bears errors of these kinds, and tries again.
        """
        async with self._lock:
            if monotonic() >= self._fresh_until:
                asked_at = monotonic()
                self._token, lifetime_s = await self._fetch()
                self._fresh_until = asked_at + FRESH_SHARE * lifetime_s
            return self._token

    async def _fetch(self) -> tuple[str, float]:
        try:
            async with asyncio.timeout(TOKEN_LIMIT_S):
                status, body = await self._post()
        except (httpx.HTTPError, TimeoutError) as error:
            raise KafkaConnectionError(
                f"the token server at {self._where} does not answer: {type(error).__name__}"
            ) from error
        return _token_in(body) if status == httpx.codes.OK else self._refused(status, body)

    async def _post(self) -> tuple[int, bytes]:
        async with (
            open_client("", timeout_s=TOKEN_LIMIT_S, headers=self._headers) as client,
            client.stream("POST", self._url, data=self._form) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_TOKEN_BYTES:
                    raise KafkaConnectionError("the token server's answer is too long for a token")
            return response.status_code, bytes(body)

    def _refused(self, status: int, body: bytes) -> tuple[str, float]:
        code = _object_in(body).get("error")
        known = f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
        told = f"the token server at {self._where} answers {status}{known}"
        if status in {400, 401, 403}:
            raise SaslAuthenticationFailed(told)
        raise KafkaConnectionError(told)


def _token_in(body: bytes) -> tuple[str, float]:
    """The token, and how long it lives in seconds: 0 where the server does not say."""
    answer = _object_in(body)
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in", 0)
    # It becomes part of a message whose parts end with control characters.
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise KafkaConnectionError("the token server's answer holds no access_token")
    try:
        return token, float(lifetime_s)
    except (TypeError, ValueError):
        return token, 0.0


def _object_in(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
