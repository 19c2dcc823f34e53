"""What a node is told: its part of the dataflow, and its assignment after every (re)start."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.core.state.page_manager import PAGE_BYTES_DEFAULT, STATE_BYTES_MAX_DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.passes import Pass
    from holdfast.core.operators.base import Operator
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import PageManager


@dataclass(frozen=True, slots=True)
class Alternate:
    """Where else an input stream can be read: at another replica of its producer. [DPC §3.2]

    Attributes:
        stream: As that replica names it.
        producer: The replica.
    """

    stream: StreamId
    producer: NodeId


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input stream of a node.

    Attributes:
        stream: Its name.
        port: The node-wide port that it feeds; several streams may feed one port.
        schema: Attributes, without the time column.
        producer: The node that sends it; None for a source that the shell reads.
        waits_for: Other input streams of the node that hold back what comes from a source of this
            one too. If this one were not let further ahead, they would wait for each other.
        is_from_region: Whether its producer recovers together with the node.
        sources: The source streams that it comes from, itself if it is one. Known in nodes that go
            on without missing input.
        is_looped: Whether it comes from another node of the same loop.
        is_feedback: Whether it brings back what has gone round there once.
        alternates: The same stream at other replicas of its producer.
    """

    stream: StreamId
    port: int
    schema: pa.Schema
    producer: NodeId | None
    waits_for: tuple[StreamId, ...] = ()
    is_from_region: bool = False
    sources: tuple[StreamId, ...] = ()
    is_looped: bool = False
    is_feedback: bool = False
    alternates: tuple[Alternate, ...] = ()

    @property
    def senders(self) -> tuple[tuple[StreamId, NodeId | None], ...]:
        """The stream and its producer, for each replica of that."""
        others = ((other.stream, other.producer) for other in self.alternates)
        return ((self.stream, self.producer), *others)


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator of a node.

    Attributes:
        name: Unique in the dataflow.
        build: Makes the operator over a page manager, with the state that this holds.
        inputs: Per port of the operator where its rows come from: `("port", p)` a port of the
            node, `("operator", k)` the k-th operator of the node, which comes before this one.
    """

    name: str
    build: Callable[[PageManager], Operator]
    inputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of a node: a sink, or the streams of an edge to another unit.

    Attributes:
        source: Where the rows come from, as in `OperatorSpec.inputs`.
        schema: Attributes of what is put out, without the time column.
        streams: One stream per receiver.
        receivers: The receiving nodes, in the same order; empty for a sink.
        keys: Columns whose stable hash chooses the receiver; empty when there is one.
        columns: Which columns of the rows are put out; None: all.
        is_sink: Whether the shell writes the stream to a log.
        unsynced_max: The node stops working when so many tuples of the sink are not durable; 0: as
            many as may be unsent on a stream; None: it never does.
        has_tentative: Whether its receivers are sent tentative tuples, too.
        has_windows_behind: Whether they, or units behind them, may hold windows of these tuples.
        feed_of: The sink stream beside which this one stands, as its feed of what is tentative;
            None: it is none.
        is_gated: Whether what a recovery could change must not leave: it goes to a sink that holds
            each result once, or out of the region of nodes that recover together.
        is_empty_at_cuts: Whether its receivers cut where the node's marker stands, and hold nothing
            from before it: then no tuple is on its way at a cut.
        is_looped: Whether it goes to other nodes of the same loop.
        is_feedback: Whether it goes back to where the loop begins; it never stops the node then.
        replica: To which replica of each receiver it goes; those to the others follow.
    """

    source: tuple[str, int]
    schema: pa.Schema
    streams: tuple[StreamId, ...]
    receivers: tuple[NodeId, ...]
    keys: tuple[str, ...] = ()
    columns: tuple[int, ...] | None = None
    is_sink: bool = False
    unsynced_max: int | None = None
    has_tentative: bool = False
    has_windows_behind: bool = True
    feed_of: StreamId | None = None
    is_gated: bool = False
    is_empty_at_cuts: bool = False
    is_looped: bool = False
    is_feedback: bool = False
    replica: int = 0


