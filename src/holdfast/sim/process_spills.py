"""What the output queues of a simulated process have spilled, on the disk of its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.model.tuples import between as tuples_between
from holdfast.sim.disk import Damage, SimulatedLog

if TYPE_CHECKING:
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.sim.process import Process
    from holdfast.sim.world import World


class ProcessSpills:
    """Writes and reads spill logs for one process.

    Attributes:
        logs: By stream.
    """

    def __init__(self, process: Process, world: World) -> None:
        """Nothing is spilled."""
        self._process = process
        self._world = world
        self.logs: dict[StreamId, SimulatedLog] = {}

    def write(self, effect: events.SpillBatches) -> None:
        """What an output queue does not hold in memory goes to disk."""
        if self._process.dies_of_a_full_disk():
            return
        born = self._process.core.born
        log = self.logs.get(effect.stream)
        if log is None:
            schema = effect.batches[0].batch.schema
            log = self.logs[effect.stream] = SimulatedLog(effect.stream, schema)
            log.open(born, self._process.endpoint.machine, effect.batches[0].first_id)
        if effect.batches[0].first_id > log.next_id(born):
            log.skip_to(born, effect.batches[0].first_id)
        for batch in effect.batches:
            log.append(born, batch)

    def read(self, effect: events.ReadSpill) -> None:
        """Read some of it back."""
        batches = self.between(effect.stream, effect.from_id, effect.to_id)
        self._world.count("spill read")
        read = events.SpillRead(effect.stream, effect.request_id, batches)
        self._process.answer(read, self._process.disk_us())

    def between(self, stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        """What an output queue has spilled. Raises `Damage` if it is gone."""
        log = self.logs.get(stream)
        batches = tuples_between(log.read(), from_id, to_id) if log is not None else ()
        found = sum(batch.count for batch in batches)
        if found != to_id - from_id:
            raise Damage(f"{stream}: {found} of {to_id - from_id} spilled tuples")
        return batches
