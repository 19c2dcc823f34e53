"""What nodes and the coordinator tell each other, as bytes and back.

A word is a class: for the coordinator its own stimuli (coordinator/events.py), and what is for
people (coordinator/reports.py); for a node those of haunit/told.py. An effect of the coordinator is
a word for a node (`word_of`). On the wire a word is its class's name and its fields, in order
(typed_records.py). Decoding never raises: what is no word of the wanted direction gives
`CorruptFrame`. See docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator import reports
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.turns import GrantTurn
from holdfast.core.haunit import told
from holdfast.core.haunit.events import RestartPointStored, TurnGranted, WriteAdmitted
from holdfast.core.machine import Effect
from holdfast.core.model.ids import Incarnation, NodeId, StreamId, TimeUs
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.typed_records import RecordCodec, Unfit

WORD_BYTES_MAX: Final = 16 << 20
KEEP_ALIVE_SUFFIX: Final = b"|alive"
"""What the identity of a node's keep-alive thread has behind the task's own."""
_FLOAT_MAX = float.fromhex("0x1.fffffffffffffp+1023")


_TASK_BYTES_MAX: Final = 512

CoordinatorStimulus = (
    c.HelloReceived
    | c.KeepAliveReceived
    | c.RestartPointReceived
    | c.WriteWanted
    | c.WriteEnded
    | c.TurnWanted
    | c.TurnLeft
    | c.NodePromoted
    | c.NodeCaughtUp
    | c.FirstOutput
    | c.NodeFinished
    | c.NodeHalted
    | c.RoundWanted
    | c.RoundFailed
    | c.PointDamaged
    | c.NodeFailed
)
NodeReport = (
    reports.StatisticsReported
    | reports.CheckpointReported
    | reports.DamageReported
    | reports.GapReported
    | reports.RowsReported
)
FromNode = CoordinatorStimulus | NodeReport
ToNode = (
    told.AssignmentReceived
    | told.PeerTold
    | told.PromotionReceived
    | told.FloorTold
    | told.HaltTold
    | told.GoOnTold
    | told.RollBackTold
    | told.LineTold
    | told.RoundTold
    | told.CutTold
    | told.LeaseRenewed
    | told.Fenced
    | told.StopReceived
    | told.KillReceived
    | told.FiguresWanted
    | told.RowsWanted
    | RestartPointStored
    | WriteAdmitted
    | TurnGranted
)
Word = FromNode | ToNode

FROM_NODE: Final = cast("tuple[type[FromNode], ...]", FromNode.__args__)
TO_NODE: Final = cast("tuple[type[ToNode], ...]", ToNode.__args__)


def _number(least: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not int or not least <= value < 2**63:
            raise Unfit(f"no number from {least} on")
        return value

    return read


def _exactly(kind: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise Unfit(f"no {kind.__name__}")
        return value

    return read


def _decimal(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Unfit("no number")
    if not abs(value) <= _FLOAT_MAX:  # An int can be larger; a NaN is nothing.
        raise Unfit("no finite number")
    return float(value)


def _consistency(value: object) -> Consistency:
    try:
        return Consistency(value)
    except ValueError:
        raise Unfit("no state of a node's output") from None


READERS: Final[dict[Any, Callable[[object], object]]] = {
    int: _number(0),
    Incarnation: _number(0),
    TimeUs: _number(-(2**63)),
    str: _exactly(str),
    NodeId: _exactly(str),
    StreamId: _exactly(str),
    bool: _exactly(bool),
    float: _decimal,
    Consistency: _consistency,
    RestartPoint: RestartPoint.from_json,
}
"""Of the types that words and the journal's entries are made of."""
PLAIN: Final[dict[type, Callable[[Any], object]]] = {
    RestartPoint: RestartPoint.to_json,
    Consistency: lambda state: state.value,
}
_FROM_NODE: Final = RecordCodec(FROM_NODE, READERS, PLAIN)
_TO_NODE: Final = RecordCodec(TO_NODE, READERS, PLAIN)


@dataclass(frozen=True, slots=True)
class Task:
    """The process that a connection belongs to, as its identity says."""

    name: str
    node: str
    launch: int
    pid: int


