"""Functions of the user's in expressions, made by `udf`, `pandas_udf` and `arrow_udf` of Spark.

They take nulls as `None`, and see all rows that their result is asked for. A timestamp is a naive
`datetime` in UTC, as Spark gives it in a session of that time zone. A result of another type than
the function has declared is an error, where Spark may give null for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

import pyarrow as pa

from holdfast.api.expressions.types import is_carried, name_of
from holdfast.api.expressions.values import EvaluationError, Value, as_array
from holdfast.errors import DataflowError, UnsupportedError

Takes = Literal["rows", "pandas", "arrow"]
_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], type, type | None], ...]] = (
    (pa.types.is_boolean, bool, None),
    (pa.types.is_integer, int, bool),
    (pa.types.is_floating, float, None),
    (pa.types.is_decimal, Decimal, None),
    (pa.types.is_string, str, None),
    (pa.types.is_binary, bytes, None),
    (pa.types.is_date, dt.date, dt.datetime),
    (pa.types.is_timestamp, dt.datetime, None),
)
"""Per type of result what a function gives for it, and what of that is another type's."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function that expressions call by name. It travels inside Spark's task.

    Attributes:
        name: By which it is called.
        function: The user's.
        takes: One row's values, or columns of pandas or Arrow.
        type: Of its result.
    """

    name: str
    function: Callable[..., Any]
    takes: Takes
    type: pa.DataType

    def build(self, arguments: Sequence[Value], text: str) -> Value:
        """A call of it. Raises `DataflowError` or `UnsupportedError`."""
        for argument in arguments:
            if pa.types.is_null(argument.type):
                raise DataflowError(f"{text}: NULL has no type; write CAST(NULL AS type)")
            if not (is_carried(argument.type) or pa.types.is_binary(argument.type)):
                raise UnsupportedError(
                    f"{text}: {argument.text} is {name_of(argument.type)}, which functions of "
                    "Python do not take here"
                )
        if not arguments and self.takes != "rows":
            raise DataflowError(f"{text}: a function of columns takes at least one")

        def evaluate(batch: pa.RecordBatch) -> pa.Array:
            columns = [as_array(each.evaluate(batch), batch.num_rows) for each in arguments]
            return self._called(columns, batch.num_rows)

        return Value(self.type, evaluate, is_total=False, text=text)

    def _called(self, columns: list[pa.Array], rows: int) -> pa.Array:
        try:
            match self.takes:
                case "rows":
                    made = self._of_rows(columns, rows)
                case "pandas":
                    given = self.function(*map(_series, columns))
                    made = pa.Array.from_pandas(given, type=self.type)
                case "arrow":
                    made = self.function(*columns)
        except Exception as error:  # Whatever the user's code raises.
            raise EvaluationError(f"{type(error).__name__}: {error}") from error
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if not isinstance(made, pa.Array) or len(made) != rows:
            raise EvaluationError(f"{self.name} gave {type(made).__name__}, not {rows} values")
        return made.cast(self.type)

    def _of_rows(self, columns: list[pa.Array], rows: int) -> pa.Array:
        values = [_naive(column).to_pylist() for column in columns]
        given: Iterable[tuple[Any, ...]] = zip(*values, strict=True) if values else [()] * rows
        made = [self.function(*row) for row in given]
        for value in made:
            if value is not None and not self._fits(value):
                raise EvaluationError(
                    f"{self.name} gave {value!r}, which is no {name_of(self.type)}"
                )
        return pa.array(made, self.type)

    def _fits(self, value: Any) -> bool:
        """Whether a value is of the result's type, without a conversion."""
        for is_of, kind, other in _KINDS:
            if is_of(self.type):
                return isinstance(value, kind) and not (other and isinstance(value, other))
        raise AssertionError(self.type)


def _naive(column: pa.Array) -> pa.Array:
    """Timestamps without their time zone, which is UTC."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us")) if is_zoned else column


def _series(column: pa.Array) -> Any:
    return _naive(column).to_pandas()
