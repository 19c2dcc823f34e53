"""The stimuli and effects of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import (
    BEGINNING_US,
    NOBODY,
    CheckpointId,
    Incarnation,
    NodeId,
    StreamId,
)

if TYPE_CHECKING:
    import numpy as np

    from holdfast.core.checkpoint.eventual import RecoveryCosts
    from holdfast.core.haunit.copied_pages import PageRun
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.prepared import PreparedCheckpoint, StoredCheckpoint
    from holdfast.core.haunit.state_delta import StateDelta
    from holdfast.core.model.ids import Run
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.replication.switching import Standing

# -- stimuli --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proceed(Stimulus):
    """There is time to process one pass, if there is work.

    Attributes:
        clock_us: Processing time, microseconds since the epoch; only arbitrary units look.
        seed: Something random, uint64; only arbitrary units look.
    """

    clock_us: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PassesRead(Stimulus):
    """The answer to `ReadPasses`: what the primary has logged since, perhaps nothing yet."""

    passes: tuple[Pass, ...]


@dataclass(frozen=True, slots=True)
class PeerIncarnationLearned(Stimulus):
    """The coordinator says which replicas of a neighbour, or of the node itself, count from now on.

    Attributes:
        node: The neighbour.
        incarnation: Of its primary.
        secondary: Of its secondary; 0: it has none.
    """

    node: NodeId
    incarnation: Incarnation
    secondary: Incarnation = NOBODY


@dataclass(frozen=True, slots=True)
class BatchReceived(Stimulus):
    """Tuples of an input stream arrived.

    Attributes:
        stream: The input stream.
        sender: Incarnation of the sender.
        receiver: Incarnation of this node as the sender believes it.
        batch: The tuples.
        notes_before: All notes of the stream with lower numbers must have come before.
        run: Which suffix of the stream they belong to; None: they are stable.
        notes: Those that stand in the batch, or right before or behind it.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    batch: TupleBatch
    notes_before: int = 0
    run: Run | None = None
    notes: tuple[PlacedNote, ...] = ()


