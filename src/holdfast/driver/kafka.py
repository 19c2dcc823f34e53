"""What a dataflow says of Kafka: sources and sinks as the user describes them, checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from holdfast.api.changelogs import upsert_keys
from holdfast.api.dead_letters import ERROR_COLUMN, BadRows
from holdfast.api.expressions.types import carried_schema
from holdfast.api.steps import Changelog, FromKafka
from holdfast.api.windows import duration_us
from holdfast.core.model.changes import CHANGE_COLUMN, without_changes
from holdfast.core.model.column_names import quoted
from holdfast.core.model.feed_rows import feed_schema
from holdfast.driver.schemas import declared_schema
from holdfast.errors import DataflowError
from holdfast.shell.kafka.client import (
    KafkaCluster,
    KafkaError,
    library,
    open_looker,
    partitions_of,
)
from holdfast.shell.kafka.debezium import CHANGE
from holdfast.shell.kafka.debezium import FORMAT as DEBEZIUM
from holdfast.shell.kafka.decoding import ERROR, OFFSET, PARTITION, Decoder, attributes_of
from holdfast.shell.kafka.encoding import Changes, Encoder
from holdfast.shell.kafka.ingest import TopicReading, too_few
from holdfast.shell.kafka.protobuf import registry_for
from holdfast.shell.kafka.registry import FORMATS as REGISTERED
from holdfast.shell.kafka.registry import Registry
from holdfast.shell.kafka.sink import KafkaSinkSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from holdfast.api.graph import Graph
    from holdfast.api.streams import Stream

_LOG = logging.getLogger(__name__)
_CHECK_S = 5.0
_PLAIN_COLUMNS = (
    "key",
    "value",
    f"`{PARTITION}` AS partition",
    f"`{OFFSET}` AS offset",
    "timestamp",
)
BAD_RECORDS: Final = BadRows(
    ERROR,
    (
        f"{PARTITION} AS partition",
        f"{OFFSET} AS offset",
        "kafka_timestamp AS timestamp",
        "kafka_key AS key",
        "kafka_value AS value",
        f"{ERROR} AS {ERROR_COLUMN}",
    ),
)
"""What dead letters hold of a record."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic to read; fields as in `TopicReading`."""

    cluster: KafkaCluster
    topic: str
    decoder: Decoder
    delay_us: int
    idle_ms: int | None
    begin: str | dict[int, int]
    end: str | dict[int, int] | None
    ahead_us: int | None

    def reading(self, source: str, instance: int, instances: int) -> TopicReading:
        """What one instance reads."""
        return TopicReading(
            source,
            self.cluster,
            self.topic,
            self.decoder,
            self.delay_us,
            self.idle_ms,
            self.begin,
            self.end,
            instance,
            instances,
            self.ahead_us,
        )

    def stream(self, logged: Stream, dead_letters: str | None) -> Stream:
        """What an application reads of the source's log.

        Args:
            logged: All that the log has.
            dead_letters: The sink for its bad records; None: they have failed the query.
        """
        good = BAD_RECORDS.diverted(logged, dead_letters)
        if self.decoder.kind in ("bytes", "string"):
            return good.select(*_PLAIN_COLUMNS)
        columns = [quoted(name) for name in self.decoder.schema.names if name != CHANGE]
        if self.decoder.kind != DEBEZIUM:
            return good.select(*columns)
        known = Changelog(self.decoder.keys or None, is_paired=True)
        return good._projected([*columns, f"{CHANGE} AS {CHANGE_COLUMN}"], known)

    def __str__(self) -> str:
        """What a checkpoint location depends on; brokers may move, and options are secret."""
        until = "" if self.end is None else f" to {self.end}"
        return (
            f"topic {self.topic} as {self.decoder.kind} from {self.begin}{until}, time "
            f"{self.decoder.time}, delay {self.delay_us} us"
        )


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic to write.

    Attributes:
        cluster: The brokers.
        topic: For stable results.
        encoder: How they become records.
        transactional_id: As the user gives it.
        is_exactly_once: Whether they are written in transactions.
        commit_interval_us: From one transaction to the next.
        tentative: The topic for tentative results and their corrections; None: there is none.
    """

    cluster: KafkaCluster
    topic: str
    encoder: Encoder
    transactional_id: str | None
    is_exactly_once: bool
    commit_interval_us: int
    tentative: str | None = None

    unsynced_max: ClassVar[int] = 0  # What is not settled is bounded as if it were unsent.

    @property
    def place(self) -> str:
        """For messages."""
        return f"the Kafka topic {self.topic!r}"

    def spec(self, sink: str, instance: int, place: str) -> KafkaSinkSpec:
        """What one instance writes."""
        name = None if self.transactional_id is None else f"{self.transactional_id}-{instance}"
        stream = f"{sink}[{instance}]"
        return KafkaSinkSpec(
            stream,
            self.cluster,
            self.topic,
            self.encoder,
            place,
            name,
            self.is_exactly_once,
            self.commit_interval_us / 1e6,
        )

    def feed_spec(self, sink: str, feed: str, instance: int, place: str) -> KafkaSinkSpec | None:
        """What one instance writes of what is tentative; in transactions, whatever the sink does.

        Its rows are not made again: 1. An instance writes that a run is void. 2. It fails before it
        knows that the broker has it. 3. Another one writes something else under the same ids.
        """
        if self.tentative is None:
            return None
        prefix = self.transactional_id
        return KafkaSinkSpec(
            f"{feed}[{instance}]",
            self.cluster,
            self.tentative,
            _feed_encoder(self.encoder, self.tentative, f"{sink}[{instance}]"),
            place,
            None if prefix is None else f"{prefix}-tentative-{instance}",
            True,
            self.commit_interval_us / 1e6,
        )

    def __str__(self) -> str:
        """What a checkpoint location depends on."""
        return f"topic {self.topic} as {self.encoder.kind} by {list(self.encoder.keys)}"


def _feed_encoder(of: Encoder, topic: str, stream: str) -> Encoder:
    """Feeds have columns, so that plain values go as JSON; all of a stream in one partition."""
    kind = "avro" if of.kind == "avro" else "json"
    return Encoder(kind, (), of.registry, topic, stream)


def kafka_source(
    *,
    servers: str,
    topic: str,
    format: str,
    schema: pa.Schema | StructType | str | None,
    time: str | None,
    delay: str | None,
    ahead: str | None,
    idle: str | None,
    begin: str | Mapping[int, int],
    end: str | Mapping[int, int] | None,
    has_dead_letters: bool,
    options: Mapping[str, str] | None,
    registry: str | Mapping[str, Any] | None = None,
    key: str | tuple[str, ...] = (),
) -> KafkaSource:
    """Check what the user says of a source; see `Dataflow.source_kafka`.

    Raises:
        DataflowError: It makes no sense.
    """
    try:
        cluster = KafkaCluster(servers, dict(options or {}))
        given = None if schema is None else declared_schema(schema)
        schemas = _registry(format, registry)
        if schemas is not None and given is None:
            given = schemas.columns(_checked_topic(topic))
        attributes = attributes_of(format, None if given is None else carried_schema(given))
        open_looker(cluster).close()  # The library is there, and knows the options.
    except KafkaError as error:
        raise DataflowError(str(error)) from None
    if time is not None:
        _require_timestamp(time, attributes)
    if format == DEBEZIUM:
        if time is not None or delay is not None:
            raise DataflowError(
                "format='debezium' has Kafka's timestamps as tuple times, and no change is ever "
                "late; leave time and delay out"
            )
        ahead = None
    elif key:
        raise DataflowError(f"key={key!r} is of format='debezium': what names a row of its table")
    keys = (key,) if isinstance(key, str) else tuple(key)
    for name in keys:
        if name not in attributes.names:
            raise DataflowError(f"no column {name!r}; there are {', '.join(attributes.names)}")
    return KafkaSource(
        cluster,
        _checked_topic(topic),
        Decoder(format, attributes, time, has_dead_letters, schemas, keys, _needed(given)),
        duration_us(delay) if delay else 0,
        None if idle is None else max(1, duration_us(idle) // 1000),
        _span_end("begin", begin, ("earliest", "latest")),
        None if end is None else _span_end("end", end, ("latest",)),
        None if ahead is None else duration_us(ahead),
    )


def _needed(given: pa.Schema | None) -> pa.Schema | None:
    """A schema in which something must not be null; None of others."""
    if given is None:
        return None
    loose = pa.schema([field.with_nullable(True) for field in carried_schema(given)])
    return None if loose.equals(given) else given


def _registry(format: str, given: str | Mapping[str, Any] | None) -> Registry | None:
    """The schema registry of a format that has one. Raises `KafkaError`."""
    if format in REGISTERED:
        return registry_for(format, given)
    if given is not None:
        raise KafkaError(f"registry=... is of {' and '.join(REGISTERED)}, not of {format!r}")
    return None


def kafka_sink(
    *,
    servers: str,
    topic: str,
    format: str,
    key: str | tuple[str, ...],
    schema: pa.Schema,
    changelog: Changelog | None = None,
    transactional_id: str | None,
    exactly_once: bool,
    commit_interval: str | None,
    options: Mapping[str, str] | None,
    registry: str | Mapping[str, Any] | None = None,
    tentative: str | None = None,
) -> KafkaSink:
    """Check what the user says of a sink; see `Stream.sink_kafka`.

    Raises:
        DataflowError: It makes no sense.
    """
    topic, keys = _checked_topic(topic), (key,) if isinstance(key, str) else tuple(key)
    try:
        encoder = Encoder(format, keys, _registry(format, registry), topic)
        cluster = KafkaCluster(servers, dict(options or {}))
        if changelog is not None:
            if tentative is not None:
                raise DataflowError("tentative=... of a changelog; write its as_feed()")
            if not exactly_once:
                raise DataflowError(
                    "exactly_once=False of a changelog: a former row that is written once more "
                    "would stand for its key; write its as_feed()"
                )
            keys = upsert_keys(changelog, keys, f"topic {topic}")
            encoder = replace(encoder, keys=keys, changes=_ways_of(changelog))
            schema = without_changes(schema)
        encoder.check(schema)
        if tentative is not None:
            if _checked_topic(tentative) == topic:
                raise DataflowError(
                    f"tentative={tentative!r} is the topic of stable results; it is one of its own"
                )
            _feed_encoder(encoder, tentative, "").check(feed_schema(schema))
        library()
    except KafkaError as error:
        raise DataflowError(str(error)) from None
    interval_us = duration_us(commit_interval) if commit_interval else 0
    settings = transactional_id, exactly_once, interval_us
    return KafkaSink(cluster, topic, encoder, *settings, tentative)


def _ways_of(changelog: Changelog) -> Changes:
    return "paired" if changelog.is_paired else "single"


def check_topics(flow: Graph) -> None:
    """Ask the brokers for the topics; one that is away is waited for by the nodes.

    Raises:
        DataflowError: There is no such topic, or it has fewer partitions than instances read it.
    """
    for step in flow.steps:
        match step.operation:
            case FromKafka(kafka=source, partitions=partitions):
                _check_topic(source.cluster, source.topic, partitions)
    for sink in flow.outside_sinks.values():
        if isinstance(sink, KafkaSink):
            for topic in filter(None, (sink.topic, sink.tentative)):
                _check_topic(sink.cluster, topic, 1)


def _check_topic(cluster: KafkaCluster, topic: str, instances: int) -> None:
    try:
        looker = open_looker(cluster)
        try:
            found = partitions_of(looker, topic, _CHECK_S)
        finally:
            looker.close()
    except KafkaError as error:
        raise DataflowError(str(error)) from None
    if found is None:
        _LOG.warning("the Kafka broker at %s does not answer; nodes wait for it", cluster.servers)
    elif len(found) < instances:
        raise DataflowError(too_few(topic, len(found), instances))


def _checked_topic(topic: str) -> str:
    if not isinstance(topic, str) or not topic:
        raise DataflowError(f"topic={topic!r}; it is the name of one topic")
    return topic


def _require_timestamp(time: str, attributes: pa.Schema) -> None:
    if time not in attributes.names:
        raise DataflowError(f"no column {time!r}; there are {', '.join(attributes.names)}")
    kind = attributes.field(time).type
    if not pa.types.is_timestamp(kind):
        raise DataflowError(f"time column {time!r} is {kind}, no timestamp")


def _span_end(name: str, given: Any, words: tuple[str, ...]) -> str | dict[int, int]:
    """A word, or offsets by partition."""
    if isinstance(given, str) and given in words:
        return given
    if isinstance(given, Mapping) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0
        for pair in given.items()
        for n in pair
    ):
        return dict(given)
    known = " or ".join(repr(word) for word in words)
    raise DataflowError(f"{name}={given!r}; it is {known}, or offsets by partition: {{0: 17}}")
