"""Ways out of a dataflow into what others keep: topics, files, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.clauses import require_name

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.api.graph import Graph, OutsideSink
    from holdfast.api.steps import Step


class OutsideSinks:
    """What a stream has of them."""

    __slots__ = ()

    flow: Graph
    step: Step

    @property
    def schema(self) -> pa.Schema:
        """The attributes, as an Arrow schema."""
        return self.step.schema

    def sink_kafka(
        self,
        name: str,
        *,
        servers: str,
        topic: str,
        format: str = "json",
        key: str | tuple[str, ...] = (),
        exactly_once: bool = True,
        commit_interval: str | None = "50 milliseconds",
        transactional_id: str | None = None,
        options: Mapping[str, str] | None = None,
        registry: str | Mapping[str, Any] | None = None,
        tentative: str | None = None,
    ) -> None:
        """Write the stream to a Kafka topic; see docs/kafka.md.

        Args:
            name: The sink's name.
            servers: The brokers, `host:port`, separated by commas.
            topic: The topic, which exists.
            format: `json`, an object of all columns; `avro` or `protobuf`, the same as a record,
                with `registry`; `string` or `bytes`: the column `value`.
            key: The column, or columns, of the record's key. A changelog is written by its key,
                for topics that are compacted: a record is the row that a key has now, and one
                without a value says that it has none any more.
            exactly_once: Write in transactions; otherwise results are there as soon as they are
                made, and a failure may write some of them again.
            commit_interval: From the beginning of a transaction to that of the next, at least;
                None: they follow one another as fast as the broker ends them.
            transactional_id: Prefix of the transactional ids and groups, where brokers allow only
                some; unique in the Kafka cluster. By default one is made up for the location.
            options: More settings of librdkafka, e.g. for TLS and SASL.
            registry: The schema registry of those; as of `Dataflow.source_kafka`.
            tentative: A topic for tentative results, and for what makes them void, of a unit that
                is `Replicated`; `topic` gets stable ones alone.
        """
        from holdfast.driver.kafka import kafka_sink

        sink = kafka_sink(
            servers=servers,
            topic=topic,
            format=format,
            key=key,
            schema=self.schema,
            changelog=self.step.changelog,
            transactional_id=transactional_id,
            exactly_once=exactly_once,
            commit_interval=commit_interval,
            options=options,
            registry=registry,
            tentative=tentative,
        )
        self.flow.add_sink(require_name(name), self.step)
        self.flow.outside_sinks[name] = sink

    def sink_files(
        self,
        path: str,
        *,
        name: str | None = None,
        format: str = "parquet",
        partition_by: str | Sequence[str] = (),
        every: str = "10 seconds",
    ) -> None:
        """Write the stream into files that anybody may read, each tuple once; see docs/files.md.

        A file shows up whole, by a rename, and is never changed again. Other files in the folder
        are left alone.

        Args:
            path: The folder: a local path, or a URL that fsspec knows. It is made if need be.
            name: The sink's name, by default the folder's.
            format: `parquet`, `orc`, `arrow` (IPC files) or `csv` (with a header).
            partition_by: Columns that folders `key=value` name: integers, strings, booleans, dates.
            every: How late rows may appear, beside the time that writing takes; more makes fewer
                and larger files. A million rows, or 128 MB, are a file at once.

        Raises:
            DataflowError: An argument makes no sense.
        """
        from holdfast.driver.files_sink import files_sink

        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        sink = files_sink(path, schema=self.schema, format=format, partition_by=by, every=every)
        self._write_outside(sink, path, name)

    def sink_delta(
        self,
        path: str,
        *,
        name: str | None = None,
        partition_by: str | Sequence[str] = (),
        every: str = "1 second",
        merge_every: str | None = "10 minutes",
        key: str | Sequence[str] = (),
    ) -> None:
        """Write the stream into a Delta table, each tuple once; see docs/files.md.

        Others may write the table too. It is made if there is none.

        Args:
            path: The table: a local path, or a URL that `deltalake` knows.
            name: The sink's name, by default the table's.
            partition_by: Columns that the table is partitioned by, if it has to be made.
            every: How late rows may appear, beside the time that writing takes; each instance makes
                a version of the table so often, if there are rows.
            merge_every: How often small files of the table are merged; None: never.
            key: Of a changelog the columns by which a row of the table is replaced or deleted, by
                default its own.

        Raises:
            DataflowError: An argument makes no sense, the table has other columns, or the package
                `deltalake` is not there.
        """
        from holdfast.driver.delta_sink import delta_sink

        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        keys = (key,) if isinstance(key, str) else tuple(key)
        sink = delta_sink(
            path,
            schema=self.schema,
            partition_by=by,
            every=every,
            merge_every=merge_every,
            changelog=self.step.changelog,
            key=keys,
        )
        self._write_outside(sink, path, name)

    def sink_iceberg(
        self,
        table: str,
        *,
        catalog: str,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        every: str = "10 seconds",
    ) -> None:
        """Write the stream into an Iceberg table, each tuple once; see docs/files.md.

        Others may write the table too. It is made, without partitions, if there is none.

        Args:
            table: Its name in the catalog, with its namespace: `shop.orders`.
            catalog: The catalog's name, as `pyiceberg.catalog.load_catalog` is given it.
            properties: The catalog's, if not all machines are configured for it.
            name: The sink's name, by default the table's.
            every: How late rows may appear, beside the time that writing takes; each instance makes
                a snapshot of the table so often, if there are rows.

        Raises:
            DataflowError: An argument makes no sense, the table has other columns, or the package
                `pyiceberg` is not there.
        """
        from holdfast.driver.iceberg_sink import iceberg_sink

        sink = iceberg_sink(
            table, catalog=catalog, properties=properties or {}, schema=self.schema, every=every
        )
        self._write_outside(sink, table.rpartition(".")[2], name)

    def _write_outside(self, sink: OutsideSink, path: str, name: str | None) -> None:
        from holdfast.driver.user_files import default_name

        name = require_name(default_name(path) if name is None else name)
        self.flow.add_sink(name, self.step)
        self.flow.outside_sinks[name] = sink
