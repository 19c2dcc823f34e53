"""Delay, process, correct over a small node, by brute force. [DPC Properties 1 to 4]

Sources put out tuples and boundaries in time; what one sends is held back for a while, all of it or
its boundaries alone, and comes all at once when that is over. Nodes fold what they get in an order
that shows any mistake. A chain of two sends tentative tuples on.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation, RemoteProtocolError
from holdfast.core.model.dropped import count, left_of
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID, Incarnation, Run
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.replication.consistency_manager import (
    PATIENCE,
    TRANSITIONS,
    Action,
    Consistency,
    ConsistencyManager,
    Event,
    Step,
)
from holdfast.core.replication.following import Follower
from holdfast.core.replication.input_delay import DuringFailure, InputDelay, _Claims
from holdfast.core.replication.soutput import SOutput
from holdfast.core.replication.sunion import Release, SUnion

WINDOW_US = 40_000


def batch(first_id: int, rows: list[tuple[int, int]], stream: int) -> TupleBatch:
    """Rows of (tag, time) of a stream."""
    columns = [pa.array([tag for tag, _ in rows], pa.int64())]
    columns.append(pa.array([stream] * len(rows), pa.int64()))
    columns.append(pa.array([time for _, time in rows], pa.int64()))
    names = ["tag", "stream", TIME_COLUMN]
    return TupleBatch(first_id, pa.RecordBatch.from_arrays(columns, names=names), BEGINNING_US)


@dataclass
class State:
    """A running fold, and counts per window that a boundary closes: what operators keep."""

    fold: int = 7
    windows: dict[int, int] = field(default_factory=dict)
    made_of: dict[int, set[int]] = field(default_factory=dict)  # streams, by window

    def copy(self) -> State:
        made_of = {window: set(streams) for window, streams in self.made_of.items()}
        return State(self.fold, dict(self.windows), made_of)

    def process(
        self, rows: list[tuple[int, int]], boundary_us: int, streams: Sequence[int] = ()
    ) -> list[tuple[int, int]]:
        results = []
        for tag, time in rows:
            self.fold = (self.fold * 1_000_003 + tag) % 2**61
            self.windows[time // WINDOW_US] = self.windows.get(time // WINDOW_US, 0) + 1
            results.append((self.fold, time))
        for (_, time), stream in zip(rows, streams, strict=False):
            self.made_of.setdefault(time // WINDOW_US, set()).add(stream)
        for window in sorted(w for w in self.windows if (w + 1) * WINDOW_US <= boundary_us):
            self.made_of.pop(window, None)
            results.append((-self.windows.pop(window), (window + 1) * WINDOW_US))
        return sorted(results, key=lambda row: row[1])


Message = tuple[str, int, list[tuple[int, int]], int]
"""What a stream carries: kind, first id, rows, boundary."""


class SmallNode:
    """SUnion, consistency manager, operators and SOutput around one output stream."""

    def __init__(
        self,
        streams: int,
        bound_ms: int,
        during: DuringFailure,
        step_tuples: int,
        kept_max: int | None = None,
    ) -> None:
        self.sunion = SUnion([0] * streams, 1)
        self.sunion.keep_at_most(kept_max, [()] * streams)
        self.promised_us = [BEGINNING_US] * streams
        self.manager = ConsistencyManager(streams, InputDelay(streams, bound_ms, during))
        self.output = SOutput(Incarnation(1), 0)
        self.state = State()
        self.cut: State | None = None
        self.step_tuples = step_tuples
        self.said: list[tuple[str, int, list[tuple[int, int]], int]] = []
        self.next_ids = [0] * streams
        self.bound_ms = bound_ms
        self.waits: list[tuple[int, int]] = []  # what boundary is wanted, and since when
        self.windows: list[set[int]] = [set() for _ in range(streams)]  # that have its tuples
        self.late: list[set[int]] = [set() for _ in range(streams)]  # that will, when it goes back
        self.promised_us = [BEGINNING_US] * streams
        self.has_windows_behind = False
        self.last_action: Action | None = None
        self.are_tentative = [False] * streams  # which have sent some that are not void
        self.acted_us = BEGINNING_US
        self.manager.delay.closes = lambda of, boundary_us: self.closes(of, boundary_us)

    def receive(self, stream: int, message: Message, now_ms: int) -> None:
        kind, first_id, rows, boundary_us = message
        if kind in ("tentative", "undo"):
            self.are_tentative[stream] = kind == "tentative"
        if kind in ("stable", "tentative"):
            wanted = [time + 1 for _, time in rows]
            for _, time in rows:
                windows = self.windows if time >= self.acted_us else self.late
                windows[stream].add(time // WINDOW_US)
            self.promised_us[stream] = max(self.promised_us[stream], boundary_us)
            self.waits += [(each, now_ms) for each in wanted if each > self.acted_us]
            self.wait_for_results(now_ms)
        if kind == "stable":
            if rows:
                assert first_id == self.next_ids[stream]
                self.next_ids[stream] += len(rows)
                is_slowest = self.promised_us[stream] <= min(self.promised_us)
                self.sunion.add(stream, batch(first_id, rows, stream), NO_ID if is_slowest else 0)
            self.promised_us[stream] = max(self.promised_us[stream], boundary_us)
            newest_us = max((time for _, time in rows), default=None)
            self.manager.came([(stream, boundary_us)], newest_us, now_ms)
        elif kind == "tentative":
            if rows:
                self.sunion.add_tentative(stream, batch(first_id, rows, stream), BEGINNING_US)
                self.manager.delay.arrived(max(time for _, time in rows), now_ms)
            self.manager.promised_tentative(stream, boundary_us, now_ms)
        elif kind == "undo":
            self.sunion.undo(stream)
            self.manager.undone(stream)

    def wait_for_results(self, now_ms: int) -> None:
        """Of windows that have tuples of a stream which has promised their ends."""
        for windows, boundary_us in zip(self.windows, self.promised_us, strict=True):
            ends = [(window + 1) * WINDOW_US for window in windows if boundary_us != END_US]
            if self.has_windows_behind and windows and boundary_us != END_US:
                ends.append(boundary_us)  # Not before the first tuple.
            self.waits += [(end, now_ms) for end in ends if self.acted_us < end <= boundary_us]

    def closes(self, streams: Sequence[int], boundary_us: int) -> int:
        """The end of the newest window of these streams' tuples that a boundary closes."""
        if self.has_windows_behind and any(self.sunion.had(s, boundary_us) for s in streams):
            return boundary_us
        made_of = self.state.made_of.items()
        ends = [(window + 1) * WINDOW_US for window, of in made_of if of & set(streams)]
        return max((end for end in ends if end <= boundary_us), default=BEGINNING_US)

    def work(self, now_ms: int, passes: int) -> None:
        while passes > 0 and (step := self.manager.next_step(now_ms)) is not None:
            begins = step.action is Action.HOLD_CUT and (step.boundary_us or 0) > self.acted_us
            if begins and not any(self.are_tentative) and self.last_action is not Action.GO_ON:
                assert not self.is_prompt(now_ms), "it goes on, and nothing has waited"
            self.perform(step, now_ms)
            self.manager.check_invariants()
            passes -= 1

    def is_prompt(self, now_ms: int) -> bool:
        """Whether nothing has waited for the bound, by another account than the manager's."""
        self.waits = [wait for wait in self.waits if wait[0] > self.acted_us]
        return all(now_ms - since_ms < self.bound_ms for _, since_ms in self.waits)

    def perform(self, step: Step, now_ms: int) -> None:
        if step.action is Action.HOLD_CUT:
            self.sunion.hold_cut()
            self.cut = self.state.copy()
        elif step.action is Action.GO_BACK:
            assert self.cut is not None
            self.sunion.go_back()
            for windows, late in zip(self.windows, self.late, strict=True):
                windows |= late
                late.clear()
            self.wait_for_results(now_ms)
            self.state, self.cut = self.cut, None
            if self.output.undo() is not None:
                self.said.append(("undo", self.output.stable_before, [], 0))
        elif step.action is Action.SAY_DONE and self.output.rec_done() is not None:
            self.said.append(("rec_done", self.output.stable_before, [], 0))
        self.last_action = step.action or self.last_action
        boundary_us = step.boundary_us
        if boundary_us is not None and step.is_tentative:
            self.put_out(self.sunion.release_tentative(boundary_us), boundary_us, step)
        elif boundary_us is not None:
            boundary_us = self.sunion.boundary_for(self.step_tuples, boundary_us)
            self.put_out(self.sunion.release(boundary_us), boundary_us, step)
        self.manager.did(step, boundary_us, now_ms)
        self.acted_us = max(self.acted_us, boundary_us or BEGINNING_US)

    def put_out(self, release: Release, boundary_us: int, step: Step) -> None:
        port = release.ports[0]
        rows: list[tuple[int, int]] = []
        streams: list[int] = []
        if port is not None:
            rows = list(zip(port.batch.column(0).to_pylist(), port.time_us.tolist(), strict=True))
            streams = port.batch.column(1).to_pylist()
        results = self.state.process(rows, boundary_us, streams)
        if step.is_tentative:
            first_id = self.output.tentative(len(results))
            self.said.append(("tentative", first_id, results, boundary_us))
        else:
            first_id = self.output.stable_before
            assert self.output.fresh_from(first_id, first_id + len(results)) == first_id
            self.said.append(("stable", first_id, results, boundary_us))


