"""The log of an arbitrary node's passes, which is written like a sink's. [HA §6]

It has one record per pass, whose number is its id. Another pass may begin while one is being made
durable; those that come in the meantime share the next sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.events import SyncSink, WriteSink
from holdfast.core.haunit.outputs.sink import Sink

if TYPE_CHECKING:
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.machine import Effect


class PassLog(Sink):
    """The log of passes of one incarnation. Volatile: all fields; the log itself is durable."""

    is_syncing = False

    def log(self, pass_: Pass) -> list[Effect]:
        """Write a pass, unless the log has it."""
        if pass_.number >= self.written_before:
            self.written_before = pass_.number + 1
            return [WriteSink(self.stream, pass_.to_batch()), *self.sync()]
        return []

    def sync(self) -> list[Effect]:
        """One sync at a time, and at once when there is something to be made durable."""
        if not self.is_syncing and self.durable_before < self.written_before:
            self.is_syncing = True
            return [SyncSink(self.stream)]
        return []

    def synced(self, durable_before: int) -> None:
        """The log is on disk up to a pass."""
        super().synced(durable_before)
        self.is_syncing = False

    def end(self) -> list[Effect]:
        """It never ends: nobody reads on behind the last pass."""
        return []
