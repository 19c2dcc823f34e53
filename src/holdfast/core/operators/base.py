"""What an operator is. [HA §3.2]

A node merges its inputs into one total order and cuts it into passes. The concatenated output of
an operator does not depend on the cuts. Two kinds of output rows exist:

- rows caused by an input row carry that row's `order`;
- rows caused by the boundary (closed windows) carry `order == AT_CLOSE`.

In a pass, rows without `AT_CLOSE` rows beside them are merged by (order, port). As soon as some
port brings `AT_CLOSE` rows, all are merged by (tuple time, order, port): a window closes in the
pass whose span of tuple time contains its end, and a node with several input streams orders its
rows by tuple time [DPC "SUnion"], so this too is independent of the cuts. The exception, which
planning must avoid, is to merge closed windows with rows of a single input that is not in order
of tuple time: then the place of the windows depends on when the boundary arrived.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US

AT_CLOSE: Final = 2**62
"""The order of rows that a boundary caused: after every input row of the pass."""

PIECE_ROWS: Final = 1 << 16
"""Of a window's results so many are made at once: their columns stay in a core's caches."""


class OperatorClass(enum.IntEnum):
    """How much an operator's output depends on more than its input. Each class contains those
    before it; a unit has the class of its most general operator. [HA §3.2]
    """

    REPEATABLE = 0
    CONVERGENT_CAPABLE = 1
    DETERMINISTIC = 2
    ARBITRARY = 3


class ArithmeticOverflow(ArithmeticError):
    """A result does not fit its type, which Spark in ANSI mode refuses too."""


class Evaluator(Protocol):
    """A compiled expression over the attributes of a batch."""

    @property
    def name(self) -> str:
        """Name of the result column."""
        ...

    @property
    def type(self) -> pa.DataType:
        """Type of the result."""
        ...

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per row of the batch, of type `type`."""
        ...


@dataclass(slots=True)
class Rows:
    """Rows on one port in one pass.

    Attributes:
        batch: The attributes.
        time_us: int64 (n,), tuple time in microseconds since the epoch.
        order: int64 (n,), non-decreasing position in the node's total order of this pass, the
            same numbering over all ports; `AT_CLOSE` for rows of closed windows.
        created_us: Creation wall time of the newest contributing tuple, 0 if unknown. Only latency
            figures use it.
        batch_starts: int64, the orders at which batches of the node's only input stream begin, as
            long as rows are only left out or given new columns; None: otherwise.
    """

    batch: pa.RecordBatch
    time_us: np.ndarray
    order: np.ndarray
    created_us: int
    batch_starts: np.ndarray | None = None


@dataclass(slots=True)
class Output:
    """What one pass produced.

    Attributes:
        pieces: The rows, one piece after the other: what a window of many groups gives is never in
            one place, as fresh memory and writing past the caches cost more than the rows do.
        low: int64 per node-wide input stream: the oldest tuple id that contributed to these rows
            (or an older one), which is cause() of HA; None without rows. [HA §5.2]
    """

    pieces: tuple[Rows, ...]
    low: np.ndarray | None

    @property
    def rows(self) -> Rows | None:
        """All rows in one piece, copied if there are several; None without rows."""
        return joined(self.pieces) if self.pieces else None


NOTHING: Final = Output((), None)


Owns: TypeAlias = Callable[[Sequence[pa.Array]], np.ndarray]
"""Key columns of rows -> whether each row is an instance's own, bool (n,)."""