@dataclass
class Source:
    """What a source sends, when, and when that arrives."""

    arrivals: list[tuple[int, Message]]
    rows: list[tuple[int, int]]
    longest_ms: int


def source(rng: random.Random, number: int, length_ms: int, silence_max_ms: int) -> Source:
    """Some tuples and a boundary every few ms; silences of all, or of boundaries alone.

    There may be a time without tuples, which it knows of when it begins.
    """
    silences = []
    for _ in range(rng.randint(0, 3)):
        begin, wanted = rng.randrange(length_ms), rng.randint(1, silence_max_ms)
        silences.append((begin, begin + wanted, rng.random() < 0.7))
    arrivals: list[tuple[int, Message]] = []
    rows: list[tuple[int, int]] = []
    blocked_ms = longest_ms = 0
    gap_ms = WINDOW_US // 1000 * rng.randrange(1, length_ms * 1000 // WINDOW_US)
    gap_ends_ms = gap_ms + rng.choice([0, 60, 150])
    for at_ms in range(0, length_ms, 5):
        count = rng.choice([0, 0, 1, 2, 4])
        promises_ms = at_ms + 5
        if gap_ms <= at_ms < gap_ends_ms:  # It knows that nothing comes, and says so.
            count, promises_ms = 0, gap_ends_ms
        mine = [
            (number * 10_000_000 + len(rows) + i, at_ms * 1000 + rng.randrange(5_000))
            for i in range(count)
        ]
        arrives_ms, boundary_ms = at_ms + rng.randint(0, 3), at_ms
        for begin, end, is_all in silences:
            if begin <= at_ms < end:
                boundary_ms = max(boundary_ms, end)
                arrives_ms = end if is_all else arrives_ms
        arrives_ms = blocked_ms = max(blocked_ms, arrives_ms)
        boundary_ms = max(arrives_ms, boundary_ms)
        longest_ms = max(longest_ms, boundary_ms - at_ms)
        arrivals.append((arrives_ms, ("stable", len(rows), mine, BEGINNING_US)))
        rows += mine
        # A boundary says nothing of later tuples that have come: it promises what was sent by then.
        arrivals.append((boundary_ms, ("stable", len(rows), [], promises_ms * 1000)))
    last_ms = max(at_ms for at_ms, _ in arrivals) + 1
    arrivals.append((last_ms, ("stable", len(rows), [], END_US)))
    arrivals.sort(key=lambda item: item[0])
    return Source(arrivals, rows, longest_ms)


