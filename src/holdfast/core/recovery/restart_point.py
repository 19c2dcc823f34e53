"""From where a node without a copy of its state can be rebuilt, and how.

A restart point is taken between two passes of a node. It names, for every input stream, the oldest
tuple that the state of that moment, or an output still needed downstream, depends on: the low
watermark of [HA §5.2.2]. A replacement replays from there. Up to the cut it processes in silence
(the outputs of that time were produced by its predecessor and are accounted for), from the cut on
it numbers its outputs from `next_ids`, so that they carry the very ids they would have had.

The cut: for a node with one input stream the tuples before `processed_before`; for a node whose
inputs are merged by time, the tuples older than `boundary_us`.

A point with a checkpoint needs no replay in silence: the state of the cut is loaded, with what was
put out before it and may still be needed. Tuples that the cut has processed are dropped by id, and,
where inputs are merged by time, by time. Behind it stand the older points that its node could still
start from, should this one's checkpoint turn out to be damaged; the last of them may be the very
beginning. So level-1 acknowledgements follow the oldest. [SGuard §3]

A point becomes *safe* when every output stream's receiver no longer needs anything before
`next_ids` (a checkpoint holds that itself, except for what is in sinks' logs). Only a safe point
that the coordinator has stored may move level-1 acknowledgements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

from holdfast.core.model.dropped import Ranges, require_followed
from holdfast.core.model.ids import BEGINNING_US, CheckpointId, Incarnation
from holdfast.core.recovery.loop_state import LoopState

_PASSES_FORMERLY: Final = "rounds"


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Leads to a checkpoint in the store.

    Attributes:
        checkpoint: Its name.
        checksum: Of its manifest, which holds those of all other parts.
        bases: The earlier checkpoints that unchanged parts are stored with.
    """

    checkpoint: CheckpointId
    checksum: int
    bases: tuple[CheckpointId, ...] = ()

    def parts(self) -> tuple[CheckpointId, ...]:
        """All checkpoints whose files it needs."""
        return (self.checkpoint, *self.bases)

    def to_json(self) -> dict[str, object]:
        """Plain values for messages and the catalogue."""
        return {
            "checkpoints": [[c.sequence, c.incarnation] for c in self.parts()],
            "checksum": self.checksum,
        }

    @staticmethod
    def from_json(value: object) -> CheckpointRef:
        """The inverse of `to_json`. Raises `ValueError` on anything else."""
        match value:
            case {"checkpoints": [_, *_] as parts, "checksum": int(checksum)}:
                checkpoint, *bases = (_checkpoint(part) for part in parts)
                return CheckpointRef(checkpoint, checksum, tuple(bases))
        raise ValueError("a checkpoint needs `checkpoints` and an integer `checksum`")


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """One restart point.

    Attributes:
        sequence: Counts the points of a node, over all its incarnations.
        needed_from: Per input stream the oldest id to replay (kept; level-1 position).
        processed_before: Per input stream the id up to which tuples were processed (exclusive).
        boundary_us: The boundary the node had acted on.
        next_ids: Per output stream the id of the next output.
        checkpoint: The state of the cut; None: it is rebuilt by replaying in silence.
        rebased: Per input stream that its producer has rebased, the incarnation that did; ids here
            are those that it gives.
        older: Points to fall back on, newest first, without points of their own.
        next_notes: Per input stream that has had notes, the lowest number of a note that is needed
            again. With a checkpoint what was made of notes is kept: they are needed from the cut
            on, whatever tuples are.
        held_from: Per output stream the oldest tuple that can be sent again from this point on; one
            that is missing can be sent from its beginning on. Only nodes that cut with others say
            so; what others hold follows from what receivers have acknowledged.
        round: Of coordinated checkpoints the round; 0: of none.
        promised: Per output stream the boundary that had been promised; said as `held_from` is.
        clock_us: The processing time of the cut, where passes have one, none is logged, and the
            state of the cut is kept.
        clocks: Where others can force checkpoints, what is known of them: a state of the cut rule.
        is_forced: Whether it was taken for what others said.
        laps: In a loop, per stream the last mark that was taken, or put.
        predicted_us: Of windows with footprints, how long their node thinks recovery would take,
            from the decision that it is lost; 0: it does not say.
        dropped: Per input stream the tuples that a replacement leaves out: corrections of its node
            went without them. [DPC]
        horizon: Per input stream of a node that drops input: before this id tuples may have been
            processed as stable (haunit/drop_ledger.py), from there on none has been. [DPC]
        taking_part: Per operator that stands behind state the cut from which on it takes part in a
            replay (haunit/taking_part.py), with the ids at which that begins; those that are not
            named take part from there on. [HA]
        is_mirrored: Whether the state of the cut is with the node's secondary alone. [HA §4.1]
        loop: In a loop, what is known of laps; None: nothing, or an older version has not said it.
    """

    sequence: int = 0
    needed_from: dict[str, int] = field(default_factory=dict)
    processed_before: dict[str, int] = field(default_factory=dict)
    boundary_us: int = BEGINNING_US
    next_ids: dict[str, int] = field(default_factory=dict)
    checkpoint: CheckpointRef | None = None
    rebased: dict[str, int] = field(default_factory=dict)
    older: tuple[RestartPoint, ...] = ()
    next_notes: dict[str, int] = field(default_factory=dict)
    held_from: dict[str, int] = field(default_factory=dict)
    round: int = 0
    promised: dict[str, int] = field(default_factory=dict)
    clock_us: int = 0
    clocks: tuple[int, ...] = ()
    is_forced: bool = False
    laps: dict[str, int] = field(default_factory=dict)
    predicted_us: int = 0
    dropped: dict[str, Ranges] = field(default_factory=dict)
    horizon: dict[str, int] = field(default_factory=dict)
    taking_part: dict[str, RestartPoint] = field(default_factory=dict)
    is_mirrored: bool = False
    loop: LoopState | None = None

    def candidates(self) -> tuple[RestartPoint, ...]:
        """All points that its node can start from, best first, each without the others."""
        return (replace(self, older=()), *self.older)

    def oldest(self) -> RestartPoint:
        """The one whose needs upstream must keep."""
        return self.candidates()[-1]

    @property
    def holds_outputs(self) -> bool:
        """Whether what was put out before it is kept with its state."""
        return self.checkpoint is not None or self.is_mirrored

    def to_json(self) -> dict[str, object]:
        """Plain values for messages and the catalogue."""
        value: dict[str, object] = {
            "sequence": self.sequence,
            "needed_from": self.needed_from,
            "processed_before": self.processed_before,
            "boundary_us": self.boundary_us,
            "next_ids": self.next_ids,
        }
        if self.checkpoint is not None:
            value["checkpoint"] = self.checkpoint.to_json()
        if self.rebased:
            value["rebased"] = self.rebased
        if self.next_notes:
            value["next_notes"] = self.next_notes
        if self.held_from:
            value["held_from"] = self.held_from
        if self.round:
            value["round"] = self.round
        if self.promised:
            value["promised"] = self.promised
        if self.clock_us:
            value["clock_us"] = self.clock_us
        if self.clocks:
            value["clocks"] = list(self.clocks)
        if self.is_forced:
            value["is_forced"] = True
        if self.laps:
            value["laps"] = self.laps
        if self.loop is not None:
            value["loop"] = self.loop.to_json()
        if self.predicted_us:
            value["predicted_us"] = self.predicted_us
        if self.dropped:
            value["dropped"] = {name: [*map(list, each)] for name, each in self.dropped.items()}
        if self.horizon:
            value["horizon"] = self.horizon
        if self.taking_part:
            parts = self.taking_part.items()
            value["taking_part"] = {name: cut.to_json() for name, cut in parts}
        if self.is_mirrored:
            value["is_mirrored"] = True
        if self.older:
            value["older"] = [point.to_json() for point in self.older]
        return value

    @staticmethod
    def from_json(value: object) -> RestartPoint:
        """The inverse of `to_json`. Raises `ValueError` on anything else."""
        if not isinstance(value, dict):
            raise ValueError("a restart point is an object")
        sequence, boundary = value.get("sequence"), value.get("boundary_us")
        if not _is_number(sequence) or not _is_number(boundary):
            raise ValueError("a restart point needs integers `sequence` and `boundary_us`")
        checkpoint, round_ = value.get("checkpoint"), value.get("round", 0)
        clock_us, is_forced = value.get("clock_us", 0), value.get("is_forced", False)
        if not _is_number(round_) or round_ < 0:
            raise ValueError("the round of a restart point is a count")
        if not _is_number(clock_us) or clock_us < 0:
            raise ValueError("the clock of a restart point is a time")
        predicted_us = value.get("predicted_us", 0)
        if not _is_number(predicted_us) or predicted_us < 0:
            raise ValueError("the predicted recovery of a restart point is a time")
        is_mirrored = value.get("is_mirrored", False)
        if type(is_forced) is not bool or type(is_mirrored) is not bool:
            raise ValueError("a restart point was forced, or not, and mirrored, or not")
        return RestartPoint(
            sequence,
            _ids(value.get("needed_from")),
            _ids(value.get("processed_before")),
            boundary,
            _ids(value.get("next_ids")),
            None if checkpoint is None else CheckpointRef.from_json(checkpoint),
            _ids(value.get("rebased", {})),
            tuple(RestartPoint.from_json(point) for point in _list(value.get("older", []))),
            _ids(value.get("next_notes", {})),
            _ids(value.get("held_from", {})),
            round_,
            _ids(value.get("promised", {})),
            clock_us,
            _clocks(value.get("clocks", [])),
            is_forced,
            _ids(value.get("laps", {})),
            predicted_us,
            _dropped(value.get("dropped", {})),
            _ids(value.get("horizon", {})),
            _cuts(value.get("taking_part", {})),
            is_mirrored,
            LoopState.from_json(value["loop"]) if "loop" in value else None,
        )


