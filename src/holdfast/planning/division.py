"""Elastic restart: how what all instances have is divided among another number of them.

Theory of operation. All nodes stand at one cut: what each has put out is what its receivers have
processed, and the newest checkpoint of every node with state is of that cut. `Division.points` says
whether they do. From there `divide` makes what the journal is to hold instead of what it held: new
incarnations and restart points of all nodes, and how many instances units have. Nodes whose edges
and number stay the same keep their points. The state of each other node is what belongs to it, by
the hash by which its input will be, of the state of all former instances of its unit. Edges of
which an end has changed begin anew at id 0; sinks go on where they have been written to.

A node that merges several streams may hold tuples until the slowest stream has come as far. They
are not in its state but kept by its producers. A producer that only reads sources sends them again
under the new ids; of what it sends the node drops what is older than its boundary, which it has
processed. So does one that merges sources itself, and has no state: it goes on from its stored
point. With any other producer there is no cut. Units that recover together: divided_regions.py.

A changed dataflow goes on from such a cut, too (`Moved`): its operators take over what those of
their names hold, others begin empty, and so do units that were not there.

Pure: checkpoints and logs are read and written by a `Home`, that of the driver or the simulator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from holdfast.core.coordinator.journal_entries import (
    InstancesDecided,
    JournalEntry,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.prepared import PreparedCheckpoint
from holdfast.core.model.ids import END_US, NOBODY, CheckpointId, Incarnation, NodeId
from holdfast.core.model.stable_hash import partition_of
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.state.page_manager import PageManager
from holdfast.planning.divided_regions import (
    PROCESSED_ALL,
    as_left,
    as_lines,
    as_processed,
    begun_anew,
    why_regions_stay,
    with_whole_regions,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.operators.base import Operator, Owns


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a node says that it is.

    Attributes:
        processed: Per input stream the id before which all was processed.
        next_ids: Per output stream.
        boundary_us: What its operators have acted on.
        held_tuples: Tuples that wait until other inputs have come as far.
        has_spoken: Whether it has said anything in its present life.
    """

    processed: Mapping[str, int]
    next_ids: Mapping[str, int]
    boundary_us: int
    held_tuples: int
    has_spoken: bool = True


class Home(Protocol):
    """Where checkpoints, footprints and sinks are."""

    def loaded(self, plan: NodePlan, ref: CheckpointRef) -> list[Operator]:
        """The operators of a former instance over its state."""

    def store_checkpoint(self, plan: NodePlan, prepared: PreparedCheckpoint) -> CheckpointRef:
        """Write the checkpoint of a new instance, so that it can be read."""

    def windows(self, plan: NodePlan, point: RestartPoint) -> list[Operator] | None:
        """The operators of a former instance with the windows of its footprints; None: none."""

    def write_windows(
        self, plan: NodePlan, made: list[Operator], point: RestartPoint, incarnation: Incarnation
    ) -> RestartPoint:
        """Write the windows of a new instance; its point, which leads to them."""

    def are_written(self, plan: NodePlan, point: RestartPoint) -> bool:
        """Whether all windows that a point leads to have footprints of its cut."""

    def sink_next_id(self, stream: str) -> int:
        """Up to where a sink has been written."""

    def sink_holds(self, stream: str, before: int) -> bool:
        """Whether a sink holds all tuples before an id, or will once its node has been stopped."""

    def announce(self, lives: tuple[NewLife, ...]) -> None:
        """Footprints are about to be written by these incarnations."""