def failure_free(sources: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The output of a node whose streams hold these rows."""
    merged = sorted(
        (time, stream, i, tag)
        for stream, rows in enumerate(sources)
        for i, (tag, time) in enumerate(rows)
    )
    state, results = State(), []
    for time in sorted({time for time, _, _, _ in merged}):
        # Up to and with one time after the other: where windows close, as boundaries tell it.
        results += state.process([], time)
        results += state.process([(tag, t) for t, _, _, tag in merged if t == time], time)
    return sorted_by_time(results + state.process([], END_US))


def sorted_by_time(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """By time, then value: what closes a window and what comes at its end are in no order."""
    return sorted(rows, key=lambda row: (row[1], row[0]))


@dataclass
class Reader:
    """Reads a stream with corrections: stable rows, and the suffix behind them."""

    stable: list[tuple[int, int]] = field(default_factory=list)
    suffix: list[tuple[int, int]] = field(default_factory=list)
    is_correcting: bool = False
    stable_us: int = BEGINNING_US
    suffix_us: int = BEGINNING_US
    tentative: int = 0
    undone: int = 0
    partly: int = 0  # corrections of a part
    dropped: int = 0  # input that corrections have gone without

    def take(self, message: Message) -> None:
        kind, first_id, rows, boundary_us = message
        if kind == "stable":
            assert not (rows and self.suffix), "a stable tuple behind a tentative one"
            assert first_id == len(self.stable)
            self.stable += rows
            self.stable_us = max(self.stable_us, boundary_us)
        elif kind == "tentative":
            self.suffix_us = max(self.suffix_us, boundary_us)
            assert first_id == len(self.stable) + len(self.suffix)
            self.suffix += rows
            self.tentative += len(rows)
        elif kind == "undo":
            assert first_id == len(self.stable)
            self.undone += 1
            self.partly += self.is_correcting
            self.suffix, self.is_correcting = [], True
        elif kind == "rec_done":
            assert self.is_correcting
            assert self.stable_us >= self.suffix_us, "the correction is not over"
            self.is_correcting = False


def run_one(
    seed: int, *, silence_max_ms: int = 400, passes: int = 1000, kept_max: int | None = None
) -> Reader:
    """One node, two or three sources."""
    rng = random.Random(seed)
    bound_ms = rng.choice([20, 50, 90])
    during = rng.choice([DuringFailure.PROCESS, DuringFailure.DELAY])
    sources = [source(rng, i, 600, silence_max_ms) for i in range(rng.randint(2, 3))]
    node = SmallNode(len(sources), bound_ms, during, rng.choice([3, 1000]), kept_max)
    reader = Reader()
    pending = [list(each.arrivals) for each in sources]
    now_ms = 0
    while any(pending) or not node.manager.is_finished:
        for stream, arrivals in enumerate(pending):
            while arrivals and arrivals[0][0] <= now_ms:
                node.receive(stream, arrivals.pop(0)[1], now_ms)
        node.work(now_ms, passes)
        for message in node.said:
            reader.take(message)
        node.said.clear()
        if passes == 1000 and kept_max is None:  # What was dropped closes nothing any more.
            assert node.is_prompt(now_ms), "something waits longer than the bound"
            due_ms = node.manager.due_ms()
            assert due_ms is None or due_ms > now_ms
        now_ms += 1
        assert now_ms < 20_000, "it does not come to an end"
    dropped = node.sunion.dropped
    left = [
        [
            each.rows[i]
            for start, stop in left_of(ranges, 0, len(each.rows))
            for i in range(start, stop)
        ]
        for each, ranges in zip(sources, dropped, strict=True)
    ]
    reader.dropped = sum(map(count, dropped))
    assert sum(map(len, left)) + reader.dropped == sum(len(each.rows) for each in sources)
    assert sorted_by_time(reader.stable) == failure_free(left)
    assert not reader.suffix
    assert not reader.is_correcting
    assert not any(node.sunion.held_tuples)
    if passes == 1000:
        assert node.manager.delay.longest_ms <= bound_ms
    if all(each.longest_ms + 8 < bound_ms for each in sources):
        assert reader.tentative == 0, "nothing was missing for as long as the bound"
    return reader


def test_every_undo_leaves_a_prefix_and_in_the_end_all_is_stable() -> None:
    readers = [run_one(seed) for seed in range(60)]
    assert sum(reader.undone > 0 for reader in readers) > 20
    assert sum(reader.undone > 1 for reader in readers) > 5


@pytest.mark.parametrize("kept_max", [0, 15])
def test_the_stable_output_is_that_of_the_input_that_was_not_dropped(kept_max: int) -> None:
    readers = [run_one(seed, kept_max=kept_max) for seed in range(40)]
    assert sum(reader.dropped > 0 for reader in readers) > 10
    assert all(reader.tentative for reader in readers if reader.dropped)
    assert sum(reader.undone > 0 for reader in readers) > 20


def test_a_failure_shorter_than_the_bound_gives_no_tentative_tuple() -> None:
    readers = [run_one(seed, silence_max_ms=9) for seed in range(30)]
    assert sum(reader.tentative == 0 for reader in readers) > 25


def test_failures_within_corrections_begin_when_these_are_over() -> None:
    readers = [run_one(seed, passes=1) for seed in range(50)]
    assert sum(reader.undone > 1 for reader in readers) > 5


@dataclass
class Chain:
    """Nodes in a row: each merges what the one before puts out with a source of its own."""

    sources: list[Source]
    nodes: list[SmallNode]
    readers: list[Reader]  # of each node's output

    def run(self) -> None:
        pending = [list(each.arrivals) for each in self.sources]
        now_ms = 0
        while any(pending) or not self.nodes[-1].manager.is_finished:
            for number, arrivals in enumerate(pending):
                node, port = (self.nodes[number - 1], 1) if number else (self.nodes[0], 0)
                while arrivals and arrivals[0][0] <= now_ms:
                    node.receive(port, arrivals.pop(0)[1], now_ms)
            for node, reader, following in zip(
                self.nodes, self.readers, [*self.nodes[1:], None], strict=True
            ):
                node.work(now_ms, 1000)
                for message in node.said:
                    reader.take(message)
                    if following is not None:
                        following.receive(0, message, now_ms)
                node.said.clear()
            now_ms += 1
            assert now_ms < 20_000, "it does not come to an end"


def run_chain(seed: int) -> Chain:
    """Two to four nodes; each waits a little longer than the one before."""
    rng = random.Random(seed)
    bound_ms, length = rng.choice([30, 60]), rng.randint(2, 4)
    during = rng.choice([DuringFailure.PROCESS, DuringFailure.DELAY])
    sources = [source(rng, i, 500, 300) for i in range(length + 1)]
    nodes = [SmallNode(2, bound_ms + 5 * i, during, 1000) for i in range(length)]
    for node in nodes[:-1]:
        node.has_windows_behind = True
    chain = Chain(sources, nodes, [Reader() for _ in nodes])
    chain.run()
    stable = sources[0].rows
    for reader, own in zip(chain.readers, sources[1:], strict=True):
        assert sorted_by_time(reader.stable) == failure_free([stable, own.rows])
        assert not reader.suffix
        assert not reader.is_correcting
        stable = reader.stable
    return chain


def test_a_chain_passes_corrections_on_and_waits_once() -> None:
    chains = [run_chain(seed) for seed in range(40)]
    assert sum(chain.readers[-1].undone > 0 for chain in chains) > 20
    for chain in chains:
        assert all(node.manager.delay.longest_ms <= node.bound_ms for node in chain.nodes)


def test_streams_a_little_ahead_of_one_that_is_back_do_not_keep_it_from_being_corrected() -> None:
    manager = ConsistencyManager(2, InputDelay(2, 50, DuringFailure.PROCESS))
    states = []
    for now_ms in range(0, 400, 2):
        manager.promised(0, now_ms * 1000, now_ms)
        if now_ms >= 200:
            manager.promised(1, (now_ms - 5) * 1000, now_ms)
        while (step := manager.next_step(now_ms)) is not None:
            manager.did(step, step.boundary_us, now_ms)
        states.append((now_ms, manager.state))
    assert states[40] == (80, Consistency.UP_FAILURE)
    assert all(state is Consistency.STABLE for now_ms, state in states if now_ms > 250)


def test_a_stream_that_is_behind_for_ever_does_not_keep_stable_output_back() -> None:
    manager = ConsistencyManager(2, InputDelay(2, 50, DuringFailure.PROCESS))
    acted_us = []
    for now_ms in range(0, 4_000, 2):
        manager.promised(0, now_ms * 1000, now_ms)
        manager.promised(1, (now_ms - 500) * 1000, now_ms)
        while (step := manager.next_step(now_ms)) is not None:
            manager.did(step, step.boundary_us, now_ms)
            if step.boundary_us is not None and not step.is_tentative:
                acted_us.append((now_ms, step.boundary_us))
    behind = [now_ms * 1000 - stable_us for now_ms, stable_us in acted_us]
    gaps = [b - a for (a, _), (b, _) in pairwise(acted_us)]
    assert max(behind) <= 502_000
    assert max(gaps) <= 50 * (PATIENCE + 1)


def test_the_documented_transitions_are_those_of_the_manager() -> None:
    page = Path(__file__).parents[3] / "docs" / "protocols" / "dpc.md"
    documented = page.read_text().split("-->\n")[1].split("\n<!-- end")[0].splitlines()[2:]
    assert documented == [
        f"| {state.value} | {event.value} | {following.value} | {action.value} |"
        for (state, event), (following, action) in TRANSITIONS.items()
    ]


def test_what_is_no_step_of_the_state_is_refused() -> None:
    manager = ConsistencyManager(2, InputDelay(2, 10, DuringFailure.PROCESS))
    with pytest.raises(InvariantViolation, match="not of a node that is stable"):
        manager.did(Step(Event.HEALED, Action.GO_BACK), None, 0)


def test_stable_tuples_again_are_dropped_by_id() -> None:
    output = SOutput(Incarnation(2), 10, left_open=Run(Incarnation(1), 3))
    assert output.undo() == Run(Incarnation(1), 3)
    assert output.fresh_from(10, 14) == 10
    assert output.tentative(2) == 14
    assert output.run == Run(Incarnation(2), 1)
    assert output.fresh_from(10, 14) == 14
    with pytest.raises(InvariantViolation, match="behind tentative ones"):
        output.fresh_from(14, 15)
    assert output.undo() == Run(Incarnation(2), 1)
    assert output.fresh_from(13, 16) == 14
    assert output.rec_done() == Run(Incarnation(2), 1)
    assert output.undo() is None
    assert output.rec_done() is None


def _a_boundary_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only tuples wait."""
    patch.setattr(InputDelay, "promised", lambda self, stream, boundary_us, now_ms: None)


def _the_timer_runs_from_the_last_tuple(patch: pytest.MonkeyPatch) -> None:
    def claim(self: _Claims, needs_us: int, now_ms: int, corrected_ms: int) -> None:
        kept(self, needs_us, now_ms, corrected_ms)
        if self._claims:
            self._claims = deque([self._claims[-1]._replace(since_ms=now_ms)])

    kept = _Claims.claim
    patch.setattr(_Claims, "claim", claim)


def _any_boundary_waits(patch: pytest.MonkeyPatch) -> None:
    """Be there something that it would close or not."""
    patch.setattr(SmallNode, "closes", lambda self, streams, boundary_us: boundary_us)


def _no_boundary_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SmallNode, "closes", lambda self, streams, boundary_us: BEGINNING_US)