@dataclass(frozen=True, slots=True)
class NotesReceived(Stimulus):
    """Notes of an input stream arrived without tuples.

    Attributes:
        stream: The input stream.
        sender: Incarnation of the sender.
        receiver: Incarnation of this node as the sender believes it.
        sent_before: Everything before this id has been sent.
        notes_before: All notes of the stream with lower numbers must have come before.
        run: The suffix that stands behind them.
        notes: Those that stand before `sent_before`, or before an earlier id.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    sent_before: int
    notes_before: int
    run: Run | None
    notes: tuple[PlacedNote, ...]


@dataclass(frozen=True, slots=True)
class BoundaryReceived(Stimulus):
    """A keep-alive of an input stream: everything before `sent_before` has been sent.

    Attributes:
        stream: The input stream.
        sender: Incarnation of the sender.
        receiver: Incarnation of this node as the sender believes it.
        sent_before: See above.
        boundary_us: Nothing older follows.
        rebased_at: From this id on the sender's tuples are others than those of its predecessor;
            -1: they are the same. It is said first whenever such a stream is subscribed.
        notes_before: All notes of the stream with lower numbers must have come before.
        run: The suffix whose tuples the boundary is about; None: the stable ones.
        missing: The source streams that tuples of the suffix were made without.
        standing: Where the sender stands, if it is one of several replicas.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    sent_before: int
    boundary_us: int
    rebased_at: int = -1
    notes_before: int = 0
    run: Run | None = None
    missing: tuple[StreamId, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class SubscribeReceived(Stimulus):
    """A receiver asks for an output stream from `from_id` on and grants its first credit.

    Attributes:
        stream: The output stream.
        sender: Incarnation of the receiver.
        receiver: Incarnation of this node as the receiver believes it.
        from_id: The first tuple wanted; `NO_ID`: from now on.
        needed_from: The level-1 position.
        credit_until: The first credit.
        is_secondary: Whether it is a secondary that asks.
        boundary_us: The receiver has everything older than this.
        from_note: It has had all notes with lower numbers that stand before `from_id`.
        is_aside: Whether it reads what is tentative at another replica of the producer.
        is_told: Whether this node has told it from where on its tuples are others.
        had_before: Tuples with lower ids are to be those that its former incarnations had.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    from_id: int
    needed_from: int
    credit_until: int
    is_secondary: bool = False
    boundary_us: int = BEGINNING_US
    from_note: int = 0
    is_aside: bool = False
    is_told: bool = False
    had_before: int = 0


@dataclass(frozen=True, slots=True)
class AckReceived(Stimulus):
    """A receiver acknowledges an output stream at both levels and grants credit. [HA §5.2.1]

    Attributes:
        stream: The output stream.
        sender: Incarnation of the receiver.
        receiver: Incarnation of this node as the receiver believes it.
        received_before: The level-0 position.
        needed_from: The level-1 position.
        credit_until: Stable tuples before this id may be sent.
        is_secondary: Whether it is a secondary that speaks.
        run: The suffix of which it has had some; None: of none that counts.
        run_until: Tuples of it before this id may be sent.
        is_aside: As in `SubscribeReceived`, whose word may be lost.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    received_before: int
    needed_from: int
    credit_until: int
    is_secondary: bool = False
    run: Run | None = None
    run_until: int = 0
    is_aside: bool = False


@dataclass(frozen=True, slots=True)
class PositionsReceived(Stimulus):
    """The primary tells its secondary what its receivers have, and what they need no more.

    Attributes:
        stream: The replica stream.
        sender: Incarnation of the primary.
        receiver: Incarnation of the secondary as the primary believes it.
        positions: Per output stream, in the order of the plan, the level-0 and level-1 positions.
    """

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PageRunReceived(Stimulus):
    """Pages of a delta to come arrived at a passive secondary."""

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    run: PageRun


@dataclass(frozen=True, slots=True)
class DeltaReceived(Stimulus):
    """A delta arrived at a passive secondary."""

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    delta: StateDelta


@dataclass(frozen=True, slots=True)
class DeltaAckReceived(Stimulus):
    """A passive secondary has so many pages of a delta, or has applied it."""

    stream: StreamId
    sender: Incarnation
    receiver: Incarnation
    sequence: int
    pages: int
    is_applied: bool


@dataclass(frozen=True, slots=True)
class Promoted(Stimulus):
    """The coordinator makes a secondary the primary.

    Attributes:
        incarnation: As which it counts from now on.
        restart_point: The newest one stored, by the former primary.
        sink_next_ids: Per sink stream the first id that its log does not hold yet.
        passes: All that the pass log holds and the secondary may not have read.
    """

    incarnation: Incarnation
    restart_point: RestartPoint | None
    sink_next_ids: dict[StreamId, int]
    passes: tuple[Pass, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRead(Stimulus):
    """The answer to `ReadSource`: what the source has from there on, possibly nothing yet.

    Attributes:
        stream: The source stream.
        batches: The tuples.
        boundary_us: Nothing older follows.
        from_id: From where it was read; for `NO_ID`, the end of what there was.
        quiet_ms: The source has nothing more before so many milliseconds; 0: it does not know.
    """

    stream: StreamId
    batches: tuple[TupleBatch, ...]
    boundary_us: int
    from_id: int = 0
    quiet_ms: int = 0


@dataclass(frozen=True, slots=True)
class SourceStirred(Stimulus):
    """A source that had nothing may have something now."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class SinkSynced(Stimulus):
    """All tuples of a sink before `durable_before` are on disk."""

    stream: StreamId
    durable_before: int


@dataclass(frozen=True, slots=True)
class RestartPointStored(Stimulus):
    """The coordinator has stored a restart point of this node durably."""

    sequence: int


@dataclass(frozen=True, slots=True)
class SpillRead(Stimulus):
    """The answer to `ReadSpill`."""

    stream: StreamId
    request_id: int
    batches: tuple[TupleBatch, ...]


@dataclass(frozen=True, slots=True)
class PagesCopied(Stimulus):
    """Some pages of the checkpoint being written have been copied out.

    Attributes:
        checkpoint: Which one.
        positions: Their places in its snapshot, int64.
    """

    checkpoint: CheckpointId
    positions: np.ndarray


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Stimulus):
    """All parts of a checkpoint are durable in the store, its manifest last."""

    stored: StoredCheckpoint


@dataclass(frozen=True, slots=True)
class CheckWindows(Stimulus):
    """The shell has time to spare: write the windows whose footprints are the oldest. [CEC §III]

    Attributes:
        windows: So many at most; 0: no time, and only what follows is told.
        costs: What a recovery's parts have cost of late.
        windows_per_s: How many windows the share of the time is enough for; 0: nobody knows.
        marks_apart_ms: Restart points are to be so far apart at least, to keep to the share.
    """

    windows: int
    costs: RecoveryCosts
    windows_per_s: float = 0.0
    marks_apart_ms: int = 0


@dataclass(frozen=True, slots=True)
class WriteAdmitted(Stimulus):
    """A checkpoint may be written now: the answer to `AskToWrite`, or after `CheckpointRefused`."""


@dataclass(frozen=True, slots=True)
class CheckpointRefused(Stimulus):
    """The store has no place for a checkpoint now. `WriteAdmitted` says when it has. [SGuard §5]"""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class TurnGranted(Stimulus):
    """The answer to an `AskForTurn`: the node may correct now; its other replicas go on."""

    asking: int


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Stimulus):
    """A checkpoint could not be written; nothing of it counts."""

    checkpoint: CheckpointId
    reason: str


# -- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendBatch(Effect):
    """Send tuples, and the notes among them, to the receiver of an output stream."""

    stream: StreamId
    receiver: Incarnation
    batch: TupleBatch
    notes_before: int = 0
    run: Run | None = None
    notes: tuple[PlacedNote, ...] = ()


@dataclass(frozen=True, slots=True)
class SendNotes(Effect):
    """Send notes that stand behind what has been sent, as in `NotesReceived`."""

    stream: StreamId
    receiver: Incarnation
    sent_before: int
    notes_before: int
    run: Run | None
    notes: tuple[PlacedNote, ...]


@dataclass(frozen=True, slots=True)
class SendBoundary(Effect):
    """Send a keep-alive with the last id sent and the boundary reached."""

    stream: StreamId
    receiver: Incarnation
    sent_before: int
    boundary_us: int
    rebased_at: int = -1
    notes_before: int = 0
    run: Run | None = None
    missing: tuple[StreamId, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class SendPositions(Effect):
    """Tell the secondary what receivers have and need, as in `PositionsReceived`. [HA §4.2]"""

    stream: StreamId
    receiver: Incarnation
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SendPageRun(Effect):
    """Send pages of a delta to come to the passive secondary. [HA §4.1]"""

    stream: StreamId
    receiver: Incarnation
    run: PageRun


@dataclass(frozen=True, slots=True)
class SendDelta(Effect):
    """Send a delta to the passive secondary. [HA §4.1]"""

    stream: StreamId
    receiver: Incarnation
    delta: StateDelta


@dataclass(frozen=True, slots=True)
class SendDeltaAck(Effect):
    """Tell the primary what has come of a delta, as in `DeltaAckReceived`."""

    stream: StreamId
    producer: Incarnation
    sequence: int
    pages: int
    is_applied: bool


@dataclass(frozen=True, slots=True)
class SendSubscribe(Effect):
    """Ask the producer of an input stream to send from `from_id` on."""

    stream: StreamId
    producer: Incarnation
    from_id: int
    needed_from: int
    credit_until: int
    is_secondary: bool = False
    boundary_us: int = BEGINNING_US
    from_note: int = 0
    is_aside: bool = False
    is_told: bool = False
    had_before: int = 0


@dataclass(frozen=True, slots=True)
class SendAck(Effect):
    """Acknowledge an input stream at both levels and grant credit, as in `AckReceived`."""

    stream: StreamId
    producer: Incarnation
    received_before: int
    needed_from: int
    credit_until: int
    is_secondary: bool = False
    run: Run | None = None
    run_until: int = 0
    is_aside: bool = False


ENOUGH_TUPLES: Final = 1 << 12
"""A source that has brought so many need not look for more: they are worth a pass. If it brings
fewer, and fewer than it was asked for, it has no more for now."""


@dataclass(frozen=True, slots=True)
class ReadSource(Effect):
    """Read a source from `from_id` on; answered by `SourceRead`."""

    stream: StreamId
    from_id: int
    max_tuples: int


@dataclass(frozen=True, slots=True)
class WriteSink(Effect):
    """Append tuples to the log of a sink."""

    stream: StreamId
    batch: TupleBatch


@dataclass(frozen=True, slots=True)
class SyncSink(Effect):
    """Make a sink's log durable; answered by `SinkSynced`."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class HastenSink(Effect):
    """Nothing follows in a sink: a `SyncSink` that was asked for is not to wait for anything."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class ReadPasses(Effect):
    """Read the primary's pass log from a number on; answered by `PassesRead`."""

    from_number: int


@dataclass(frozen=True, slots=True)
class TrimPasses(Effect):
    """No pass before this number will be run again."""

    before: int


@dataclass(frozen=True, slots=True)
class TrimFootprints(Effect):
    """No eventual checkpoint needs the footprint log before this row again."""

    stream: StreamId
    before: int


@dataclass(frozen=True, slots=True)
class FootprintsTaken(Effect):
    """Records have been begun; they are made when there is time to spare again. [CEC §III]

    Attributes:
        windows: How many footprints of windows were taken; 0: what has opened and closed alone.
    """

    windows: int


@dataclass(frozen=True, slots=True)
class EndSink(Effect):
    """The sink's stream has ended for good."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class SpillBatches(Effect):
    """Append retained tuples of an output stream to its spill log."""

    stream: StreamId
    batches: tuple[TupleBatch, ...]


@dataclass(frozen=True, slots=True)
class ReadSpill(Effect):
    """Read ids [from_id, to_id) of an output stream back; answered by `SpillRead`."""

    stream: StreamId
    request_id: int
    from_id: int
    to_id: int


@dataclass(frozen=True, slots=True)
class TrimSpill(Effect):
    """Nothing before this id of the spill log will be read again."""

    stream: StreamId
    before: int


@dataclass(frozen=True, slots=True)
class StoreRestartPoint(Effect):
    """Have the coordinator store a restart point; answered by `RestartPointStored`."""

    point: RestartPoint


@dataclass(frozen=True, slots=True)
class ReportHalted(Effect):
    """Tell the coordinator where the node has halted.

    Attributes:
        attempt: As it was told.
        went_on: The last attempt that it was told to go on after; 0: none.
        place: The cut where it stands; it has no number.
    """

    attempt: int
    went_on: int
    place: RestartPoint


@dataclass(frozen=True, slots=True)
class WantRound(Effect):
    """Tell the coordinator that there will soon be room for no more results that wait.

    They wait for a round, or, where there are none, for cuts of other members of the region.
    """


@dataclass(frozen=True, slots=True)
class ReportRoundFailed(Effect):
    """Tell the coordinator that the node's checkpoint for a round came to nothing."""

    round: int


@dataclass(frozen=True, slots=True)
class WriteCheckpoint(Effect):
    """Write a prepared checkpoint to the store while the node goes on. [SGuard §4.4]

    Answered by `PagesCopied` now and then, and in the end by `CheckpointWritten` or
    `CheckpointFailed`.
    """

    prepared: PreparedCheckpoint


@dataclass(frozen=True, slots=True)
class AskToWrite(Effect):
    """Ask the coordinator for a place among those who write; answered by `WriteAdmitted`."""


@dataclass(frozen=True, slots=True)
class LeaveWriters(Effect):
    """Give the place back."""


@dataclass(frozen=True, slots=True)
class AskForTurn(Effect):
    """Ask the coordinator to be one of the replicas that correct; answered by `TurnGranted`.

    Attributes:
        asking: Counts the corrections for which the node has asked.
    """

    asking: int


@dataclass(frozen=True, slots=True)
class LeaveTurn(Effect):
    """The correction is over, or not due any more."""


@dataclass(frozen=True, slots=True)
class CancelCheckpoint(Effect):
    """Stop writing a checkpoint; no answer is needed."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ForgetCheckpoints(Effect):
    """Delete the files of checkpoints that no restart point leads to any more."""

    checkpoints: tuple[CheckpointId, ...]


@dataclass(frozen=True, slots=True)
class ReportCheckpoint(Effect):
    """A checkpoint has been stored, or has failed.

    Attributes:
        checkpoint: Which one.
        failure: Why it failed; None: it is stored.
        written_bytes: Bytes of pages and output tuples written.
        state_bytes: Bytes of pages that it holds.
        duration_ms: From its preparation until it was stored.
    """

    checkpoint: CheckpointId
    failure: str | None
    written_bytes: int
    state_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class ReportGap(Effect):
    """Tuples [from_id, to_id) of a stream have no, or not all their, effect. [HA §3.1, §4]

    What lies before it has had all its effects. A failure between two restart points makes it begin
    too early, by no more than what came since the one that was stored.
    """

    stream: StreamId
    from_id: int
    to_id: int


@dataclass(frozen=True, slots=True)
class ReportPromoted(Effect):
    """A secondary has become the primary: receivers may subscribe."""


@dataclass(frozen=True, slots=True)
class ReportCaughtUp(Effect):
    """The silent replay is over."""

    replayed_tuples: int


@dataclass(frozen=True, slots=True)
class ReportFirstOutput(Effect):
    """The first new tuple since this incarnation started has left the node."""


@dataclass(frozen=True, slots=True)
class ReportFinished(Effect):
    """All inputs have ended, and every output is where it must be."""
