"""Settings, from the environment. Read once at the start, frozen, and passed in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, FilePath, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from consumer import environment, failpoints
from consumer.addresses import bearer_token, header, http_address
from consumer.api.tokens import Token, parse_tokens
from consumer.errors import ConfigError
from consumer.resources import resource

Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Seconds = Annotated[float, Field(ge=0.1, le=86_400)]
MIB = 1024 * 1024

# Most sessions are smaller by far.
USUAL_SESSION_BYTES = 256 * 1024


class Settings(BaseSettings):
    """Each field is an environment variable of the same name in capitals. Times in seconds.

    NAME_FILE instead of NAME is a file to read it from: for what must not be in the environment.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    # Kafka
    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    kafka_group_id: str = "score-consumer"
    # Off only for brokers that lack it (some embedded ones): a lost reply may then send twice.
    kafka_enable_idempotence: bool = True
    # Without a word for this long a replica's partitions go to the others. Longer than 30 s, and a
    # group would not form within 90 s after Kafka was away.
    kafka_session_timeout_seconds: float = Field(default=20, ge=1, le=30)
    topic_score_requested: Topic = "score.requested"
    topic_score_completed: Topic = "score.completed"
    topic_quality_risk: Topic = "quality_risk"
    topic_score_failed: Topic = "score.failed"
    topic_score_overridden: Topic = "score.overridden"
    topic_dlq: Topic = "score.requested.dlq"
    event_source: str = Field(default="/score-consumer", min_length=1)

    # Kafka: who we are, and how that is kept from others. What goes with what: _kafka_problems.
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    ) = None
    kafka_sasl_username: str = ""
    kafka_sasl_password: SecretStr | None = None
    kafka_ssl_cafile: FilePath | None = None  # without it, the system's certificates are trusted
    kafka_ssl_certfile: FilePath | None = None
    kafka_ssl_keyfile: FilePath | None = None  # not needed if the key is in the certificate's file
    kafka_ssl_key_password: SecretStr | None = None
    kafka_oauth_token_url: str | None = Field(default=None, pattern=r"^https?://")
    kafka_oauth_client_id: str = ""
    kafka_oauth_client_secret: SecretStr | None = None
    kafka_oauth_scope: str = ""
    # `module:factory` of an aiokafka.abc.AbstractTokenProvider, in place of the token URL.
    kafka_oauth_token_provider: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")

    # Postgres. TLS is in the URL: ?sslmode=verify-full&sslrootcert=/path/of/ca.pem
    database_url: SecretStr = SecretStr("postgresql://postgres@127.0.0.1:5432/postgres")
    # One for each loop, and a few for outcomes that are stored at the same time.
    database_pool_size: int = Field(default=10, ge=4, le=100)

    # History Service
    history_url: str = Field(default="http://127.0.0.1:8001", pattern=r"^https?://")
    # Who we are to it: a bearer token, or another header as `Name: value`. A file of the token is
    # read again whenever it changes.
    history_token: SecretStr | None = None
    history_token_file: FilePath | None = None
    history_header: SecretStr | None = None
    history_timeout_seconds: Seconds = 30
    # Of one session; all that is done for it takes time and memory by its size.
    history_max_bytes: int = Field(default=16 * MIB, ge=1024, le=64 * MIB)
    # Bytes of sessions under way in a process, together: more are not read meanwhile. In memory
    # they may take 48 times as much. None: HISTORY_MAX_BYTES, or 256 KiB a request if more.
    sessions_max_bytes: int | None = Field(default=None, ge=1024, le=65_536 * MIB)

    # Scoring
    scoring_config_dir: Path = Field(default_factory=lambda: resource("config"))

    # Intake
    intake_batch_records: int = Field(default=500, ge=1, le=10_000)
    # Above this many pending requests intake leaves them in Kafka.
    backlog_high_water: int = Field(default=100_000, ge=1, le=1_000_000_000)
    # Above this share of recent records that can't be accepted a partition is slowed.
    dlq_max_invalid_share: float = Field(default=0.5, ge=0.001, le=1)
    # No partition polled for this long, though Kafka answers: the process ends.
    kafka_stale_after_seconds: Seconds = 120

    # Processes that there should be at least: with fewer an alert fires.
    replicas_wanted: int = Field(default=1, ge=1, le=10_000)

    # What alerts hold the service to: the share of requests that are answered with a score, and the
    # share that is answered within so many seconds.
    objective_answered: float = Field(default=0.995, ge=0.5, le=0.99999)
    objective_in_time: float = Field(default=0.99, ge=0.5, le=0.99999)
    objective_seconds: Seconds = 300

    # Worker
    worker_slots: int = Field(default=16, ge=1, le=4096)
    lease_seconds: Seconds = 60
    # Should be below the pod's termination grace period by 10 s or more.
    grace_seconds: Seconds = 25
    request_deadline_seconds: Seconds = 600
    completion_wait_seconds: Seconds = 60
    # So many workers lost in a row while at a request end it; the last of them works on it alone.
    max_lost_leases: int = Field(default=3, ge=1, le=1000)

    # HTTP
    http_host: str = "0.0.0.0"  # probes and scrapers come from other hosts
    http_port: int = Field(default=8080, ge=0, le=65_535)
    # The API's own connections, beside those of the loops.
    api_database_pool_size: int = Field(default=6, ge=1, le=100)
    # Who may call the API: NAME:SCOPES:SHA256 each, see consumer/api/tokens.py. None: everyone may
    # do everything, and access is the matter of a proxy in front.
    api_tokens: SecretStr | None = None
    # Pages that may call the API from a browser: origins, separated by commas; * is any.
    api_cors_origins: str = Field(
        default="", pattern=r"^(\*|https?://[^\s,/]+(,https?://[^\s,/]+)*)?$"
    )
    # Of each caller, for whatever is not just reading; more is answered 429.
    api_writes_per_minute: float = Field(default=600, ge=1, le=1_000_000)

    # Logs
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "console"] = "json"

    # Traces, by OpenTelemetry and its own OTEL_* variables; needs the extra `otel`.
    tracing_enabled: bool = False

    # Tests of faults. See consumer/failpoints.py.
    run_mode: Literal["production", "test"] = "production"
    failpoints: str = ""

    @field_validator("failpoints")
    @classmethod
    def _failpoints_are_for_tests(cls, text: str, info: ValidationInfo) -> str:
        if failpoints.parse(text) and info.data.get("run_mode") != "test":
            raise ValueError("they end the process on purpose: only with RUN_MODE=test")
        return text

    @field_validator("history_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        return http_address(url, credentials=True)

    @field_validator("history_token")
    @classmethod
    def _is_a_token(cls, token: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if token is not None:
            bearer_token(token.get_secret_value())
            if "@" in urlsplit(info.data.get("history_url", "")).netloc:
                raise ValueError("HISTORY_URL has a user and a password as well; keep one of them")
        return token

    @field_validator("history_header")
    @classmethod
    def _is_a_header(cls, text: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if text is not None and "authorization" in header(text.get_secret_value()):
            url = urlsplit(info.data.get("history_url", ""))
            if info.data.get("history_token") or "@" in url.netloc:
                raise ValueError("Authorization is said twice; keep one of them")
        return text

    @field_validator("database_url")
    @classmethod
    def _is_a_postgres_url(cls, url: SecretStr) -> SecretStr:
        """Or else a part of the password could be taken for a host, and told in messages."""
        parts = urlsplit(url.get_secret_value())
        after_host = f"{parts.path}{parts.query}{parts.fragment}"
        if parts.scheme not in {"postgresql", "postgres"} or "@" in after_host:
            raise ValueError(
                "must be postgresql://user:password@host:port/database, with / ? # @ in the user "
                "and the password percent-encoded"
            )
        return url

    @field_validator("api_tokens")
    @classmethod
    def _are_tokens(cls, text: SecretStr | None) -> SecretStr | None:
        if text is not None:
            parse_tokens(text.get_secret_value())
        return text

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Who may call the API; none: everyone."""
        return parse_tokens(self.api_tokens.get_secret_value()) if self.api_tokens else ()

    @property
    def cors_origins(self) -> tuple[str, ...]:
        """Pages that may call the API from a browser."""
        return tuple(filter(None, self.api_cors_origins.split(",")))

    @property
    def most_requests(self) -> int:
        """Under way at a time. A request needs a slot only while the judge is asked: half as many
        again are fetched and stored meanwhile, or wait for another try, so that no slot is idle.
        """
        return self.worker_slots + self.worker_slots // 2

    @property
    def session_bytes(self) -> int:
        """Bytes of the sessions under way, together."""
        usual = max(self.history_max_bytes, self.most_requests * USUAL_SESSION_BYTES)
        return self.sessions_max_bytes or usual

    @property
    def owner(self) -> str:
        """This process, as leases name it."""
        return f"{socket.gethostname()}:{os.getpid()}"

    @property
    def topics(self) -> dict[str, str]:
        """Event type to topic, of what is sent."""
        return {
            "score.completed": self.topic_score_completed,
            "quality_risk": self.topic_quality_risk,
            "score.failed": self.topic_score_failed,
            "score.overridden": self.topic_score_overridden,
        }


def load_settings() -> Settings:
    """The settings. Raises ConfigError that names every variable that is wrong."""
    problems: list[str] = []
    given = {name.upper(): text for name, text in os.environ.items() if text}
    names = [name.upper() for name in Settings.model_fields]
    files = environment.from_files(names, given, problems)
    values: dict[str, Any] = {name.lower(): text for name, text in files.items()}
    settings: Settings | None = None
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += [
            f"{'_'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
            for problem in error.errors()
        ]
    problems += _kafka_problems(given | files)
    if problems or settings is None:
        raise ConfigError(problems)
    return settings


_PROTOCOL, _MECHANISM = "KAFKA_SECURITY_PROTOCOL", "KAFKA_SASL_MECHANISM"
_HOOK = "KAFKA_OAUTH_TOKEN_PROVIDER"
_KEY = {"KAFKA_SSL_KEYFILE", "KAFKA_SSL_KEY_PASSWORD"}
_TLS = {"KAFKA_SSL_CAFILE", "KAFKA_SSL_CERTFILE"} | _KEY
_PASSWORD = {"KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"}
_CLIENT = {"KAFKA_OAUTH_TOKEN_URL", "KAFKA_OAUTH_CLIENT_ID", "KAFKA_OAUTH_CLIENT_SECRET"}
_ACCESS = _TLS | _PASSWORD | _CLIENT | {_MECHANISM, _HOOK, "KAFKA_OAUTH_SCOPE"}


def _kafka_problems(given: Mapping[str, str]) -> Iterator[str]:
    """What the security protocol and the mechanism lack, and what has no effect with them: a
    password that is never asked for shows that something else was meant.
    """
    protocol, mechanism = given.get(_PROTOCOL, "PLAINTEXT"), given.get(_MECHANISM, "")
    chosen = f"{_PROTOCOL}={protocol}"
    needed: set[str] = set()
    allowed: set[str] = set()
    if protocol in {"SSL", "SASL_SSL"}:
        allowed |= _TLS
        needed |= {"KAFKA_SSL_CERTFILE"} if given.keys() & _KEY else set()
    if protocol in {"SASL_PLAINTEXT", "SASL_SSL"}:
        allowed |= {"KAFKA_OAUTH_SCOPE"} if mechanism == "OAUTHBEARER" else set()
        needed |= {_MECHANISM} | _sasl_names(mechanism, given)
        chosen += f" and {_MECHANISM}={mechanism}" if mechanism else ""
    for name in sorted(_ACCESS):
        if name in needed and name not in given:
            yield f"{name}: must be set with {chosen}"
        elif name in given and name not in needed | allowed:
            yield f"{name}: has no effect with {chosen}"


def _sasl_names(mechanism: str, given: Mapping[str, str]) -> set[str]:
    if mechanism == "OAUTHBEARER":
        return {_HOOK} if _HOOK in given else _CLIENT
    return _PASSWORD if mechanism else set()
