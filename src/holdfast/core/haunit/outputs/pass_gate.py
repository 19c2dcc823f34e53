"""What an arbitrary node lets out: what was made by passes that are durable in its log. [HA §6]

Theory of operation. What is put out between `begin` and `end` of a pass is one hold of a `Gate`,
with the pass's number. The pass is written to the log as it begins; when the log has it on disk,
its hold opens. A secondary runs what its primary has logged: it writes no pass, and its gate holds
nothing; promoted, it holds from where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.outputs.gate import Gate

if TYPE_CHECKING:
    from holdfast.core.haunit.outputs.pass_log import PassLog
    from holdfast.core.haunit.outputs.places import OutputPlaces
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId


class PassGate:
    """The gate before all outputs of an arbitrary node's incarnation. Volatile: all fields."""

    def __init__(self, log: PassLog, places: OutputPlaces) -> None:
        """Everything that has been put out may leave.

        Args:
            log: Of the passes; one of the sinks.
            places: All outputs.
        """
        self.log = log
        self._places = places
        self._gate = Gate(places.next_ids)
        self.hold_from_now()

    @property
    def is_holding(self) -> bool:
        """Whether what is put out now has to wait."""
        return self._gate.is_holding

    def begin(self, pass_: Pass, *, is_secondary: bool) -> list[Effect]:
        """What is put out from now on is this pass's; unless the log has it, write it there.

        It is open at once if the pass is durable already.
        """
        self.log.next_id = pass_.number + 1
        if is_secondary:
            return []  # It runs what the primary has logged, and puts nothing out.
        effects = self.log.log(pass_)
        self._gate.begin(pass_.number)
        return effects

    def end(self) -> list[Effect]:
        """The newest pass has put out everything; what may leave by now leaves."""
        if self._gate.is_holding:
            self._gate.end(self._places.next_ids, self._places.next_notes)
            return self.open()
        return []

    def open(self) -> list[Effect]:
        """Open for all passes that are durable."""
        opened = self._gate.open_before(self.log.durable_before)
        if opened is None:
            return []
        self._places.open_edges(opened)
        effects: list[Effect] = []
        for stream, sink in self._places.sinks.items():
            effects += sink.let_out(opened.next_ids[stream])
        return effects

    def hold_from_now(self) -> None:
        """Nothing that is put out from now on may be sent before the gate opens."""
        self._gate.open_ids = self._places.next_ids
        for edge in self._places.edges.values():
            edge.queue.shut()

    def noted(self) -> None:
        """Notes have been put on outputs: they leave with the newest pass, or at once."""
        if self._gate.stretch(self._places.next_notes):
            self.hold_from_now()

    def placed(self, stream: StreamId, next_id: int) -> None:
        """A receiver has named the id from which a stream is numbered."""
        self._gate.open_ids = {**self._gate.open_ids, stream: next_id}

    def promise(self, streams: tuple[StreamId, ...], boundary_us: int) -> None:
        """What is promised now is promised when the newest pass is durable."""
        self._gate.promise(streams, boundary_us)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when holds do not follow one another."""
        self._gate.check_invariants()
