"""The log of a node's footprints, which is written like a sink's. [CEC §III]

Each record goes in whole, and there is nothing to be numbered: a replacement appends behind all
that it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.events import WriteSink
from holdfast.core.haunit.outputs.sink import Sink

if TYPE_CHECKING:
    from holdfast.core.machine import Effect
    from holdfast.core.model.tuples import TupleBatch


class FootprintLog(Sink):
    """The footprint log of one incarnation. Volatile: all fields; the log itself is durable."""

    def append(self, record: TupleBatch) -> list[Effect]:
        """Write a record; it is made durable with the next acknowledgements."""
        self.next_id = self.written_before = record.next_id
        self.is_sync_due = True
        return [WriteSink(self.stream, record)]

    def end(self) -> list[Effect]:
        """It never ends: nobody reads on behind the last record."""
        return []
