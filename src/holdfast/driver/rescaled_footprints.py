"""Footprint logs of units whose instances change.

What is read and written there is decided in planning/divided_footprints.py. The log is not claimed:
should the restart come to nothing, the records are of a life that nobody goes on from, and the
journal knows the incarnation that they were written by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.durability.eventual import body_schema
from holdfast.planning.divided_footprints import (
    extent_of,
    footprinted,
    is_of_one_cut,
    leading_to,
    mark_of,
    operators_of,
    records_of,
)
from holdfast.shell.storage.footprint_log import (
    SEGMENT_BYTES,
    footprint_place,
    open_footprints,
    read_extent,
)

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import Incarnation
    from holdfast.core.operators.base import Operator
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import RestartPoint

_RECORD_BYTES: Final = SEGMENT_BYTES
"""A record holds about as much: more would have to be read in one piece."""


@dataclass(frozen=True, slots=True)
class DividedFootprints:
    """The footprint logs of a location whose instances change."""

    location: str

    def is_at_cut(self, plan: NodePlan, point: RestartPoint) -> bool:
        """Whether all windows that a point leads to have footprints of its cut.

        Raises:
            SchemaMismatch: The log is of a version whose footprints had other columns.
            StorageError: The log cannot be read.
        """
        return is_of_one_cut(self._extent(plan, point))

    def operators(self, plan: NodePlan, point: RestartPoint) -> list[Operator] | None:
        """A unit's operators with the windows of an instance at such a cut; None: it had no input.

        Raises:
            SchemaMismatch: The log is of a version whose footprints had other columns.
            StorageError: The log cannot be read.
        """
        return operators_of(plan, self._extent(plan, point))

    def write(
        self, plan: NodePlan, made: list[Operator], point: RestartPoint, incarnation: Incarnation
    ) -> RestartPoint:
        """Write the windows of a new instance; its point, which leads to them.

        Args:
            plan: The new instance's.
            made: Its operators, with what is its part of the windows.
            point: Where it goes on.
            incarnation: Whose records they are; newer than all that have written there.

        Raises:
            StorageError: It cannot be written, or not be read again.
        """
        operator = footprinted(made)
        stream, place = plan.footprint_stream, footprint_place(self.location, plan)
        log = open_footprints(place, operator.body_schema, stream, incarnation)
        try:
            first_id, said = log.next_id, operator.whole()
            mark = mark_of(plan, point, len(said.windows))
            for record in records_of(operator, said, mark, first_id, _RECORD_BYTES):
                log.append(0, record.first_id, record.batch, record.boundary_us, 0)
            log.sync()
            ends_at = log.next_id
        finally:
            log.close()
        found = read_extent(place, first_id, ends_at, len(plan.inputs))
        assert found.last.open_windows == mark.open_windows
        return leading_to(plan, point, first_id, ends_at)

    def _extent(self, plan: NodePlan, point: RestartPoint) -> Extent | None:
        def read(first_id: int, ends_at: int) -> Extent:
            place = footprint_place(self.location, plan)
            return read_extent(place, first_id, ends_at, len(plan.inputs), body_schema(plan))

        return extent_of(plan, point, read)