def _what_closes_is_anybodys(patch: pytest.MonkeyPatch) -> None:
    """Whose tuples it holds or not."""

    def closes(self: SmallNode, streams: Sequence[int], boundary_us: int) -> int:
        del streams
        return kept(self, range(len(self.next_ids)), boundary_us)

    kept = SmallNode.closes
    patch.setattr(SmallNode, "closes", closes)


def _the_undo_is_not_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SOutput, "undo", lambda self: setattr(self, "run", None))


def _the_undo_takes_one_too_many(patch: pytest.MonkeyPatch) -> None:
    def undo(self: SOutput) -> Run | None:
        self.stable_before -= 1
        return kept(self)

    kept = SOutput.undo
    patch.setattr(SOutput, "undo", undo)


def _rec_done_comes_early(patch: pytest.MonkeyPatch) -> None:
    def next_step(self: ConsistencyManager, now_ms: int) -> Step | None:
        if self.state is Consistency.STABILIZATION:
            return Step(Event.CORRECTED, Action.SAY_DONE)
        return kept(self, now_ms)

    kept = ConsistencyManager.next_step
    patch.setattr(ConsistencyManager, "next_step", next_step)


def _tentative_output_is_called_stable(patch: pytest.MonkeyPatch) -> None:
    def perform(self: SmallNode, step: Step, now_ms: int) -> None:
        kept(
            self, step._replace(is_tentative=step.is_tentative and step.action is not None), now_ms
        )

    kept = SmallNode.perform
    patch.setattr(SmallNode, "perform", perform)


