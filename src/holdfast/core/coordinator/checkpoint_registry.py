"""What the journal has come to: every node's newest incarnation, and its restart points.

Theory of operation. Entries are taken once they are durable, in the order of the journal, by a
coordinator at work as by one that begins. Of a node

- `PointNoted` adds a point. If it does not keep the older ones they go: it is a line of its own.
- `LineMoved` drops the points before the line.
- `LeftAtCut` says that the points before it are of one cut in common, as long as nothing follows.
- `RecoveryDecision` raises the incarnation. A node that goes back loses the points behind the one
  it goes back to, and what its earlier incarnations have noted is void even if its entry comes
  later: 1. A notes point 7. 2. The plan has A go back to point 5. 3. Point 7's entry is written
  behind the plan's. Were it to count, A would be restored to what nobody else has gone back to.

So a recovery planner is given all points that there still are, each with who noted it.

Entries may come once more, in their short form (`entries`), whole or cut off: a driver that died
between filling its volume and deleting the one before has left both (wire/journal_volumes.py). They
change nothing: a point that is there, or before the line, is not added, and the line does not move
back.

Invariants: incarnations only grow; the points of a node are in the order of their names, and none
is of an incarnation that has not been given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.core.coordinator.journal_entries import (
    DataflowDecided,
    InstancesDecided,
    JournalEntry,
    LeaseRenewed,
    LeftAtCut,
    LifeEnded,
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, PointId
from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(slots=True)
class _Known:
    """What is durable of one node.

    Attributes:
        newest: The newest incarnation given; only grows.
        went_back: The newest incarnation that was given to go back; 0: there was none.
        line: The point that recovery goes back behind no more; None: there is none.
        points: Those since the line, oldest first.
    """

    newest: Incarnation = NOBODY
    went_back: Incarnation = NOBODY
    line: PointId | None = None
    points: tuple[PointNoted, ...] = ()


@dataclass(slots=True)
class CheckpointRegistry:
    """The durable state of a coordinator. All of it is what the journal's entries make."""

    _nodes: dict[NodeId, _Known] = field(default_factory=dict)
    _instances: InstancesDecided | None = None
    _dataflow: DataflowDecided | None = None
    _is_at_cut: bool = False

    @staticmethod
    def of(entries: Iterable[JournalEntry]) -> CheckpointRegistry:
        """What some entries come to."""
        registry = CheckpointRegistry()
        for entry in entries:
            registry.take(entry)
        return registry

    def take(self, entry: JournalEntry) -> None:
        """An entry is durable."""
        if isinstance(entry, PointNoted | RecoveryDecision | LineMoved):
            self._is_at_cut = False
        match entry:
            case PointNoted():
                self._add(entry)
            case RecoveryDecision():
                for life in entry.lives:
                    self._begin(life)
            case LineMoved():
                for node, oldest in entry.line.items():
                    known = self._known(node)
                    known.line = oldest if known.line is None else max(known.line, oldest)
                    known.points = tuple(p for p in known.points if p.point_id >= known.line)
            case InstancesDecided():
                self._instances = entry
            case DataflowDecided():
                self._dataflow = entry
            case LeftAtCut():
                self._is_at_cut = True
            case LeaseRenewed() | LifeEnded():
                pass  # Of the driver, which those in standby watch; no node's state.

    def _known(self, node: NodeId) -> _Known:
        return self._nodes.setdefault(node, _Known())

    def _add(self, noted: PointNoted) -> None:
        known = self._known(noted.node)
        if NOBODY < noted.incarnation < known.went_back:
            return  # Void: its node has gone back behind it.
        if any(p.point_id == noted.point_id for p in reversed(known.points)):
            return  # Its node has asked twice, or it is read twice.
        if noted.keeps_older and known.line is not None and noted.point_id < known.line:
            return  # It is read twice, and needed no more.
        known.points = (*known.points, noted) if noted.keeps_older else (noted,)

    def _begin(self, life: NewLife) -> None:
        known = self._known(life.node)
        known.newest = Incarnation(max(known.newest, life.incarnation))
        if life.goes_back_to is not None:
            known.went_back = known.newest
            known.points = tuple(p for p in known.points if p.point_id <= life.goes_back_to)

    def incarnation(self, node: NodeId) -> Incarnation:
        """The newest one given; 0: none was."""
        return self._nodes.get(node, _Known()).newest

    def incarnations(self) -> dict[NodeId, Incarnation]:
        """The newest one of every node that was ever given any."""
        return {node: known.newest for node, known in self._nodes.items() if known.newest}

    def points(self, node: NodeId) -> tuple[PointNoted, ...]:
        """All points that the node can go back to, oldest first; void ones are none."""
        return self._nodes.get(node, _Known()).points

    def line(self, node: NodeId) -> PointId | None:
        """The point that recovery goes back behind no more; None: to the very beginning."""
        return self._nodes.get(node, _Known()).line

    def newest(self, node: NodeId) -> RestartPoint | None:
        """The point from which a replacement of the node alone goes on."""
        points = self.points(node)
        return points[-1].point if points else None

    def newest_points(self) -> Mapping[NodeId, RestartPoint]:
        """That of every node that has one."""
        return {node: known.points[-1].point for node, known in self._nodes.items() if known.points}

    @property
    def instances(self) -> dict[str, int] | None:
        """What the last elastic restart has decided; None: there was none."""
        return None if self._instances is None else self._instances.instances

    @property
    def dataflow(self) -> str | None:
        """The text of the dataflow that was decided on last; None: that of the first start."""
        return None if self._dataflow is None else self._dataflow.text

    @property
    def is_at_cut(self) -> bool:
        """Whether all nodes were left at one cut in common, and none has lived since."""
        return self._is_at_cut

    def entries(self) -> list[JournalEntry]:
        """The shortest entries that come to the same.

        Who is void is not said again: a coordinator asks for entries in order, so that none of an
        earlier incarnation follows.
        """
        lives = (NewLife(node, known.newest) for node, known in self._nodes.items() if known.newest)
        decided: list[JournalEntry] = [RecoveryDecision((life,)) for life in lives]
        decided += [point for known in self._nodes.values() for point in known.points]
        line = {node: known.line for node, known in self._nodes.items() if known.line is not None}
        if line:
            decided.append(LineMoved(line))
        last = self._instances, self._dataflow, LeftAtCut() if self._is_at_cut else None
        return [*decided, *(entry for entry in last if entry is not None)]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when points are out of order or of nobody."""
        for node, known in self._nodes.items():
            ids = [point.point_id for point in known.points]
            if ids != sorted(set(ids)):
                raise InvariantViolation(f"{node}: restart points in the order {ids}")
            if any(point_id.incarnation > known.newest for point_id in ids):
                raise InvariantViolation(f"{node}: points {ids} up to {known.newest}")