def task_of(identity: bytes) -> Task | None:
    """The task behind an identity `<node>|<launch>|<pid>|<time>`, or its keep-alive thread's.

    None: it is nobody's.
    """
    try:
        name = identity.removesuffix(KEEP_ALIVE_SUFFIX).decode()
    except UnicodeDecodeError:
        return None
    node, *numbers = name.split("|")
    if len(identity) > _TASK_BYTES_MAX or len(numbers) != 3 or not node:
        return None
    if not all(n.isascii() and n.isdigit() and len(n) < 20 for n in numbers):
        return None
    return Task(name, node, int(numbers[0]), int(numbers[1]))


def encode(word: Word) -> bytes:
    """A word as the only part of a message."""
    return _FROM_NODE.encode(word)


def decode_from_node(parts: Sequence[bytes], task: Task | None) -> FromNode | CorruptFrame:
    """A node's word, or why it is none.

    Args:
        parts: As received, without the identity.
        task: Whose connection it came by: a word speaks for the node at its other end only.
    """
    if task is None:
        return CorruptFrame("from nobody")
    word = cast("FromNode | CorruptFrame", _decode(parts, _FROM_NODE))
    if isinstance(word, CorruptFrame):
        return word
    if word.node != task.node:
        return CorruptFrame("a word in another node's name")
    if isinstance(word, c.HelloReceived) and (word.launch, word.task) != (task.launch, task.name):
        return CorruptFrame("a hello in another task's name")
    return word


def decode_from_coordinator(parts: Sequence[bytes]) -> ToNode | CorruptFrame:
    """The coordinator's word, or why it is none."""
    return cast("ToNode | CorruptFrame", _decode(parts, _TO_NODE))


def _decode(parts: Sequence[bytes], codec: RecordCodec) -> object:
    if len(parts) != 1:
        return CorruptFrame(f"{len(parts)} parts")
    if len(parts[0]) > WORD_BYTES_MAX:
        return CorruptFrame(f"a word of {len(parts[0])} bytes")
    return codec.decode(parts[0])


# -- effects of the coordinator, as nodes hear of them --------------------------------------

Telling = (
    c.SendAssignment
    | c.TellPeer
    | c.SendPromotion
    | c.TellPointStored
    | c.TellFloor
    | c.TellHalt
    | c.TellGoOn
    | c.TellRollBack
    | c.TellLineMoved
    | c.TellRound
    | c.TellCut
    | AdmitWrite
    | GrantTurn
)
"""Effects that tell a node's process something."""


def word_of(effect: Telling) -> ToNode:
    """What the process is told."""
    word: ToNode = _WORD_OF[type(effect)](effect)
    return word


def _assignment(effect: c.SendAssignment) -> told.AssignmentReceived:
    given = effect.assignment
    peers = tuple(_peer(each) for each in effect.peers)
    return told.AssignmentReceived(
        given.epoch,
        given.incarnation,
        given.restart_point,
        given.is_secondary,
        peers,
        given.rounds_over,
    )


def _peer(effect: c.TellPeer) -> told.PeerTold:
    return told.PeerTold(effect.peer, effect.incarnation, effect.endpoint, effect.secondary)


_WORD_OF: Final[dict[type[Effect], Callable[[Any], ToNode]]] = {
    c.SendAssignment: _assignment,
    c.TellPeer: _peer,
    c.SendPromotion: lambda e: told.PromotionReceived(e.incarnation, e.restart_point),
    c.TellPointStored: lambda effect: RestartPointStored(effect.sequence),
    c.TellFloor: lambda effect: told.FloorTold(effect.stream, effect.floor_us),
    c.TellHalt: lambda effect: told.HaltTold(effect.attempt),
    c.TellGoOn: lambda effect: told.GoOnTold(effect.attempt, effect.resumed),
    c.TellRollBack: lambda effect: told.RollBackTold(effect.attempt),
    c.TellLineMoved: lambda effect: told.LineTold(effect.sequence),
    c.TellRound: lambda effect: told.RoundTold(effect.begun, effect.over),
    c.TellCut: lambda _: told.CutTold(),
    AdmitWrite: lambda _: WriteAdmitted(),
    GrantTurn: lambda effect: TurnGranted(effect.asking),
}