def _late_tuples_are_lost(patch: pytest.MonkeyPatch) -> None:
    def hold(self: SUnion, stream: int, piece: object, drop_from: int = NO_ID) -> None:
        before = len(self._held[stream])
        kept(self, stream, piece, drop_from)  # type: ignore[arg-type]  # SUnion's own
        if self._kept is not None and len(self._held[stream]) == before:
            self._kept[stream].pop()

    kept = SUnion._hold
    patch.setattr(SUnion, "_hold", hold)


@pytest.mark.parametrize(
    "mutant",
    [
        _a_boundary_is_forgotten,
        _the_timer_runs_from_the_last_tuple,
        _any_boundary_waits,
        _no_boundary_waits,
        _what_closes_is_anybodys,
        _the_undo_is_not_said,
        _the_undo_takes_one_too_many,
        _rec_done_comes_early,
        _tentative_output_is_called_stable,
        _late_tuples_are_lost,
    ],
)
def test_brute_force_finds_the_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RemoteProtocolError)):
        [run_one(seed) for seed in range(40)]


def test_who_follows_says_that_all_is_corrected_if_the_rest_comes_before_it_goes_on() -> None:
    node = Follower()

    def act(boundary_us: int | None, *, stable: bool, tentative: bool) -> Action | None:
        node.waits(stable=stable, tentative=tentative)
        step = node.next_step(1)
        assert step is not None
        node.did(step, boundary_us, 1)
        return step.action

    assert act(100, stable=False, tentative=True) is Action.HOLD_CUT
    node.undone()
    assert act(None, stable=True, tentative=False) is Action.GO_BACK
    assert act(50, stable=True, tentative=False) is None
    assert act(None, stable=False, tentative=True) is Action.GO_ON
    assert act(END_US, stable=True, tentative=False) is None, "the rest has come"
    assert not node.is_finished
    assert act(None, stable=False, tentative=False) is Action.SAY_DONE
    assert node.is_finished


