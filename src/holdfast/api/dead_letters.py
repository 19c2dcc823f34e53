"""Dead letters: rows for which an expression has no value go to a stream of their own.

A `select` or `filter` with dead letters becomes two branches over the same input: a filter that
lets the good rows through to it, and one that lets the bad rows through to a sink, with what was
wrong in a last column `error`. Both are ordinary operators, so that dead letters are as exact
under failures as everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.api.expressions import CompiledExpression
from holdfast.api.functions import Kind, PythonFunction
from holdfast.core.model.column_names import quoted
from holdfast.core.operators.bad_rows import failures, is_evaluable
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from holdfast.api.streams import Stream

ERROR_COLUMN = "error"


@dataclass(frozen=True, slots=True)
class BadRows:
    """How a source marks rows that are not of its schema.

    Attributes:
        error: The column that is null but for these.
        letter: What a dead letter holds of such a row, as `Stream.select` takes it.
    """

    error: str
    letter: tuple[str, ...]

    def diverted(self, stream: Stream, sink: str | None) -> Stream:
        """The rows of the schema; a sink of this name gets the others; None: there are none."""
        if sink is None:
            return stream
        stream.filter(f"{self.error} IS NOT NULL").select(*self.letter).sink(sink)
        return stream.filter(f"{self.error} IS NULL")


class Evaluable:
    """A predicate: whether all expressions have a value for a row, or whether one has none."""

    type = pa.bool_()

    def __init__(self, expressions: Sequence[CompiledExpression], *, is_negated: bool) -> None:
        """Test the expressions."""
        self._expressions = list(expressions)
        self._is_negated = is_negated
        verb = "has no value" if is_negated else "has a value"
        self.sql = self.name = f"{', '.join(e.sql for e in expressions)} {verb}"

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One boolean per row, never null."""
        return pa.array(is_evaluable(self._expressions, batch) != self._is_negated)


class Failure:
    """A column: why one of the expressions has no value."""

    type = pa.string()
    name = ERROR_COLUMN

    def __init__(self, expressions: Sequence[CompiledExpression]) -> None:
        """Explain the expressions."""
        self._expressions = list(expressions)
        self.sql = f"why {', '.join(e.sql for e in expressions)} has no value"

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One text per row; null where there is nothing to explain."""
        return pa.array(failures(self._expressions, batch), pa.string())


@dataclass(frozen=True, slots=True)
class FunctionWithBadRows:
    """A function of the user's that also gives the rows for which it raises; a `RowFunction`.

    It runs once on each row, but where it raises: there batches are halved until the bad rows are
    alone. A result has the function's columns, then those of the row that it is of, and the error;
    either the former are null, or all others.

    Attributes:
        function: The user's.
        given: What it takes.
    """

    function: PythonFunction
    given: pa.Schema

    @property
    def name(self) -> str:
        """The function's."""
        return self.function.name

    @property
    def kind(self) -> Kind:
        """The function's."""
        return self.function.kind

    @property
    def is_deterministic(self) -> bool:
        """It is: others have no dead letters."""
        return True

    @property
    def schema(self) -> pa.Schema:
        """Of its results."""
        results = [pa.field(f"result {n}", f.type) for n, f in enumerate(self.function.schema)]
        rows = [pa.field(f"given {n}", f.type) for n, f in enumerate(self.given)]
        return pa.schema([*results, *rows, pa.field(ERROR_COLUMN, pa.string())])

    @property
    def error(self) -> str:
        """The column that is null but for bad rows."""
        return ERROR_COLUMN

    @property
    def letter(self) -> list[str]:
        """What a dead letter holds, as `Stream.select` takes it."""
        columns = [f"`given {n}` AS {quoted(name)}" for n, name in enumerate(self.given.names)]
        return [*columns, ERROR_COLUMN]

    @property
    def results(self) -> list[str]:
        """What the function gives, as `Stream.select` takes it."""
        names = self.function.schema.names
        return [f"`result {n}` AS {quoted(name)}" for n, name in enumerate(names)]

    def __str__(self) -> str:
        """By what a checkpoint location knows it."""
        return f"{self.function} with dead letters"

    def apply(
        self, batch: pa.RecordBatch, clock_us: int, seed: int
    ) -> tuple[pa.RecordBatch, np.ndarray | None]:
        """As `RowFunction.apply`; it raises for no row."""
        pieces: list[pa.RecordBatch] = []
        of: list[np.ndarray] = []
        ranges = [(0, batch.num_rows)]
        while ranges:
            start, stop = ranges.pop()
            part = batch.slice(start, stop - start)
            try:
                made, rows = self.function.apply(part, clock_us, seed)
            except ArithmeticError as error:
                if stop - start > 1:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
                    continue
                pieces.append(self._bad(part, str(error)))
                of.append(np.array([start], dtype=np.int64))
                continue
            pieces.append(self._good(made))
            numbers = np.arange(stop - start) if rows is None else rows
            of.append(start + numbers.astype(np.int64))
        return pa.concat_batches(pieces), np.concatenate(of)

    def _good(self, made: pa.RecordBatch) -> pa.RecordBatch:
        missing = self.schema.types[len(self.function.schema) :]
        columns = [*made.columns, *(pa.nulls(made.num_rows, kind) for kind in missing)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _bad(self, row: pa.RecordBatch, error: str) -> pa.RecordBatch:
        nulls = [pa.nulls(1, field.type) for field in self.function.schema]
        columns = [*nulls, *row.columns, pa.array([error], pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def function_with_bad_rows(function: PythonFunction, given: pa.Schema) -> FunctionWithBadRows:
    """The function with dead letters.

    Raises:
        UnsupportedError: It is not deterministic: run on half of a batch, it would draw otherwise.
        DataflowError: A column has the name of the error's.
    """
    if not function.is_deterministic:
        raise UnsupportedError(
            f"{function.name}: dead_letters=... with deterministic=False; catch what it raises"
        )
    if ERROR_COLUMN in map(str.lower, given.names):
        raise DataflowError(f"dead letters have a column {ERROR_COLUMN!r}; rename yours")
    return FunctionWithBadRows(function, given)
