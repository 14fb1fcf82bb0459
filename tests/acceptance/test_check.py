"""`check` is right where a server answers, and does not serve the consumer."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import JoinGroupRequest

from consumer.edges.kafka_look import MAKES_TOPICS
from tests.support.apache_kafka import ApacheKafka
from tests.support.stage import Stage
from tests.support.stand_ins import answer

LIST_OF_SESSIONS = ""  # what the stand-in counts its calls under


async def checked(stage: Stage, name: str, **changes: Any) -> dict[str, Any]:
    """What became of the check of this name."""
    result = await stage.cli("check", "--json", **changes)
    made: dict[str, Any] = next(made for made in result.json if made["name"] == name)
    assert result.code == 0 or not all(made["ok"] for made in result.json)
    return made


@contextlib.asynccontextmanager
async def locked(stage: Stage, statement: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that has done this, and does not end."""
    settings = {"application_name": "nightly-report"}
    holder = await asyncpg.connect(stage.database_url, server_settings=settings)
    try:
        async with holder.transaction():
            await holder.execute(statement)
            yield holder
    finally:
        await holder.close()


@pytest.mark.parametrize(
    ("table", "mode"),
    [
        ("score_requests", "ACCESS EXCLUSIVE"),
        ("session_scores", "SHARE"),  # may be read
        ("outbox", "SHARE ROW EXCLUSIVE"),
        ("schema_migrations", "ACCESS EXCLUSIVE"),
    ],
)
async def test_a_lock_is_found_with_its_holder(stage: Stage, table: str, mode: str) -> None:
    async with locked(stage, f"LOCK TABLE {table} IN {mode} MODE") as holder:
        found = await checked(stage, "postgres")
        pid = await holder.fetchval("SELECT pg_backend_pid()")
    assert not found["ok"]
    for part in (f"{table} is locked", f"pid {pid} (nightly-report), idle in transaction, since"):
        assert part in found["told"]
    assert "LOCK TABLE" not in found["told"], "a statement may hold anything"
    assert (await checked(stage, "postgres"))["ok"], "and nothing of the check stays"


async def test_a_row_that_is_being_worked_on_is_no_lock(stage: Stage) -> None:
    async with locked(stage, "INSERT INTO judge_profiles VALUES ('p', 1, '{}', true, now(), 'x')"):
        assert (await checked(stage, "postgres"))["ok"]
    assert await stage.rows("SELECT FROM outbox") == []


async def test_a_database_that_only_reads_is_found(stage: Stage) -> None:
    name = urlsplit(stage.database_url).path.strip("/")
    await stage.rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    found = await checked(stage, "postgres")
    assert not found["ok"]
    assert "can't be written to: default_transaction_read_only is on" in found["told"]


async def test_a_right_that_lacks_is_found(stage: Stage) -> None:
    role = f"reader_{uuid4().hex}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'p'",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
    ):
        await stage.rows(statement)
    url = urlsplit(stage.database_url)
    reader = url._replace(netloc=f"{role}:p@{url.hostname}:{url.port}").geturl()
    try:
        found = await checked(stage, "postgres", database_url=reader)
    finally:
        await stage.rows(f"DROP OWNED BY {role}")
        await stage.rows(f"DROP ROLE {role}")
    assert not found["ok"]
    assert "permission denied for table score_requests" in found["told"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (answer(503), "answers 503"),
        (answer(401), "answers 401"),
        (answer(404), "HISTORY_URL"),
        (answer(200, "<html>Sign in</html>"), "can't be read"),
    ],
    ids=["503", "401", "404", "html"],
)
async def test_a_history_service_that_does_not_list_sessions_is_found(
    stage: Stage, fault: Any, told: str
) -> None:
    stage.stand_ins.history_faults.forever[LIST_OF_SESSIONS] = fault
    found = await checked(stage, "history")
    assert not found["ok"]
    assert told in found["told"]
    assert "Sign in" not in found["told"]


class Strict(ApacheKafka):
    """Makes no topic by itself, as most clusters are set."""

    def _properties(self) -> str:
        return super()._properties().replace(f"{MAKES_TOPICS}=true", f"{MAKES_TOPICS}=false")


@pytest.mark.skipif(not shutil.which("mvn"), reason="Apache Kafka comes by Maven")
async def test_topics_that_nobody_makes_are_found(stage: Stage, tmp_path: Path) -> None:
    for kind in (ApacheKafka, Strict):
        broker = kind(tmp_path / kind.__name__)
        try:
            await asyncio.to_thread(broker.start)
            found = await checked(stage, "kafka", kafka_bootstrap_servers=broker.bootstrap)
        finally:
            await asyncio.to_thread(broker.stop)
        assert found["ok"] is (kind is ApacheKafka), found["told"]
    assert f"there is no topic {min(astuple(stage.topics))}" in found["told"]


async def test_the_group_is_told_and_left_alone(stage: Stage) -> None:
    empty = await checked(stage, "kafka")
    assert empty["ok"], empty["told"]
    assert f"group {stage.group_id} is " in empty["told"]
    assert "members 0, lag 0: no intake is running" in empty["told"]
    await stage.send({"session_id": "s-one"}, {"session_id": "s-two"})
    assert "lag 2" in (await checked(stage, "kafka"))["told"]

    moves = Moves()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=stage.kafka.bootstrap, group_id=stage.group_id, enable_auto_commit=False
    )
    consumer.subscribe([stage.topics.requested], listener=moves)
    try:
        await consumer.start()
        async with asyncio.timeout(30):
            while not consumer.assignment():
                await asyncio.sleep(0.05)
        before = moves.count
        told = (await checked(stage, "kafka"))["told"]
        assert f"group {stage.group_id} is Stable, members 1, lag 2" in told
        assert moves.count == before, "nobody was asked to join anew"
    finally:
        await consumer.stop()


async def test_a_group_that_does_not_form_is_found(stage: Stage) -> None:
    client = AIOKafkaClient(bootstrap_servers=stage.kafka.bootstrap, client_id="somebody-else")
    await client.bootstrap()
    try:
        await join_and_fall_silent(client, stage)
        found = await checked(stage, "kafka")
    finally:
        await client.close()
    assert not found["ok"]
    assert f"group {stage.group_id} is CompletingRebalance, members 1" in found["told"]
    assert "does not come to be formed, its members: somebody-else at " in found["told"]


async def join_and_fall_silent(client: AIOKafkaClient, stage: Stage) -> None:
    """A first member, whom the group waits for to say who reads what."""
    protocols = [
        ("range", ConsumerProtocolMemberMetadata(0, [stage.topics.requested], b"").encode())
    ]
    coordinator = FindCoordinatorRequest(stage.group_id, 0)
    member = ""
    async with asyncio.timeout(30):
        while True:
            at = await client.send(client.get_random_node(), coordinator)
            if at.error_code == 0:
                join = JoinGroupRequest(
                    stage.group_id, 30_000, 30_000, member, None, "consumer", protocols
                )
                joined = await client.send(at.coordinator_id, join)
                if joined.error_code == 0:
                    return
                member = joined.member_id
            await asyncio.sleep(0.1)


class Moves(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts how often the group is formed anew."""

    def __init__(self) -> None:
        self.count = 0

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.count += 1

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.count += 1
