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
    from holdfast.shell.spark.task_spec import TaskSpec


class NodeSources:
    """Opens and reads them, and has the loop wake up when one of them stirs.

    Attributes:
        late_rows: Per source stream, as of the last read.
    """

    def __init__(
        self, spec: TaskSpec, poller: zmq.Poller, tell: Callable[[Stimulus], None]
    ) -> None:
        """Nothing is open; `tell` takes the answers."""
        self._spec = spec
        self._poller = poller
        self._tell = tell
        self._readers: dict[StreamId, SourceReader] = {}
        self._descriptors: dict[StreamId, int] = {}  # of sources that tell when to read them
        self._listened_to: dict[int, StreamId] = {}  # those that have been read since they did
        self.late_rows: dict[StreamId, int] = {}

    def open(self, effect: OpenSources) -> None:
        """Open those that are not open yet; lead those that have a log of their own to fill."""
        try:
            for stream, source in self._spec.sources.items():
                if stream not in self._readers:
                    reader = self._readers[stream] = source.open()
                    self._descriptors[stream] = stirs(reader)
            if effect.leads_as != NOBODY:
                self._lead(effect.leads_as)
        except StorageError as error:
            self._tell(OpeningFailed(effect.request_id, error))
        else:
            self._tell(SourcesOpened(effect.request_id))

    def _lead(self, incarnation: Incarnation) -> None:
        for source in self._readers.values():
            lead = getattr(source, "lead", None)
            if lead is not None:
                lead(incarnation)

    def read(self, effect: events.ReadSource) -> None:
        """What there is from an id on."""
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
