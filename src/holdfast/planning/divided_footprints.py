"""What an elastic restart reads from footprint logs, and what it writes into others.

When a unit drains, it writes all its windows, until each has a footprint of the cut: then the
extent that its restart point names is its whole state, and nothing is left to be replayed. A new
instance begins with records of its own behind whatever its log holds. They name nothing before
them. Who reads and appends is elsewhere (driver/rescaled_footprints.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.checkpoint.eventual import RecoveryObjective
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter
from holdfast.core.model.footprints import FootprintKind, FootprintRecord, PassMark, no_window
from holdfast.core.operators.footprinted import Footprinted
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.operators.base import Operator
    from holdfast.core.operators.footprinted import WindowsOfPass
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import RestartPoint


def extent_of(
    plan: NodePlan, point: RestartPoint, read: Callable[[int, int], Extent]
) -> Extent | None:
    """What a point leads to in the unit's footprint log; None: the unit had no input.

    Args:
        plan: The unit's.
        point: Its restart point.
        read: Reads the extent in the records [first id, end) of the log.
    """
    stream = plan.footprint_stream
    if stream not in point.next_ids:
        return None
    return read(point.needed_from[stream], point.next_ids[stream])


def is_of_one_cut(extent: Extent | None) -> bool:
    """Whether all its windows have footprints of the newest record's cut; no extent has none."""
    return extent is None or all(
        record.mark.cut == extent.last.cut for record in extent.records if record.binding.any()
    )


def operators_of(plan: NodePlan, extent: Extent | None) -> list[Operator] | None:
    """A unit's operators with the windows of an extent of one cut; None: there is no extent."""
    if extent is None:
        return None
    pages = PageManager(plan.limits.page_bytes, plan.limits.state_bytes)
    made = [spec.build(pages) for spec in plan.operators]
    objective, streams = RecoveryObjective(0), len(plan.inputs)
    FootprintWriter(footprinted(made), objective, 0, extent, streams).end_replay()
    return made


def footprinted(made: Sequence[Operator]) -> Footprinted:
    """The one of a unit's operators whose windows leave footprints."""
    return next(operator for operator in made if isinstance(operator, Footprinted))


def mark_of(plan: NodePlan, point: RestartPoint, open_windows: int) -> PassMark:
    """What a new instance's records say of its cut; `follows` is filled in by `records_of`."""
    streams = [spec.stream for spec in plan.inputs]
    cut = point.processed_before[streams[0]] if len(streams) == 1 else point.boundary_us
    starts = tuple(point.needed_from[stream] for stream in streams)
    return PassMark(open_windows, cut, point.boundary_us, starts, 0)


def records_of(
    operator: Footprinted, said: WindowsOfPass, mark: PassMark, first_id: int, record_bytes: int
) -> Iterator[TupleBatch]:
    """All footprints, in records of about so many bytes; the first one follows none."""
    if not said.bodies.num_rows:
        kinds = np.array([FootprintKind.PASS], dtype=np.uint8)
        mark = replace(mark, follows=first_id)
        yield FootprintRecord(first_id, mark, kinds, no_window(operator.body_schema)).to_batch()
        return
    rows = said.bodies.num_rows
    step = max(1, rows * record_bytes // max(said.bodies.nbytes, 1))
    for first in range(0, rows, step):
        some = said.bodies.slice(first, step)
        kinds = np.full(some.num_rows, FootprintKind.G_CHECK, dtype=np.uint8)
        mark = replace(mark, follows=first_id + first)
        yield FootprintRecord(first_id + first, mark, kinds, some).to_batch()


def leading_to(plan: NodePlan, point: RestartPoint, first_id: int, ends_at: int) -> RestartPoint:
    """A new instance's point, which leads to its records [first_id, ends_at)."""
    stream = plan.footprint_stream
    return replace(
        point,
        needed_from=point.needed_from | {stream: first_id},
        next_ids=point.next_ids | {stream: ends_at},
    )
