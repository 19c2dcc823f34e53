"""Has Spark write a DataFrame into an ingest log, in a thread for batch, as a query for streams."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.column_names import quoted
from holdfast.shell.spark.active_session import active_session
from holdfast.shell.spark.data_source import register, write_frame
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.spark.watermarks import has_found_nothing, watermark_after_batch
from holdfast.shell.storage.commit_counting import CommitFinder
from holdfast.shell.storage.ingest_log import has_ended, tell_idle
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.places import location_id, store_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CANCEL_INTERVAL_S: Final = 0.1
_WHOLE: Final = "0"
"""The number of the batch write that records a bounded DataFrame as a whole, its end included."""
_IDLE_LOOK_S: Final = 0.1
_ORDERED_BYTES: Final = 8 << 20
"""A DataFrame that Spark takes for smaller than this is put into order of time."""


@dataclass(frozen=True, slots=True)
class FrameSource:
    """How a DataFrame is recorded.

    Attributes:
        df: Batch or streaming.
        time: The column with the event time.
        delay_us: How far rows may be out of order.
        ahead_us: How far a row may be ahead and still move time; None: every row moves it.
        has_watermark: Whether Spark's own watermark says what is late.
        partitions: Into which a batch DataFrame is divided.
        is_paced: Whether nodes replay it at a set speed.
        trigger: As `DataStreamWriter.trigger` takes it; None: Spark's default.
        needs_order: Whether the rows of a batch DataFrame must come in order of time.
    """

    df: DataFrame
    time: str
    delay_us: int
    ahead_us: int | None
    has_watermark: bool
    partitions: int
    is_paced: bool
    trigger: dict[str, Any] | None
    needs_order: bool = True


class Ingest:
    """One source DataFrame on its way into its ingest log."""

    def __init__(self, name: str, source: FrameSource, location: str, reason: str = "") -> None:
        """Nothing happens before `start`.

        Args:
            name: The source's.
            source: What is recorded.
            location: The checkpoint location.
            reason: Why nodes cannot read it by themselves, for people.
        """
        self.name = name
        self.way = f"Spark writes its rows into a log{f': {reason}' if reason else ''}"
        self._df = source.df
        self._time = source.time
        self._delay_us = source.delay_us
        self._ahead_us = source.ahead_us
        self._partitions = source.partitions
        self._needs_order = source.needs_order
        self.is_paced = source.is_paced
        self._location = location
        self._path = ingest_path(location, name)
        self._checkpoint = _hadoop_url(os.path.join(location, "ingest-checkpoints", name))
        self._query: Any = None
        self._thread: threading.Thread | None = None
        self._job_group = f"holdfast/ingest {name} {uuid.uuid4()}"
        self._spark: SparkSession | None = None
        self._error: str | None = None
        self.is_streaming = bool(self._df.isStreaming)
        self._trigger: dict[str, Any] = source.trigger or {}
        self._has_watermark = source.has_watermark
        self._is_stopping = False
        self._commits = CommitFinder(self._path)
        self._idle_behind = -1  # the newest batch behind which Spark's idleness was told
        self._telling = threading.Lock()

    def start(self, spark: SparkSession) -> None:
        """Begin; a bounded DataFrame that was written before is not written again."""
        if has_ended(self._path):
            return
        self._spark = spark
        if self.is_streaming:
            with active_session(spark):
                register(spark)
                self._start_stream()
        target = self._watch_stream if self.is_streaming else self._write_batch
        name = f"ingest-{self.name}"
        self._thread = threading.Thread(target=target, args=(spark,), name=name, daemon=True)
        self._thread.start()

    def _start_stream(self) -> None:
        """Names of Spark's queries are unique in a session, names of sources in a dataflow."""
        writer = self._df.writeStream.format("holdfast").options(**self._options())
        writer = writer.option("checkpointLocation", self._checkpoint).outputMode("append")
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        name = f"holdfast-ingest-{self.name}-{location_id(self._location)}"
        self._query = writer.queryName(name).start(self._path)

    def _watch_stream(self, spark: SparkSession) -> None:
        """Spark's query ends by itself only if it was to read what is there."""
        try:
            self._await_end()
            jsc: Any = spark.sparkContext._jsc
            if self._is_stopping or jsc is None or jsc.sc().isStopped():
                return
            if not (self.is_available_now and self._is_committed()):
                self._error = f"source {self.name}: its streaming query was stopped"
            elif self._has_watermark:
                self._tell_if_idle(is_known=True)
        except Exception as error:  # Spark's errors have many classes; all end the query.
            if not self._is_stopping:
                self._error = f"source {self.name}: {reason_of(error)}"

    def _await_end(self) -> None:
        """Until Spark's query ends; tells meanwhile when it is idle, if its watermark counts."""
        if not self._has_watermark:
            self._query.awaitTermination()
            return
        while not self._query.awaitTermination(_IDLE_LOOK_S):
            self._tell_if_idle()

    def _tell_if_idle(self, *, is_known: bool = False) -> None:
        """Tell the log to which watermark Spark has come, once a trigger has found nothing new.

        Operators of Spark's would have a batch without rows then; the query that writes the log has
        none.

        Args:
            is_known: That nothing new was found is known.
        """
        with self._telling:
            newest = self._commits.newest()  # Before Spark is asked: it is idle behind this one.
            if newest <= self._idle_behind or not (
                is_known or has_found_nothing(self._query.status)
            ):
                return
            watermark_us = watermark_after_batch(self._checkpoint, newest)
            if watermark_us is not None:
                tell_idle(self._path, newest, watermark_us)
                self._idle_behind = newest

    def _is_committed(self) -> bool:
        """Whether Spark has finished every batch that it had begun."""
        store = store_at(self._checkpoint.replace("s3a://", "s3://"))
        begun, done = (
            {name.rpartition("/")[2] for name in store.names(folder)}
            for folder in ("offsets", "commits")
        )
        return {name for name in begun if name.isdigit()} <= done

    @property
    def error(self) -> str | None:
        """Why Spark cannot write the rows, or None."""
        return self._error

    @property
    def has_ended(self) -> bool:
        """Whether nothing will follow in its log."""
        return has_ended(self._path)

    @property
    def is_unbounded(self) -> bool:
        """Whether rows may come for as long as the query runs."""
        return self.is_streaming and not self.is_available_now

    @property
    def is_available_now(self) -> bool:
        """Whether it reads what there is, and a later run goes on behind that."""
        return self.is_streaming and "availableNow" in self._trigger

    def still_there(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """See `Recorder`: it records none."""
        return paths

    def process_all_available(self) -> None:
        """Wait until Spark has written what it can read now."""
        if self.is_unbounded and self._query is not None:
            self._query.processAllAvailable()
            if self._has_watermark:
                self._tell_if_idle(is_known=True)
        else:
            self.wait()

    def wait(self) -> None:
        """Wait until a bounded DataFrame, or what is available now, has been written."""
        if self._thread is not None:
            self._thread.join()

    def _options(self) -> dict[str, str]:
        options = {"time": self._time, "delayUs": str(self._delay_us)}
        options["aheadUs"] = str(self._ahead_us or 0)
        return options | ({"watermark": "true"} if self._has_watermark else {})

    def _write_batch(self, spark: SparkSession) -> None:
        """In order of time, if a step needs that or it costs little; nothing is late in any case.

        Rows that are put into order pass from task to task, which takes longer than all the rest.
        In order, windows close one after the other, and state stays small.
        """
        try:
            spark.sparkContext.setJobGroup(self._job_group, f"Holdfast records {self.name}")
            rows = self._df
            if self._needs_order or _estimated_bytes(rows) < _ORDERED_BYTES:
                spread = rows.repartition(self._partitions)
                rows = spread.sortWithinPartitions(quoted(self._time))
            write_frame(rows, self._path, batch=_WHOLE, end="true", **self._options())
        except Exception as error:  # Spark's errors have many classes; all end the query.
            if not self._is_stopping:
                self._error = f"source {self.name}: {reason_of(error)}"

    def stop(self) -> None:
        """Have Spark write no more; returns when it does not."""
        self._is_stopping = True
        if self._query is not None:
            self._query.stop()
        while self._thread is not None and self._thread.is_alive():
            self._cancel()
            self._thread.join(_CANCEL_INTERVAL_S)  # It may be about to begin another job.

    def _cancel(self) -> None:
        """End the jobs of a batch write."""
        context = None if self._spark is None else self._spark.sparkContext
        jsc: Any = None if context is None else context._jsc
        if context is not None and jsc is not None and not jsc.sc().isStopped():
            context.cancelJobGroup(self._job_group)


def _estimated_bytes(df: DataFrame) -> int:
    """As Spark has it of the plan."""
    plan: Any = df._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def _hadoop_url(place: str) -> str:
    """How Spark itself, which keeps a streaming query's own checkpoints, calls a place."""
    return "s3a://" + place.removeprefix("s3://") if place.startswith("s3://") else place
