"""Functions of the user's in expressions, made by `udf`, `pandas_udf` and `arrow_udf` of Spark.

They take nulls as `None`, and see all rows that their result is asked for. A timestamp is a naive
`datetime` in UTC, as Spark gives it in a session of that time zone. A result of another type than
the function has declared is an error, where Spark may give null for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from holdfast.api.expressions.python_values import for_arrow, is_fitting, values_of
from holdfast.api.expressions.types import is_carried, name_of
from holdfast.api.expressions.values import EvaluationError, Value, as_array
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.users_code import USERS_CODE
from holdfast.errors import DataflowError, UnsupportedError

Takes = Literal["rows", "pandas", "arrow"]


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
            is_odd = is_nested(argument.type) and self.takes == "pandas"
            if is_odd or not is_carried(argument.type):
                raise UnsupportedError(
                    f"{text}: {argument.text} is {name_of(argument.type)}, which functions "
                    f"of {self.takes} do not take here; write a udf or an arrow_udf"
                )
        if not arguments and self.takes != "rows":
            raise DataflowError(f"{text}: a function of columns takes at least one")

        def evaluate(batch: pa.RecordBatch) -> pa.Array:
            columns = [as_array(each.evaluate(batch), batch.num_rows) for each in arguments]
            return self._called(columns, batch.num_rows)

        return Value(self.type, evaluate, is_total=False, text=text)

    def _called(self, columns: list[pa.Array], rows: int) -> pa.Array:
        try:
            with USERS_CODE.of(self.name):
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
        values = [values_of(column) for column in columns]
        given: Iterable[tuple[Any, ...]] = zip(*values, strict=True) if values else [()] * rows
        made = [self.function(*row) for row in given]
        for value in made:
            if not is_fitting(self.type, value):
                raise EvaluationError(
                    f"{self.name} gave {value!r}, which is no {name_of(self.type)}"
                )
        return pa.array([for_arrow(self.type, value) for value in made], self.type)


def _naive(column: pa.Array) -> pa.Array:
    """Timestamps without their time zone, which is UTC."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us")) if is_zoned else column


def _series(column: pa.Array) -> Any:
    return _naive(column).to_pandas()
