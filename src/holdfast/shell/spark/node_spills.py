"""The spill logs of a node: retained output tuples that do not fit into memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.shell.spark.node_channels import output_schemas
from holdfast.shell.spark.node_sinks import append
from holdfast.shell.storage.errors import SpillLost, StorageError
from holdfast.shell.storage.logs import LogWriter, open_writer
from holdfast.shell.storage.range_reader import RangeReader, read_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.haunit.life import NodeLife
    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.shell.spark.task_spec import TaskSpec


class NodeSpills:
    """Writes them, reads them back, and trims them. They are of a process, not of an incarnation:
    a promotion does not change where they are."""

    def __init__(self, spec: TaskSpec, life: NodeLife, tell: Callable[[Stimulus], None]) -> None:
        """None is open; `tell` takes the answers."""
        self._spec = spec
        self._life = life
        self._tell = tell
        self._schemas = output_schemas(spec)
        self._numbers = {stream: number for number, stream in enumerate(self._schemas)}
        self._writers: dict[StreamId, LogWriter] = {}
        self._replays: dict[StreamId, RangeReader] = {}

    def write(self, effect: events.SpillBatches) -> None:
        """Append; the first time the log is made."""
        first_id = effect.batches[0].first_id
        writer = self._writers.get(effect.stream)
        if writer is None:
            writer = self._writers[effect.stream] = self._open(effect.stream, first_id)
        if first_id > writer.next_id:  # Trimmed before it was spilled.
            writer.skip_to(first_id)
        for batch in effect.batches:
            append(writer, batch)

    def _open(self, stream: StreamId, first_id: int) -> LogWriter:
        return open_writer(
            self._folder(stream),
            self._schemas[stream],
            stream,
            self._life.born,
            first_id=first_id,
            is_lasting=False,
        )

    def _folder(self, stream: StreamId) -> str:
        return os.path.join(self._spec.spill_path, f"{self._numbers[stream]}-{self._life.born}")

    def _published(self, stream: StreamId) -> str:
        writer = self._writers.get(stream)
        if writer is not None:
            writer.publish()
        return self._folder(stream)

    def read(self, effect: events.ReadSpill) -> None:
        """Read a range back. Raises `SpillLost` if it is gone."""
        try:
            place = self._published(effect.stream)
            replay = self._replays.setdefault(effect.stream, RangeReader(place))
            batches = replay.read(effect.from_id, effect.to_id)
        except StorageError as error:
            raise SpillLost(f"{effect.stream}: {error}") from error
        self._tell(events.SpillRead(effect.stream, effect.request_id, batches))

    def read_range(self, stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        """For a checkpoint, in another thread. Raises `StorageError` if it is gone."""
        return read_range(self._published(stream), from_id, to_id)

    def trim(self, effect: events.TrimSpill) -> None:
        """Nothing before an id is read again."""
        writer = self._writers.get(effect.stream)
        if writer is not None:
            writer.trim(effect.before)
        replay = self._replays.get(effect.stream)
        if replay is not None:
            replay.trim(effect.before)

    def close(self) -> None:
        """Close all of them."""
        for writer in self._writers.values():
            writer.close()
        for replay in self._replays.values():
            replay.close()