def instance_counts(plans: Iterable[NodePlan]) -> dict[str, int]:
    """How many instances each unit has."""
    counts: dict[str, int] = {}
    for node in plans:
        counts[node.unit] = counts.get(node.unit, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Moved:
    """What a changed dataflow takes over.

    Attributes:
        units: Those that have changed; they were there before.
        kept: Operators that take over what the one of their name holds.
    """

    units: frozenset[str]
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class Division:
    """From the nodes of a dataflow to those of another parallelism, or of a changed dataflow.

    Attributes:
        former: What there is.
        wanted: What is to go on.
        moved: What a changed dataflow takes over; None: it is the same one.
    """

    former: tuple[NodePlan, ...]
    wanted: tuple[NodePlan, ...]
    moved: Moved | None = None

    # -- what changes -------------------------------------------------------------------------

    def changed(self) -> list[NodePlan]:
        """The wanted nodes whose restart points cannot stay as they are."""
        before = _wiring(self.former)
        after = _wiring(self.wanted)
        units = self.moved.units if self.moved is not None else ()
        changed = {
            plan.node
            for plan in self.wanted
            if before.get(plan.node) != after[plan.node] or plan.unit in units
        }
        changed = with_whole_regions(self.wanted, changed)
        return [plan for plan in self.wanted if plan.node in changed]

    def is_affected(self, stream: str) -> bool:
        """Whether a stream between nodes begins anew."""
        changed = {plan.node for plan in self.changed()}
        remaining = {plan.node for plan in self.wanted}
        for plan in (*self.former, *self.wanted):
            for spec in plan.inputs:
                if spec.stream != stream:
                    continue
                if spec.producer is None:
                    return False
                ends = (plan.node, spec.producer)
                if all(end in changed or end not in remaining for end in ends):
                    return True
        return False

    def merges(self, unit: str) -> bool:
        """Whether a unit's instances merge several streams by time, before and after."""
        plans = (*self.former, *self.wanted)
        return all(plan.merges_by_time for plan in plans if plan.unit == unit)

    def why_not(self, *, is_divided: bool = True) -> str | None:
        """What cannot be divided; None: everything can.

        Args:
            is_divided: False: all nodes are only to be left at a cut.
        """
        for plan in self.former:
            if plan.region and (self.moved is not None or not is_divided):
                return (
                    f"unit {plan.unit!r} takes its input as it comes, and logs nothing: a changed "
                    "dataflow cannot go on from its lines"
                )
        plans = self.changed() if is_divided else self.wanted
        reason = why_regions_stay(self.former, self.wanted)
        if reason is not None:
            return reason
        for plan in plans:
            if self.moved is not None and plan.footprints is not None:
                return f"unit {plan.unit!r} keeps footprints, which only its own instances share"
            reason = _why_not(plan, is_divided=is_divided)
            if reason is not None:
                return reason
        return None

    def why_not_from(self, points: Mapping[NodeId, RestartPoint]) -> str | None:
        """Why a changed dataflow cannot go on from the points of a cut; None: it can.

        What a receiver holds, or its producer is to send again, would be made anew by others.
        """
        changed = {plan.node for plan in self.changed()}
        for plan in self.wanted:
            point = points.get(plan.node)
            for spec in plan.inputs:
                producer = None if spec.producer is None else points.get(spec.producer)
                if producer is None or point is None or not {plan.node, spec.producer} & changed:
                    continue
                taken = point.processed_before.get(spec.stream, 0)
                is_held = point.needed_from.get(spec.stream, 0) < taken
                if is_held or producer.next_ids.get(spec.stream, 0) != taken:
                    return (
                        f"{plan.node} holds tuples of {spec.stream} until its other inputs have "
                        "come as far, and the changed dataflow would make them anew"
                    )
        return None

    def why_not_behind(self, points: Mapping[NodeId, RestartPoint], home: Home) -> str | None:
        """Why a changed dataflow cannot go on behind what sinks hold; None: it can.

        1. A union of sources holds tuples, and goes on from its stored point. 2. Its sink holds
        results of later ones. 3. It is changed, and would make others under the same ids.
        """
        for plan in self.changed():
            further = _further(plan, points.get(plan.node, RestartPoint()), home)
            if further is not None:
                return (
                    f"{further} holds results of {plan.node} behind the cut, and the changed "
                    "dataflow would make them anew"
                )
        return None

    # -- the cut ------------------------------------------------------------------------------

    def points(
        self,
        stands: Mapping[NodeId, Stand],
        stored: Mapping[NodeId, RestartPoint | None],
        home: Home,
    ) -> dict[NodeId, RestartPoint] | str:
        """Where each node is at the cut, without anything to fall back on; or what is on its way.

        A node without state is where it says: nobody needs what it put out before, once its sinks
        hold that. 1. A sink is in an object store, and a part of it is not stored. 2. The node is
        stopped, and the part is dropped. 3. Nobody would put it out again. Only when its receivers
        hold some of what it put out, or it holds some itself, does it go on from its stored point.

        Args:
            stands: Of every node.
            stored: From where each node would go on (`points_to_divide`).
            home: Where footprints and sinks are.
        """
        return _Cut(self, stands, stored, home).points()

    def left(
        self,
        points: Mapping[NodeId, RestartPoint],
        now: Mapping[NodeId, RestartPoint | None],
        home: Home,
    ) -> dict[NodeId, RestartPoint] | str:
        """The points of a cut as journal and sinks have them after all is stopped; or why not.

        1. A sink's log holds results, readable and not synced. 2. All nodes are at a cut. 3. The
        log's machine crashes, and the log's tail is torn. 4. All nodes are stopped. 5. Nobody would
        put out the tail again.

        1. All nodes are at a cut, as they said last. 2. Time moves on without a tuple: a boundary
        was on its way. 3. Windows close, and all nodes are stopped. 4. Others would put out the
        same results, under other ids. Or 3. a node stores a checkpoint of that, and the one of the
        cut is deleted.

        Args:
            points: Where each was when there was a cut.
            now: `points_to_divide` of the journal that has been left.
            home: Where sinks are, as they have been left and synced.
        """
        found = as_left(self.former, points, now)
        if isinstance(found, str):
            return found
        units = {plan.unit for plan in self.changed()}  # None, if it is left for a change.
        for plan in self.former:
            lacking = self.lacking(plan, found[plan.node], home)
            if lacking is not None:
                return f"{lacking} has lost results of {plan.node} while it was stopped"
            stored = None if plan.region else now[plan.node]
            if stored is not None and stored.checkpoint != found[plan.node].checkpoint:
                return f"{plan.node} went on while it was stopped"
            # What has no state, and only reads sources, makes the same again under the same ids.
            is_same = bool(units) and plan.unit not in units
            if is_same or (not has_state(plan) and _only_reads_sources(plan)):
                continue
            further = _further(plan, found[plan.node], home)
            if further is not None:
                return f"{plan.node} put out more to {further} while it was stopped"
        return found

    def lacking(self, plan: NodePlan, point: RestartPoint, home: Home) -> str | None:
        """Which sink of a node does not hold what it goes on behind; None: all do."""
        for stream in (s for output in plan.outputs if output.is_sink for s in output.streams):
            before = point.next_ids.get(stream, 0)
            if before == 0:
                continue
            holds = home.sink_holds(stream, before)
            if not holds or (plan.region and home.sink_next_id(stream) < before):
                return stream
        return None

    # -- dividing -----------------------------------------------------------------------------

    def divide(
        self,
        points: Mapping[NodeId, RestartPoint],
        newest: Mapping[NodeId, Incarnation],
        home: Home,
    ) -> list[JournalEntry]:
        """All that the journal is to hold; the checkpoints that it leads to are written.

        Args:
            points: Where the former nodes are.
            newest: The newest incarnation of each node that the journal knows.
            home: Where their state is, and is to be.
        """
        changed = {plan.node: plan for plan in self.changed()}
        known = dict(newest)
        for node in changed:
            known[node] = Incarnation(known.get(node, NOBODY) + 1)
        lives = tuple(NewLife(node, incarnation) for node, incarnation in known.items())
        if any(plan.footprints is not None for plan in changed.values()):
            home.announce(lives)
        told: list[JournalEntry] = [RecoveryDecision(lives)]
        for plan in self.wanted:
            point = points.get(plan.node, RestartPoint())
            if plan.node in changed:
                point = self._divided(plan, points, known[plan.node], home)
            told.append(PointNoted(plan.node, known.get(plan.node, NOBODY), point))
        told += as_lines(self.wanted, told)
        told.append(InstancesDecided(instance_counts(self.wanted)))
        return told

    def _divided(
        self,
        plan: NodePlan,
        points: Mapping[NodeId, RestartPoint],
        incarnation: Incarnation,
        home: Home,
    ) -> RestartPoint:
        """Where a node of a changed unit goes on, with its part of the state."""
        point = self._position(plan, points, home)
        former = [one for one in self.former if one.unit == plan.unit]
        if plan.footprints is not None:
            found = [home.windows(one, points[one.node]) for one in former]
            _, made = _adopt(plan, [one for one in found if one is not None], self._owns(plan))
            return home.write_windows(plan, made, point, incarnation)
        if plan.region:
            point = begun_anew(plan, point, self.former, self.wanted, points)
        elif not has_state(plan):
            return point
        refs = [(one, points.get(one.node, RestartPoint()).checkpoint) for one in former]
        held = [home.loaded(one, ref) for one, ref in refs if ref is not None]
        if self.moved is not None:
            kept = self.moved.kept
            held = [[operator for operator in one if operator.name in kept] for one in held]
        pages, _ = _adopt(plan, held, self._owns(plan))
        prepared = PreparedCheckpoint(
            node=plan.node,
            checkpoint=CheckpointId(point.sequence, incarnation),
            point=point,
            snapshot=pages.checkpoint(None),
            arena=pages.arena,
            page_bytes=pages.page_bytes,
            base=None,
            outputs=(),
            kept_outputs=(),
            workers=1 if plan.checkpoints is None else plan.checkpoints.workers,
        )
        return replace(point, checkpoint=home.store_checkpoint(plan, prepared))

    def _position(
        self, plan: NodePlan, points: Mapping[NodeId, RestartPoint], home: Home
    ) -> RestartPoint:
        """Where a node of a changed unit goes on; its state is added later."""
        own = points.get(plan.node)
        former = [one for one in self.former if one.unit == plan.unit]
        is_merging = plan.merges_by_time and bool(former)
        needed: dict[str, int] = {}
        processed: dict[str, int] = {}
        for spec in plan.inputs:
            if own is not None and not self.is_affected(spec.stream):
                needed[spec.stream] = own.needed_from.get(spec.stream, 0)
                processed[spec.stream] = own.processed_before.get(spec.stream, 0)
            else:
                needed[spec.stream] = 0
                is_held = is_merging and not spec.is_from_region
                processed[spec.stream] = PROCESSED_ALL if is_held else 0
        next_ids: dict[str, int] = {}
        for output in plan.outputs:
            for stream in output.streams:
                kept = {} if own is None else own.next_ids
                if output.is_sink:  # One that existed in an earlier life goes on there.
                    is_kept = stream in kept
                    next_ids[stream] = kept[stream] if is_kept else home.sink_next_id(stream)
                else:
                    next_ids[stream] = 0 if self.is_affected(stream) else kept.get(stream, 0)
        others = (points.get(one.node, RestartPoint()) for one in former)
        boundary_us = (own or next(others, RestartPoint())).boundary_us
        sequence = 1 + max((point.sequence for point in points.values()), default=0)
        return RestartPoint(sequence, needed, processed, boundary_us, next_ids)

    def _owns(self, plan: NodePlan) -> Owns:
        """Which rows of key columns are a new instance's."""
        count = instance_counts(self.wanted)[plan.unit]

        def owns(columns: Sequence[pa.Array]) -> np.ndarray:
            return np.asarray(partition_of(columns, count) == plan.index)

        return owns


def _why_not(plan: NodePlan, *, is_divided: bool) -> str | None:
    """Why the state of a unit cannot be divided, or be left at a cut; None: it can."""
    unit = f"unit {plan.unit!r}"
    if (plan.merges_by_arrival or plan.keeps_passes) and not plan.region:
        return (
            f"{unit} depends on more than its input, and what it depended on is logged for each of "
            "its instances"
        )
    if plan.operators and plan.checkpoints is None and plan.standby.value != "none":
        return f"{unit} has a standby instead of checkpoints"
    if plan.delays is not None:
        return f"{unit} is Replicated, and its instances have feeds"
    if not plan.is_replayed:
        return f"{unit} keeps no restart points"
    if has_state(plan) and plan.checkpoints is None and plan.footprints is None:
        return f"{unit} has state that is not checkpointed"
    try:
        if is_divided:
            _adopt(plan, [], lambda columns: np.ones(len(columns[0]), np.bool_))
    except LocalProtocolError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class _Cut:
    """Whether all nodes are at one cut, from what they say and what they have stored."""

    division: Division
    stands: Mapping[NodeId, Stand]
    stored: Mapping[NodeId, RestartPoint | None]
    home: Home

    def points(self) -> dict[NodeId, RestartPoint] | str:
        """See `Division.points`."""
        found: dict[NodeId, RestartPoint] = {}
        for plan in self.division.former:
            if plan.region:
                point = self._on_line(plan)
            else:
                point = self._of_state(plan) if has_state(plan) else self._of_position(plan)
            if isinstance(point, str):
                return point
            found[plan.node] = point
        for plan in self.division.former:
            for spec in plan.inputs:
                if spec.producer is None:
                    continue
                sent = self.stands[spec.producer].next_ids.get(spec.stream, 0)
                taken = found[plan.node].processed_before.get(spec.stream, 0)
                if sent != taken:
                    return f"{spec.stream} is at {sent}, its receiver at {taken}"
        again = self._senders_of_held(found)
        if isinstance(again, str):
            return again
        for node in again:
            found[node] = replace(self.stored[node] or RestartPoint(), older=())
        return self._lacking_in_sinks(again) or found

    def _of_position(self, plan: NodePlan) -> RestartPoint | str:
        stand = self.stands[plan.node]
        if stand.held_tuples and not _only_reads_sources(plan):
            return f"{plan.node} holds tuples until its other inputs have come as far"
        processed = dict(stand.processed)
        stored = self.stored[plan.node] or RestartPoint()
        if stand.boundary_us == END_US:
            return f"the input of {plan.node} has ended"
        next_ids = dict(stand.next_ids)
        return RestartPoint(stored.sequence, processed, processed, stand.boundary_us, next_ids)

    def _of_state(self, plan: NodePlan) -> RestartPoint | str:
        stand, stored = self.stands[plan.node], self.stored[plan.node]
        point = stored or RestartPoint()  # Without input there is no state, and no checkpoint.
        if plan.region:
            point = as_processed(point, stand.processed)
        waits = len(plan.inputs) > 1 and not plan.region
        if waits and stand.has_spoken and stand.boundary_us == point.boundary_us:
            # All that has come since is held. Nothing is stored for that, as no state has changed.
            point = replace(point, processed_before=dict(stand.processed))
        elif not _is_stored(plan, stored) and any(stand.processed.values()):
            return f"{plan.node} has stored no checkpoint"
        if any(point.processed_before.get(s, 0) != i for s, i in stand.processed.items()):
            return f"{plan.node} has not stored its last checkpoint"
        reached = stand.boundary_us if stand.has_spoken else point.boundary_us
        others = [self.stored[n.node] for n in self.division.former if n.unit == plan.unit]
        if any((o or RestartPoint()).boundary_us != reached for o in others):
            return f"instances of {plan.unit} have not stored the same boundary"
        if point.boundary_us == END_US:
            return f"the input of {plan.node} has ended"
        if plan.footprints is not None and not self.home.are_written(plan, point):
            return f"{plan.node} has windows that are not written as they are now"
        return replace(point, older=())

    def _on_line(self, plan: NodePlan) -> RestartPoint | str:
        """Of a member of a region; nothing that it has put out may wait in it or in a gate."""
        stand, stored = self.stands[plan.node], self.stored[plan.node]
        if stand.held_tuples:
            return f"{plan.node} holds tuples of its region until its other inputs have come as far"
        point = self._of_state(plan)
        if isinstance(point, str):
            return point
        if any((stored or point).next_ids.get(s, 0) != i for s, i in stand.next_ids.items()):
            return f"the line has not come to where {plan.node} is"
        if self.division.lacking(plan, point, self.home) is not None:
            return f"results of {plan.node} wait for the line"
        return point

    def _senders_of_held(self, found: Mapping[NodeId, RestartPoint]) -> set[NodeId] | str:
        """Who has to send again what receivers hold; or why nobody can."""
        by_node = {plan.node: plan for plan in self.division.former}
        again = {
            n
            for n, plan in by_node.items()
            if not plan.region and not has_state(plan) and self._holds(n)
        }
        for name, plan in by_node.items():
            point = found[name]
            for spec in plan.inputs:
                is_held = point.needed_from.get(spec.stream, 0) < point.processed_before.get(
                    spec.stream, 0
                )
                if spec.producer is None or not is_held:
                    continue
                sender = by_node[spec.producer]
                if has_state(sender) or sender.region or not _only_reads_sources(sender):
                    return (
                        f"{name} holds tuples of {spec.stream} until its other inputs have come "
                        f"as far, and their producer {spec.producer} does more than read sources"
                    )
                again.add(spec.producer)
        for name, plan in by_node.items():
            for spec in plan.inputs:
                is_again = spec.producer in again and self.division.is_affected(spec.stream)
                if is_again and not (has_state(plan) and self.division.merges(plan.unit)):
                    return f"{name} cannot tell what of {spec.stream} it has processed"
        return again

    def _lacking_in_sinks(self, again: set[NodeId]) -> str | None:
        """Which sink does not hold what a node without state goes on behind; None: all do."""
        for plan in self.division.former:
            if has_state(plan) or plan.region or plan.node in again:
                continue
            for stream in (s for o in plan.outputs if o.is_sink for s in o.streams):
                put_out = self.stands[plan.node].next_ids.get(stream, 0)
                if not self.home.sink_holds(stream, put_out):
                    return f"{stream} does not hold all that {plan.node} has put out"
        return None

    def _holds(self, node: NodeId) -> bool:
        return self.stands[node].held_tuples > 0


def _further(plan: NodePlan, point: RestartPoint, home: Home) -> str | None:
    """Which sink of a node holds results behind a point; None: none does."""
    for stream in (s for output in plan.outputs if output.is_sink for s in output.streams):
        before = point.next_ids.get(stream)  # None: it is new here, and goes on where it ends.
        if before is not None and home.sink_next_id(stream) > before:
            return stream
    return None


def _only_reads_sources(plan: NodePlan) -> bool:
    return all(spec.producer is None for spec in plan.inputs)


def _adopt(
    plan: NodePlan, others: list[list[Operator]], owns: Owns
) -> tuple[PageManager, list[Operator]]:
    """Pages and operators with what belongs to a node of those of all former instances."""
    pages = PageManager(plan.limits.page_bytes, plan.limits.state_bytes)
    made = [spec.build(pages) for spec in plan.operators]
    for operator in made:
        if operator.keeps_state:
            same = [each for one in others for each in one if each.name == operator.name]
            operator.adopt(same, owns, len(plan.inputs))
    return pages, made


def has_state(plan: NodePlan) -> bool:
    """Whether a node's operators keep any."""
    pages = PageManager(plan.limits.page_bytes)
    return any(spec.build(pages).keeps_state for spec in plan.operators)


def _is_stored(plan: NodePlan, point: RestartPoint | None) -> bool:
    """Whether a point leads to a state."""
    if point is None:
        return False
    return point.checkpoint is not None or plan.footprint_stream in point.next_ids


def _wiring(plans: Iterable[NodePlan]) -> dict[NodeId, tuple[object, ...]]:
    """What of each node decides whether its restart point still means the same."""
    plans = tuple(plans)
    counts = instance_counts(plans)
    return {
        node.node: (
            counts[node.unit],
            tuple(spec.stream for spec in node.inputs),
            tuple((output.streams, output.keys) for output in node.outputs),
        )
        for node in plans
    }