def test_what_waits_for_a_correction_is_counted_apart_from_what_waits_for_input() -> None:
    """However slow the processor is: nothing was missing while it corrected."""
    manager = ConsistencyManager(2, InputDelay(2, 100, DuringFailure.PROCESS))
    manager.resume(0, 0)
    manager.came([(0, 10)], 5, 0)
    _do(manager, Action.HOLD_CUT, 10, 100)
    manager.came([(1, 10)], None, 200)
    _do(manager, Action.GO_BACK, None, 200)
    manager.came([(0, 30), (1, 30)], 20, 300)
    manager.came([(0, 60)], 50, 5_000)
    _do(manager, None, 10, 12_200)
    _do(manager, Action.SAY_DONE, None, 12_200)
    said = manager.statistics()
    assert (said.delay_max_ms, said.correction_delay_max_ms) == (100, 11_900)
    assert said.stabilization_ms == 12_000
    _do(manager, None, 30, 12_300)
    _do(manager, Action.HOLD_CUT, 60, 12_300)
    said = manager.statistics()
    assert (said.delay_max_ms, said.correction_delay_max_ms) == (100, 11_900)


def test_input_that_has_waited_before_and_after_a_correction_has_waited_for_both() -> None:
    manager = ConsistencyManager(2, InputDelay(2, 100, DuringFailure.PROCESS))
    manager.resume(0, 0)
    manager.came([(0, 10)], 5, 0)
    _do(manager, Action.HOLD_CUT, 10, 100)
    manager.came([(0, 20)], 15, 150)
    manager.came([(1, 10)], None, 200)
    _do(manager, Action.GO_BACK, None, 200)
    _do(manager, None, 10, 700)
    _do(manager, Action.SAY_DONE, None, 700)
    manager.came([(1, 20)], None, 780)
    assert manager.statistics().delay_max_ms == 50 + 80
    assert manager.statistics().correction_delay_max_ms == 500


def _do(
    manager: ConsistencyManager, action: Action | None, boundary_us: int | None, now_ms: int
) -> None:
    """The next step is this one, and its pass has come so far."""
    step = manager.next_step(now_ms)
    assert step is not None
    assert step.action is action
    manager.did(step, boundary_us, now_ms)
