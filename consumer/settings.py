"""Settings, from the environment. Read once at the start, frozen, and passed in."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from consumer.errors import ConfigError
from consumer.resources import resource

Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseSettings):
    """Each field is an environment variable of the same name in capitals. Times in seconds."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    # Kafka
    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    kafka_group_id: str = "score-consumer"
    # Off only for brokers that lack it (some embedded ones): a lost reply may then send twice.
    kafka_enable_idempotence: bool = True
    # Without a word for this long a replica's partitions go to the others.
    kafka_session_timeout_seconds: Seconds = 45
    topic_score_requested: Topic = "score.requested"
    topic_score_completed: Topic = "score.completed"
    topic_quality_risk: Topic = "quality_risk"
    topic_score_failed: Topic = "score.failed"
    topic_score_overridden: Topic = "score.overridden"
    topic_dlq: Topic = "score.requested.dlq"
    event_source: str = Field(default="/score-consumer", min_length=1)

    # Postgres
    database_url: SecretStr = SecretStr("postgresql://postgres@127.0.0.1:5432/postgres")
    # One for each loop, and a few for outcomes that are stored at the same time.
    database_pool_size: int = Field(default=10, ge=4, le=100)

    # History Service
    history_url: str = Field(default="http://127.0.0.1:8001", pattern=r"^https?://")
    history_timeout_seconds: Seconds = 30
    history_max_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)

    # Scoring
    scoring_config_dir: Path = Field(default_factory=lambda: resource("config"))

    # Intake
    intake_batch_records: int = Field(default=500, ge=1, le=10_000)
    # Above this many pending requests intake leaves them in Kafka.
    backlog_high_water: int = Field(default=100_000, ge=1)
    # Above this share of recent records that can't be accepted intake stops.
    dlq_max_invalid_share: float = Field(default=0.5, gt=0, le=1)
    # No partition polled for this long: the consumer is dead, and so is the process.
    kafka_stale_after_seconds: Seconds = 120

    # Worker
    worker_slots: int = Field(default=16, ge=1, le=4096)
    lease_seconds: Seconds = 60
    # Should be below the pod's termination grace period by 10 s or more.
    grace_seconds: Seconds = 25
    request_deadline_seconds: Seconds = 600
    completion_wait_seconds: Seconds = 60
    max_lost_leases: int = Field(default=10, ge=1)

    # HTTP
    http_host: str = "0.0.0.0"  # probes and scrapers come from other hosts
    http_port: int = Field(default=8080, ge=0, le=65_535)

    # Logs
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "console"] = "json"

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
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigError(
            [
                f"{'_'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}"
                for problem in error.errors()
            ]
        ) from error