ACK_INTERVALS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Bounds and periods of a node, all settable as `spark.holdfast.*` (see driver/options.py).

    Attributes:
        input_queue_tuples: Most unprocessed tuples per input stream.
        output_queue_tuples: Most unsent tuples per output stream before the node stops working,
            unless a receiver waits for what an earlier incarnation had put out.
        output_queue_bytes: Retained bytes per output stream in memory; beyond, they are spilled.
        gate_queues: So many times `output_queue_tuples` of a sink may wait for the line before the
            node stops working, within `output_queue_bytes`; half of both asks for a cut.
        pass_tuples: Most tuples per pass and input stream.
        ack_interval_ms: M of [HA §5.2]: period of acknowledgements and restart points.
        ack_tuples: With fewer new tuples than that, both wait for up to `ACK_INTERVALS_MAX` M.
        keep_alive_ms: Period of keep-alives on every stream.
        resubscribe_ms: How long to wait for a sender before subscribing again.
        page_bytes: Size of the pages of operators' state.
        state_bytes: Most bytes of pages.
        page_run_bytes: Bytes of pages that leave for a passive secondary at once.
    """

    input_queue_tuples: int = 1 << 18
    output_queue_tuples: int = 1 << 18
    output_queue_bytes: int = 256 << 20
    gate_queues: int = 8
    pass_tuples: int = 1 << 16
    ack_interval_ms: int = 50
    ack_tuples: int = 1024
    keep_alive_ms: int = 100
    resubscribe_ms: int = 300
    page_bytes: int = PAGE_BYTES_DEFAULT
    state_bytes: int = STATE_BYTES_MAX_DEFAULT
    page_run_bytes: int = 1 << 18


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a node's state is checkpointed. [SGuard §3]

    Attributes:
        interval_ms: Period of checkpoints.
        kept: How many restart points a replacement may start from; at least 2, as any may be
            damaged. Of a node that recovers with others, how many lines; there 1 is allowed.
        workers: Files per checkpoint, written and read side by side.
        asks_first: Whether the node has to be admitted before it writes one.
        jitter_ms: By up to so much longer the period is, each time otherwise.
        waits_for_windows: Whether a checkpoint that is due waits until windows have closed, for
            another period at most.
    """

    interval_ms: int
    kept: int = 2
    workers: int = 2
    asks_first: bool = False
    jitter_ms: int = 0
    waits_for_windows: bool = False


@dataclass(frozen=True, slots=True)
class FootprintPlan:
    """How a node's windows are checkpointed, each on its own. [CEC §III]

    Attributes:
        share: Most of the node's time for windows that are written between passes, 0 to 1.
        extent_bytes: Most bytes of its footprint log that a replacement should have to read.
        recovery_us: Most time to read them and to replay; None: no matter.
        is_embedded: Whether the log lies in the query's own chunk store, not at the location.
    """

    share: float = 0.05
    extent_bytes: int = 64 << 20
    recovery_us: int | None = None
    is_embedded: bool = False


@dataclass(frozen=True, slots=True)
class DelayPlan:
    """How long a node waits for missing input. [DPC §3]

    Attributes:
        bound_ms: What has waited for so long is processed without it: the paper's αX.
        during_failure: What is done with new tuples then.
        reserve_ms: The rest of X, of which units wait a part longer than those before them.
        replicas: How many nodes run each instance side by side.
        during_stabilization: What is done with new tuples while one of them corrects; with
            `SUSPEND` all of them correct at once.
        undo_tuples: The state at a cut is made again from so many tuples at most (undo/redo); 0: it
            is always copied (checkpoint/redo).
        drops: Whether it keeps, for a correction, no more of each stream than the input queue
            holds, and the correction goes without the rest; else it stops reading there.
        horizon_tuples: Of one that drops: so far ahead of what was taken lies the id from which on
            a replacement may drop, too (drop_ledger.py).
        waits_alone: Whether it waits for the bound by itself before it goes on with what units
            before it put out as tentative, as in the paper (waiting_alone.py); else a chain waits
            once.
    """

    bound_ms: int
    during_failure: DuringFailure
    reserve_ms: int = 0
    replicas: int = 1
    during_stabilization: DuringFailure | None = None
    undo_tuples: int = 0
    drops: bool = False
    horizon_tuples: int = 1 << 20
    waits_alone: bool = False

    @property
    def has_turns(self) -> bool:
        """Whether its nodes correct one after the other."""
        return self.replicas > 1 and self.during_stabilization is not DuringFailure.SUSPEND


