"""Elastic restart of units whose windows leave footprints: read, and written anew. [CEC §II.B]

While such a unit drains it writes all its windows, until each has a footprint of the cut: then the
extent that its restart point names is its whole state, and nothing is left to be replayed. A new
instance begins with records of its own behind whatever its log holds. They name nothing before
them. The log is not claimed: should the restart come to nothing, the records are of a life that
nobody goes on from, and the journal knows the incarnation that they were written by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.checkpoint.eventual import RecoveryObjective
from holdfast.core.haunit.durability.eventual import body_schema
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter
from holdfast.core.model.footprints import FootprintKind, FootprintRecord, PassMark, no_window
from holdfast.core.operators.footprinted import Footprinted
from holdfast.core.state.page_manager import PageManager
from holdfast.shell.storage.footprint_log import (
    SEGMENT_BYTES,
    footprint_place,
    open_footprints,
    read_extent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import Incarnation
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.operators.base import Operator
    from holdfast.core.operators.footprinted import WindowsOfPass
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
        extent = self._extent(plan, point)
        return extent is None or all(
            record.mark.cut == extent.last.cut for record in extent.records if record.binding.any()
        )

    def operators(self, plan: NodePlan, point: RestartPoint) -> list[Operator] | None:
        """A unit's operators with the windows of an instance at such a cut; None: it had no input.

        Raises:
            SchemaMismatch: The log is of a version whose footprints had other columns.
            StorageError: The log cannot be read.
        """
        extent = self._extent(plan, point)
        if extent is None:
            return None
        pages = PageManager(plan.limits.page_bytes, plan.limits.state_bytes)
        made = [spec.build(pages) for spec in plan.operators]
        operator = next(o for o in made if isinstance(o, Footprinted))
        FootprintWriter(operator, RecoveryObjective(0), 0, extent, len(plan.inputs)).end_replay()
        return made

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
        operator = next(o for o in made if isinstance(o, Footprinted))
        stream, place = plan.footprint_stream, footprint_place(self.location, plan)
        log = open_footprints(place, operator.body_schema, stream, incarnation)
        try:
            first_id, said = log.next_id, operator.whole()
            mark = _mark(plan, point, len(said.windows))
            for record in _records(operator, said, mark, first_id):
                log.append(0, record.first_id, record.batch, record.boundary_us, 0)
            log.sync()
            ends_at = log.next_id
        finally:
            log.close()
        found = read_extent(place, first_id, ends_at, len(plan.inputs))
        assert found.last.open_windows == mark.open_windows
        return replace(
            point,
            needed_from=point.needed_from | {stream: first_id},
            next_ids=point.next_ids | {stream: ends_at},
        )

    def _extent(self, plan: NodePlan, point: RestartPoint) -> Extent | None:
        stream = plan.footprint_stream
        if stream not in point.next_ids:
            return None
        place = footprint_place(self.location, plan)
        first_id, ends_at = point.needed_from[stream], point.next_ids[stream]
        return read_extent(place, first_id, ends_at, len(plan.inputs), body_schema(plan))


def _mark(plan: NodePlan, point: RestartPoint, open_windows: int) -> PassMark:
    """What a new instance's records say of its cut; `follows` is filled in later."""
    streams = [spec.stream for spec in plan.inputs]
    cut = point.processed_before[streams[0]] if len(streams) == 1 else point.boundary_us
    starts = tuple(point.needed_from[stream] for stream in streams)
    return PassMark(open_windows, cut, point.boundary_us, starts, 0)


def _records(
    operator: Footprinted, said: WindowsOfPass, mark: PassMark, first_id: int
) -> Iterator[TupleBatch]:
    """All footprints, in records of some size; the first one follows none."""
    if not said.bodies.num_rows:
        kinds = np.array([FootprintKind.PASS], dtype=np.uint8)
        mark = replace(mark, follows=first_id)
        yield FootprintRecord(first_id, mark, kinds, no_window(operator.body_schema)).to_batch()
        return
    rows = said.bodies.num_rows
    step = max(1, rows * _RECORD_BYTES // max(said.bodies.nbytes, 1))
    for first in range(0, rows, step):
        some = said.bodies.slice(first, step)
        kinds = np.full(some.num_rows, FootprintKind.G_CHECK, dtype=np.uint8)
        mark = replace(mark, follows=first_id + first)
        yield FootprintRecord(first_id + first, mark, kinds, some).to_batch()
