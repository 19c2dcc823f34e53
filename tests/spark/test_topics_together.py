"""Topics to topics by units that recover together: nodes and drivers are killed, results stay."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka")

from kafka_topics import produce, rows, tuple_ids
from killed_driver import kill_when
from kills import kill

import holdfast as hf
from holdfast.api.protections import Protection
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow

TOTAL = 12_000
"""Records of each of the two topics that are read."""
MOST = TOTAL - 2_000
"""Before a test has done what it does to a query that runs."""
SECOND = 400
"""Records of a topic that happen in a second."""
BIDDERS = 5
READ, WRITTEN = ("one", "other"), ("merged", "counted")
OFTEN = "200 milliseconds"
PROTECTIONS: dict[str, Protection] = {
    "together-unaligned": hf.Coordinated(interval=OFTEN, aligned=False),
    "together-alone": hf.Uncoordinated(interval=OFTEN, jitter="50 milliseconds"),
    "together-induced": hf.CommunicationInduced(
        interval=OFTEN, jitter="50 milliseconds", scope="all"
    ),
}
_PATIENCE_S = 240.0


def flow_of(servers: str, name: str) -> hf.Dataflow:
    """Bids of two topics as they come into `<name>-merged`, and how many there are of each bidder
    in a second into `<name>-counted`.
    """
    flow = hf.Dataflow(name)
    one, other = (
        flow.source_kafka(
            servers=servers,
            topic=f"{name}-{topic}",
            name=topic,
            schema="id BIGINT, bidder BIGINT, at TIMESTAMP",
            time="at",
            idle=None,
            end=dict.fromkeys(range(2), TOTAL // 2),
        )
        for topic in READ
    )
    both = one.union(other, order="arrival")
    both.sink_kafka("merged", servers=servers, topic=f"{name}-merged")
    windows = both.key_by("bidder").window(hf.tumbling("1 second"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink_kafka("counted", servers=servers, topic=f"{name}-counted", key="bidder")
    return flow


class Feed:
    """Two topics that are filled drop by drop, and two that results go to."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self._broker, self._name = broker, name
        self._sent = 0
        for topic in READ + WRITTEN:
            broker.create_topic(f"{name}-{topic}", 2)

    def drop(self, count: int = 100, most: int = MOST) -> None:
        """Some more records of both."""
        first, self._sent = self._sent, max(self._sent, min(self._sent + count, most))
        for half, topic in enumerate(READ):
            records = [_record(2 * number + half) for number in range(first, self._sent)]
            if records:
                produce(self._broker, f"{self._name}-{topic}", [*records])

    def finish(self) -> None:
        """All that is left."""
        self.drop(TOTAL, TOTAL)


def _record(bid: int) -> tuple[int, bytes]:
    """The bid of a number, and the partition that it belongs to."""
    second, nth = divmod(bid // 2, SECOND)
    at = f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.{nth * 1_000_000 // SECOND:06d}Z"
    value = {"id": bid, "bidder": bid % BIDDERS, "at": at}
    return bid // 2 % 2, json.dumps(value).encode()


def wait_while_fed(is_so: Callable[[], bool], query: hf.Query, feed: Feed) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline_s, query.status
        feed.drop()
        time.sleep(0.05)


def check(broker: KafkaBroker, name: str) -> None:
    """Whoever reads committed records has each result once, under ids without a gap."""
    merged = Counter(row["id"] for row in rows(broker, f"{name}-merged"))
    assert merged == Counter(range(2 * TOTAL))
    assert tuple_ids(broker, f"{name}-merged", "merged[0]") == list(range(2 * TOTAL))
    counted = rows(broker, f"{name}-counted")
    found = Counter((_second(row["window_start"]), row["bidder"]) for row in counted)
    assert found == Counter((at, who) for at in range(TOTAL // SECOND) for who in range(BIDDERS))
    assert {row["n"] for row in counted} == {2 * SECOND // BIDDERS}
    of_all = [tuple_ids(broker, f"{name}-counted", f"counted[{i}]") for i in range(2)]
    assert all(ids == list(range(len(ids))) for ids in of_all)
    assert sum(len(ids) for ids in of_all) == len(counted)


def _second(start: str) -> int:
    _, minutes, seconds = start.split("T")[1].rstrip("Z").split(":")
    return 60 * int(minutes) + int(float(seconds))


def known(broker: KafkaBroker, name: str) -> int:
    """How many counts are there for a reader of committed records."""
    return len(rows(broker, f"{name}-counted"))


def knows_more(broker: KafkaBroker, name: str, before: int) -> bool:
    return known(broker, name) > before


DRIVER = """
import sys
sys.path[:0] = {paths!r}
from test_topics_together import PROTECTIONS, flow_of
from holdfast.driver.session import session
spark = session("driver")
query = flow_of({servers!r}, {name!r}).start(
    spark,
    checkpointLocation={location!r},
    protection=PROTECTIONS[{name!r}],
    parallelism=2,
)
print("started", flush=True)
query.awaitTermination()
"""


def kill_a_driver(broker: KafkaBroker, name: str, location: str, feed: Feed) -> None:
    """It and all its nodes, once it has let results out."""
    tests = Path(__file__).parents[1]
    script = DRIVER.format(
        paths=[str(tests / "spark"), str(tests / "shell")],
        servers=broker.servers,
        name=name,
        location=location,
    )

    def has_written() -> bool:
        feed.drop(most=MOST // 2)
        return known(broker, name) > 0

    kill_when(script, has_written, "no counts in the topic")


@pytest.mark.parametrize(
    ("name", "killed", "has_former_driver"),
    [
        ("together-unaligned", ("union[0]", "counts[1]"), False),
        ("together-alone", ("counts[0]", "union[0]"), True),
        ("together-induced", ("counts[1]", "one[0]"), False),
    ],
)
def test_who_reads_committed_records_sees_each_result_once(
    spark: SparkSession,
    tmp_path: Path,
    kafka: KafkaBroker,
    name: str,
    killed: tuple[str, ...],
    has_former_driver: bool,
) -> None:
    feed, location = Feed(kafka, name), str(tmp_path)
    if has_former_driver:
        kill_a_driver(kafka, name, location, feed)
    query = flow_of(kafka.servers, name).start(
        spark, checkpointLocation=location, protection=PROTECTIONS[name], parallelism=2
    )
    for node in killed:
        wait_while_fed(partial(knows_more, kafka, name, known(kafka, name)), query, feed)
        kill(query, node)
    wait_while_fed(lambda: {f["node"] for f in query.failures} >= {*killed}, query, feed)
    feed.finish()
    assert query.awaitTermination(_PATIENCE_S)
    check(kafka, name)
    assert query.lastProgress["lateRows"] == 0
