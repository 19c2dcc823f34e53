"""Apply runs a function of the user's on rows. Repeatable, or arbitrary; stateless. [HA §3.2]

The cuts between batches depend on the network, so each result must depend on its own row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.model.stable_hash import stable_hash
from holdfast.core.operators.bad_rows import BadRowError
from holdfast.core.operators.base import (
    NOTHING,
    ArbitraryOperator,
    Operator,
    OperatorClass,
    Output,
    Rows,
    has_rows,
)

_CURE: Final = "mend the function, or leave such rows out by a filter before it"


class RowFunction(Protocol):
    """A function on rows."""

    @property
    def schema(self) -> pa.Schema:
        """Of its results."""
        ...

    def apply(
        self, batch: pa.RecordBatch, clock_us: int, seed: int
    ) -> tuple[pa.RecordBatch, np.ndarray | None]:
        """The results for a batch.

        Args:
            batch: The rows.
            clock_us: The processing time of an arbitrary function; 0 for others.
            seed: Its seed, uint64; 0 for others.

        Returns:
            The resulting rows, and for each the row that it is of, int64, ascending; None instead:
            there is one for each row.

        Raises:
            ArithmeticError: It has no result for some row.
        """
        ...


class Apply(Operator):
    """Gives the results of a function; they have the times and order of their rows."""

    operator_class = OperatorClass.REPEATABLE

    def __init__(self, name: str, function: RowFunction) -> None:
        """Run this function, which depends on the row alone."""
        self.name = name
        self.output_schema = function.schema
        self._function = function

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The results. Raises `BadRowError` for a row that the function has none for."""
        return applied(self.name, self._function, inputs, low)


class ApplyArbitrarily(ArbitraryOperator):
    """The same of a function that looks at the clock or draws; the node tells it both."""

    def __init__(self, name: str, function: RowFunction) -> None:
        """Run this function, which depends on the row, the clock and the seed."""
        self.name = name
        self.output_schema = function.schema
        self._function = function
        self._own = int(stable_hash([pa.array([name])])[0])  # Two functions of a node differ.
        self._clock_us, self._seed = 0, 0

    def decide(self, clock_us: int, seed: int) -> None:
        """What the coming pass depends on."""
        self._clock_us, self._seed = clock_us, seed ^ self._own

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The results. Raises `BadRowError` for a row that the function has none for."""
        return applied(self.name, self._function, inputs, low, self._clock_us, self._seed)


def applied(
    name: str,
    function: RowFunction,
    inputs: Sequence[Rows | None],
    low: np.ndarray,
    clock_us: int = 0,
    seed: int = 0,
) -> Output:
    """What a pass gives; arguments as of `Operator.process` and `RowFunction.apply`."""
    (rows,) = inputs
    if rows is None or not has_rows(rows):
        return NOTHING
    try:
        batch, of = function.apply(rows.batch, clock_us, seed)
    except ArithmeticError as error:
        raise _explained(name, function, rows, error, clock_us, seed) from error
    if batch.num_rows == 0:
        return NOTHING
    if of is None:
        kept = Rows(batch, rows.time_us, rows.order, rows.created_us, rows.batch_starts)
    else:
        kept = Rows(batch, rows.time_us[of], rows.order[of], rows.created_us)
    return Output((kept,), low)


def _explained(
    name: str, function: RowFunction, rows: Rows, error: ArithmeticError, clock_us: int, seed: int
) -> BadRowError:
    """The error that names the first row for which the function has no result."""
    for row in range(rows.batch.num_rows):
        one = rows.batch.slice(row, 1)
        try:
            function.apply(one, clock_us, seed)
        except ArithmeticError as found:
            [values] = one.to_pylist()
            return BadRowError(
                f"{name}: {found}, at the tuple of time "
                f"{np.datetime64(int(rows.time_us[row]), 'us')}Z with {values}; {_CURE}"
            )
    return BadRowError(f"{name}: {error}, though for no row alone; {_CURE}")