class Standby(enum.Enum):
    """Which second replica an instance has. [HA §4.1, §4.2]"""

    NONE = "none"
    PASSIVE = "passive"
    ACTIVE = "active"


class Cuts(enum.Enum):
    """How nodes that recover together come to cuts that go together. [CheckMate §III]"""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    UNCOORDINATED = "uncoordinated"
    HMNR = "hmnr"
    BCS = "bcs"
    LAZY_FI = "lazy-fi"

    @property
    def has_rounds(self) -> bool:
        """Whether the coordinator begins rounds, in which all of them cut."""
        return self in (Cuts.ALIGNED, Cuts.UNALIGNED)

    @property
    def is_induced(self) -> bool:
        """Whether what nodes say to each other forces checkpoints."""
        return self in (Cuts.HMNR, Cuts.BCS, Cuts.LAZY_FI)


@dataclass(frozen=True, slots=True)
class UnitProtection:
    """What a failure may cost a unit: what its nodes are told of the user's protection.

    Attributes:
        is_protected: Whether output queues retain tuples and restart points are taken.
        checkpoints: How the state of units that have one is checkpointed; None: it is replayed.
        standby: The second replica that takes over when the first one fails.
        delta_interval_ms: Period of what a passive secondary is sent.
        guarantee: What recovery must keep.
        is_strict: Whether its replicas never share a machine, even if one of them cannot run then.
        delays: How long it waits for missing input; None: for as long as it takes.
        footprints: How the windows of units that have some are checkpointed one by one; None: they
            are not.
        cuts: How a unit that does not repeat cuts: it logs no passes, but recovers together with
            the others that it is connected with; None: it logs them. [CheckMate §III]
        is_scope_whole: Whether all of these are in the scope of what forces checkpoints, and not
            only those on a cycle with it.
        all_go_back: Whether all of these go back after a failure, survivors too, and not only those
            whose state depends on what was lost.
        lines_kept: How many lines their recovery may go back to, 1 or 2.
        survives_one: Whether producers may forget what the passive secondary holds.
    """

    is_protected: bool = True
    checkpoints: CheckpointPlan | None = None
    standby: Standby = Standby.NONE
    delta_interval_ms: int = 50
    guarantee: Guarantee = Guarantee.PRECISE
    is_strict: bool = False
    delays: DelayPlan | None = None
    footprints: FootprintPlan | None = None
    cuts: Cuts | None = None
    is_scope_whole: bool = False
    all_go_back: bool = False
    lines_kept: int = 1
    survives_one: bool = False


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The fixed part of a node: it is the same for all its incarnations.

    Attributes:
        node: The instance's name, `unit[index]`.
        unit: Its unit.
        index: Which of the unit's parallel instances it is.
        inputs: Input streams; their positions number the node-wide input streams.
        port_count: How many ports the inputs feed.
        operators: In topological order.
        outputs: All outputs.
        is_protected: Whether output queues retain tuples and restart points are taken.
        limits: Bounds and periods.
        checkpoints: How its state is checkpointed; None: it has none, or it is replayed.
        standby: The second replica that takes over when the first one fails.
        delta_interval_ms: Period of what a passive secondary is sent.
        guarantee: What recovery must keep.
        merges_by_arrival: Whether its input streams are merged as they come, not by time.
        keeps_passes: Whether what its passes depend on beside their input is logged. [HA §6]
        is_strict: Whether its replicas never share a machine.
        loses_input: Whether a unit before it has gap recovery, and none rollback: tuples may be
            missing, and come twice only where `may_repeat_after_gap`.
        may_be_rebased: Whether it, or a unit before it, rebases its streams after a failure: one id
            may stand for several tuples.
        delays: How long it waits for missing input; None: for as long as it takes.
        footprints: How its windows are checkpointed one by one; None: they are not.
        region: Which nodes it recovers together with, as it does not repeat; empty: it recovers
            alone. [CheckMate §III]
        cuts: How the nodes of its region cut; None: it is in none.
        all_go_back: Whether all nodes of its region go back after a failure.
        scope: Who can force it to cut, in the same order everywhere, itself included.
        replica: Which of the nodes that run the instance side by side it is, from 0 on.
        replicas: All of these nodes, itself included; empty: it is alone.
        survives_one: Whether producers may forget what its passive secondary holds.
    """

    node: NodeId
    unit: str
    index: int
    inputs: tuple[InputSpec, ...]
    port_count: int
    operators: tuple[OperatorSpec, ...]
    outputs: tuple[OutputSpec, ...]
    is_protected: bool = True
    limits: NodeLimits = field(default_factory=NodeLimits)
    checkpoints: CheckpointPlan | None = None
    standby: Standby = Standby.NONE
    delta_interval_ms: int = 50
    guarantee: Guarantee = Guarantee.PRECISE
    merges_by_arrival: bool = False
    keeps_passes: bool = False
    is_strict: bool = False
    loses_input: bool = False
    may_be_rebased: bool = False
    delays: DelayPlan | None = None
    footprints: FootprintPlan | None = None
    region: str = ""
    cuts: Cuts | None = None
    scope: tuple[NodeId, ...] = ()
    all_go_back: bool = False
    replica: int = 0
    replicas: tuple[NodeId, ...] = ()
    survives_one: bool = False

    @property
    def is_replayed(self) -> bool:
        """Whether a replacement starts at a restart point: else empty, or not at all."""
        return self.is_protected and self.guarantee is not Guarantee.GAP

    @property
    def is_rebuilt_by_replay(self) -> bool:
        """Whether a replacement makes all of the state again from input, if no replica has it."""
        has_checkpoints = self.checkpoints is not None or self.cuts is not None
        return self.is_replayed and not has_checkpoints and self.footprints is None

    @property
    def rebases(self) -> bool:
        """Whether its streams may begin anew, with other tuples, after a failure.

        Those of units that recover together do not: whoever has processed what comes otherwise goes
        back, too, and others read them behind a gate.
        """
        return self.guarantee is not Guarantee.PRECISE and not self.region

    @property
    def repeats_results(self) -> bool:
        """Whether sinks wait for no line, so that results since then may come again."""
        return self.guarantee is Guarantee.ROLLBACK and bool(self.region)

    @property
    def diverges(self) -> bool:
        """Whether the secondary makes other tuples than the primary. [HA Table 2: divergent]"""
        return self.standby is Standby.ACTIVE and self.guarantee is Guarantee.ROLLBACK

    @property
    def may_repeat_after_gap(self) -> bool:
        """Whether results may come twice though no unit has rollback recovery.

        A node with amnesia takes the newest that its producers have, and knows not what it had: a
        producer that failed at the same time begins at its own restart point. So does a node
        behind a gap that fails together with it: without the streams that are rebased it cannot
        tell what of the others it has put out since. With one stream and no state there is nothing
        else, and recorded passes tell which windows had closed.
        """
        if self.guarantee is Guarantee.GAP:
            return bool(self.producers())
        has_state = self.checkpoints is not None or self.standby is Standby.PASSIVE
        rests_on_state = has_state and not self.keeps_passes
        return self.loses_input and (len(self.inputs) > 1 or rests_on_state)

    @property
    def pass_stream(self) -> StreamId:
        """The pass log of an arbitrary node."""
        return StreamId(f"{self.node}~passes")

    @property
    def footprint_stream(self) -> StreamId:
        """The footprint log of a node that has one."""
        return StreamId(f"{self.node}~footprints")

    @property
    def is_log_embedded(self) -> bool:
        """Whether its footprint log, if it has one, lies in the query's own chunk store."""
        return self.footprints is not None and self.footprints.is_embedded

    @property
    def own_logs(self) -> tuple[StreamId, ...]:
        """The logs that it alone writes and reads again, in the order in which it opens them."""
        passes = (self.pass_stream,) if self.keeps_passes else ()
        footprints = () if self.footprints is None else (self.footprint_stream,)
        return footprints + passes

    @property
    def replica_stream(self) -> StreamId:
        """What the primary tells the secondary."""
        return StreamId(f"{self.node}~")

    @property
    def merges_by_time(self) -> bool:
        """Whether tuples may wait in it for the time of another input stream."""
        return len(self.inputs) > 1 and not self.merges_by_arrival

    @property
    def is_in_loop(self) -> bool:
        """Whether what it puts out may come back to it."""
        return any(spec.is_looped for spec in self.inputs)

    def looped_streams(self) -> tuple[StreamId, ...]:
        """The output streams to other nodes of the same loop."""
        return tuple(s for spec in self.outputs if spec.is_looped for s in spec.streams)

    def streams_beside(self) -> dict[StreamId, tuple[StreamId, ...]]:
        """Per output stream to one of several replicas, those to the others."""
        together: list[list[OutputSpec]] = []
        for spec in self.outputs:
            if spec.replica:
                together[-1].append(spec)
            else:
                together.append([spec])
        return {
            stream: tuple(s for s in streams if s != stream)
            for specs in together
            if len(specs) > 1
            for streams in zip(*(spec.streams for spec in specs), strict=True)
            for stream in streams
        }

    def output_streams(self) -> tuple[StreamId, ...]:
        """All output streams, those of sinks included."""
        return tuple(stream for spec in self.outputs for stream in spec.streams)

    def feed_streams(self) -> tuple[StreamId, ...]:
        """The streams of feeds."""
        return tuple(s for spec in self.outputs if spec.feed_of is not None for s in spec.streams)

    def changing_streams(self) -> tuple[StreamId, ...]:
        """Those to other nodes of which a replacement may put out others under the same ids."""
        if not self.region:
            return ()
        within = (o for o in self.outputs if not (o.is_gated or o.is_sink))
        return tuple(stream for spec in within for stream in spec.streams)

    def streams_empty_at_cuts(self) -> tuple[StreamId, ...]:
        """The output streams on which nothing is on its way when the node cuts."""
        return tuple(s for spec in self.outputs if spec.is_empty_at_cuts for s in spec.streams)

    def edge_streams(self) -> tuple[StreamId, ...]:
        """The output streams to other nodes."""
        return tuple(s for spec in self.outputs if not spec.is_sink for s in spec.streams)

    def producers(self) -> tuple[NodeId, ...]:
        """The nodes this one receives from, each once."""
        senders = (node for spec in self.inputs for _, node in spec.senders)
        return _unique(node for node in senders if node is not None)

    def producer_of(self) -> dict[StreamId, NodeId]:
        """Per stream from another node, those of replicas included, the node."""
        senders = (sender for spec in self.inputs for sender in spec.senders)
        return {stream: node for stream, node in senders if node is not None}

    def input_schemas(self) -> dict[StreamId, pa.Schema]:
        """Per input stream, those of replicas included, its schema without the time column."""
        return {stream: spec.schema for spec in self.inputs for stream, _ in spec.senders}

    def receivers(self) -> tuple[NodeId, ...]:
        """The nodes this one sends to, each once."""
        return _unique(receiver for spec in self.outputs for receiver in spec.receivers)


def _unique(nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return tuple(dict.fromkeys(nodes))


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the coordinator tells a node when it comes up.

    Attributes:
        epoch: Counts the coordinator's own lives.
        incarnation: The node's.
        restart_point: From where to go on; None at the very beginning.
        sink_next_ids: Per sink stream the first id that its log does not hold yet.
        is_secondary: Whether it follows the primary until it is promoted.
        passes: What the pass log holds, from the one before the pass on that the restart point
            needs.
        rounds_over: The newest round of checkpoints of its region that does nothing any more.
    """

    epoch: int
    incarnation: Incarnation
    restart_point: RestartPoint | None
    sink_next_ids: dict[StreamId, int]
    is_secondary: bool = False
    passes: tuple[Pass, ...] = ()
    rounds_over: int = NO_ROUND
