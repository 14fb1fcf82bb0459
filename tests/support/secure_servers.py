"""A Kafka and a PostgreSQL that take nobody without TLS, as a company would run them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import asyncpg

from consumer.demo.servers import HOST, EmbeddedPostgres, free_port
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority, Certificate

USER, PASSWORD = "scorer", "kafka-secret-1"

_LOGIN = "org.apache.kafka.common.security"
_CONFIG = """
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
listener.name.mutual.ssl.client.auth=required
listener.name.plain.sasl.enabled.mechanisms=PLAIN
listener.name.plain.plain.sasl.jaas.config={login}.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.scram.scram-sha-256.sasl.jaas.config={login}.scram.ScramLoginModule required;
listener.name.scram.scram-sha-512.sasl.jaas.config={login}.scram.ScramLoginModule required;
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config={login}.oauthbearer.OAuthBearerLoginModule \
required unsecuredLoginStringClaim_sub="broker";
"""


class SecureKafka(ApacheKafka):
    """Listeners for PLAIN, SCRAM and OAuth over TLS, and one for client certificates. OAuth takes
    any unsigned token. (The one without TLS is the broker's own.)
    """

    def __init__(self, data_dir: Path, authority: Authority) -> None:
        super().__init__(data_dir)
        self._authority = authority
        self._server = authority.issue("kafka", f"IP:{HOST}")
        self._ports = {name: free_port() for name in ("PLAIN", "SCRAM", "OAUTH", "MUTUAL")}

    def at(self, listener: str) -> str:
        """The listener as host:port."""
        return f"{HOST}:{self._ports[listener]}"

    def _properties(self) -> str:
        secure = [f"{name}://{self.at(name)}" for name in self._ports]
        ours = f"PLAINTEXT://{self.bootstrap}"
        protocols = {name: "SSL" if name == "MUTUAL" else "SASL_SSL" for name in self._ports}
        # The last word on a property is what Java takes.
        return super()._properties() + _CONFIG.format(
            listeners=",".join([ours, f"CONTROLLER://{HOST}:{self._controller_port}", *secure]),
            advertised=",".join([ours, *secure]),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            keystore=self._server.both,
            truststore=self._authority.cert,
            login=_LOGIN,
            user=USER,
            password=PASSWORD,
        )

    def _format(self, *more: str) -> None:
        users = [f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512)]
        super()._format(*more, *(part for user in users for part in ("--add-scram", user)))


class InstalledPostgres(EmbeddedPostgres):
    """The PostgreSQL of this machine, 14 or later: the one in the wheel is built without TLS."""

    @staticmethod
    def program() -> Path | None:
        """Where it is; None where there is none."""
        found = shutil.which("postgres")
        return Path(found).resolve() if found else None

    @classmethod
    def _program(cls, name: str) -> str:
        return str((cls.program() or Path("postgres")).with_name(name))

    def _launched(self, command: Sequence[str]) -> list[str]:
        # initdb has known these since PostgreSQL 17.
        new = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        return super()._launched([part for part in command if part not in new])


CERTIFIED = "certified"
_HBA = f"""
hostssl all {CERTIFIED} {HOST}/32 cert
hostssl all all {HOST}/32 password
"""


async def secure(postgres: EmbeddedPostgres, server: Certificate, trusted: Path) -> None:
    """Lets in nobody without TLS from now on, and the user CERTIFIED by certificate only.

    Raises asyncpg.InvalidParameterValueError where the server is built without TLS.
    """
    connection = await asyncpg.connect(postgres.dsn)
    try:
        folder = Path(await connection.fetchval("SHOW data_directory"))
        for source, name in ((server.cert, "cert"), (server.key, "key"), (trusted, "ca")):
            _hand_over(source, folder / f"server.{name}")
            await connection.execute(f"ALTER SYSTEM SET ssl_{name}_file = 'server.{name}'")
        await connection.execute("ALTER SYSTEM SET ssl = on")
        await connection.execute(f"CREATE USER {CERTIFIED}")
        (folder / "pg_hba.conf").write_text(_HBA)
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()
    await _until_reloaded(f"{postgres.dsn}?sslmode=require")


async def _until_reloaded(dsn: str) -> None:
    deadline = monotonic() + 10
    while True:
        try:
            await (await asyncpg.connect(dsn)).close()
        except (OSError, asyncpg.PostgresError):
            assert monotonic() < deadline, "no TLS after 10 s"
            await asyncio.sleep(0.05)
        else:
            return


def _hand_over(source: Path, target: Path) -> None:
    """A copy that belongs to the server's user, and that nobody else can read."""
    shutil.copy(source, target)
    target.chmod(0o600)
    owner = target.parent.stat()
    os.chown(target, owner.st_uid, owner.st_gid)
