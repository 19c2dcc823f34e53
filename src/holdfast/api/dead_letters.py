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

import pyarrow as pa

from holdfast.api.expressions import CompiledExpression
from holdfast.core.operators.bad_rows import failures, is_evaluable

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
