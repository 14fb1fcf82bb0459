"""Which partitions are read now: none while too much waits in the database, and those that are
flooded with what can't be accepted only now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from consumer import metrics
from consumer.limits.flood import OVER_AFTER_S, RECORDS_PER_S, Flood

log = structlog.get_logger()


class Placed(Protocol):
    """What comes from a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class Pauses:
    """Of one consumer. aiokafka forgets a pause at each rebalance: `apply` is called again."""

    def __init__(self, high_water: int, invalid_share: float) -> None:
        self._high_water = high_water
        self._invalid_share = invalid_share
        self._all = False
        self._floods: dict[TopicPartition, Flood] = {}
        # Partitions that are slowed, each with the monotonic time until which.
        self._slowed: dict[TopicPartition, float] = {}
        self._invalid_at: dict[TopicPartition, float] = {}

    @property
    def slowed(self) -> bool:
        """Whether some partition is flooded, or has to wait because it was."""
        return bool(self._slowed) or any(flood.flooded for flood in self._floods.values())

    def regulate(self, pending: int) -> bool:
        """Above the high-water mark nothing is read until half of it is done; answers whether it
        goes on from now.
        """
        before = self._all
        self._all = pending > (self._high_water // 2 if before else self._high_water)
        if self._all and not before:
            log.warning("intake_paused", pending=pending, high_water=self._high_water)
        elif before and not self._all:
            log.info("intake_resumed", pending=pending)
        metrics.INTAKE_PAUSED.set(self._all)
        return before and not self._all

    def count(self, records: Sequence[Placed], valid: Sequence[Placed]) -> None:
        """What was read, and what of it can be accepted. Too little slows its partition."""
        read = Counter(TopicPartition(one.topic, one.partition) for one in records)
        good = Counter(TopicPartition(one.topic, one.partition) for one in valid)
        for place, count in read.items():
            flood = self._floods.setdefault(place, Flood(self._invalid_share))
            before = flood.flooded
            wait_s = flood.add(valid=good[place], invalid=count - good[place])
            if wait_s:
                # Together they are as many a second as one alone: others are not kept waiting.
                flooded = sum(flood.flooded for flood in self._floods.values())
                self._slowed[place] = monotonic() + wait_s * flooded
            if count > good[place]:  # while it waits, it can send nothing
                self._invalid_at[place] = max(monotonic(), self._slowed.get(place, 0))
            if flood.flooded != before:
                self._tell(place, flood)

    def _end_floods(self, now: float) -> None:
        """A source that has sent nothing invalid of late is corrected, or silent."""
        for place, flood in self._floods.items():
            if flood.flooded and now - self._invalid_at[place] > OVER_AFTER_S:
                flood.forget()
                self._tell(place, flood)

    def _tell(self, place: TopicPartition, flood: Flood) -> None:
        about = {"topic": place.topic, "partition": place.partition, "allowed": self._invalid_share}
        share = round(flood.share, 2)
        if flood.flooded:
            log.error(
                "partition_flooded", **about, invalid_share=share, records_per_s=RECORDS_PER_S
            )
        else:
            log.info("partition_recovered", **about, invalid_share=share)
        metrics.INTAKE_FLOODED.set(sum(flood.flooded for flood in self._floods.values()))

    def apply(self, consumer: AIOKafkaConsumer) -> None:
        """Pauses and resumes what is to be now."""
        now = monotonic()
        self._end_floods(now)
        self._slowed = {place: until for place, until in self._slowed.items() if until > now}
        assigned, paused = consumer.assignment(), consumer.paused()
        wanted = assigned if self._all else assigned & self._slowed.keys()
        if wanted - paused:
            consumer.pause(*(wanted - paused))
        if paused - wanted:
            consumer.resume(*(paused - wanted))

    def forget(self) -> None:
        """The partitions may be others now, and others may have read them meanwhile."""
        self._floods.clear()
        self._invalid_at.clear()
        metrics.INTAKE_FLOODED.set(0)
