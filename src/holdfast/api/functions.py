"""Functions of the user's in Python, as operators call them.

A function travels inside Spark's own task, as functions of Spark's do; it is never read from a
channel. A checkpoint location knows it by its name.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.api.expressions.python_values import for_arrow, is_fitting, rows_of
from holdfast.api.expressions.types import is_carried
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.users_code import USERS_CODE
from holdfast.errors import DataflowError, UnsupportedError

Kind = Literal["map_batches", "map", "flat_map", "filter"]
Function = Callable[..., Any]


class FunctionError(ArithmeticError):
    """A function raised, or gave something else than it had said."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a function with `deterministic=False` may depend on beside its row.

    Both are written down before the function sees them, so that a node that takes over gives the
    same results again.

    Attributes:
        now: The processing time, UTC.
        random: Draws.
    """

    now: dt.datetime
    random: random.Random


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function on rows or batches; a `RowFunction`.

    Attributes:
        function: The user's.
        kind: What it takes and gives: see the methods of `Stream` that are so named.
        schema: Of its results.
        is_deterministic: Whether it depends on the row alone.
    """

    function: Function
    kind: Kind
    schema: pa.Schema
    is_deterministic: bool

    @property
    def name(self) -> str:
        """The function's."""
        return str(getattr(self.function, "__qualname__", type(self.function).__qualname__))

    def __str__(self) -> str:
        """By what a checkpoint location knows it."""
        return self.name if self.is_deterministic else f"{self.name}, arbitrary"

    def apply(
        self, batch: pa.RecordBatch, clock_us: int, seed: int
    ) -> tuple[pa.RecordBatch, np.ndarray | None]:
        """The results, and for each the row it is of; as `RowFunction.apply`."""
        more: tuple[Pass, ...] = ()
        if not self.is_deterministic:
            more = (Pass(_EPOCH + dt.timedelta(microseconds=clock_us), random.Random(seed)),)
        try:
            with USERS_CODE.of(self.name):
                match self.kind:
                    case "map_batches":
                        return self._whole(self.function(batch, *more), batch.num_rows), None
                    case "map":
                        rows = [self.function(row, *more) for row in rows_of(batch)]
                        return self._batch(rows), None
                    case "flat_map":
                        given = [list(self.function(row, *more)) for row in rows_of(batch)]
                        of = np.repeat(np.arange(len(given)), [len(each) for each in given])
                        return self._batch([row for each in given for row in each]), of
                    case "filter":
                        kept = [self._flag(self.function(row, *more)) for row in rows_of(batch)]
                        keep = np.asarray(kept, dtype=np.bool_)
                        return batch.filter(pa.array(keep)), np.flatnonzero(keep)
        except FunctionError:
            raise
        except Exception as error:  # Whatever the user's code raises.
            raise FunctionError(f"{self.name}: {type(error).__name__}: {error}") from error

    def _whole(self, given: Any, rows: int) -> pa.RecordBatch:
        if not isinstance(given, pa.RecordBatch):
            raise FunctionError(f"{self.name} gave {type(given).__name__}, not a RecordBatch")
        if given.num_rows != rows:
            raise FunctionError(
                f"{self.name} gave {given.num_rows} rows for {rows}; map_batches gives one for "
                "each, flat_map any number"
            )
        if given.schema.names != self.schema.names:
            raise FunctionError(
                f"{self.name} gave columns {', '.join(given.schema.names)}; its schema has "
                f"{', '.join(self.schema.names)}"
            )
        columns = [
            self._fitted(column, field)
            for column, field in zip(given.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _fitted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """The column in the schema's type. Raises `FunctionError` if a value would be another."""
        _require_some(self.name, field, column.null_count)
        if column.type == field.type:
            return column
        fitted = column.cast(field.type)
        is_rounded = pa.types.is_floating(column.type) and pa.types.is_floating(field.type)
        if not is_rounded and not fitted.cast(column.type).equals(column):
            raise FunctionError(
                f"{self.name} gave {column.type} for {field.name}, {field.type}, which has no "
                "place for all of its values"
            )
        return fitted

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        names = set(self.schema.names)
        for row in rows:
            if not isinstance(row, dict) or row.keys() != names:
                raise FunctionError(
                    f"{self.name} gave {row!r}; a row is a dict of {', '.join(self.schema.names)}"
                )
        return batch_of(self.name, self.schema, rows)

    def _flag(self, given: Any) -> bool:
        if not isinstance(given, bool | np.bool_ | None):
            raise FunctionError(f"{self.name} gave {given!r}, neither True, False nor None")
        return bool(given)


def python_function(
    kind: Kind, function: Function, schema: pa.Schema, is_deterministic: bool
) -> PythonFunction:
    """A function of the user's.

    Raises:
        DataflowError: It is no function.
        UnsupportedError: A column of its results has a type that no stream carries.
    """
    if not callable(function):
        raise DataflowError(f"{kind}({function!r}) takes a function")
    for field in schema:
        if not is_carried(field.type):
            raise UnsupportedError(
                f"{kind}: column {field.name!r} is {field.type}, which no stream carries"
            )
    return PythonFunction(function, kind, schema, is_deterministic)


def batch_of(name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows that a function of this name gave, each with all columns of the schema.

    Raises:
        FunctionError: A value would be another one.
    """
    columns: list[list[Any]] = []
    for field in schema:
        values = [row[field.name] for row in rows]
        _require_some(name, field, sum(value is None for value in values))
        _require_whole(name, field, values)
        columns.append([for_arrow(field.type, value) for value in values])
    try:
        arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise FunctionError(f"{name}: {type(error).__name__}: {error}") from error


def _require_some(name: str, field: pa.Field, nulls: int) -> None:
    """Raise `FunctionError` for nulls in a column that is to have none."""
    if nulls and not field.nullable:
        raise FunctionError(f"{name} gave null for {field.name}, which is NOT NULL")


def _require_whole(name: str, field: pa.Field, values: list[Any]) -> None:
    """Raise `FunctionError` for a value of which Arrow would drop a part without a word."""
    wrong: list[Any] = []
    if pa.types.is_integer(field.type):
        real = (float, np.floating, Decimal)
        wrong = [v for v in values if isinstance(v, real) and v % 1 != 0]
    elif pa.types.is_date(field.type):
        wrong = [v for v in values if isinstance(v, dt.datetime)]
    elif is_nested(field.type):
        wrong = [v for v in values if not is_fitting(field.type, v)]
    if wrong:
        raise FunctionError(f"{name} gave {wrong[0]!r} for {field.name}, {field.type}")
