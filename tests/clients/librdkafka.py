"""librdkafka, by its Python binding, driven by JSON lines as `programs.py` sends them."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TIMEOUT_S = 60.0


class Client:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Producer] = {}  # by codec: each takes half a second to begin
        self._transactions: dict[str, Producer] = {}

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        do = {"produce": self._produce, "end": self._end, "read": self._read}
        return do[command["do"]](command) or {}

    def _produce(self, command: dict[str, Any]) -> None:
        producer = self._producer(command["codec"], command["transaction"])
        failures: list[KafkaError] = []
        for record in command["records"]:
            producer.produce(
                command["topic"],
                partition=command["partition"],
                key=_bytes(record["key"]),
                value=_bytes(record["value"]),
                headers=[(_name(name), _bytes(value)) for name, value in record["headers"]],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        if producer.flush(TIMEOUT_S) or failures:
            raise KafkaException(*failures[:1])

    def _producer(self, codec: str, transaction: str) -> Producer:
        options = {
            "bootstrap.servers": self._bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 1000,  # `flush` ends it
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if not transaction:
            if codec not in self._producers:
                self._producers[codec] = Producer(options)
            return self._producers[codec]
        options |= {"transactional.id": transaction, "transaction.timeout.ms": 300_000}
        producer = self._transactions[transaction] = Producer(options)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        return producer

    def _end(self, command: dict[str, Any]) -> None:
        producer = self._transactions.pop(command["transaction"])
        if command["commit"]:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

    def _read(self, command: dict[str, Any]) -> dict[str, Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            return {"records": list(_all(consumer, command["topics"]))}
        finally:
            consumer.close()


def _all(consumer: Consumer, topics: list[str]) -> Any:
    known = consumer.list_topics(timeout=TIMEOUT_S).topics
    unread = {(topic, partition) for topic in topics for partition in known[topic].partitions}
    consumer.assign([TopicPartition(*place, 0) for place in unread])
    while unread:
        message = consumer.poll(TIMEOUT_S)
        if message is None:
            raise TimeoutError(f"unread: {unread}")
        error = message.error()
        if error is None:
            yield _told(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            unread.discard((message.topic(), message.partition()))
        else:
            raise KafkaException(error)


def _told(message: Message) -> dict[str, Any]:
    headers: Any = message.headers() or []
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[_text(name.encode()), _text(value)] for name, value in headers],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _name(text: str) -> str:
    return base64.b64decode(text).decode()


def _text(value: Any) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def main() -> None:
    client = Client(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = client.run(json.loads(line))
        except Exception as error:  # noqa: BLE001 - who sent the line is told
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