def _checkpoint(value: object) -> CheckpointId:
    match value:
        case [int(sequence), int(incarnation)]:
            return CheckpointId(sequence, Incarnation(incarnation))
    raise ValueError("a checkpoint is named by two integers")


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and -(2**63) <= value < 2**63


def _list(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("the older restart points are no list of objects")
    return value


def _cuts(value: object) -> dict[str, RestartPoint]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError("from where on operators take part is said by their names")
    return {name: RestartPoint.from_json(cut) for name, cut in value.items()}


def _clocks(value: object) -> tuple[int, ...]:
    """Counts and sets of bits: whole numbers of any size, none negative."""
    if not isinstance(value, list) or not all(type(c) is int and c >= 0 for c in value):
        raise ValueError("the clocks of a restart point are no list of counts")
    return tuple(value)


def _dropped(value: object) -> dict[str, Ranges]:
    if not isinstance(value, dict):
        raise ValueError("what is dropped is said by stream")
    found: dict[str, Ranges] = {}
    for stream, ranges in value.items():
        if not isinstance(stream, str) or not isinstance(ranges, list):
            raise ValueError("what is dropped of a stream is a list")
        found[stream] = tuple(map(_range, ranges))
        require_followed(found[stream])
    return found


def _range(value: object) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2:
        first, end = value
        if _is_number(first) and _is_number(end):
            return first, end
    raise ValueError("what is dropped lies between two ids")


def _ids(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("a restart point maps streams to ids")
    ids: dict[str, int] = {}
    for stream, tuple_id in value.items():
        if not isinstance(stream, str) or not _is_number(tuple_id):
            raise ValueError("a restart point maps streams to ids")
        ids[_name_of(stream)] = tuple_id
    return ids


def _name_of(stream: str) -> str:
    """The name of a stream today; earlier versions called a node's pass log another way."""
    node, _, kind = stream.rpartition("~")
    return f"{node}~passes" if node and kind == _PASSES_FORMERLY else stream
