"""What nodes say for people: the coordinator does not act on it, the driver's progress shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.core.checkpoint.eventual import ExtentStatistics
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.model.ids import Incarnation, NodeId, StreamId, TimeUs
from holdfast.core.replication.consistency_manager import Consistency


class Report:
    """A word that changes nothing. Subclasses are frozen dataclasses named as past-tense facts."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SourceReported:
    """How a node's source stands.

    Attributes:
        rows_read: Of its log; None: it has none.
        slowest: The part that holds it back; empty: nobody knows.
        is_held_up: Whether a part of it is behind another one.
        boundary_us: What it has promised; None: the node does not work with it yet.
        is_idle: Whether it follows others as long as it has nothing to read.
    """

    rows_read: int | None = None
    slowest: str = ""
    is_held_up: bool = False
    boundary_us: TimeUs | None = None
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class MeasurementsReported:
    """A node's rates, sizes and costs of the last minute, idle times left out.

    Attributes:
        input_tuples_per_s: Tuples processed.
        output_tuples_per_s: New tuples put out.
        input_tuple_bytes: Size of an input tuple.
        output_tuple_bytes: Size of an output tuple.
        tuple_cost_us: Processing time per input tuple.
        replay_cost_us: The same in a replay, receiving included; 0: nobody knows.
        changed_bytes_per_s: Bytes of the state that come to be others.
        mean_state_bytes: Size of the operators' pages.
        mean_state_tuples: Input tuples that the state goes back to. [HA Table 3: |state|]
        mean_replay_tuples: Input tuples that a replacement would begin with. [HA Table 3: Q]
    """

    input_tuples_per_s: float = 0.0
    output_tuples_per_s: float = 0.0
    input_tuple_bytes: float = 0.0
    output_tuple_bytes: float = 0.0
    tuple_cost_us: float = 0.0
    replay_cost_us: float = 0.0
    changed_bytes_per_s: float = 0.0
    mean_state_bytes: float = 0.0
    mean_state_tuples: float = 0.0
    mean_replay_tuples: float = 0.0


@dataclass(frozen=True, slots=True)
class TrafficReported:
    """Bytes of frames so far that passed a node's server, by what they are for. [HA §7]

    Attributes:
        tuple_bytes: Tuples and boundaries for primaries: what flows without any protection.
        ack_bytes: What primaries answer: acknowledgements, which also give credit.
        standby_bytes: All that secondaries are sent and answer.
        difference_bytes: Of that, changed words and tuples: what passive standby is about.
        point_bytes: Restart points for the coordinator.
        note_bytes: Of `tuple_bytes`, what nodes that recover together say to each other: markers,
            clocks, marks of loops. [CheckMate §VI]
    """

    tuple_bytes: int = 0
    ack_bytes: int = 0
    standby_bytes: int = 0
    difference_bytes: int = 0
    point_bytes: int = 0
    note_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConsistencyReported:
    """How it stands with a node that may go on without missing input. [DPC]

    Attributes:
        state: Of its output.
        since_ms: For how long.
        missing: Source streams that it goes on without.
        tentative_rows: Put out so far.
        undone_rows: Of these, undone.
        delay_max_ms: The longest that input has waited for other streams, corrections apart.
        stabilization_ms: How long the last correction took; 0: there was none.
        dropped_rows: Input that corrections have gone without.
        correction_delay_max_ms: The longest that input has waited for a correction.
    """

    state: Consistency
    since_ms: int
    missing: tuple[StreamId, ...]
    tentative_rows: int
    undone_rows: int
    delay_max_ms: int
    stabilization_ms: int
    dropped_rows: int = 0
    correction_delay_max_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """All figures of a node.

    Attributes:
        counted: By its machine.
        measured: By its shell.
        traffic: On its channels.
        consistency: None: it waits for all its input.
        extent: None: its windows leave no footprints.
    """

    counted: NodeStatistics = field(default_factory=NodeStatistics)
    measured: MeasurementsReported = field(default_factory=MeasurementsReported)
    traffic: TrafficReported = field(default_factory=TrafficReported)
    consistency: ConsistencyReported | None = None
    extent: ExtentStatistics | None = None

    def by_name(self) -> dict[str, Any]:
        """The numbers, each by its name, for people."""
        return asdict(self.counted) | asdict(self.measured) | asdict(self.traffic)


@dataclass(frozen=True, slots=True)
class StatisticsReported(Report):
    """What a node has done so far.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        figures: Of its machine and of its shell.
        latency: Of results at its sinks: how many per bucket of microseconds.
        latency_max_us: The latest of them.
        late_rows: Per source stream, from its beginning.
        refused: Frames and handshakes refused.
        processed: Per input stream the id up to which tuples were processed (exclusive).
        next_ids: Per output stream the id of the next tuple.
        sources: Its source streams.
    """

    node: NodeId
    incarnation: Incarnation
    figures: NodeFigures
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_us: int = 0
    late_rows: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    processed: dict[str, int] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)
    sources: dict[StreamId, SourceReported] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointReported(Report):
    """A node has written a checkpoint, or could not.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        checkpoint: The checkpoint's number.
        failure: Why there is none; None: there is.
        prepared_us: How long the node stood still for it.
        written_bytes: What was written, without what earlier ones hold.
        state_bytes: Of the whole state.
        duration_ms: From the snapshot to the end of the write.
    """

    node: NodeId
    incarnation: Incarnation
    checkpoint: int
    failure: str | None
    prepared_us: int
    written_bytes: int
    state_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class RowsReported(Report):
    """The rows that a node has sent last to each receiver, for whoever has asked.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        ticket: Of the question.
        columns: The names of the cells; see model/shown_rows.py.
        rows: Cells as text, the newest row first.
    """

    node: NodeId
    incarnation: Incarnation
    ticket: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class DamageReported(Report):
    """A node that is restored has passed over a checkpoint that cannot be read."""

    node: NodeId
    incarnation: Incarnation
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class GapReported(Report):
    """A node goes on behind tuples that it has missed: from one id to before the other."""

    node: NodeId
    incarnation: Incarnation
    stream: StreamId
    from_id: int
    to_id: int
