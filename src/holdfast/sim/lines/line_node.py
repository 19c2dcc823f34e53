"""A node of the small world: what it processed and sent is its state, as lists of tuples.

A tuple is a label and how many more nodes it may go through. An arbitrary node gives every tuple a
label that was never given before, so that whatever it does again differs; a determined one derives
it from its input's. Queues hold labels; what would have been trimmed is remembered by `held` alone,
and asking for it is a violation.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.model.ids import NO_ID, NOBODY, CheckpointId, Incarnation
from holdfast.core.recovery.checkpoint_graph import LIVE, Place
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.sim.checkers.base import Violation
from holdfast.sim.lines.region import rule_of

if TYPE_CHECKING:
    from random import Random

    from holdfast.core.checkpoint.cut_rule import CutRule
    from holdfast.core.coordinator.region import TellLine
    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.core.model.notes import StreamNote
    from holdfast.sim.lines.region import LineSpec

Label = tuple[str, int]
"""A tuple: its label, and through how many more nodes what comes of it may go."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint: all that a node goes on from.

    Attributes:
        point: The restart point that leads to it.
        incarnation: Who took it.
        processed: Per input all tuples processed before it.
        sent: Per output all tuples sent before it; the recovered node may use what it holds.
        notes: Per output those that stand before tuples that it holds.
        rule: The state of the cut rule.
    """

    point: RestartPoint
    incarnation: Incarnation
    processed: dict[StreamId, list[Label]]
    sent: dict[StreamId, list[Label]]
    notes: dict[StreamId, list[tuple[int, StreamNote]]]
    rule: tuple[int, ...]


@dataclass(slots=True)
class Subscription:
    """What a receiver has asked for, and how far it has been served.

    Attributes:
        receiver: Its incarnation.
        next_id: The next tuple to send.
        notes: How many notes of the stream have been sent or are older.
        round: The newest round that it has cut for, as it said last.
        cut: Where its cut for that was.
        processed: How far it has processed.
    """

    receiver: Incarnation = NOBODY
    next_id: int = 0
    notes: int = 0
    round: int = NO_ROUND
    cut: int = 0
    processed: int = 0


@dataclass(slots=True)
class LineNode:
    """One incarnation of a node, or several in one process.

    Attributes:
        spec: Its part of the dataflow.
        protocol: Which cut rule it has.
        incarnation: Which one it is.
        peers: The incarnations that count.
        sequence: Of its newest point.
        is_halted: It processes nothing.
        over: The newest round that it was told is over.
    """

    spec: LineSpec
    protocol: str
    incarnation: Incarnation
    peers: dict[NodeId, Incarnation]
    labels: itertools.count[int]
    sequence: int = 0
    is_halted: bool = False
    over: int = NO_ROUND
    received: dict[StreamId, int] = field(default_factory=dict)
    pending: dict[StreamId, deque[Label]] = field(default_factory=dict)
    processed: dict[StreamId, list[Label]] = field(default_factory=dict)
    sent: dict[StreamId, list[Label]] = field(default_factory=dict)
    notes: dict[StreamId, list[tuple[int, StreamNote]]] = field(default_factory=dict)
    held: dict[StreamId, int] = field(default_factory=dict)
    served: dict[StreamId, Subscription] = field(default_factory=dict)
    is_subscribed: dict[StreamId, bool] = field(default_factory=dict)
    notes_from: dict[StreamId, int] = field(default_factory=dict)
    cuts: dict[StreamId, int] = field(default_factory=dict)
    gate: int = 0
    unwritten: list[Snapshot] = field(default_factory=list)
    rule: CutRule = field(init=False)

    def __post_init__(self) -> None:
        """Begin at the beginning."""
        self.rule = rule_of(self.protocol, self.spec)
        for stream in self.spec.inputs:
            self.received[stream] = self.cuts[stream] = self.notes_from[stream] = 0
            self.pending[stream] = deque()
            self.processed[stream] = []
            self.is_subscribed[stream] = False
        for stream in (*self.spec.outputs, self.spec.sink):
            self.sent[stream] = []
            self.notes[stream] = []
            self.held[stream] = 0
            self.served[stream] = Subscription()

    # -- a pass -----------------------------------------------------------------------------

    def stands_at(self) -> tuple[int, ...]:
        """Per input how much has been processed."""
        return tuple(len(self.processed[stream]) for stream in self.spec.inputs)

    def proceed(self, rng: Random, source: list[Label], written: int) -> None:
        """Cut if that is due, and run one pass.

        Args:
            rng: How much is taken, and what arbitrary nodes make of it.
            source: What its source holds.
            written: How long its sink's log is.
        """
        if self.is_halted:
            return
        while self.rule.is_due(self.stands_at()):
            self.cut(written)
        self.rule.begin_pass(self.stands_at())
        taken: list[Label] = []
        for stream, limit in zip(self.spec.inputs, self.rule.limits(), strict=True):
            taken += self._take_tuples(stream, min(limit, self._most(rng, stream, source)), source)
        for label in taken:
            self._process(label, rng)

    def _most(self, rng: Random, stream: StreamId, source: list[Label]) -> int:
        has = len(source) if self._is_source(stream) else self.received[stream]
        done = len(self.processed[stream])
        return done + rng.randint(0, min(4, has - done)) if has > done else done

    def _is_source(self, stream: StreamId) -> bool:
        return self.spec.has_source and stream == self.spec.inputs[0]

    def _take_tuples(self, stream: StreamId, before: int, source: list[Label]) -> list[Label]:
        done = self.processed[stream]
        count = max(0, before - len(done))
        if self._is_source(stream):
            labels = source[len(done) : len(done) + count]
        else:
            queue = self.pending[stream]
            labels = [queue.popleft() for _ in range(min(count, len(queue)))]
        done += labels
        return labels

    def _process(self, label: Label, rng: Random) -> None:
        text, hops = label
        for index, stream in enumerate(self.spec.outputs):
            if hops and (self.spec.is_determined or rng.random() < 0.7):
                note = self.rule.before_output(index)
                if note is not None:
                    self.notes[stream].append((len(self.sent[stream]), note))
                self.sent[stream].append((self._made_of(text), hops - 1))
        self.sent[self.spec.sink].append((self._made_of(text), 0))

    def _made_of(self, text: str) -> str:
        name = self.spec.name
        return f"{name}({text})" if self.spec.is_determined else f"{name}#{next(self.labels)}"

    # -- cuts -------------------------------------------------------------------------------

    def cut(self, written: int) -> None:
        """Take a checkpoint; it is durable later, or never."""
        self.sequence += 1
        note = self.rule.cut(CheckpointId(self.sequence, self.incarnation), self.stands_at())
        if self.rule.round() != NO_ROUND and self.rule.round() <= self.over:
            raise Violation("I-CTRL", f"{self.spec.name} cut for round {self.rule.round()}")
        self.cuts = {stream: len(self.processed[stream]) for stream in self.spec.inputs}
        if note is not None:
            for stream in self.spec.outputs:
                self.notes[stream].append((len(self.sent[stream]), note))
        held = {stream: self._stored_from(index) for index, stream in enumerate(self.spec.outputs)}
        held[self.spec.sink] = written
        self.unwritten.append(
            Snapshot(
                self._point(held),
                self.incarnation,
                {stream: list(labels) for stream, labels in self.processed.items()},
                {stream: list(labels) for stream, labels in self.sent.items()},
                {s: [n for n in notes if n[0] >= held[s]] for s, notes in self.notes.items()},
                self.rule.state(),
            )
        )

    def _point(self, held: dict[StreamId, int]) -> RestartPoint:
        place = self.place()
        return RestartPoint(
            self.sequence,
            processed_before={**place.processed_before},
            next_ids={**place.next_ids},
            held_from={str(stream): at for stream, at in held.items()},
            round=self.rule.round(),
        )

    def place(self) -> Place:
        """Where it stands."""
        return Place(
            LIVE,
            {stream: len(labels) for stream, labels in self.processed.items()},
            {stream: len(labels) for stream, labels in self.sent.items()},
            {str(stream): at for stream, at in self.held.items()},
        )

    def _stored_from(self, output: int) -> int:
        """From which id on a checkpoint at this cut holds an output."""
        stream = self.spec.outputs[output]
        if self.protocol == "aligned" and not self.spec.keeps[output]:
            return len(self.sent[stream])
        if self.protocol in ("aligned", "unaligned"):
            said = self.served[stream]
            is_cut = said.round == self.rule.round()
            return max(self.held[stream], said.cut if is_cut else self.floor(said))
        return self.held[stream]

    @staticmethod
    def floor(said: Subscription) -> int:
        """What a receiver that has not cut yet may still need after its cut."""
        return said.processed

    def trim(self, line: TellLine) -> None:
        """The oldest line that recovery may go back to has moved."""
        for stream in self.spec.outputs:
            self.held[stream] = max(self.held[stream], line.needed_from[stream])
        self.gate = max(self.gate, line.next_ids.get(self.spec.sink, 0))

    def lets_out_before(self) -> int:
        """The id up to which results may leave."""
        return NO_ID if self.spec.repeats else self.gate

    # -- streams ----------------------------------------------------------------------------

    def receive(self, stream: StreamId, tuple_id: int, label: Label) -> None:
        """The next tuple of an input; what has come before is dropped."""
        if tuple_id > self.received[stream]:
            raise Violation("I-ID", f"{stream}: {tuple_id} after {self.received[stream]}")
        if tuple_id == self.received[stream]:
            self.pending[stream].append(label)
            self.received[stream] += 1

    def subscribe(
        self,
        stream: StreamId,
        receiver: Incarnation,
        from_id: int,
        notes_from: int,
        *at: int,
    ) -> None:
        """A receiver asks for an output; `at`: the round and place of its cut, and where it is.

        One that lives on has perhaps cut for a round that is under way, and has gone on since.
        """
        if from_id < self.held[stream]:
            raise Violation(
                "I-CHANNEL", f"{stream}: {from_id} is gone, {self.held[stream]} is left"
            )
        notes = sum(before < notes_from for before, _ in self.notes[stream])
        self.served[stream] = Subscription(receiver, from_id, notes, *at)

    def next_frame(self, stream: StreamId) -> tuple[int, Label] | tuple[int, StreamNote] | None:
        """What is to be sent next on an output, which is then sent."""
        serving = self.served[stream]
        notes = self.notes[stream]
        if serving.notes < len(notes) and notes[serving.notes][0] <= serving.next_id:
            serving.notes += 1
            return notes[serving.notes - 1]
        if serving.next_id >= len(self.sent[stream]):
            return None
        serving.next_id += 1
        return serving.next_id - 1, self.sent[stream][serving.next_id - 1]

    # -- going back -------------------------------------------------------------------------

    def go_on(
        self, peers: dict[NodeId, Incarnation], resumes_at: dict[str, int], over: int
    ) -> None:
        """A recovery was decided: these incarnations count, and what others sent is void."""
        for i, stream in enumerate(self.spec.inputs):
            sender = self.spec.senders[i]
            if sender and peers[sender] != self.peers[sender]:
                self.is_subscribed[stream] = False
                resumed = resumes_at.get(stream, self.received[stream])
                if sender not in self.spec.repeating:
                    self.drop_void(stream, resumed)
                self.notes_from[stream] = min(resumed, self.received[stream])
                self.rule.dropped(i, self.notes_from[stream])
        for stream, receiver in zip(self.spec.outputs, self.spec.receivers, strict=True):
            if peers[receiver] != self.peers[receiver]:
                self.forget(stream)
        self.peers = dict(peers)
        self.is_halted = False
        self.over = max(self.over, over)
        self.rule.over(over)

    def forget(self, stream: StreamId) -> None:
        """What an earlier incarnation of a receiver said counts no more: it had processed more."""
        self.served[stream] = Subscription()

    def drop_void(self, stream: StreamId, from_id: int) -> None:
        """What waits of a stream and will come with other tuples is forgotten."""
        kept = max(from_id, len(self.processed[stream]))
        while self.received[stream] > kept:
            self.pending[stream].pop()
            self.received[stream] -= 1

    def go_back(self, snapshot: Snapshot | None, incarnation: Incarnation) -> None:
        """Everything is as it was at a checkpoint, or at the beginning."""
        self.incarnation = incarnation
        self.unwritten = []
        self.served = {stream: Subscription() for stream in self.served}
        self.rule = rule_of(self.protocol, self.spec)
        if snapshot is None:
            self.processed = {stream: [] for stream in self.processed}
            self.sent = {stream: [] for stream in self.sent}
            self.notes = {stream: [] for stream in self.notes}
            self.held = dict.fromkeys(self.held, 0)
        else:
            self.processed = {s: list(labels) for s, labels in snapshot.processed.items()}
            self.sent = {s: list(labels) for s, labels in snapshot.sent.items()}
            self.notes = {s: list(notes) for s, notes in snapshot.notes.items()}
            self.held = {stream: snapshot.point.held_from[stream] for stream in self.held}
            self.restore_rule(snapshot)
        for stream in self.spec.inputs:
            done = len(self.processed[stream])
            self.received[stream] = self.cuts[stream] = self.notes_from[stream] = done
            self.pending[stream].clear()
            self.is_subscribed[stream] = False

    def restore_rule(self, snapshot: Snapshot) -> None:
        """The cut rule's state belongs to the checkpoint."""
        self.rule.restore(snapshot.rule)
