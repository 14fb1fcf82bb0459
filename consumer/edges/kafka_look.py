"""Kafka as the consumer meets it, looked at without joining its group or writing a record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest, DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from consumer.edges.kafka_security import not_connected
from consumer.errors import NotReachable

REQUEST_TIMEOUT_MS = 5000
# Each start and stop of a replica has the group formed anew, which takes a few seconds.
SETTLE_S = 6.0
POLL_S = 0.5
FORMING = {"PreparingRebalance", "CompletingRebalance"}
MAKES_TOPICS = "auto.create.topics.enable"
_BROKER = 4  # a kind of resource, as Kafka numbers them


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group: what its coordinator calls its state, each member as `client at host`, and
    how much it has not read.
    """

    state: str
    members: Sequence[str]
    lag: int

    @property
    def forming(self) -> bool:
        return self.state in FORMING


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A connection that looks. Everything raises KafkaError."""

    client: AIOKafkaClient
    bootstrap: str
    options: Mapping[str, Any]

    async def topics(self, names: Collection[str]) -> dict[str, list[int] | None]:
        """Each topic's partitions without a leader; None: there is no such topic. None is made."""
        answer = await self._ask(MetadataRequest(list(names), allow_auto_topic_creation=False))
        found: dict[str, list[int] | None] = dict.fromkeys(names)
        for topic in answer.to_object()["topics"]:
            if topic["error_code"] == TopicAuthorizationFailedError.errno:
                raise TopicAuthorizationFailedError(f"we may not see the topic {topic['topic']}")
            if topic["partitions"]:
                places = topic["partitions"]
                found[topic["topic"]] = sorted(p["partition"] for p in places if p["leader"] < 0)
        return found

    async def makes_topics(self) -> bool:
        """Whether a broker makes a topic that is written to; true where it does not tell us."""
        node = self.client.get_random_node()
        try:
            answer = await self._ask(
                DescribeConfigsRequest([(_BROKER, str(node), [MAKES_TOPICS])]), node
            )
        except KafkaError:
            return True
        told = {name: value for *_, entries in answer.resources for name, value, *_ in entries}
        return told.get(MAKES_TOPICS) != "false"

    async def settled_group(self, group_id: str, topic: str) -> Group:
        """The group, once it is formed, or as it is after a few seconds."""
        deadline = monotonic() + SETTLE_S
        while True:
            late = monotonic() > deadline
            try:
                state, members = await self._group(group_id)
                if late or state not in FORMING:
                    return Group(state=state, members=members, lag=await self._lag(group_id, topic))
            except KafkaError as error:
                if late or not error.retriable:  # a new cluster has no coordinator at once
                    raise
            await asyncio.sleep(POLL_S)

    async def may_produce(self) -> None:
        """Asks for a producer id, as an idempotent producer does first; of brokers that have just
        started, for a few seconds.
        """
        deadline = monotonic() + SETTLE_S
        while True:
            answer = await self._ask(InitProducerIdRequest(None, REQUEST_TIMEOUT_MS))
            try:
                return _raise(answer.error_code, "no producer id")
            except KafkaError as error:
                if monotonic() > deadline or not error.retriable:
                    raise
            await asyncio.sleep(POLL_S)

    async def _group(self, group_id: str) -> tuple[str, list[str]]:
        answer = await self._ask(
            DescribeGroupsRequest([group_id]), await self._coordinator(group_id)
        )
        (group,) = answer.to_object()["groups"]
        _raise(group["error_code"], f"the group {group_id}")
        members = (f"{m['client_id']} at {m['client_host'].strip('/')}" for m in group["members"])
        return group["state"], sorted(members)

    async def _coordinator(self, group_id: str) -> int:
        answer = await self._ask(FindCoordinatorRequest(group_id, 0))
        _raise(answer.error_code, f"the coordinator of the group {group_id}")
        return int(answer.coordinator_id)

    async def _lag(self, group_id: str, topic: str) -> int:
        """Records from where the group is, or else from where the topic begins, to its end."""
        answer = await self._ask(
            OffsetFetchRequest(group_id, None), await self._coordinator(group_id)
        )
        read = {
            TopicPartition(name, partition): offset
            for name, partitions in answer.topics
            for partition, offset, *_ in partitions
        }
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=self.bootstrap, group_id=None, **self.options
        )
        try:
            await consumer.start()
            places = list(consumer.assignment())
            begins = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
        finally:
            await consumer.stop()
        return sum(ends[p] - max(begins[p], read.get(p, -1)) for p in places)

    async def _ask(self, request: Any, node: int | None = None) -> Any:
        return await self.client.send(
            self.client.get_random_node() if node is None else node, request
        )


@asynccontextmanager
async def looking(bootstrap: str, options: Mapping[str, Any]) -> AsyncIterator[Look]:
    """Raises NotReachable where the brokers are away or refuse something, ConfigError where they
    refuse us.
    """
    client = AIOKafkaClient(
        bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS, **options
    )
    try:
        try:
            await client.bootstrap()
        except (KafkaError, OSError) as error:
            raise await not_connected(bootstrap, options, error) from error
        try:
            yield Look(client=client, bootstrap=bootstrap, options=options)
        except (KafkaError, OSError) as error:
            said = str(error) or type(error).__name__
            raise NotReachable(f"Kafka at {bootstrap}: {said}", server="kafka") from error
    finally:
        await client.close()


def _raise(code: int, what: str) -> None:
    if code:
        raise for_code(code)(what)
