"""What a primary sends to its secondary under passive standby, and what comes of it. [HA §4.1]

A delta leads from one cut of the node to the next: what has changed in its pages, the output tuples
that were put out, and how many of them receivers need no more. The first one to a secondary holds
everything. Its pages travel ahead of it in runs, so that a large state stops nobody; a delta counts
when it has arrived as a whole, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.haunit.copied_pages import CopiedPages, PageRun
from holdfast.core.haunit.restoration import RestoredState

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import PageManager


@dataclass(frozen=True, slots=True)
class StateDelta:
    """From one cut of a node to the next.

    Attributes:
        sequence: Counts the deltas of one primary to one secondary, from 1 on.
        is_full: Whether it holds everything, instead of what has changed since the one before.
        pages: How many pages have been sent ahead of it.
        page_sets: Per page set that is new or has another size, its size in pages.
        gone: Page sets that there are no more.
        next_set: The id that the next page set would get.
        cut: Where it leads to.
        outputs: Per output stream but sinks, in the order of the plan: the first id that receivers
            may need, and the id of the next tuple.
        batches: New output tuples, each with the position of its stream among those.
        notes: All notes that stand among the output tuples that are kept, and behind them.
    """

    sequence: int
    is_full: bool
    pages: int
    page_sets: dict[int, int]
    gone: tuple[int, ...]
    next_set: int
    cut: RestartPoint
    outputs: tuple[tuple[int, int], ...]
    batches: tuple[tuple[int, TupleBatch], ...]
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)


class BrokenDelta(Exception):
    """A delta does not follow on what is there: everything has to be sent anew."""


class StandbyImage:
    """A copy of a node's state in memory, brought up to date delta by delta. [HA §4.1]

    Volatile: all fields.
    """

    def __init__(self, plan: NodePlan) -> None:
        """Nothing has come yet."""
        self._plan = plan
        self._streams = plan.edge_streams()
        self._runs: list[PageRun] = []
        self._runs_pages = 0
        self.sequence = 0  # of the newest delta applied
        self._clear()

    def _clear(self) -> None:
        limits = self._plan.limits
        self._copy = CopiedPages(limits.page_bytes, limits.state_bytes)
        self.cut: RestartPoint | None = None
        self._notes: dict[StreamId, tuple[PlacedNote, ...]] = {}
        self._outputs: dict[StreamId, list[TupleBatch]] = {s: [] for s in self._streams}

    @property
    def pages(self) -> PageManager:
        """The pages that it holds."""
        return self._copy.manager

    @property
    def outputs(self) -> dict[StreamId, list[TupleBatch]]:
        """The output tuples that it holds, per stream but sinks."""
        return self._outputs

    def receive(self, run: PageRun) -> int:
        """Pages of the delta to come; how many there are now."""
        if self._runs and self._runs[0].sequence != run.sequence:
            self._drop_runs()
        self._runs.append(run)
        self._runs_pages += len(run.ids)
        return self._runs_pages

    def apply(self, delta: StateDelta) -> None:
        """Go on to the delta's cut.

        Raises:
            BrokenDelta: It does not follow, or some of its pages are missing; nothing has changed,
                or nothing is left.
            StateLimitExceeded: The state is larger than the bound.
        """
        runs = [run for run in self._runs if run.sequence == delta.sequence]
        self._drop_runs()
        if sum(len(run.ids) for run in runs) != delta.pages:
            raise BrokenDelta(f"delta {delta.sequence} lacks pages")
        if delta.is_full:
            self._clear()
        elif self.cut is None or delta.sequence != self.sequence + 1:
            raise BrokenDelta(f"delta {delta.sequence} after {self.sequence}")
        self._apply_pages(delta, runs)
        self._apply_outputs(delta)
        self.sequence, self.cut, self._notes = delta.sequence, delta.cut, delta.notes

    def _drop_runs(self) -> None:
        self._runs, self._runs_pages = [], 0

    def _apply_pages(self, delta: StateDelta, runs: list[PageRun]) -> None:
        self._copy.resize(delta.page_sets, delta.gone, delta.next_set)
        for run in runs:
            try:
                self._copy.apply(run)
            except (LookupError, ValueError) as error:
                self._clear()
                raise BrokenDelta(f"delta {delta.sequence} has a page of no set") from error

    def _apply_outputs(self, delta: StateDelta) -> None:
        for number, batch in delta.batches:
            self._outputs[self._streams[number]].append(batch)
        for stream, (needed_from, next_id) in zip(self._streams, delta.outputs, strict=True):
            held = [b for b in self._outputs[stream] if b.next_id > needed_from]
            self._outputs[stream] = held
            first_id = held[0].first_id if held else next_id
            is_whole = first_id <= needed_from or (not held and needed_from == next_id)
            if not is_whole or (held and held[-1].next_id != next_id):
                self._clear()
                raise BrokenDelta(f"{stream}: tuples {needed_from} to {next_id} are not all there")

    def restored(
        self, point: RestartPoint, sink_next_ids: dict[StreamId, int]
    ) -> RestoredState | None:
        """The state to go on from; None: the restart point serves better.

        That is so if there is no state yet, if upstream no longer has what follows the cut, if a
        sink's log has lost what was written before the cut, or if passes that were logged between
        the point and the cut have not been run, as a stream was rebased.

        Args:
            point: The newest one stored.
            sink_next_ids: What the sinks' logs hold.
        """
        cut = self.cut
        if cut is None or any(sink_next_ids[s] < cut.next_ids[s] for s in sink_next_ids):
            return None
        kept = point.oldest().needed_from
        if any(cut.needed_from[stream] < kept.get(stream, 0) for stream in cut.needed_from):
            return None
        if self._plan.keeps_passes and cut.rebased != point.rebased:
            return None
        outputs = {stream: tuple(held) for stream, held in self._outputs.items()}
        return RestoredState.of_image(cut, point, self.pages, outputs, self._notes)
