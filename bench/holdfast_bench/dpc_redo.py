"""Corrections in this process: a node goes on without one of its two streams, and goes back.

The node counts rows per key in windows. Mostly one window stays open, so that the state goes back
to all that has come. It is stepped as a shell steps it; sources answer at once. [DPC §5.4, §5.5]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import (
    Assignment,
    DelayPlan,
    InputSpec,
    NodeLimits,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.machine import TimerFired
from holdfast.core.model.feed_rows import feed_schema
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.core.state.page_manager import PageManager
from holdfast_bench.running import BenchFailed, median

WAYS: Final = {"checkpoint/redo": 0, "undo/redo": 100_000_000}
"""By way how many tuples are kept: of whatever state, here."""
KEPT: Final = {"checkpoint/redo": 0, "undo/redo": 1_000_000}
"""The same as users have it."""
_SCHEMA: Final = pa.schema([("k", pa.int64())])
_TIMED: Final = with_time(_SCHEMA)
_A, _B = StreamId("a[0]"), StreamId("b[0]")
_STREAMS: Final = (_A, _B)
_WINDOW_US: Final = 3_600_000_000
_BOUND_MS: Final = 100
CHUNK: Final = 8_192
"""Tuples of a pass."""
_HOLDS: Final = 5
_REPEATS: Final = 15
_KEYS: Final = 10_000
_WINDOWS: Final = (100_000, _WINDOW_US)
"""Tuples of a window: one that a node can make again, and one that never closes."""
_STATE_BYTES_MAX: Final = 8 << 30


def _counting(size_us: int) -> Callable[[PageManager], WindowAggregate]:
    def build(pages: PageManager) -> WindowAggregate:
        return WindowAggregate(
            "n", _SCHEMA, ["k"], [("count", None, "n")], size_us=size_us, manager=pages
        )

    return build


class Corrected:
    """One node, two streams. Times are virtual, but for what a step takes."""

    def __init__(self, keys: int, undo_tuples: int | None, window_us: int = _WINDOW_US) -> None:
        """It counts so many keys; `undo_tuples` None: it waits for all input.

        Both streams together bring a tuple a microsecond: that is how many a window has.
        """
        self._keys = keys
        counting = _counting(window_us)
        counted = counting(PageManager()).output_schema
        sink = OutputSpec(("operator", 0), counted, (StreamId("out[0]"),), (), is_sink=True)
        feed = replace(
            sink,
            schema=feed_schema(counted),
            streams=(StreamId("out~feed[0]"),),
            feed_of=StreamId("out[0]"),
        )
        delays = None
        if undo_tuples is not None:
            delays = DelayPlan(_BOUND_MS, DuringFailure.PROCESS, undo_tuples=undo_tuples)
        limits = NodeLimits(input_queue_tuples=1 << 25, state_bytes=_STATE_BYTES_MAX)
        plan = NodePlan(
            NodeId("n[0]"),
            "n",
            0,
            tuple(InputSpec(stream, 0, _SCHEMA, None) for stream in _STREAMS),
            1,
            (OperatorSpec("n", counting, (("port", 0),)),),
            (sink,) if delays is None else (sink, feed),
            limits=limits,
            delays=delays,
        )
        self.node = Node(plan, Assignment(1, Incarnation(1), None, {}), 0)
        self.node.start(0)
        self._now_ms = 0
        self._given = dict.fromkeys(_STREAMS, 0)
        self.back_s = 0.0
        """How long it took to be back at the cut."""

    def give(self, stream: StreamId, count: int) -> None:
        """A source gives so many tuples, and promises up to their end; not processed yet."""
        first = self._given[stream]
        self._given[stream] = first + count
        ids = np.arange(first, first + count, dtype=np.int64)
        times = 2 * ids + _STREAMS.index(stream)
        keys = (times * 2_654_435_761) % (1 << 32) % self._keys
        rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(times)], schema=_TIMED)
        boundary_us = 2 * (first + count)
        batch = TupleBatch(first, rows, boundary_us)
        self.node.step(events.SourceRead(stream, (batch,), boundary_us), self._now_ms)

    def proceed(self) -> float:
        """Run all passes; the seconds that they take."""
        began_s = time.perf_counter()
        while self.node.has_work:
            was, from_s = self._state(), time.perf_counter()
            self.node.step(events.Proceed(), self._now_ms)
            if was is Consistency.UP_FAILURE and self._state() is Consistency.STABILIZATION:
                self.back_s = time.perf_counter() - from_s
        return time.perf_counter() - began_s

    def _state(self) -> Consistency:
        said = self.node.consistency
        return Consistency.STABLE if said is None else said.state

    def both(self, tuples: int) -> float:
        """So many tuples of both streams, as they come; the seconds of their passes."""
        seconds = 0.0
        for _ in range(max(1, tuples // (2 * CHUNK))):
            self.give(_A, min(CHUNK, tuples // 2))
            self.give(_B, min(CHUNK, tuples // 2))
            began_s = time.perf_counter()
            while self.node.has_work:
                self.node.step(events.Proceed(), self._now_ms)
            seconds += time.perf_counter() - began_s
        return seconds

    def fail(self, tuples: int) -> float:
        """Half of so many tuples without the other stream, then that; the seconds to correct it.

        Raises:
            BenchFailed: It has not gone on without the stream, or not corrected that.
        """
        chunks = max(1, tuples // (2 * CHUNK))
        for _ in range(chunks):
            self.give(_A, min(CHUNK, tuples // 2))
            self.proceed()
            self._now_ms += _BOUND_MS + 1
            self.node.step(TimerFired("delay"), self._now_ms)
            self.proceed()
        if self._state() is not Consistency.UP_FAILURE:
            raise BenchFailed("the node waits for a stream that is missing")
        for _ in range(chunks):
            self.give(_B, min(CHUNK, tuples // 2))
        seconds = self.proceed()
        if self._state() is not Consistency.STABLE:
            raise BenchFailed("the node has not corrected what it went on without")
        return seconds


def redo(
    states: tuple[int, ...], counts: tuple[int, ...], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """By way, state and tuples to process again: how long, and which share of the usual rate."""
    Corrected(100, 0).fail(4 * CHUNK)  # Kernels are compiled.
    points: list[dict[str, Any]] = []
    for state, count, way in itertools.product(states, counts, WAYS):
        usual = Corrected(state, WAYS[way])
        usual.both(state)
        usual_s = usual.both(count)
        failed = Corrected(state, WAYS[way])
        failed.both(state)
        redo_s = failed.fail(count)
        points.append(
            {
                "reconcile": way,
                "state": state,
                "tuples": count,
                "redo_ms": round(redo_s * 1000, 1),
                "back_ms": round(failed.back_s * 1000, 1),
                "tuples_per_s": round(count / redo_s),
                "share_of_usual": round(usual_s / redo_s, 3),
            }
        )
        said = points[-1]
        say(f"{way}, state {state:,}, {count:,} again: {said['redo_ms']:g} ms, {said['back_ms']:g}")
    return points


def overhead(tuples: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """What a node's passes cost without failure, beside upstream backup.

    Nodes of all ways live beside each other, and run so many tuples in turns.
    """
    points: list[dict[str, Any]] = []
    for window in _WINDOWS:
        nodes = {"UpstreamBackup": Corrected(_KEYS, None, window)}
        nodes |= {way: Corrected(_KEYS, kept, window) for way, kept in KEPT.items()}
        seconds: dict[str, list[float]] = {way: [] for way in nodes}
        for number in range(_REPEATS + 1):
            for way, node in nodes.items():
                spent_s = node.both(tuples)
                if number:  # The first time kernels are compiled.
                    seconds[way].append(spent_s)
        usual_s = median(seconds["UpstreamBackup"])
        for way, spent in seconds.items():
            share = round(usual_s / median(spent), 3)
            rate = round(tuples / median(spent))
            points.append(
                {"window": window, "protection": way, "tuples_per_s": rate, "throughput": share}
            )
            say(f"windows of {window:,}, {way}: {share:.1%} of upstream backup's throughput")
    return points


def standstill(state_bytes: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """How long a node stands still to hold so much state, and to go back to it."""
    pages = PageManager(state_bytes_max=4 * state_bytes)
    page_set = pages.create_page_set()
    pages.allocate(page_set, state_bytes // pages.page_bytes)
    holds_ms: list[float] = []
    backs_ms: list[float] = []
    for _ in range(_HOLDS):
        began_s = time.perf_counter()
        snapshot = pages.hold()
        holds_ms.append((time.perf_counter() - began_s) * 1000)
        began_s = time.perf_counter()
        pages.restore(snapshot)
        backs_ms.append((time.perf_counter() - began_s) * 1000)
    point = {
        "state_bytes": state_bytes,
        "first_ms": round(holds_ms[0], 3),
        "hold_ms": median(holds_ms),
        "back_ms": median(backs_ms),
    }
    say(f"{state_bytes >> 20} MiB: {point['hold_ms']:g} ms, the first time {point['first_ms']:g}")
    return [point]
