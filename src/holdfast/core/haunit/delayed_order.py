"""The orders of units that go on without missing input. [DPC "SUnion"]

With several streams, SUnion merges as in `TimeOrder`; the consistency manager is told what has come
and when, and says how far a pass goes, with all streams or without some. With one stream, ids are
the order, and the unit follows it (`Follower`), or waits for itself first (`WaitingFollower`).
"""

from __future__ import annotations

import abc
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.haunit.input_order import (
    IdOrder,
    InputOrder,
    Taken,
    TimeOrder,
    rows_of,
    rows_of_batches,
)
from holdfast.core.model.dropped import NONE, still_needed
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.replication.consistency_manager import Consistency, ConsistencyManager
from holdfast.core.replication.following import Follower
from holdfast.core.replication.input_delay import DuringFailure, InputDelay
from holdfast.core.replication.turns import Turn
from holdfast.core.replication.waiting_alone import OwnWait, WaitingFollower

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from holdfast.core.haunit.arrivals import Arrivals, InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.plan import DelayPlan, NodePlan
    from holdfast.core.model.dropped import Ranges
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.replication.input_delay import Closes


class CorrectedOrder(InputOrder):
    """An order that can go on without what is missing, and back again."""

    manager: ConsistencyManager | Follower
    """Says what to do next."""

    @property
    def has_news(self) -> bool:
        """Whether something has come that a step may take."""
        return self._arrivals.has_fresh or self._arrivals.has_tentative

    @abc.abstractmethod
    def begin(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this has been processed; what is held waits from now on."""

    def ask_operators(self, closes: Closes) -> None:
        """Whose results a boundary would put out, they say (`InputDelay.closes`)."""

    def tell_outputs(self, reaching: Sequence[Sequence[int]]) -> None:
        """Outputs that not all streams reach, and which do."""

    def went_without(self, touched: Sequence[int]) -> None:
        """A tentative pass touches these streams."""

    @abc.abstractmethod
    def merge(self, now_ms: int) -> None:
        """Tell the manager of what has come."""

    @abc.abstractmethod
    def up_to(self, boundary_us: int) -> Taken:
        """What is stable and older than this, or a part of the way, of a pass's size."""

    @abc.abstractmethod
    def touched_by(self, boundary_us: int) -> Sequence[int]:
        """The streams without which, or with whose tentative tuples, a pass goes to a boundary."""

    @abc.abstractmethod
    def without_missing(self, boundary_us: int) -> Taken:
        """What is older than this and has come, be it as tentative."""

    def oldest_held(self) -> np.ndarray | None:
        """Per stream the oldest tuple that waits for other streams, int64; None: none ever does."""
        return None

    def had(self, stream: int, before_us: int) -> bool:
        """Whether a stream has ever had a tuple older than this; nobody asks where none waits."""
        del stream, before_us
        return True

    def hold_cut(self) -> None:
        """From now on keep what is taken without streams that are missing."""

    def go_back(self) -> None:
        """What has been taken since the cut is to be taken again."""

    def to_drop(self) -> dict[str, Ranges]:
        """Per stream what the correction is to go without; from now on all is kept."""
        return {}

    def may_drop(self, from_ids: Mapping[str, int]) -> None:
        """Per stream, from these ids on; nothing before."""


class DelayedOrder(CorrectedOrder, TimeOrder):
    """The order of several streams. Volatile: all fields."""

    manager: ConsistencyManager

    def __init__(
        self,
        plan: NodePlan,
        arrivals: Arrivals,
        begins: Beginning,
        delays: DelayPlan,
    ) -> None:
        """Merge the streams.

        Args:
            plan: The node's.
            arrivals: What has come on them.
            begins: Where the node begins, and what corrections before that have gone without.
            delays: How long to wait.
        """
        point = begins.point
        super().__init__(plan, arrivals, point if begins.is_at_cut else None)
        self._droppable_from: list[int] = []  # per stream; empty: nothing is dropped
        self._drops = delays.drops
        self._suspends = delays.during_failure is DuringFailure.SUSPEND
        keeps = plan.limits.input_queue_tuples if delays.drops else None
        self._sunion.keep_at_most(keeps, [point.dropped.get(s.stream, NONE) for s in plan.inputs])
        for number, spec in enumerate(plan.inputs):
            if point.processed_before.get(spec.stream, 0) > 0:
                self._sunion.had_before(number)
        delay = InputDelay(len(plan.inputs), delays.bound_ms, delays.during_failure)
        turn = Turn(is_needed=delays.has_turns)
        during = delays.during_stabilization if delays.has_turns else None
        own = OwnWait(len(plan.inputs), delays.bound_ms) if delays.waits_alone else None
        self.manager = ConsistencyManager(len(plan.inputs), delay, turn, during, own)
        arrivals.tentative_tuples = self._sunion.tentative_tuples

    def ask_operators(self, closes: Closes) -> None:
        """Boundaries that would put out nothing of their streams wait for nobody."""
        self.manager.delay.closes = closes

    def tell_outputs(self, reaching: Sequence[Sequence[int]]) -> None:
        """What they have as stable is put out; where input may be dropped none has any."""
        if not self._drops:
            self.manager.tell_outputs(reaching)

    def went_without(self, touched: Sequence[int]) -> None:
        """The outputs that these reach are tentative."""
        self.manager.touched(touched)

    def begin(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this has been processed; what is held waits from now on."""
        self.manager.resume(boundary_us, now_ms)
        for stream in self._arrivals.streams:
            self.manager.promised(stream.number, stream.queue.taken_boundary_us, now_ms)
        newest_us = self._sunion.newest_held_us()
        if newest_us is not None:
            self.manager.delay.arrived(newest_us, now_ms)

    def merge(self, now_ms: int) -> None:
        """Hold what has come, and tell the manager of it."""
        drop_from = [
            NO_ID if self._arrivals.is_slowest(stream) else from_id
            for stream, from_id in zip(self._arrivals.streams, self._droppable_from, strict=False)
        ]
        promises: list[tuple[int, int]] = []
        come_us: list[int] = []
        for number, batches in self._arrivals.take_fresh():
            from_id = drop_from[number] if drop_from else NO_ID
            for batch in batches:
                newest_us = self._sunion.add(number, batch, from_id)
                if newest_us is not None:
                    come_us.append(newest_us)
            promises.append((number, self._arrivals.streams[number].queue.taken_boundary_us))
        if promises:
            self.manager.came(promises, max(come_us, default=None), now_ms)
        for stream in self._arrivals.with_tentative():
            self._merge_tentative(stream, now_ms)

    def _merge_tentative(self, stream: InputStream, now_ms: int) -> None:
        suffix, number = stream.tentative, stream.number
        if suffix.take_undone():
            self._sunion.undo(number)
            self.manager.undone(number)
        if not stream.has_tentative:
            return
        if self._suspends:
            suffix.take()  # Else its producer would wait for room.
            return
        for batch in suffix.take():
            self._sunion.add_tentative(number, batch, stream.queue.taken_boundary_us)
            self.manager.delay.arrived(int(batch.time_us.max()), now_ms)
        self.manager.promised_tentative(number, suffix.boundary_us, now_ms)

    def up_to(self, boundary_us: int) -> Taken:
        """What is older than this, or a part of the way, of a pass's size."""
        boundary_us = self._sunion.boundary_for(self._plan.limits.pass_tuples, boundary_us)
        release = self._sunion.release(boundary_us)
        return Taken(rows_of(release), release.low, boundary_us, release.tuples)

    def oldest_held(self) -> np.ndarray:
        """Per stream the oldest tuple that waits for other streams, NO_ID: none. int64."""
        return self._sunion.oldest_held()

    def had(self, stream: int, before_us: int) -> bool:
        """Whether a stream has ever had a tuple that is older than this, be it tentative."""
        return self._sunion.had(stream, before_us)

    def hold_cut(self) -> None:
        """From now on keep what is taken without streams that are missing."""
        self._sunion.hold_cut()

    def touched_by(self, boundary_us: int) -> Sequence[int]:
        """The streams that have not promised it as stable, or have sent what is tentative.

        All, if corrections may go without some of the input: what is out must not be of that.
        """
        if self._drops:
            return range(len(self._plan.inputs))
        return [*self.manager.behind(boundary_us), *self._sunion.with_tentative()]

    def without_missing(self, boundary_us: int) -> Taken:
        """What is older than this and has come."""
        release = self._sunion.release_tentative(boundary_us)
        return Taken(rows_of(release), release.low, boundary_us, release.tuples)

    def go_back(self) -> None:
        """What has been taken since the cut is to be taken again."""
        self._sunion.go_back()

    # -- what corrections go without ----------------------------------------------------------

    def may_drop(self, from_ids: Mapping[str, int]) -> None:
        """Per stream, from these ids on; nothing before."""
        self._droppable_from = [from_ids[spec.stream] for spec in self._plan.inputs]

    def to_drop(self) -> dict[str, Ranges]:
        """Per stream what the correction is to go without; from now on all is kept."""
        found = self._by_stream(self._sunion.dropping)
        if found:
            self._sunion.stop_dropping()
        return found

    def dropped(self, needed_from: dict[str, int]) -> dict[str, Ranges]:
        """What a replacement that begins at these ids leaves out, per stream."""
        found = self._by_stream(self._sunion.dropped)
        left = {name: still_needed(each, needed_from[name]) for name, each in found.items()}
        return {name: each for name, each in left.items() if each}

    def _by_stream(self, ranges: Sequence[Ranges]) -> dict[str, Ranges]:
        names = (spec.stream for spec in self._plan.inputs)
        return {name: each for name, each in zip(names, ranges, strict=True) if each}


class FollowingOrder(CorrectedOrder, IdOrder):
    """The order of one stream. Volatile: all fields."""

    manager: Follower

    def __init__(self, plan: NodePlan, arrivals: Arrivals, delays: DelayPlan) -> None:
        """Take what comes."""
        super().__init__(plan, arrivals)
        self.manager = Follower(Turn(is_needed=delays.has_turns))
        self._gone_to_us = BEGINNING_US  # with what is tentative, since the cut
        self._gone_to_id = 0  # the same

    @property
    def has_news(self) -> bool:
        """What is stable waits as long as the node has to wait for its turn."""
        if self.manager.turn.is_waiting:
            suffix = self._arrivals.streams[0].tentative
            return suffix.has_news or suffix.is_undone
        return super().has_news

    def begin(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this has been processed."""
        self.manager.resume(boundary_us, now_ms)

    def merge(self, now_ms: int) -> None:
        """Tell the manager of what has come."""
        del now_ms
        (stream,) = self._arrivals.streams
        if stream.tentative.take_undone():
            self.manager.undone()
        stream.tentative.overtaken(self._stable_us)
        has_tentative = stream.has_tentative
        if self.manager.turn.is_waiting:  # For what is stable: what is tentative goes before it.
            has_tentative = stream.tentative.has_news
        self.manager.waits(stable=self._has_stable, tentative=has_tentative)

    @property
    def _has_stable(self) -> bool:
        """Whether something has come as stable: a boundary may have come with the last of a replay
        in silence, which acts on nothing beyond its cut.
        """
        arrivals = self._arrivals
        return arrivals.has_fresh or arrivals.slowest_us > self.manager.acted_us

    @property
    def _stable_us(self) -> int:
        """What is older has been taken as stable, by this incarnation or by one before it.

        1. A node has processed all of a stream, up to its end, and is killed. 2. Its producer's
        replica is killed, too, begins further back, and goes on without a source. 3. What it sends
        as tentative stands for what the node's restart point rests on.
        """
        (stream,) = self._arrivals.streams
        return max(stream.queue.taken_boundary_us, self.manager.acted_us)

    def up_to(self, boundary_us: int) -> Taken:
        """Some of what has come as stable."""
        del boundary_us
        return self.take_some()

    def touched_by(self, boundary_us: int) -> Sequence[int]:
        """The one stream."""
        del boundary_us
        return (0,)

    def without_missing(self, boundary_us: int) -> Taken:
        """What has come as tentative, whatever its time."""
        batches, promised_us = self._take_tentative()
        boundary_us = max(boundary_us, promised_us, self._gone_to_us)
        taken = Taken([None] * self._plan.port_count, self._no_ids(), boundary_us)
        batches = self._fresh(batches, promised_us)
        if batches:
            taken.ports[0] = rows = rows_of_batches(batches)
            taken.tuples = len(rows.time_us)
            taken.low[0] = self._numbered(batches[0].first_id, taken.tuples)
            self.manager.went_on_to(int(rows.time_us.max()) + 1)
        return taken

    def _take_tentative(self) -> tuple[list[TupleBatch], int]:
        """All that has come, and its boundary."""
        suffix = self._arrivals.streams[0].tentative
        return suffix.take(), suffix.boundary_us

    def _fresh(self, batches: list[TupleBatch], promised_us: int) -> list[TupleBatch]:
        """What is not older than what has been acted on; else operators would close twice.

        Of one run of one producer nothing is. But: 1. A replica sends tentative tuples. 2. Another
        one, read aside, sends what is stable, further than these. Or 1. A run is void. 2. The node
        waits for its turn to go back. 3. Meanwhile another run begins further back.
        """
        self._gone_to_us = max(self._gone_to_us, self._stable_us)
        cut = [batch.not_older_than(self._gone_to_us) for batch in batches]
        batches = [batch for batch in cut if batch.count]
        self._gone_to_us = max(self._gone_to_us, promised_us)
        return batches

    def _numbered(self, first_id: int, tuples: int) -> int:
        """The id of the first of so many tentative tuples: ids never move back for operators.

        A run counts on from where its replica's stable tuples end. Another replica's stable ones,
        or another run, may have come further.
        """
        (stream,) = self._arrivals.streams
        first_id = max(first_id, stream.processed_before, self._gone_to_id)
        self._gone_to_id = first_id + tuples
        return first_id

    def go_back(self) -> None:
        """What has been taken since the cut is to be taken again."""
        self._gone_to_us = BEGINNING_US
        self._gone_to_id = 0


class _Came(NamedTuple):
    """Tentative tuples that wait, when they came, and what was promised with them."""

    at_ms: int
    batches: list[TupleBatch]
    boundary_us: int

    @property
    def tuples(self) -> int:
        """How many."""
        return sum(batch.count for batch in self.batches)


class WaitingOrder(FollowingOrder):
    """The same of a node that waits for its bound by itself. Volatile: all fields.

    What comes as tentative waits here. While it has gone on with some, what is stable waits in the
    queue.
    """

    manager: WaitingFollower

    def __init__(self, plan: NodePlan, arrivals: Arrivals, delays: DelayPlan) -> None:
        """Take what comes."""
        super().__init__(plan, arrivals, delays)
        turn = Turn(is_needed=delays.has_turns)
        then = delays.during_stabilization if delays.has_turns else None
        self.manager = WaitingFollower(turn, delays.bound_ms, delays.during_failure, then)
        self._suspends = delays.during_failure is DuringFailure.SUSPEND
        self._waiting: deque[_Came] = deque()
        self._waiting_tuples = [0]
        self._dropped_us = BEGINNING_US  # what is older has been dropped of what waits
        self._now_ms = 0
        arrivals.tentative_tuples = self._waiting_tuples

    @property
    def _holds_stable(self) -> bool:
        return self.manager.state is Consistency.UP_FAILURE

    @property
    def has_news(self) -> bool:
        """What is stable waits while the node is in up_failure; what it says is heard."""
        if not self._holds_stable:
            return super().has_news
        (stream,) = self._arrivals.streams
        queue, suffix, manager = stream.queue, stream.tentative, self.manager
        if suffix.has_news or suffix.is_undone or queue.is_note_due:
            return True
        return queue.boundary_us > manager.promised_us or self._is_full(stream) != manager.is_full

    def _is_full(self, stream: InputStream) -> bool:
        return self._arrivals.room(stream) == 0

    def merge(self, now_ms: int) -> None:
        """Hold what has come as tentative, and tell the manager of all."""
        (stream,) = self._arrivals.streams
        suffix, queue, manager = stream.tentative, stream.queue, self.manager
        self._now_ms = now_ms
        if suffix.take_undone():
            manager.undone()
            self._waiting.clear()
        suffix.overtaken(self._stable_us)
        is_next = self._holds_stable or not (queue.has_work or queue.notes.are_pending)
        if is_next and suffix.has_news:
            came = _Came(now_ms, suffix.take(), suffix.boundary_us)
            if not self._suspends:  # Else its producer would wait for room.
                self._waiting.append(came)
        self._drop_overtaken()
        self._waiting_tuples[0] = sum(came.tuples for came in self._waiting)
        manager.waits_since(self._waiting[0].at_ms if self._waiting else None)
        manager.promised(queue.boundary_us, now_ms, is_full=self._is_full(stream))
        manager.waits(stable=self._has_stable, tentative=is_next and bool(self._waiting))

    def _drop_overtaken(self) -> None:
        """What is older than all that has been taken as stable is void, as in the suffix."""
        stable_us = self._stable_us
        if not self._waiting or stable_us == self._dropped_us:
            return
        self._dropped_us = stable_us
        for came in [self._waiting.popleft() for _ in range(len(self._waiting))]:
            rest = [batch.not_older_than(stable_us) for batch in came.batches]
            rest = [batch for batch in rest if batch.count]
            if rest or came.boundary_us > stable_us:
                self._waiting.append(came._replace(batches=rest))

    def _take_tentative(self) -> tuple[list[TupleBatch], int]:
        """What came so long ago that it may be taken, and its boundary."""
        until_ms = self.manager.came_until_ms(self._now_ms)
        taken: list[TupleBatch] = []
        promised_us = BEGINNING_US
        while self._waiting and self._waiting[0].at_ms <= until_ms:
            came = self._waiting.popleft()
            self._waiting_tuples[0] -= came.tuples
            taken += came.batches
            promised_us = max(promised_us, came.boundary_us)
        return taken, promised_us


def corrected_order(
    plan: NodePlan, arrivals: Arrivals, begins: Beginning, delays: DelayPlan
) -> CorrectedOrder:
    """The order of a unit that goes on without missing input; args as of `input_order`."""
    if len(plan.inputs) == 1:
        # Who suspends in a failure takes nothing tentative, whatever comes.
        waits = delays.waits_alone or delays.during_failure is DuringFailure.SUSPEND
        return (WaitingOrder if waits else FollowingOrder)(plan, arrivals, delays)
    return DelayedOrder(plan, arrivals, begins, delays)
