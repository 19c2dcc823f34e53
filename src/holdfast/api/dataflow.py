"""A dataflow: sources, operators, sinks. Building one does nothing; `start` runs it on Spark.

flow = Dataflow("bids")
bids = flow.source(df, name="bids", time="date_time")
counts = bids.key_by("bidder").window(tumbling("10 seconds")).aggregate("count(*) AS n")
counts.sink("counts")
query = flow.start(spark, checkpointLocation="/tmp/bids")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.api.changelogs import require_no_changes
from holdfast.api.clauses import require_name, require_timestamp
from holdfast.api.columns import check_columns
from holdfast.api.graph import Graph
from holdfast.api.steps import FromFiles, FromGenerator, FromKafka, FromLog, Source, Step
from holdfast.api.streams import Stream
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from holdfast.api.protections import Protection
    from holdfast.driver.changes import Changes, Wish
    from holdfast.driver.query import Query
    from holdfast.shell.sources.file_recorder import FilesSource


class Dataflow(Graph):
    """A directed graph of operators over streams."""

    @classmethod
    def from_dataframe(
        cls,
        df: DataFrame,
        *,
        name: str,
        trigger: Mapping[str, Any] | None = None,
        mode: str = "append",
    ) -> Dataflow:
        """The dataflow of a streaming DataFrame, as written for Structured Streaming.

        Spark analyses it. What Holdfast has is translated; operators without state that it has not
        stay with Spark, before an ingest log. See docs/coming-from-structured-streaming.md.

        Args:
            df: Of `spark.readStream`, and whatever was made of it, but not yet started.
            name: Of the dataflow, and of its sink, which gets what Spark's append mode would give.
                A window's column comes as two, `window_start` and `window_end`.
            trigger: As of `source`.
            mode: `update`: an aggregate gives the new result of its group after each row, as an
                upsert by the columns that it groups by; and it needs no windows. `complete`: the
                same without windows; `query.to_dataframe(newest_by=...)` is the table.

        Raises:
            UnsupportedError: A clause has no counterpart; the message names it, and the reason.
            DataflowError: It is no streaming DataFrame, or nobody can say what its event time is.
        """
        from holdfast.driver.catalyst.translation import from_dataframe

        flow = cls(name)
        from_dataframe(flow, df, name, trigger, mode)
        return flow

    def source(
        self,
        df: DataFrame,
        *,
        name: str,
        time: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        unit: str | None = None,
        partitions: int = 1,
        speed: float | None = None,
        trigger: Mapping[str, Any] | None = None,
        silent: tuple[str, str] | None = None,
    ) -> Stream:
        """Read a batch or streaming DataFrame; Spark writes its rows into an ingest log.

        Of a plain scan of files nodes read the files themselves; see docs/files.md.

        Args:
            df: Any DataFrame.
            name: The source's name; also its unit's unless `unit` is given.
            time: The timestamp column that holds the event time; by default that of
                `df.withWatermark(...)`.
            delay: How far tuples may be older than what earlier micro-batches brought; later ones
                go to the late stream. By default Spark's watermark of the column says what is late,
                as it does for Spark's own operators.
            ahead: How far a row may be ahead of the others, and of the clock when it is recorded,
                and still move time: a row of a broken clock is a row like any other, but makes no
                later one late, and is named in `status["notes"]`. None: every row moves time.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Parallelism of that unit.
            speed: Replay a recorded stream at so many seconds of event time per second.
            trigger: Of a streaming DataFrame, as `DataStreamWriter.trigger` takes it:
                `{"processingTime": "1 second"}`, or `{"availableNow": True}`, which reads what is
                there and ends the query when that has been worked off; a later run goes on behind
                it, and until then windows stay open that it may add to.
            silent: Of a replay: how long after its start it falls silent, and for how long, e.g.
                `("5 seconds", "3 seconds")`; to see what the dataflow does then.

        Raises:
            DataflowError: There is no such column, or none is named and none has a watermark.
            UnsupportedError: A column has a type that Holdfast does not carry.
        """
        from holdfast.driver.frames import from_frame
        from holdfast.driver.schemas import schema_from_spark

        schema = schema_from_spark(df.schema)
        operation = from_frame(df, time, delay, ahead, trigger, partitions, speed, silent)
        require_timestamp(operation.time, schema)
        return self._source(name, unit, schema, operation)

    def source_files(
        self,
        path: str,
        *,
        time: str,
        format: str = "parquet",
        schema: pa.Schema | StructType | str | None = None,
        name: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        trigger: Mapping[str, Any] | None = None,
        ends: bool = False,
        dead_letters: str | None = None,
        unit: str | None = None,
        partitions: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """Read files where they lie, by the nodes themselves; new ones as they appear.

        Files come in the order of their modification times and paths, each once, whatever is
        restarted. They have to appear whole: rename them from names that begin with `_` or `.`.

        Args:
            path: A file, glob or folder, perhaps of folders `key=value`; also a URL for fsspec.
            time: The timestamp column that holds the event time.
            format: `parquet`, `orc`, `arrow` (IPC files), `csv` or `json` (a record a line).
            schema: A Spark schema, DDL text or Arrow schema; by default that of the first file
                there is, and of the partitions' folders, whose columns are strings then.
            name: The source's name, by default the folder's; also its unit's.
            delay: How far tuples may be older than those of earlier listings; later ones are late.
            ahead: As of `source`.
            trigger: None: go on for ever; `{"availableNow": True}`: read the files there are, and
                then end the query; the next run goes on behind them.
            ends: Whether the files at the first start are all; then all windows close, too.
            dead_letters: A sink for bad rows and files of another format; else they fail the query.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Instances of that unit, among which files are divided.
            options: Of CSV, as Spark names them: `header`, `sep`.

        Raises:
            DataflowError: An argument makes no sense, or there is neither a schema nor a file.
            UnsupportedError: A column has a type that Holdfast does not carry.
        """
        from holdfast.driver import user_files

        source = user_files.files_source(
            path,
            format=format,
            schema=schema,
            time=time,
            delay=delay,
            ahead=ahead,
            trigger=trigger,
            ends=ends,
            options=options,
            has_dead_letters=dead_letters is not None,
        )
        stream = self._files(source, time, name or user_files.default_name(path), unit, partitions)
        good = user_files.BAD_ROWS.diverted(stream, dead_letters)
        return stream if dead_letters is None else good.select(*source.columns())

    def source_delta(
        self,
        path: str,
        *,
        time: str,
        schema: pa.Schema | StructType | str | None = None,
        start_version: int | None = None,
        start_time: datetime | None = None,
        name: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        trigger: Mapping[str, Any] | None = None,
        ends: bool = False,
        unit: str | None = None,
        partitions: int = 1,
    ) -> Stream:
        """Read a Delta table by the nodes themselves: the rows it has, then those of each version.

        Versions come in their order, each once, whatever is restarted; rows of one version are
        never late against each other. A version that removes or changes rows ends the query by
        name; one that only writes files anew, as compaction does, adds nothing.

        Args:
            path: The table's folder.
            time: The timestamp column that holds the event time.
            schema: The columns to read, of the table's types; by default all that it has now.
            start_version: Begin with the changes of this version, without the rows before it.
            start_time: The same by the time at which versions were made; with a time zone.
            name: The source's name, by default the folder's; also its unit's.
            delay: As of `source_files`.
            ahead: As of `source`.
            trigger: None: go on for ever; `{"availableNow": True}`: read the versions there are,
                and then end the query; the next run goes on behind them.
            ends: Whether the rows at the first start are all.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Instances of that unit, among which files are divided.

        Raises:
            DataflowError: An argument makes no sense, or there is no such table.
        """
        from holdfast.driver.user_files import default_name, delta_source

        source = delta_source(
            path,
            time=time,
            schema=schema,
            start_version=start_version,
            start_time=start_time,
            delay=delay,
            ahead=ahead,
            trigger=trigger,
            ends=ends,
        )
        return self._files(source, time, name or default_name(path), unit, partitions)

    def _files(
        self, source: FilesSource, time: str, name: str, unit: str | None, partitions: int
    ) -> Stream:
        meta = source.meta
        require_timestamp(time, meta.schema)
        operation = FromFiles(
            files=source, time=time, delay_us=meta.delay_us, partitions=partitions
        )
        return self._source(name, unit, meta.schema, operation)

    def source_log(
        self,
        path: str,
        *,
        name: str,
        unit: str | None = None,
        partitions: int = 1,
        speed: float | None = None,
    ) -> Stream:
        """Read an ingest log that exists already, e.g. one that another job writes."""
        from holdfast.shell.storage.ingest_log import read_meta

        meta = read_meta(path)
        operation = FromLog(path=path, time=meta.time_column, partitions=partitions, speed=speed)
        return self._source(name, unit, meta.schema, operation)

    def source_generator(
        self, generator: Any, *, name: str, unit: str | None = None, partitions: int = 1
    ) -> Stream:
        """Read a generator inside the nodes; see holdfast.nexmark for one.

        Args:
            generator: Has `schema` (a Spark schema, DDL text or Arrow schema),
                `spec(partition, partitions)` (a `SourceSpec`) and `to_dataframe(spark)` with the
                same tuples and their times in `__time_us`.
            name: The source's name.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Parallelism of that unit.
        """
        from holdfast.driver.schemas import schema_from

        operation = FromGenerator(generator=generator, partitions=partitions)
        return self._source(name, unit, schema_from(generator.schema), operation)

    def source_kafka(
        self,
        *,
        servers: str,
        topic: str,
        name: str | None = None,
        format: str = "json",
        schema: pa.Schema | StructType | str | None = None,
        time: str | None = None,
        delay: str | None = None,
        ahead: str | None = "1 day",
        idle: str | None = "10 seconds",
        begin: str | Mapping[int, int] = "earliest",
        end: str | Mapping[int, int] | None = None,
        dead_letters: str | None = None,
        unit: str | None = None,
        partitions: int = 1,
        options: Mapping[str, str] | None = None,
        registry: str | Mapping[str, Any] | None = None,
        key: str | tuple[str, ...] = (),
    ) -> Stream:
        """Read a Kafka topic inside the nodes, each partition by the same one; see docs/kafka.md.

        Args:
            servers: The brokers, `host:port`, separated by commas.
            topic: The topic; records of open and aborted transactions are not read.
            name: The source's name, by default the topic's; also its unit's.
            format: `json`, `arrow` (`schema`); `avro`, `protobuf` (`registry`); `string`; `bytes`;
                `debezium`, JSON that tells changes of a table (`schema` of its rows): a changelog.
            schema: Spark's, DDL text or Arrow's; by default the newest in the registry.
            time: The timestamp column with the event time; by default Kafka's timestamp.
            delay: How far tuples of a partition may be out of order; older ones are late.
            ahead: As of `source`: of its partition, and of the clock when it is read.
            idle: A partition without records for so long does not hold up time; None: it does.
            begin: `earliest`, `latest`, or the first offset by partition.
            end: None: go on for ever; `latest`: what is there at first; or offsets by partition.
            dead_letters: A sink for records that cannot be decoded; else these fail the query.
            unit: HA unit of the source and the stateless operators after it.
            partitions: Instances of that unit; instance i reads partition p if p % partitions = i.
            options: More settings of librdkafka, e.g. for TLS and SASL.
            registry: The URL of a schema registry, or settings of confluent-kafka's client of it.
            key: Of `debezium`: the columns of the table's primary key, which are the topic's, too.
        """
        from holdfast.driver.kafka import kafka_source

        source = kafka_source(
            servers=servers, topic=topic, format=format, schema=schema, time=time, delay=delay,
            ahead=ahead, idle=idle, begin=begin, end=end, options=options, registry=registry,
            key=key, has_dead_letters=dead_letters is not None,
        )  # fmt: skip
        operation = FromKafka(kafka=source, partitions=partitions)
        logged = self._source(name or topic, unit, source.decoder.log_schema, operation)
        return source.stream(logged, dead_letters)

    def _source(self, name: str, unit: str | None, schema: pa.Schema, operation: Source) -> Stream:
        name = require_name(name)
        if any(step.name == name for step in self.steps):
            raise DataflowError(f"there is already a step named {name!r}")
        if operation.partitions < 1:
            raise DataflowError(f"partitions={operation.partitions}; at least 1")
        check_columns(schema.names, f"source {name}")
        require_no_changes(schema, f"source {name}")
        step = Step(operation, name, require_name(unit or name), schema)
        self.steps.append(step)
        return Stream(self, step)

    def register_function(self, name: str, function: Any) -> None:
        """Have `select` and `filter` call a function by name, as `spark.udf.register` does in SQL.

        Args:
            name: In expressions; it may be written in capitals there.
            function: What `udf`, `pandas_udf` or `arrow_udf` of `pyspark.sql.functions` gives.

        Raises:
            DataflowError: It is none of them, or there is a function of this name.
            UnsupportedError: It is not deterministic, takes iterators, or gives nested values.
        """
        from holdfast.driver.spark_functions import user_function

        self.functions[name.lower()] = user_function(require_name(name), function)

    def start(
        self,
        spark: SparkSession,
        *,
        checkpointLocation: str,
        protection: Protection | Mapping[str, Protection] | None = None,
        parallelism: int | dict[str, int] = 1,
        options: dict[str, str] | None = None,
        standby: bool = False,
        retention: str | Mapping[str, str] | None = None,
        state: Mapping[str, Wish] | None = None,
    ) -> Query:
        """Run the dataflow on Spark until its sources end or the query is stopped.

        Args:
            spark: A session; see `holdfast.session` for one that starts nodes quickly.
            checkpointLocation: A folder for logs, journal and results; starting again with the
                same folder goes on where the query stopped.
            protection: What a failure may cost, for the dataflow or by unit; by default precise
                upstream backup.
            parallelism: Instances of each stateful unit, for all or per unit.
            options: Settings `spark.holdfast.*`, over those of the session.
            standby: Whether to wait, with executors that are warm, as long as another driver runs
                the query there; this one takes over when that one dies or leaves.
            retention: How much is kept of what sources gave and of metrics: a time ("1 day", the
                default), a size ("10 GB") or "for ever"; or some of them by the names of sources
                and sinks, and `metrics`. Results are kept for ever unless their sink is named.
            state: Where another version of the dataflow has run, by operator or source, whether
                what it holds is kept ("keep") or dropped ("drop"); see `changes`.

        Raises:
            DataflowChangedError: The location cannot go on with this dataflow.
            QueryEndedError: In standby: the query is finished, or was stopped.
        """
        from holdfast.driver.starting import start

        return start(
            self,
            spark,
            checkpointLocation,
            protection,
            parallelism,
            options or {},
            is_standby=standby,
            retention=retention,
            state=state,
        )

    def drain(
        self,
        spark: SparkSession,
        *,
        checkpointLocation: str,
        protection: Protection | Mapping[str, Protection] | None = None,
        parallelism: int | dict[str, int] = 1,
        options: dict[str, str] | None = None,
    ) -> None:
        """Leave a location so that a changed dataflow can go on there.

        The dataflow that has run there comes up once more, works off what was recorded, and stops
        with all nodes at one cut, of which their checkpoints are. Returns when that is so.

        Args:
            spark: The session.
            checkpointLocation: Of a query that does not run.
            protection: As it was started.
            parallelism: As it was started.
            options: Settings `spark.holdfast.*`, over those of the session.

        Raises:
            DataflowChangedError: Another dataflow has run there.
            RescalingError: It cannot be left at a cut; it goes on as it was.
        """
        from holdfast.driver.starting import drain

        drain(self, spark, checkpointLocation, protection, parallelism, options or {})

    def changes(
        self,
        spark: SparkSession,
        *,
        checkpointLocation: str,
        protection: Protection | Mapping[str, Protection] | None = None,
        parallelism: int | dict[str, int] = 1,
        options: dict[str, str] | None = None,
        state: Mapping[str, Wish] | None = None,
    ) -> Changes:
        """What would happen to each step if this were started at a location; nothing is done.

        Args:
            spark: The session.
            checkpointLocation: Where another version of the dataflow has run, or runs now.
            protection: As of `start`.
            parallelism: As of `start`.
            options: As of `start`.
            state: As of `start`.
        """
        from holdfast.driver.starting import changes

        given = checkpointLocation, protection, parallelism, options or {}, state
        return changes(self, spark, *given)

    def to_dataframe(
        self, spark: SparkSession, sink: str | None = None, *, checkpointLocation: str
    ) -> DataFrame:
        """The batch twin: the same dataflow as a Spark SQL query over the recorded inputs."""
        from holdfast.driver.batch_twin import to_dataframe

        return to_dataframe(self, spark, self.sink_name(sink), checkpointLocation)
