"""Notes: what a node says to the receiver of a stream at a place in that stream.

A note stands before a tuple id. The receiver takes it when it has processed everything before that
id and nothing from there on, whenever it arrives and however often it is sent. So notes are
numbered, kept and sent again together with the tuples behind them. Several may stand before one id;
their numbers say in which order.

A family of protocols has kinds of its own; all of them are values, compared by what they say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.model.ids import Run


class StreamNote:
    """What is said. Subclasses are frozen dataclasses, one for each kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PlacedNote:
    """A note at its place in a stream.

    Attributes:
        number: Those of a stream ascend, over all incarnations of its producer, with gaps between
            them: a replacement goes on with higher ones, see queues/stream_notes.py.
        before_id: It stands before the tuple with this id, behind the one before that; behind all
            notes with lower numbers, whose ids are lower or the same.
        note: What is said.
    """

    number: int
    before_id: int
    note: StreamNote


@dataclass(frozen=True, slots=True)
class CheckpointMarker(StreamNote):
    """What stands before it belongs to the checkpoints of a round, what follows does not.

    Attributes:
        round: Which round; rounds count up, over all lives of the coordinator.
    """

    round: int


@dataclass(frozen=True, slots=True)
class CheckpointIndex(StreamNote):
    """The sender's newest checkpoint has this index; one that is behind cuts first. [BCS]

    Attributes:
        index: Counts up along every chain of messages.
    """

    index: int


@dataclass(frozen=True, slots=True)
class CheckpointClocks(StreamNote):
    """What a sender knows of the checkpoints of all members of its scope. [CheckMate §III-C, HMNR]

    It holds for every tuple behind it, up to the next one.

    Attributes:
        clock: The sender's Lamport clock, which moves with checkpoints.
        checkpoints: Per member the newest checkpoint that the sender knows of.
        taken: Per member whether a Z-path leads from that checkpoint to the sender with another
            checkpoint in it. A bit per member, the first one lowest.
        greater: Per member whether the sender's clock may be greater than the member's. Bits, too.
    """

    clock: int
    checkpoints: tuple[int, ...]
    taken: int
    greater: int


@dataclass(frozen=True, slots=True)
class LoopMark(StreamNote):
    """How far event time has come inside a loop, as far as its bearers know; see loop_progress.py.

    Attributes:
        lap: Which time it goes round.
        open_us: What the input from outside had passed when this lap began.
        clean_us: The same of the lap before; or the time of the oldest tuple that came back during
            that, if it is older.
    """

    lap: int
    open_us: int
    clean_us: int


@dataclass(frozen=True, slots=True)
class Undo(StreamNote):
    """All tentative tuples of a run are void; the stable ones in their place follow. [DPC §3.1]

    Attributes:
        run: Which suffix of the stream.
    """

    run: Run


@dataclass(frozen=True, slots=True)
class RecDone(StreamNote):
    """Everything that a run has stood for has come as stable: its correction is over. [DPC §3.1]

    Attributes:
        run: Which suffix of the stream.
    """

    run: Run
