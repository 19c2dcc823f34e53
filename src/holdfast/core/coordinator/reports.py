"""What nodes say for people: the coordinator does not act on it, the driver's progress shows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.ids import Incarnation, NodeId, StreamId, TimeUs


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
class StatisticsReported(Report):
    """What a node has done so far.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        statistics: Of its machine, and what its shell has measured; numbers by name.
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
    statistics: dict[str, object]
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
