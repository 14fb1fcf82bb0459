"""TLS and SASL with real servers: who is let in, who is not, and what is said of it."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from aiokafka.abc import AbstractTokenProvider
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from consumer.brokers import kafka_security
from consumer.demo.servers import EmbeddedPostgres, ServerError
from consumer.demo.world import ConsumerProcess, served
from consumer.edges.kafka import Producer
from consumer.edges.kafka_security import ClientCredentials
from consumer.edges.postgres.connect import connection, open_pool
from consumer.edges.postgres.store import Store
from consumer.errors import ConfigError, NotReachable
from consumer.events import ScoreRequested
from consumer.intake import Intake, IntakeSettings
from consumer.loops import Heartbeat
from consumer.requesting import publish, with_ids
from consumer.settings import Settings, load_settings
from tests.integration.builders import opened_store, until
from tests.support.certificates import OPENSSL, Authority
from tests.support.secure_servers import (
    CERTIFIED,
    PASSWORD,
    USER,
    InstalledPostgres,
    SecureKafka,
    secure,
)
from tests.support.stage import CliResult
from tests.support.stand_ins import StandIns, stand_ins

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")

OAUTH_SECRET = "oauth secret/1"  # noqa: S105  of the token server below
KEY_PASSWORD = "key-secret-1"  # noqa: S105


@pytest_asyncio.fixture(autouse=True)
async def farewell() -> AsyncIterator[None]:
    """Neither aiokafka nor asyncpg waits until a connection that failed is closed. With TLS that
    needs an answer, which must come before the test's loop ends.
    """
    yield
    await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
def authority(servers_dir: Path) -> Authority:
    return Authority(servers_dir / "certificates")


@pytest.fixture(scope="module")
def stranger(servers_dir: Path) -> Authority:
    """An authority that nobody here knows."""
    return Authority(servers_dir / "other-certificates", "stranger")


@pytest.fixture(scope="module")
def secure_kafka(servers_dir: Path, authority: Authority) -> Iterator[SecureKafka]:
    if missing := [name for name in ("java", "mvn") if not shutil.which(name)]:
        pytest.skip(f"{' and '.join(missing)} not installed")
    server = SecureKafka(servers_dir / "secure-kafka", authority)
    try:
        server.start()
    except ServerError as error:
        if "Maven failed" not in str(error):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@dataclass(slots=True)
class TokenServer:
    """OAuth's token endpoint: who has the secret gets an unsigned token for `lifetime_s`."""

    url: str = ""
    lifetime_s: float = 600
    fault: Response | None = None
    asked: list[dict[str, list[str]]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.asked.append(parse_qs((await request.body()).decode()))
        answer = self.fault or self._answer(request.headers.get("authorization", ""))
        await answer(scope, receive, send)

    def _answer(self, authorization: str) -> Response:
        known = base64.b64encode(b"scorer:oauth+secret%2F1").decode()
        if authorization != f"Basic {known}":
            return JSONResponse({"error": "invalid_client"}, 401)
        now = time.time()
        claims = {"sub": "scorer", "iat": now, "exp": now + self.lifetime_s}
        token = ".".join(_encoded(part) for part in ({"alg": "none"}, claims)) + "."
        return JSONResponse({"access_token": token, "expires_in": self.lifetime_s})


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@pytest_asyncio.fixture
async def token_server() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    async with served(server) as server.url:
        yield server


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The environment for each way into the broker."""

    kafka: SecureKafka
    authority: Authority
    tokens: TokenServer

    def __getitem__(self, way: str) -> dict[str, str]:
        listener = way.partition("-")[0]
        access = {
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.at(listener),
            "KAFKA_SECURITY_PROTOCOL": "SSL" if listener == "MUTUAL" else "SASL_SSL",
            "KAFKA_SSL_CAFILE": str(self.authority.cert),
        }
        shown: dict[str, str] = getattr(self, f"_{listener.lower()}")(way)
        return access | shown

    def _plain(self, way: str) -> dict[str, str]:
        return {
            "KAFKA_SASL_MECHANISM": way,
            "KAFKA_SASL_USERNAME": USER,
            "KAFKA_SASL_PASSWORD": PASSWORD,
        }

    _scram = _plain

    def _oauth(self, way: str) -> dict[str, str]:
        return {
            "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
            "KAFKA_OAUTH_TOKEN_URL": f"{self.tokens.url}/token",
            "KAFKA_OAUTH_CLIENT_ID": "scorer",
            "KAFKA_OAUTH_CLIENT_SECRET": OAUTH_SECRET,
            "KAFKA_OAUTH_SCOPE": "kafka",
        }

    def _mutual(self, way: str) -> dict[str, str]:
        ours = self.authority.issue("scorer", key_password=KEY_PASSWORD)
        return {
            "KAFKA_SSL_CERTFILE": str(ours.cert),
            "KAFKA_SSL_KEYFILE": str(ours.key),
            "KAFKA_SSL_KEY_PASSWORD": KEY_PASSWORD,
        }


@pytest.fixture
def ways(secure_kafka: SecureKafka, authority: Authority, token_server: TokenServer) -> Ways:
    return Ways(kafka=secure_kafka, authority=authority, tokens=token_server)


def settings_of(environment: dict[str, str]) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        return load_settings()


async def ask(settings: Settings, topic: str) -> None:
    """Sends one request. Raises what the product raises."""
    producer = Producer(
        settings.kafka_bootstrap_servers, idempotent=True, options=kafka_security(settings).options
    )
    try:
        requests = with_ids([ScoreRequested(session_id="s-1", triggered_by="test")])
        await publish(requests, producer=producer, topic=topic, source="/tests")
    finally:
        await producer.close()


@contextlib.asynccontextmanager
async def taking_in(
    settings: Settings, topic: str, store: Store
) -> AsyncIterator[asyncio.Task[None]]:
    """An intake at work; told to stop at the end."""
    intake = Intake(
        IntakeSettings(
            bootstrap=settings.kafka_bootstrap_servers,
            topic=topic,
            dlq_topic=f"{topic}.dlq",
            group_id=f"group-{topic}",
            batch_records=10,
            high_water=100,
            invalid_share=1.0,
            stale_after_s=60,
            session_timeout_s=6,
            security=kafka_security(settings),
        ),
        store=store,
        accepted=lambda: None,
        rejected=lambda: None,
        joined=lambda: None,
        heartbeat=Heartbeat("intake", limit_s=60),
        fail=lambda error: None,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(intake.run(stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTH", "MUTUAL"])
async def test_a_request_goes_to_the_broker_and_comes_back(
    way: str, ways: Ways, database: str
) -> None:
    settings, topic = settings_of(ways[way]), uuid4().hex
    await ask(settings, topic)
    async with opened_store(database) as store, taking_in(settings, topic, store):

        async def stored() -> bool:
            return (await store.backlog(10)).pending == 1

        await until(stored, what="the request in the database")


@pytest.mark.parametrize(
    ("way", "wrong", "told"),
    [
        ("PLAIN", {"KAFKA_SASL_PASSWORD": "guess-me"}, "Invalid username or password"),
        ("SCRAM-SHA-512", {"KAFKA_SASL_PASSWORD": "guess-me"}, "invalid credentials"),
        ("SCRAM-SHA-512", {"KAFKA_SASL_MECHANISM": "PLAIN"}, "UnsupportedSaslMechanismError"),
        ("OAUTH", {"KAFKA_OAUTH_CLIENT_SECRET": "guess-me"}, "answers 401 invalid_client"),
    ],
)
async def test_who_is_refused_stops_and_says_so(
    way: str, wrong: dict[str, str], told: str, ways: Ways, database: str
) -> None:
    settings = settings_of(ways[way] | wrong)
    with pytest.raises(ConfigError) as refused:
        await ask(settings, "unused")
    async with opened_store(database) as store, taking_in(settings, "unused", store) as task:
        with pytest.raises(ConfigError) as intake_refused:
            await asyncio.wait_for(task, 20)
    for message in (str(refused.value), str(intake_refused.value)):
        assert f"Kafka at {settings.kafka_bootstrap_servers} (SASL_SSL) refuses us" in message
        assert told in message
        assert "guess-me" not in message


async def test_a_broker_that_is_not_to_be_trusted_is_sent_nothing(
    ways: Ways, stranger: Authority
) -> None:
    settings = settings_of(ways["PLAIN"] | {"KAFKA_SSL_CAFILE": str(stranger.cert)})
    with pytest.raises(NotReachable, match="its certificate can't be trusted") as error:
        await ask(settings, "unused")
    assert error.value.server == "kafka"


async def test_a_broker_that_wants_a_certificate_and_gets_none(ways: Ways) -> None:
    access = ways["MUTUAL"]
    for name in ("KAFKA_SSL_CERTFILE", "KAFKA_SSL_KEYFILE", "KAFKA_SSL_KEY_PASSWORD"):
        del access[name]
    with pytest.raises(NotReachable, match="does not answer"):
        await ask(settings_of(access), "unused")


async def test_a_broker_that_wants_tls_and_gets_none(ways: Ways) -> None:
    plain = {"KAFKA_BOOTSTRAP_SERVERS": ways.kafka.at("PLAIN")}
    with pytest.raises(NotReachable, match=r"\(PLAINTEXT\) does not answer"):
        await ask(settings_of(plain), "unused")


async def cli(environment: dict[str, str], *arguments: str) -> CliResult:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "consumer.cli", *arguments),
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return CliResult(process.returncode or 0, out.decode(), err.decode())


def in_files(folder: Path, environment: dict[str, str], *names: str) -> dict[str, str]:
    """The environment, with these variables in files instead, as Kubernetes mounts secrets."""
    changed = dict(environment)
    for name in names:
        path = folder / name.lower()
        path.write_text(changed.pop(name) + "\n")
        changed[f"{name}_FILE"] = str(path)
    return changed


async def test_the_whole_product_with_secrets_from_files(
    ways: Ways, secure_postgres: EmbeddedPostgres, authority: Authority, tmp_path: Path
) -> None:
    run = uuid4().hex
    async with stand_ins() as services:
        services.add("s-good", "good")
        environment = in_files(
            tmp_path,
            ways["SCRAM-SHA-512"] | surroundings(services, secure_postgres, authority, run),
            *("DATABASE_URL", "KAFKA_SASL_PASSWORD", "LLM_API_KEY"),
        )
        for command in (("migrate",), ("publish", "s-good"), ("check",)):
            done = await cli(environment, *command)
            assert done.code == 0, done.err + done.out
        async with running(tmp_path / "consumer", environment) as log:
            await scored(settings_of(environment))
        shown = json.loads((await cli(environment, "show", "s-good", "--json")).out)
        assert [score["total_score"] for score in shown["scores"]] == [88]
        for secret in (PASSWORD, "llm-secret-1", secure_postgres.dsn):
            assert secret not in log.read_text()
    wrong = await cli(environment | {"KAFKA_SASL_USERNAME": "nobody"}, "publish", "s-good")
    assert wrong.code == 1
    assert "refuses us" in wrong.err
    assert "Traceback" not in wrong.err


def surroundings(
    services: StandIns, postgres: EmbeddedPostgres, authority: Authority, run: str
) -> dict[str, str]:
    topics = ("REQUESTED", "COMPLETED", "FAILED", "OVERRIDDEN")
    return {
        "DATABASE_URL": url(postgres, sslmode="verify-full", sslrootcert=authority.cert),
        "KAFKA_GROUP_ID": run,
        **{f"TOPIC_SCORE_{topic}": f"{run}.{topic.lower()}" for topic in topics},
        "TOPIC_QUALITY_RISK": f"{run}.risk",
        "TOPIC_DLQ": f"{run}.dlq",
        "HISTORY_URL": services.history_url,
        "SCORING_LLM_PROVIDER": "openai-compatible",
        "SCORING_LLM_MODEL": "scripted-judge",
        "LLM_BASE_URL": f"{services.judge_url}/v1",
        "LLM_API_KEY": "llm-secret-1",
    }


@contextlib.asynccontextmanager
async def running(folder: Path, environment: dict[str, str]) -> AsyncIterator[Path]:
    """`score-consumer run` at work; its log."""
    process = ConsumerProcess(folder, environment)
    await asyncio.to_thread(process.start)
    try:
        yield process.log
    finally:
        await asyncio.to_thread(process.stop)


async def scored(settings: Settings) -> None:
    """Returns when the session is scored and its events are sent."""
    async with connection(settings.database_url.get_secret_value()) as opened:

        async def done() -> bool:
            sql = "SELECT count(*) FROM session_scores WHERE NOT EXISTS (SELECT FROM outbox)"
            return bool(await opened.fetchval(sql))

        await until(done, what="the score and its events")


class Fixed(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return "fixed"


def test_a_token_provider_of_ones_own() -> None:
    oauth = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
    hook = oauth | {"KAFKA_OAUTH_TOKEN_PROVIDER": f"{__name__}:Fixed"}
    assert isinstance(kafka_security(settings_of(hook)).tokens, Fixed)
    for path, told in (("json:dumps", "TypeError"), ("os:getcwd", "makes a str"), ("no:x", "No")):
        with pytest.raises(ConfigError, match=f"KAFKA_OAUTH_TOKEN_PROVIDER: {path}.*{told}"):
            kafka_security(settings_of(hook | {"KAFKA_OAUTH_TOKEN_PROVIDER": path}))


def credentials(server: TokenServer, secret: str = OAUTH_SECRET) -> ClientCredentials:
    return ClientCredentials(url=server.url, client_id="scorer", client_secret=secret, scope="k")


async def test_a_token_is_used_until_it_is_nearly_over(token_server: TokenServer) -> None:
    tokens = credentials(token_server)
    first, *others = await asyncio.gather(*(tokens.token() for _ in range(5)))
    assert set(others) == {first}
    assert token_server.asked == [{"grant_type": ["client_credentials"], "scope": ["k"]}]
    token_server.lifetime_s = 0.5
    hasty = credentials(token_server)
    short = await hasty.token()
    await asyncio.sleep(0.42)
    assert await hasty.token() != short


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Response("{}", 500), "answers 500"),
        (JSONResponse({"error": "Secret in here!"}, 400), "answers 400$"),
        (Response("no json", 200), "holds no access_token"),
        (JSONResponse({"access_token": "a\u0001b"}), "holds no access_token"),
        (Response("x" * 70_000, 200), "too long"),
    ],
)
async def test_a_token_server_that_fails_is_told_without_its_words(
    token_server: TokenServer, fault: Response, told: str
) -> None:
    token_server.fault = fault
    with pytest.raises(Exception, match=told) as error:
        await credentials(token_server).token()
    assert "Secret" not in str(error.value)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure_postgres(
    servers_dir: Path, authority: Authority
) -> AsyncIterator[EmbeddedPostgres]:
    if InstalledPostgres.program() is None:
        pytest.skip("no PostgreSQL is installed, and the embedded one has no TLS")
    server = InstalledPostgres(servers_dir / "secure-postgres")
    await asyncio.to_thread(server.start)
    try:
        try:
            await secure(server, authority.issue("postgres", "IP:127.0.0.1"), authority.cert)
        except asyncpg.InvalidParameterValueError as error:
            pytest.skip(f"the installed PostgreSQL: {error}")
        yield server
    finally:
        await asyncio.to_thread(server.stop)


def url(server: EmbeddedPostgres, **parameters: object) -> str:
    return f"{server.dsn}?{urlencode(parameters)}"


async def test_postgres_is_verified_by_its_certificate(
    secure_postgres: EmbeddedPostgres, authority: Authority
) -> None:
    dsn = url(secure_postgres, sslmode="verify-full", sslrootcert=authority.cert)
    async with connection(dsn) as opened:
        encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert await opened.fetchval(encrypted) is True
    pool = await open_pool(dsn, size=1)
    assert await pool.fetchval(encrypted) is True
    await pool.close()


async def test_postgres_is_refused_where_it_can_t_be_trusted(
    secure_postgres: EmbeddedPostgres, authority: Authority, stranger: Authority
) -> None:
    unknown = url(secure_postgres, sslmode="verify-full", sslrootcert=stranger.cert)
    known = url(secure_postgres, sslmode="verify-full", sslrootcert=authority.cert)
    misnamed = known.replace("@127.0.0.1:", "@localhost:")
    for dsn in (unknown, misnamed):
        with pytest.raises(NotReachable, match="its certificate can't be trusted") as error:
            await open_pool(dsn, size=1)
        assert secure_postgres.dsn.split(":")[2].split("@")[0] not in str(error.value)
    async with connection(misnamed.replace("verify-full", "verify-ca")) as opened:
        assert await opened.fetchval("SELECT 1") == 1


async def test_postgres_refuses_who_comes_without_tls(secure_postgres: EmbeddedPostgres) -> None:
    with pytest.raises(ConfigError, match=r"refuses us: .*no encryption"):
        await open_pool(url(secure_postgres, sslmode="disable"), size=1)


async def test_postgres_knows_us_by_our_certificate(
    secure_postgres: EmbeddedPostgres, authority: Authority
) -> None:
    ours = authority.issue(CERTIFIED)
    server = {"sslmode": "verify-full", "sslrootcert": authority.cert}
    certified = url(secure_postgres, **server, sslcert=ours.cert, sslkey=ours.key)
    place = f"127.0.0.1:{secure_postgres.port}"
    dsn = f"postgresql://{CERTIFIED}@{place}{certified.partition(place)[2]}"
    async with connection(dsn) as opened:
        assert await opened.fetchval("SELECT current_user") == CERTIFIED
    with pytest.raises(ConfigError, match="refuses us"):
        await open_pool(dsn.partition("&sslcert")[0], size=1)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"sslrootcert": "/no/ca.pem"}, r"/no/ca.pem: no certificate to trust \(No such file"),
        ({"sslcert": __file__}, "test_security.py: no certificate with its key"),
        ({"sslmode": "maybe"}, "sslmode"),
    ],
)
async def test_a_url_that_can_t_be_used_is_not_waited_for(
    parameters: dict[str, str], told: str
) -> None:
    dsn = f"postgresql://scorer:hidden-password@127.0.0.1:1/db?{urlencode(parameters)}"
    with pytest.raises(ConfigError, match=f"DATABASE_URL: .*{told}") as error:
        await open_pool(dsn, size=1)
    assert "hidden-password" not in str(error.value)
