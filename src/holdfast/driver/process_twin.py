"""Classes of the user's in the batch twin: Spark groups the rows, and each key is gone through.

Nothing here is of the operator: what a key has lies in a dict, and its rows in a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.core.model.column_names import quoted
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.api import steps
    from holdfast.api.processors import KeyScope, OpenProcessor

_MS_US = 1000


def processed(
    name: str, of: steps.Process, frame: DataFrame, schema: pa.Schema, order: tuple[str, ...]
) -> DataFrame:
    """The results of a class.

    Args:
        name: Of the step.
        of: What it does.
        frame: What it reads.
        schema: Of that.
        order: Columns that sort it as it came.

    Raises:
        UnsupportedError: What it gives is not settled by the rows.
    """
    from holdfast.shell.spark.arrow_schemas import from_arrow_schema

    if of.time == "processing":
        raise UnsupportedError(
            f"{name}: no batch twin: timers of {of.processor.name} are of processing time, which "
            "is not recorded"
        )
    has_order = order[0] in frame.columns
    if not has_order and of.time == "none":
        raise UnsupportedError(
            f"{name}: its results depend on the order of the input, which is known for "
            "recorded sources of one partition alone"
        )
    fields = [*from_arrow_schema(of.processor.schema).fields, StructField(TIME_COLUMN, LongType())]

    def run(table: pa.Table) -> pa.Table:
        key = _Key(name, of, has_order)
        columns = [table.column(each.name).cast(each.type) for each in schema]
        rows = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
        batch = rows.to_batches()[0]
        times = table.column(TIME_COLUMN).to_pylist()
        places: list[tuple[Any, ...]] = [()] * len(times)
        if has_order:
            places = [
                tuple(map(tuple, p))
                for p in zip(*(table.column(c).to_pylist() for c in order), strict=True)
            ]
        found = key.gone_through(batch, times, places)
        made = pa.Table.from_batches([key.open.batch([row for row, _ in found])])
        return made.append_column(TIME_COLUMN, pa.array([at for _, at in found], pa.int64()))

    return frame.groupBy(*map(quoted, of.keys)).applyInArrow(run, StructType(fields))


class _Key:
    """A key, its rows and its timers."""

    def __init__(self, name: str, of: steps.Process, has_order: bool) -> None:
        self._name = name
        self._of = of
        self._has_order = has_order
        self.open: OpenProcessor = of.processor.opened()
        self._found: list[tuple[Any, int]] = []

    def gone_through(
        self, batch: pa.RecordBatch, times: list[int], places: list[tuple[Any, ...]]
    ) -> list[tuple[Any, int]]:
        """The results and their times, as the rows and timers of a key have their turns."""
        names = batch.schema.names
        at = [names.index(key) for key in self._of.keys]
        rows = self.open.rows(batch)
        scope = self.open.scope(
            tuple(batch.column(c)[0].as_py() for c in at), [None] * len(self.open.states), set()
        )
        is_timed = self._of.time == "event"
        numbers = sorted(
            range(len(rows)), key=lambda n: (times[n], places[n]) if is_timed else places[n]
        )
        newest_us = None
        for number in numbers:
            time_us, watermark_ms = times[number], -1
            if is_timed:
                self._require_order(time_us == newest_us)
                self._expire(scope, (time_us - 1) // _MS_US, newest_us)
                newest_us, watermark_ms = time_us, (time_us - 1) // _MS_US
            given = self.open.take(scope, rows[number], -1, watermark_ms)
            self._found += [(each, time_us) for each in given]
        if is_timed:
            self._expire(scope, None, newest_us)
        return self._found

    def _expire(self, scope: KeyScope, until_ms: int | None, newest_us: int | None) -> None:
        """The turns of timers up to a time; None: of all."""
        while due := [t for t in scope.timers if until_ms is None or t[0] <= until_ms]:
            time_ms, kind = min(due)
            if kind and (newest_us is None or time_ms * _MS_US > newest_us):
                raise UnsupportedError(
                    f"{self._name}: no batch twin: a timer of {self._of.processor.name} that a "
                    "timer has set waits for a row, maybe of another key"
                )
            given = self.open.expire(scope, (time_ms, kind), -1, time_ms)
            self._found += [(each, time_ms * _MS_US) for each in given]

    def _require_order(self, is_tie: bool) -> None:
        if is_tie and not self._has_order:
            raise UnsupportedError(
                f"{self._name}: no batch twin: rows of one key have the same time, and in which "
                "order they came is known for recorded sources of one partition alone"
            )
