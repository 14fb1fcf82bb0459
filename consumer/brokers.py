"""The way to Kafka that the settings describe."""

from __future__ import annotations

import importlib
from ssl import SSLContext

from aiokafka.abc import AbstractTokenProvider
from pydantic import SecretStr

from consumer.edges.kafka_security import ClientCredentials, KafkaSecurity
from consumer.edges.tls import client_context
from consumer.errors import ConfigError
from consumer.settings import Settings


def kafka_security(settings: Settings) -> KafkaSecurity:
    """One for all clients of a process: they share the token. Call it inside the event loop.

    Raises ConfigError where a file or the token provider can't be used.
    """
    protocol, mechanism = settings.kafka_security_protocol, settings.kafka_sasl_mechanism
    return KafkaSecurity(
        protocol=protocol,
        ssl_context=_ssl_context(settings) if protocol.endswith("SSL") else None,
        mechanism=mechanism,
        username=settings.kafka_sasl_username,
        password=_text(settings.kafka_sasl_password),
        tokens=_tokens(settings) if mechanism == "OAUTHBEARER" else None,
    )


def _ssl_context(settings: Settings) -> SSLContext:
    try:
        return client_context(
            cafile=settings.kafka_ssl_cafile,
            certfile=settings.kafka_ssl_certfile,
            keyfile=settings.kafka_ssl_keyfile,
            key_password=_text(settings.kafka_ssl_key_password),
        )
    except ConfigError as error:
        raise ConfigError([f"KAFKA_SSL_*: {problem}" for problem in error.problems]) from error


def _tokens(settings: Settings) -> AbstractTokenProvider:
    if settings.kafka_oauth_token_provider:
        return _custom(settings.kafka_oauth_token_provider)
    return ClientCredentials(
        url=settings.kafka_oauth_token_url or "",
        client_id=settings.kafka_oauth_client_id,
        client_secret=_text(settings.kafka_oauth_client_secret),
        scope=settings.kafka_oauth_scope,
    )


def _custom(path: str) -> AbstractTokenProvider:
    """What the factory at `module:name` makes."""
    module, _, name = path.partition(":")
    try:
        provider = getattr(importlib.import_module(module), name)()
    except Exception as error:  # it is not our code, and may raise whatever it likes
        raise ConfigError([f"KAFKA_OAUTH_TOKEN_PROVIDER: {path}: {error!r}"]) from error
    if not isinstance(provider, AbstractTokenProvider):
        made = type(provider).__name__
        raise ConfigError(
            [f"KAFKA_OAUTH_TOKEN_PROVIDER: {path} makes a {made}, no AbstractTokenProvider"]
        )
    return provider


def _text(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
