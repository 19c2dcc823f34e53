"""The sources that a node reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zmq

from holdfast.core.coordinator import reports
from holdfast.core.haunit import events, told
from holdfast.core.haunit.life_events import OpeningFailed, OpenSources, SourcesOpened
from holdfast.core.haunit.node import Node
from holdfast.core.model.ids import NO_ID, NOBODY
from holdfast.shell.sources.base import SourceReader, newest_id, stirs
from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.haunit.standby_replica import StandbyReplica
    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import Incarnation, StreamId
    from holdfast.core.queues.idle_floor import Reached
    from holdfast.shell.spark.bring_up import BringUp
    from holdfast.shell.spark.task_spec import TaskSpec


class NodeSources:
    """Opens and reads them, and has the loop wake up when one of them stirs.

    Attributes:
        late_rows: Per source stream, as of the last read.
    """

    def __init__(
        self,
        spec: TaskSpec,
        poller: zmq.Poller,
        tell: Callable[[Stimulus], None],
        bring_up: BringUp,
    ) -> None:
        """Nothing is open.

        Args:
            spec: How to open them.
            poller: Of the loop.
            tell: Takes the answers.
            bring_up: Opens them.
        """
        self._spec = spec
        self._poller = poller
        self._tell = tell
        self._bring_up = bring_up
        self._is_opening = False
        self._wanted: list[events.ReadSource] = []  # meanwhile
        self._readers: dict[StreamId, SourceReader] = {}
        self._descriptors: dict[StreamId, int] = {}  # of sources that tell when to read them
        self._listened_to: dict[int, StreamId] = {}  # those that have been read since they did
        self.late_rows: dict[StreamId, int] = {}

    def open(self, effect: OpenSources) -> None:
        """Open those that are not open yet; lead those that have a log of their own to fill."""
        self._is_opening = True
        self._bring_up.run("its sources are being opened", lambda: self._open(effect))

    def _open(self, effect: OpenSources) -> Callable[[], None]:
        """In a thread: nobody reads them meanwhile."""
        try:
            opened = {
                stream: source.open()
                for stream, source in self._spec.sources.items()
                if stream not in self._readers
            }
            if effect.leads_as != NOBODY:
                for reader in (*self._readers.values(), *opened.values()):
                    _lead(reader, effect.leads_as)
        except StorageError as error:
            failed = OpeningFailed(effect.request_id, error)
            return lambda: self._tell(failed)
        return lambda: self._go_on(opened, SourcesOpened(effect.request_id))

    def _go_on(self, opened: dict[StreamId, SourceReader], answer: SourcesOpened) -> None:
        """They are open: whoever wanted to read one meanwhile does so now."""
        self._is_opening = False
        self._readers |= opened
        self._descriptors |= {stream: stirs(reader) for stream, reader in opened.items()}
        self._tell(answer)
        wanted, self._wanted = self._wanted, []
        for effect in wanted:
            self.read(effect)

    def read(self, effect: events.ReadSource) -> None:
        """What there is from an id on."""
        if self._is_opening:
            self._wanted.append(effect)
            return
        reader, from_id = self._readers[effect.stream], effect.from_id
        if from_id == NO_ID:
            from_id = newest_id(reader)
        rows = reader.read(from_id, effect.max_tuples)
        self.late_rows[effect.stream] = rows.late_rows
        self._listen_to(effect.stream)
        self._tell(
            events.SourceRead(effect.stream, rows.batches, rows.boundary_us, from_id, rows.quiet_ms)
        )

    def _listen_to(self, stream: StreamId) -> None:
        """Wake up when the source stirs next, if it can tell."""
        descriptor = self._descriptors[stream]
        if descriptor >= 0 and descriptor not in self._listened_to:
            self._listened_to[descriptor] = stream
            self._poller.register(descriptor, zmq.POLLIN)

    def has(self, descriptor: object) -> bool:
        """Whether it is a source that stirs there."""
        return descriptor in self._listened_to

    def stirs(self, descriptor: int) -> None:
        """It will be read, when there is room; until then it has nothing else to say."""
        self._poller.unregister(descriptor)
        self._tell(events.SourceStirred(self._listened_to.pop(descriptor)))

    def tell_floor(self, word: told.FloorTold) -> None:
        """What an idle source may promise."""
        tell = getattr(self._readers.get(word.stream), "tell_floor", None)
        if tell is not None:
            tell(word.floor_us)

    # -- looking ----------------------------------------------------------------------------

    def reached(self) -> dict[StreamId, Reached]:
        """How far those are that may be idle."""
        known = ((s, getattr(source, "reached", None)) for s, source in self._readers.items())
        return {stream: reached for stream, reached in known if reached is not None}

    def odd(self) -> list[str]:
        """What they wait for, and what is odd about them, for people; empty texts included."""
        sources = self._readers.values()
        waiting = [getattr(source, "trouble", "") for source in sources]
        return waiting + [getattr(source, "warning", "") for source in sources]

    def reported(self, node: Node | StandbyReplica) -> dict[StreamId, reports.SourceReported]:
        """How each of them stands."""
        promised = node.source_boundaries() if isinstance(node, Node) else {}
        reached = self.reached()
        return {
            stream: reports.SourceReported(
                getattr(reader, "rows_read", None),
                getattr(reader, "slowest", ""),
                getattr(reader, "is_held_up", False),
                promised.get(stream),
                stream in reached and reached[stream].is_idle,
            )
            for stream, reader in self._readers.items()
        }

    def close(self) -> None:
        """Close all of them."""
        for source in self._readers.values():
            source.close()


def _lead(source: SourceReader, incarnation: Incarnation) -> None:
    lead = getattr(source, "lead", None)
    if lead is not None:
        lead(incarnation)
