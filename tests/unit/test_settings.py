"""Settings: from the environment, all that is wrong at once, secrets never shown."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from consumer.config import PriceOverride, ProviderConfig
from consumer.errors import ConfigError
from consumer.resources import resource
from consumer.settings import Settings, load_settings
from tests.unit.bounds import Number, numbers


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)


def refused() -> list[str]:
    with pytest.raises(ConfigError) as error:
        load_settings()
    return error.value.problems


def test_defaults() -> None:
    settings = load_settings()
    assert settings.kafka_bootstrap_servers == "127.0.0.1:9092"
    assert settings.kafka_enable_idempotence is True
    assert settings.topic_score_requested == "score.requested"
    assert settings.topic_dlq == "score.requested.dlq"
    assert (settings.request_deadline_seconds, settings.completion_wait_seconds) == (600, 60)
    assert settings.scoring_config_dir == resource("config")
    assert (settings.log_level, settings.log_format) == ("INFO", "json")


def test_topics_by_event_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC_SCORE_FAILED", "team.failed")
    assert load_settings().topics == {
        "score.completed": "score.completed",
        "quality_risk": "quality_risk",
        "score.failed": "team.failed",
        "score.overridden": "score.overridden",
    }


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("WORKER_SLOTS", "4", 4),
        ("HISTORY_MAX_BYTES", "67108864", 64 * 1024 * 1024),
        ("KAFKA_ENABLE_IDEMPOTENCE", "false", False),
        ("LEASE_SECONDS", "0.5", 0.5),
        ("HTTP_PORT", "0", 0),
        ("LOG_LEVEL", "DEBUG", "DEBUG"),
        ("SCORING_CONFIG_DIR", "elsewhere", Path("elsewhere")),
        ("worker_slots", "7", 7),
    ],
)
def test_variables(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(load_settings(), name.lower()) == value


@pytest.mark.parametrize("name", [name.upper() for name in Settings.model_fields])
def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    default = load_settings()
    monkeypatch.setenv(name, "")
    assert load_settings() == default


def test_foreign_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SLOTZ", "many")
    assert load_settings().worker_slots == 16


@pytest.mark.parametrize(
    "url",
    ["ftp://me:hunter2@h", "http://me:hunter2", "http://h/?token=hunter2", "http://h/#hunter2"],
)
def test_a_history_url_that_no_client_can_use(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HISTORY_URL", url)
    (problem,) = refused()
    assert problem.startswith("HISTORY_URL: ")
    assert "hunter2" not in problem


def test_every_wrong_variable_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "TOPIC_DLQ": "a b",
        "DATABASE_POOL_SIZE": "3",
        "HISTORY_URL": "history",
        "HISTORY_MAX_BYTES": "67108865",
        "DLQ_MAX_INVALID_SHARE": "0",
        "LEASE_SECONDS": "-1",
        "HTTP_PORT": "65536",
        "LOG_FORMAT": "xml",
        "WORKER_SLOTS": "many",
    }
    for name, text in wrong.items():
        monkeypatch.setenv(name, text)
    problems = refused()
    assert [problem.split(": ")[0] for problem in problems] == [
        name.upper() for name in Settings.model_fields if name.upper() in wrong
    ]
    assert "LOG_FORMAT: Input should be 'json' or 'console'" in problems
    assert "HTTP_PORT: Input should be less than or equal to 65535" in problems


@pytest.mark.parametrize("number", numbers(Settings), ids=lambda number: number.name)
def test_a_number_beyond_its_bounds_is_refused(
    monkeypatch: pytest.MonkeyPatch, number: Number
) -> None:
    for value, allowed in number.beyond:
        monkeypatch.setenv(number.name.upper(), str(value))
        assert refused() == [f"{number.name.upper()}: Input should be {allowed}"]


@pytest.mark.parametrize("model", [Settings, ProviderConfig, PriceOverride])
def test_every_number_has_bounds(model: type[BaseModel]) -> None:
    assert numbers(model)
    for number in numbers(model):
        assert number.least is not None, number.name
        assert number.most is not None, number.name


@pytest.mark.parametrize("seconds", ["0", "86401", "nan", "inf"])
def test_times_are_positive_and_finite(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("GRACE_SECONDS", seconds)
    (problem,) = refused()
    assert problem.startswith("GRACE_SECONDS: Input should be ")


def test_the_database_s_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://scorer:hunter2@db.example/scores"
    monkeypatch.setenv("DATABASE_URL", url)
    settings = load_settings()
    assert settings.database_url.get_secret_value() == url
    shown = f"{settings} {settings!r} {settings.model_dump()} {settings.model_dump_json()}"
    assert "hunter2" not in shown
    # Nor when something else is wrong.
    monkeypatch.setenv("HTTP_PORT", "hunter2")
    assert "hunter2" not in "".join(refused())


def test_settings_are_frozen() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.worker_slots = 1


def test_the_owner_names_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "pod-7")
    monkeypatch.setattr("os.getpid", lambda: 42)
    assert load_settings().owner == "pod-7:42"


SASL = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KAFKA_SASL_USERNAME": "scorer",
    "KAFKA_SASL_PASSWORD": "hunter2",
}
OAUTH = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (SASL, []),
        ({"kafka_security_protocol": "SSL", "KAFKA_SSL_CAFILE": __file__}, []),
        (OAUTH | {"KAFKA_OAUTH_TOKEN_PROVIDER": "mine:tokens"}, []),
        (
            OAUTH,
            [
                "KAFKA_OAUTH_CLIENT_ID: must be set with",
                "KAFKA_OAUTH_CLIENT_SECRET: must be set with",
                "KAFKA_OAUTH_TOKEN_URL: must be set with",
            ],
        ),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_SSL_CAFILE": __file__},
            ["KAFKA_SASL_MECHANISM: must be set with", "KAFKA_SSL_CAFILE: has no effect with"],
        ),
        (
            SASL | {"KAFKA_SECURITY_PROTOCOL": "SSL"},
            [
                "KAFKA_SASL_MECHANISM: has no effect with",
                "KAFKA_SASL_PASSWORD: has no effect with",
                "KAFKA_SASL_USERNAME: has no effect with",
            ],
        ),
        ({"KAFKA_SASL_PASSWORD": "hunter2"}, ["KAFKA_SASL_PASSWORD: has no effect with"]),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEYFILE": __file__},
            ["KAFKA_SSL_CERTFILE: must be set with"],
        ),
        (
            # What is wrong by itself and what does not fit are told together.
            SASL | {"KAFKA_SASL_USERNAME": "", "KAFKA_SSL_CAFILE": "/no/ca.pem"},
            ["KAFKA_SSL_CAFILE: Path does not", "KAFKA_SASL_USERNAME: must be set with"],
        ),
    ],
)
def test_what_goes_with_which_kafka_protocol(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], problems: list[str]
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    if not problems:
        load_settings()
        return
    told = refused()
    assert len(told) == len(problems)
    for found, expected in zip(told, problems, strict=True):
        assert found.startswith(expected)
        assert "hunter2" not in found


def test_any_variable_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass word\r\n")
    for name, text in SASL.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "")
    monkeypatch.setenv("KAFKA_SASL_PASSWORD_FILE", str(secret))
    password = load_settings().kafka_sasl_password
    assert password is not None
    assert password.get_secret_value() == "pass word"


def test_a_file_that_can_t_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    monkeypatch.setenv("DATABASE_URL_FILE", "/no/such")
    monkeypatch.setenv("HISTORY_URL_FILE", str(empty))
    monkeypatch.setenv("LOG_LEVEL_FILE", str(binary))
    monkeypatch.setenv("WORKER_SLOTS", "3")
    monkeypatch.setenv("WORKER_SLOTS_FILE", str(empty))
    assert sorted(refused()) == [
        "DATABASE_URL_FILE: /no/such: No such file or directory",
        f"HISTORY_URL_FILE: {empty}: is empty",
        f"LOG_LEVEL_FILE: {binary}: not UTF-8",
        "WORKER_SLOTS_FILE: WORKER_SLOTS is set as well; unset one of them",
    ]


@pytest.mark.parametrize(
    "url", ["mysql://db/scores", "postgresql://u:hunt/er2@db/s", "postgresql://u:hunt#er2@db/s"]
)
def test_a_database_url_that_would_be_misread(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    (problem,) = refused()
    assert problem.startswith("DATABASE_URL: Value error, must be postgresql://")
    assert "er2" not in problem
