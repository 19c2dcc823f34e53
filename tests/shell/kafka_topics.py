"""What tests do with topics: fill them, and read back what a reader of committed records sees."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from holdfast_chaos.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from holdfast.driver.query import Query

_PATIENCE_S = 240.0


def produce(broker: KafkaBroker, topic: str, records: list[tuple[int, bytes | None]]) -> None:
    """Write (partition, value) pairs in order, each once, through whatever restarts."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": broker.servers, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for partition, value in records:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def committed(broker: KafkaBroker, topic: str) -> list[Any]:
    """All messages of a topic that a transaction has committed, by partition and offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Any] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(message)
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def wait_for_records(broker: KafkaBroker, topic: str, count: int, query: Query) -> list[Any]:
    """All messages of a topic as soon as there are so many, which the query writes."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(found := committed(broker, topic)) < count:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline_s, (len(found), query.status)
        time.sleep(0.05)
    return found


def rows(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """The committed values of a topic, as JSON."""
    return [json.loads(message.value()) for message in committed(broker, topic)]


def tuple_ids(broker: KafkaBroker, topic: str, stream: str) -> list[int]:
    """The tuple ids that the headers of a topic's records name, sorted."""
    names = [
        dict(m.headers())["holdfast"].decode().rpartition("/") for m in committed(broker, topic)
    ]
    return sorted(int(number) for name, _, number in names if name == stream)
