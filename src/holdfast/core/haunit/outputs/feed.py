"""A feed: a log beside a sink's, of its tentative tuples and of their corrections. [DPC §3.1]

The sink's log has the stable tuples, exactly once by id. The feed has rows of its own ids, which
count how many it holds: what is in it depends on when input came, and nothing makes it again. An
incarnation goes on where the log ends, and says first that what an earlier one may have left open
is void; when that has been corrected, it cannot know.

What the sink's log holds as stable is never followed by tentative versions of the same tuples.
1. A node has put out 100 stable tuples, and begins again at 80. 2. It is in a failure before it has
come to 100. 3. The first 20 of its tentative tuples stand for those that are there. They are left
out; that may be more than it had to be, as some may be missing among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.outputs.sink import Sink
from holdfast.core.model.feed_rows import control_row, tentative_rows
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType
from holdfast.core.replication.soutput import SOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.outputs.first_output import FirstOutput
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Incarnation, Run, StreamId


class Feed(Sink):
    """The feed of one sink. Volatile: all fields."""

    def __init__(
        self,
        stream: StreamId,
        in_log: int,
        schema: pa.Schema,
        sink: Sink,
        incarnation: Incarnation,
        first_output: FirstOutput,
        sources: int,
    ) -> None:
        """Go on where the log ends.

        Args:
            stream: Its name.
            in_log: The id behind its last row.
            schema: Its attributes.
            sink: The one beside which it stands.
            incarnation: The node's.
            first_output: Told of the first row.
            sources: Source streams that the sink comes from.
        """
        super().__init__(stream, in_log, in_log, first_output)
        self._schema = schema
        self._sources = sources
        self._sink = sink
        self._output = SOutput(incarnation, self._stable_count)
        self._may_be_open = in_log > 0
        self._left_out = 0  # tuples of the run that stand for stable ones

    def begin(self) -> list[Effect]:
        """What an earlier incarnation has put out as tentative is void, whatever it is."""
        if self._may_be_open:
            self._may_be_open = False
            return self._say(TupleType.UNDO, None)
        return []

    @property
    def _stable_count(self) -> int:
        """How many stable tuples the sink's log has, or will have after this pass."""
        return max(self._sink.next_id, self._sink.written_before)

    @property
    def tentative_rows(self) -> int:
        """Tentative rows of this incarnation."""
        return self._output.tentative_total

    @property
    def undone_rows(self) -> int:
        """How many of them were undone."""
        return self._output.undone_total

    def tentative(
        self,
        batch: pa.RecordBatch,
        missing: tuple[StreamId, ...],
        created_us: int,
    ) -> list[Effect]:
        """Put out rows, the time column last, as tentative."""
        if self._output.run is None:
            self._catch_up()
            self._left_out = self._stable_count - self._sink.next_id
        skipped = min(self._left_out, batch.num_rows)
        self._left_out -= skipped
        batch = batch.slice(skipped)
        if not batch.num_rows:
            return []
        first_id = self._output.tentative(batch.num_rows)
        run = self._output.run
        if run is not None:
            return self._put(
                tentative_rows(batch, first_id, run, missing, self._sources), created_us
            )
        return []

    def undo(self) -> list[Effect]:
        """Make the suffix void, if there is one."""
        undone = self._output.undo()
        if undone is not None:
            return self._say(TupleType.UNDO, undone)
        return []

    def rec_done(self) -> list[Effect]:
        """The correction is over, if something was undone."""
        done = self._output.rec_done()
        if done is not None:
            self._catch_up()
            return self._say(TupleType.REC_DONE, done)
        return []

    def _catch_up(self) -> None:
        """What the sink was given since is stable."""
        self._output.fresh_from(self._output.stable_before, self._stable_count)

    def _say(self, kind: TupleType, run: Run | None) -> list[Effect]:
        return self._put(control_row(self._schema, kind, self._output.stable_before, run))

    def _put(self, rows: pa.RecordBatch, created_us: int = 0) -> list[Effect]:
        return self.put_out(rows, BEGINNING_US, created_us, is_held=False)
