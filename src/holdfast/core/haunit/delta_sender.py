"""Sends a node's state to its passive secondary, difference by difference. [HA §4.1]

Theory of operation. Every interval the pages that have changed are frozen, as for a checkpoint; the
unit stands still for that moment only. The words that differ from a copy of what the secondary has
leave in runs, so many pages ahead of what it has acknowledged; then follows the delta with the cut,
the new output tuples and their trimming. The copy takes as much memory as the state. Where the
secondary must not come to a cut yet the delta waits, and its pages are there already.

    IDLE --prepare--> SENDING --all acknowledged--> IDLE (clean until they change again)
                      SENDING --the secondary lost the thread--> IDLE (everything the next time)

Invariants: pages count as clean only after the secondary has applied the delta that holds them; no
delta follows one that the secondary has not applied.

Departures from the paper: a snapshot of all operators at one moment takes the place of the sweep
line, which stops one operator after the other; with copy-on-write none has to wait. Input queues
are not sent: producers keep what follows the cut, or the node's restart point serves instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.copied_pages import CopiedPages, PageRun
from holdfast.core.haunit.events import SendDelta, SendPageRun
from holdfast.core.haunit.state_delta import StateDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.haunit.ha_output import HAOutput
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Incarnation
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import PageManager, Snapshot

_RUNS_AHEAD = 4


@dataclass(slots=True)
class _Sending:
    """The delta under way."""

    delta: StateDelta
    snapshot: Snapshot
    positions: np.ndarray  # of the pages to be sent, in the snapshot
    sent: int = 0  # how many of them have left
    received: int = 0  # how many of them are there
    is_told: bool = False  # the delta itself has left
    heard_ms: int = 0

    @property
    def waits_to_tell(self) -> bool:
        """Whether all pages are there, and the delta has not left."""
        return not self.is_told and self.received == len(self.positions)


class DeltaSender:
    """The primary's part. Volatile: all fields."""

    def __init__(
        self,
        plan: NodePlan,
        pages: PageManager,
        may_tell: Callable[[RestartPoint], bool] | None = None,
    ) -> None:
        """Nobody to send to yet.

        Args:
            plan: The node's.
            pages: Its state.
            may_tell: Whether the secondary may come to a cut now; None: at any time.
        """
        self._plan = plan
        self._may_tell = may_tell
        self._pages = pages
        self._receiver: Incarnation | None = None
        self._sequence = 0
        self._is_base_there = False  # the secondary has the state of the last delta
        self._page_sets: dict[int, int] = {}  # as of that
        self._copy: CopiedPages | None = None  # what it has once the runs on their way are there
        self._sent_before: dict[str, int] = {}  # output tuples that it has had
        self._times_renumbered = 0  # outputs, when it had them
        self._sending: _Sending | None = None
        self._is_kept_back = False  # the last delta: what it would have to hold is spilled

    def begin(self, receiver: Incarnation) -> None:
        """A secondary asks for the state: all of it at first.

        One that has all pages and waits for the delta has only heard nothing for long.
        """
        if self._receiver == receiver and self._sending is not None and self._sending.waits_to_tell:
            return
        self.stop()
        self._receiver = receiver

    def stop(self) -> None:
        """There is no secondary, or it has lost the thread."""
        if self._sending is not None:
            self._pages.cancel(self._sending.snapshot)
        self._sending = None
        self._receiver = None
        self._is_kept_back = False
        self._forget_base()

    def _forget_base(self) -> None:
        self._is_base_there = False
        self._copy = None

    def is_wanted(self, now_ms: int) -> bool:
        """Whether a secondary waits for the next delta; one that is silent for long is given up."""
        sending = self._sending
        if sending is not None:
            if sending.waits_to_tell:
                sending.heard_ms = now_ms  # It is not the secondary that is waited for.
            is_stuck = now_ms - sending.heard_ms > 4 * self._plan.limits.resubscribe_ms
            if is_stuck or sending.snapshot.is_cancelled:
                self.stop()
            return False
        return self._receiver is not None

    def prepare(self, cut: RestartPoint, outputs: HAOutput, now_ms: int) -> list[Effect]:
        """Freeze what has changed and begin to send it; not as long as output is spilled."""
        if outputs.kept.times_renumbered != self._times_renumbered:
            self._times_renumbered = outputs.kept.times_renumbered
            self._forget_base()
        sent_before = self._sent_before if self._is_base_there else {}
        found = outputs.kept.since(sent_before)
        self._is_kept_back = found is None
        if found is None:
            return []
        positions, batches = found
        everything = np.ones(sum(self._pages.page_counts().values()), dtype=np.bool_)
        snapshot = self._pages.checkpoint(None if self._is_base_there else everything)
        known = self._page_sets if self._is_base_there else {}
        page_sets = dict(zip(snapshot.page_sets, snapshot.counts.tolist(), strict=True))
        self._sequence += 1
        delta = StateDelta(
            sequence=self._sequence,
            is_full=not self._is_base_there,
            pages=len(snapshot.changed),
            page_sets={s: n for s, n in page_sets.items() if known.get(s) != n},
            gone=tuple(name for name in known if name not in page_sets),
            next_set=snapshot.next_set,
            cut=cut,
            outputs=positions,
            batches=batches,
            notes=outputs.kept.notes(),
        )
        self._resize_copy(delta)
        self._page_sets = {int(name): count for name, count in page_sets.items()}
        self._sent_before = dict(outputs.next_ids)
        self._sending = _Sending(delta, snapshot, snapshot.changed, heard_ms=now_ms)
        return self.send_on()

    def _resize_copy(self, delta: StateDelta) -> None:
        """Know what the secondary has when the delta's pages come: nothing before the first one."""
        limits = self._plan.limits
        if self._copy is None:
            self._copy = CopiedPages(limits.page_bytes, limits.state_bytes)
        if delta.page_sets or delta.gone:
            self._copy.resize(delta.page_sets, delta.gone, delta.next_set)

    def acknowledged(
        self, sequence: int, pages: int, *, is_applied: bool, now_ms: int
    ) -> tuple[RestartPoint | None, list[Effect]]:
        """The secondary has so many pages of a delta, or has applied it.

        Returns:
            The cut that it has come to, if it has; and the effects.
        """
        sending = self._sending
        if sending is None or sending.delta.sequence != sequence:
            return None, []
        sending.heard_ms = now_ms
        sending.received = max(sending.received, min(pages, sending.sent))
        if not is_applied:
            return None, self.send_on()
        if not sending.is_told:
            return None, []
        self._pages.finish(sending.snapshot)
        self._sending = None
        self._is_base_there = True
        return sending.delta.cut, []

    def send_on(self) -> list[Effect]:
        """Send what may leave of the delta under way; none need be."""
        sending, receiver = self._sending, self._receiver
        if sending is None or receiver is None or sending.snapshot.is_cancelled:
            return []
        stream, run = self._plan.replica_stream, self._run
        effects: list[Effect] = []
        while sending.sent < len(sending.positions):
            if sending.sent - sending.received >= _RUNS_AHEAD * run:
                return effects
            positions = sending.positions[sending.sent : sending.sent + run]
            sending.sent += len(positions)
            effects.append(SendPageRun(stream, receiver, self._changed_of(sending, positions)))
        if not sending.is_told and (self._may_tell is None or self._may_tell(sending.delta.cut)):
            sending.is_told = True
            effects.append(SendDelta(stream, receiver, sending.delta))
        return effects

    @property
    def _run(self) -> int:
        """How many pages leave together."""
        return max(1, self._plan.limits.page_run_bytes // self._pages.page_bytes)

    def _changed_of(self, sending: _Sending, positions: np.ndarray) -> PageRun:
        """Copy out what has changed in these pages, and let the unit write to them again."""
        snapshot = sending.snapshot
        ends = np.cumsum(snapshot.counts)
        which = np.searchsorted(ends, positions, side="right")
        sequences = positions - (ends - snapshot.counts)[which]
        names = np.array(snapshot.page_sets, dtype=np.int64)[which]
        words = self._pages.arena.reshape(-1, self._pages.page_words)[snapshot.pages[positions]]
        self._pages.thaw(snapshot, positions)
        assert self._copy is not None  # as long as something is sent
        ids = np.stack([names, sequences], axis=1)
        return self._copy.difference(sending.delta.sequence, ids, words)

    # -- looking ----------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        """The number of the delta that is being sent; 0: none."""
        return 0 if self._sending is None else self._sending.delta.sequence

    @property
    def is_copy_missing(self) -> bool:
        """Whether there is no copy that is brought up to date, and none on its way."""
        return self._sending is None and (self._is_kept_back or not self._is_base_there)

    @property
    def trouble(self) -> str | None:
        """Why no copy is brought up to date, as people should read it."""
        if not self._is_kept_back:
            return None
        copy = "an old copy" if self._is_base_there else "no copy"
        return f"the secondary of {self._plan.node} has {copy}: output is spilled"

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a delta is sent to nobody, or in another order."""
        node, sending = self._plan.node, self._sending
        if self._receiver is None and (self._is_base_there or sending is not None):
            raise InvariantViolation(f"{node} sends its state to nobody")
        frozen = None if sending is None or sending.snapshot.is_cancelled else sending.snapshot
        if self._pages.being_stored is not frozen:
            raise InvariantViolation(f"{node} has frozen pages for another delta than it sends")
        if sending is None:
            return
        if not 0 <= sending.received <= sending.sent <= len(sending.positions):
            raise InvariantViolation(
                f"{node}: {sending.received} of {sending.sent} pages are there"
            )
        if sending.is_told and sending.sent < len(sending.positions):
            raise InvariantViolation(f"{node} has told a delta before all its pages")
        if sending.sent - sending.received > (_RUNS_AHEAD + 1) * self._run:
            raise InvariantViolation(f"{node} has sent {sending.sent} pages ahead of its secondary")