class Operator(abc.ABC):
    """One operator with its state. Volatile fields but for what it keeps in pages."""

    operator_class: OperatorClass
    name: str
    output_schema: pa.Schema

    @abc.abstractmethod
    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Process one pass.

        Args:
            inputs: One per port, None where nothing arrived.
            low: int64 per node-wide input stream, the oldest tuple id in this pass, NO_ID if none.
            boundary_us: After these rows nothing older follows on any input of this operator.
        """

    def promises_us(self, boundary_us: int) -> int:
        """After this pass nothing older follows on the output, if `boundary_us` holds for all
        inputs. It never moves back while the boundary does not, and is `END_US` when that is.
        """
        return boundary_us

    def closes_us(self, boundary_us: int) -> int:
        """The newest time, at most this boundary, at which a boundary would put something out.

        `BEGINNING_US`: none would. Who keeps state and cannot tell says that this one would.
        """
        return boundary_us if self.keeps_state else BEGINNING_US

    @property
    def keeps_state(self) -> bool:
        """Whether results ever depend on more than the rows of their own pass."""
        return type(self).oldest_needed is not Operator.oldest_needed

    def oldest_needed(self) -> np.ndarray | None:
        """Per input stream the oldest tuple id that the state depends on; None: no state.

        It is the operator's low watermark. [HA §5.2]
        """
        return None

    def pass_over(self, closed_us: int) -> None:  # noqa: B027  (some operators have no windows)
        """Leave out windows that had closed at this boundary: a replay begins without their first
        tuples, and what they would put out is discarded.
        """

    def check_invariants(self) -> None:  # noqa: B027  (stateless operators have none)
        """Raise `InvariantViolation` if the state makes no sense."""

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Take over what belongs to this instance of what other instances hold.

        Args:
            others: The same operator in all instances that there were, each between two passes and
                at the same boundary; they are not changed. This one is empty.
            owns: Which rows are this instance's, by their key columns.
            streams: How many input streams the node has.

        Raises:
            LocalProtocolError: The state cannot be divided.
        """
        raise LocalProtocolError(f"the state of {self.name} cannot be divided among instances")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        return 0

    def state_rows(self) -> pa.Table | None:
        """The state as rows for people; None: no state."""
        return None


class ArbitraryOperator(Operator):
    """One whose output depends on more than its input: the clock, chance. [HA §3.2]

    It does not look at either itself: the node tells it before every pass, and writes down what it
    told (the determinant of [HA §6]), so that a pass can be run again with the same outcome.
    """

    operator_class = OperatorClass.ARBITRARY
    sets_time = False
    """Whether the times of its output are processing times."""

    @abc.abstractmethod
    def decide(self, clock_us: int, seed: int) -> None:
        """Take what the coming pass depends on beside its input.

        Args:
            clock_us: Its processing time, microseconds since the epoch; it never moves back.
            seed: For random draws, uint64.
        """

    def wake_us(self) -> int | None:
        """The processing time at which it wants a pass even if nothing arrives; None: never."""
        return None


def has_rows(rows: Rows | None) -> bool:
    """Whether there is at least one row."""
    return rows is not None and len(rows.time_us) > 0


def chosen(rows: Rows, numbers: np.ndarray | None) -> Rows:
    """Rows by their numbers, int64, in that order; None: all."""
    if numbers is None:
        return rows
    batch = rows.batch.take(pa.array(numbers))
    return Rows(batch, rows.time_us[numbers], rows.order[numbers], rows.created_us)


def joined(pieces: Sequence[Rows]) -> Rows:
    """The rows of one piece after the other; there must be one at least."""
    if len(pieces) == 1:
        return pieces[0]
    return Rows(
        pa.concat_batches([piece.batch for piece in pieces]),
        np.concatenate([piece.time_us for piece in pieces]),
        np.concatenate([piece.order for piece in pieces]),
        max(piece.created_us for piece in pieces),
    )


def in_pieces(parts: Iterable[Rows]) -> tuple[Rows, ...]:
    """The same rows with small parts joined, up to `PIECE_ROWS` of them."""
    pieces: list[Rows] = []
    small: list[Rows] = []
    room = PIECE_ROWS
    for part in parts:
        count = len(part.time_us)
        if small and count > room:
            pieces.append(joined(small))
            small, room = [], PIECE_ROWS
        small.append(part)
        room -= count
    if small:
        pieces.append(joined(small))
    return tuple(pieces)


def merge_permutation(parts: Sequence[Rows]) -> np.ndarray:
    """Positions in the concatenation of `parts` (in port order) in the order to process them.

    int64 (total rows,). See the head of this file for the order.
    """
    if len(parts) == 1:
        return np.arange(len(parts[0].time_us), dtype=np.int64)
    order = np.concatenate([part.order for part in parts])
    if bool((order == AT_CLOSE).any()):
        times = np.concatenate([part.time_us for part in parts])
        return np.lexsort((order, times))
    return np.argsort(order, kind="stable")
