"""The ChkptMngr: takes the checkpoints of one HA unit, one at a time. [SGuard §3, §4.4]

Theory of operation. A checkpoint takes five steps:

1. The HAInput says up to where it has handed on its tuples: the cut of the restart point.
2. Prepare: the page manager freezes the pages that have changed, and the HAOutput names the tuples
   that its receivers may still need. Only now the unit stands still.
3. The shell writes both to the store while the unit goes on, thawing pages as it copies them.
4. When all is durable, and the sinks' logs are on disk up to the cut, the coordinator is told, and
   writes the restart point to its journal. Before that, nothing leads to the checkpoint.
5. When the journal holds it, the HAInput acknowledges upstream at level 1 what the oldest retained
   checkpoint no longer needs, and files that no retained checkpoint refers to are deleted.

    IDLE --prepare--> WRITING --written--> IDLE (the point waits for steps 4 and 5)
                      WRITING --failed, or the pages are needed--> IDLE (written again next time)
                      WRITING --refused--> WAITING --admitted--> IDLE (prepared anew at once)

A store that places checkpoints as a whole may refuse one for now. Then its pages are thawed, and
when its turn has come it is as large as the state is then. [SGuard §5]

Invariants: a file is deleted only when no retained point, no point on its way to the journal and
not the image that the next checkpoint builds on refers to it; pages count as clean only after all
of them are durable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import (
    CancelCheckpoint,
    ForgetCheckpoints,
    LeaveWriters,
    ReportCheckpoint,
    WriteCheckpoint,
)
from holdfast.core.haunit.prepared import PreparedCheckpoint
from holdfast.core.model.ids import CheckpointId
from holdfast.core.recovery.restart_point import CheckpointRef

if TYPE_CHECKING:
    import numpy as np

    from holdfast.core.haunit.events import CheckpointFailed, PagesCopied
    from holdfast.core.haunit.ha_output import HAOutput
    from holdfast.core.haunit.plan import CheckpointPlan, NodePlan
    from holdfast.core.haunit.prepared import StoredCheckpoint
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Incarnation
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import PageManager

_SEGMENTS_MAX = 64
"""With more segments of output tuples than that, all of them are written again."""


@dataclass(slots=True)
class _Writing:
    """The checkpoint under way."""

    prepared: PreparedCheckpoint
    began_ms: int
    times_renumbered: int  # outputs, at its cut


class ChkptMngr:
    """The checkpoints of one incarnation of a node.

    Durable: what is in the store. Volatile: all fields.
    """

    def __init__(
        self,
        plan: NodePlan,
        checkpoints: CheckpointPlan,
        incarnation: Incarnation,
        pages: PageManager,
        restored: RestoredState | None,
        *,
        gives_way: bool = False,
    ) -> None:
        """Build on the checkpoint that the node was restored from, if it was.

        Args:
            plan: The node's.
            checkpoints: When and how.
            incarnation: The node's.
            pages: The state.
            restored: What the node was restored from.
            gives_way: Whether a checkpoint that the store has no place for is prepared anew later.
        """
        self._gives_way = gives_way
        self._plan = plan
        self._workers = checkpoints.workers
        self._asks_first = checkpoints.asks_first
        self._incarnation = incarnation
        self._pages = pages
        self._base = restored.image if restored is not None else None
        self._segments = restored.segments if restored is not None else ()
        self._times_renumbered = 0  # outputs, when these were put out
        self._stored: dict[CheckpointId, None] = {}  # whose files may be in the store
        if restored is not None:
            self._stored = dict.fromkeys(restored.found)
        self._writing: _Writing | None = None
        self._is_waiting = False  # for the store to have a place

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writing is not None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written, or waits for its turn."""
        return self.is_writing or self._is_waiting

    # -- steps 2 and 3 ----------------------------------------------------------------------

    def prepare(self, point: RestartPoint, output: HAOutput, now_ms: int) -> list[Effect]:
        """Freeze the state at a cut, and have it written."""
        checkpoint = CheckpointId(point.sequence, self._incarnation)
        # (1) A node is restored from a checkpoint with the output tuples 0 to 18. (2) Its receiver,
        # which has lost everything, asks from 0, and the stream is numbered anew there. (3) Of the
        # next checkpoint's tuples 0 to 18 none is stored yet: the segment holds others.
        numbered = output.kept.times_renumbered
        segments = self._segments if numbered == self._times_renumbered else ()
        kept, wanted = output.kept.to_be_stored(segments, _SEGMENTS_MAX)
        prepared = PreparedCheckpoint(
            node=self._plan.node,
            checkpoint=checkpoint,
            point=point,
            snapshot=self._pages.checkpoint(self._rewrites()),
            arena=self._pages.arena,
            page_bytes=self._pages.page_bytes,
            base=self._base,
            outputs=wanted,
            kept_outputs=kept,
            workers=self._workers,
            notes=output.kept.notes(),
            gives_way=self._gives_way,
        )
        self._stored[checkpoint] = None
        self._writing = _Writing(prepared, now_ms, numbered)
        return [WriteCheckpoint(prepared)]

    def _rewrites(self) -> np.ndarray | None:
        """Pages to be written again, so that old files can go."""
        if self._base is None or self._base.emptied < 0:
            return None
        return self._base.rewrites(self._pages.page_counts(), self._pages.dirty_pages())

    def pages_copied(self, copied: PagesCopied) -> None:
        """These may be written again."""
        if self._writing is not None and self._is_current(copied.checkpoint):
            self._pages.thaw(self._writing.prepared.snapshot, copied.positions)

    def written(
        self, stored: StoredCheckpoint, now_ms: int
    ) -> tuple[RestartPoint | None, list[Effect]]:
        """All of it is durable, unless it was given up.

        Returns:
            The restart point that leads to it, None if it was given up; and what is to be done.
        """
        writing = self._writing
        if writing is None or not self._is_current(stored.checkpoint):
            return None, []
        if given_up := self.give_up_if_cancelled(now_ms):
            return None, given_up
        self._writing = None
        self._pages.finish(writing.prepared.snapshot)
        self._base = stored.image
        self._segments = stored.outputs
        self._times_renumbered = writing.times_renumbered
        state_bytes = len(stored.image.file) * stored.image.page_bytes
        took_ms = now_ms - writing.began_ms
        ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
        point = replace(writing.prepared.point, checkpoint=ref)
        report = ReportCheckpoint(
            stored.checkpoint, None, stored.written_bytes, state_bytes, took_ms
        )
        return point, [report, *self._leave()]

    def failed(self, failed: CheckpointFailed, now_ms: int) -> list[Effect]:
        """The store did not take it: the pages are writable again, and the job goes on."""
        if self._is_current(failed.checkpoint):
            return self._give_up(failed.reason, now_ms)
        return []

    def refused(self, checkpoint: CheckpointId) -> None:
        """The store has no place for it now: the pages are writable again, until it has."""
        if self._writing is not None and self._is_current(checkpoint):
            self._pages.cancel(self._writing.prepared.snapshot)
            self._writing, self._is_waiting = None, True
            del self._stored[checkpoint]  # Nothing of it was written.

    def admitted(self) -> bool:
        """Its turn has come; whether a checkpoint may be prepared, as none is being written."""
        self._is_waiting = False
        return not self.is_writing

    def give_up_if_cancelled(self, now_ms: int) -> list[Effect]:
        """Give up if the page manager has needed the pages for the job itself; else nothing."""
        writing = self._writing
        if writing is None or not writing.prepared.snapshot.is_cancelled:
            return []
        given_up = self._give_up("the state needed the memory of its clones", now_ms)
        return [CancelCheckpoint(writing.prepared.checkpoint), *given_up]

    def _give_up(self, reason: str, now_ms: int) -> list[Effect]:
        writing = self._writing
        if writing is None:
            return []
        self._writing = None
        self._pages.cancel(writing.prepared.snapshot)
        checkpoint, took_ms = writing.prepared.checkpoint, now_ms - writing.began_ms
        return [ReportCheckpoint(checkpoint, reason, 0, 0, took_ms), *self._leave()]

    def _leave(self) -> list[Effect]:
        """Let others write, if this unit had to ask."""
        if self._asks_first:
            return [LeaveWriters()]
        return []

    def _is_current(self, checkpoint: CheckpointId) -> bool:
        return self._writing is not None and self._writing.prepared.checkpoint == checkpoint

    # -- step 5 -----------------------------------------------------------------------------

    def collect(
        self,
        retained: tuple[RestartPoint, ...],
        on_their_way: tuple[RestartPoint, ...],
    ) -> list[Effect]:
        """Have the files deleted that nothing refers to any more.

        Args:
            retained: The points that a replacement may start from, newest first.
            on_their_way: Those that may become durable yet, with the ones behind them: these were
                retained when the points were asked for, and will be again.
        """
        needed: dict[CheckpointId, None] = {}
        for point in (*retained, *on_their_way):
            if point.checkpoint is not None:
                needed |= dict.fromkeys(point.checkpoint.parts())
        if self._base is not None:
            needed |= {file.checkpoint: None for file in self._base.files}
        needed |= {segment.checkpoint: None for segment in self._segments}
        newest = retained[0].sequence  # Later ones may still become restart points.
        garbage = tuple(c for c in sorted(self._stored) if c not in needed and c.sequence <= newest)
        for checkpoint in garbage:
            del self._stored[checkpoint]
        return [ForgetCheckpoints(garbage)] if garbage else []

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a file was let go, or pages are frozen for nobody."""
        node, writing = self._plan.node, self._writing
        needed = {segment.checkpoint for segment in self._segments}
        if self._base is not None:
            needed |= {file.checkpoint for file in self._base.files}
        if writing is not None:
            needed.add(writing.prepared.checkpoint)
        if lost := needed - self._stored.keys():
            raise InvariantViolation(f"{node} builds on files that it has let go: {sorted(lost)}")
        frozen = None if writing is None else writing.prepared.snapshot
        if frozen is not None and frozen.is_cancelled:
            frozen = None
        if self._pages.being_stored is not frozen:
            raise InvariantViolation(
                f"{node} has frozen pages for another checkpoint than it writes"
            )
