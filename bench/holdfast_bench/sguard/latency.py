"""Latency while checkpoints are taken, by how they are taken. [SGuard Figures 7 and 8, Table 7]

One loop feeds an aggregate, whole or in parts, with tuples that are due at a steady rate, and takes
a checkpoint of the state every so often, one part after another. A tuple's latency runs from when
it was due until it has been aggregated. `pages`: frozen pages are written in the background.
`synchronous`: all stops while the state is serialized and written. `asynchronous`: all stops while
it is serialized; writing goes on in the background.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast_bench.sguard.checkpoints import Writer
from holdfast_bench.sguard.states import AggregateState

TECHNIQUES: Final = ("none", "pages", "asynchronous", "synchronous")
_TICK_S: Final = 0.0005
_BATCH_MAX: Final = 1 << 15


@dataclass(slots=True)
class _Timeline:
    """What a run has measured.

    Attributes:
        latencies_ms: Of all tuples, in order.
        done_s: When each was done, seconds from the start.
        spans_s: From when to when checkpoints were under way.
    """

    latencies_ms: list[np.ndarray] = field(default_factory=list)
    done_s: list[np.ndarray] = field(default_factory=list)
    spans_s: list[tuple[float, float]] = field(default_factory=list)


def run(
    technique: str,
    *,
    parts: int,
    rate: int,
    seconds: float,
    interval_s: float,
    size_bytes: int,
    page_bytes: int = 8 << 10,
) -> dict[str, Any]:
    """Measure one technique; the first two intervals are warm-up."""
    states = [AggregateState.of(size_bytes // parts, page_bytes) for _ in range(parts)]
    with tempfile.TemporaryDirectory(prefix="holdfast-sguard-") as folder:
        taker = _TAKERS[technique](states, Path(folder))
        try:
            timeline = _feed(states, taker, rate, seconds, interval_s)
        finally:
            taker.close()
    return _summary(timeline, warm_up_s=2 * interval_s) | {
        "technique": technique,
        "parts": parts,
        "rate": rate,
        "interval_s": interval_s,
        "state_mb": round(sum(state.size_bytes() for state in states) / 1e6),
    }


class _None:
    """Takes no checkpoints."""

    def __init__(self, states: list[AggregateState], folder: Path) -> None:
        self._states, self._folder = states, folder

    @property
    def is_busy(self) -> bool:
        return False

    def begin(self) -> None:
        """Take a checkpoint of all parts, or begin to."""

    def poll(self) -> None:
        """Go on with it."""

    def close(self) -> None:
        """Let go of everything."""


class _Pages(_None):
    """Page snapshots, one part at a time. [SGuard §5]"""

    def __init__(self, states: list[AggregateState], folder: Path) -> None:
        super().__init__(states, folder)
        self._writers = [Writer(state, folder / str(i)) for i, state in enumerate(states)]
        self._left: list[Writer] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._left)

    def begin(self) -> None:
        self._left = list(self._writers)
        self._left[0].begin()

    def poll(self) -> None:
        if self._left and self._left[0].poll() is not None:
            self._left.pop(0)
            if self._left:
                self._left[0].begin()

    def close(self) -> None:
        for writer in self._writers:
            writer.io.close()


class _Synchronous(_None):
    """Serializes and writes each part while everything waits."""

    def begin(self) -> None:
        for number, state in enumerate(self._states):
            _write(self._folder / str(number), _serialized(state))


class _Asynchronous(_None):
    """Serializes each part while everything waits; a thread writes."""

    def __init__(self, states: list[AggregateState], folder: Path) -> None:
        super().__init__(states, folder)
        self._left: list[int] = []
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self._left) or self._thread is not None

    def begin(self) -> None:
        self._left = list(range(len(self._states)))
        self.poll()

    def poll(self) -> None:
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        if self._left and self._thread is None:
            number = self._left.pop(0)
            parts = _serialized(self._states[number])
            path = self._folder / str(number)
            self._thread = threading.Thread(target=_write, args=(path, parts))
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()


_TAKERS: Final[dict[str, type[_None]]] = {
    "none": _None,
    "pages": _Pages,
    "asynchronous": _Asynchronous,
    "synchronous": _Synchronous,
}


def _serialized(state: AggregateState) -> list[Any]:
    """All groups, as Arrow writes them: far faster than object by object."""
    return [batch.serialize() for batch in state.operator.state_rows().to_batches()]


def _write(path: Path, parts: list[Any]) -> None:
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fdatasync(file.fileno())


def _feed(
    states: list[AggregateState], taker: _None, rate: int, seconds: float, interval_s: float
) -> _Timeline:
    timeline = _Timeline()
    groups = states[0].groups * len(states)
    keys = np.random.default_rng(7).integers(0, groups, 1 << 20)
    began = time.perf_counter()
    done, next_s, busy_since = 0, interval_s, -1.0
    while (now_s := time.perf_counter() - began) < seconds:
        if now_s >= next_s and not taker.is_busy:
            next_s += interval_s
            taker.begin()
            busy_since = now_s
        taker.poll()
        if busy_since >= 0 and not taker.is_busy:
            timeline.spans_s.append((busy_since, time.perf_counter() - began))
            busy_since = -1.0
        due = min(int(now_s * rate) - done, _BATCH_MAX)
        if due <= 0:
            time.sleep(_TICK_S)  # Until tuples are due.
            continue
        _process(states, keys[np.arange(done, done + due) & (len(keys) - 1)])
        at_s = time.perf_counter() - began
        arrivals_s = (np.arange(done, done + due) + 1) / rate
        timeline.latencies_ms.append((at_s - arrivals_s) * 1e3)
        timeline.done_s.append(np.full(due, at_s))
        done += due
    return timeline


def _process(states: list[AggregateState], keys: np.ndarray) -> None:
    if len(states) == 1:
        states[0].update(keys)
        return
    part = keys % len(states)
    for number, state in enumerate(states):
        mine = keys[part == number] // len(states)
        if len(mine):
            state.update(mine)


def _summary(timeline: _Timeline, warm_up_s: float) -> dict[str, Any]:
    latencies = np.concatenate(timeline.latencies_ms)
    done_s = np.concatenate(timeline.done_s)
    spans = [(begin, end) for begin, end in timeline.spans_s if begin >= warm_up_s]
    is_during = np.zeros(len(done_s), dtype=np.bool_)
    for begin, end in spans:
        is_during |= (done_s >= begin) & (done_s <= end + 0.01)
    is_warm = done_s >= warm_up_s
    return {
        "all": _figures(latencies[is_warm]),
        "during": _figures(latencies[is_warm & is_during]),
        "between": _figures(latencies[is_warm & ~is_during]),
        "checkpoints": len(spans),
        "checkpoint_s": [round(end - begin, 3) for begin, end in spans],
        "seconds": _by_second(done_s, latencies),
    }


def _figures(latencies_ms: np.ndarray) -> dict[str, float]:
    if not len(latencies_ms):
        return {}
    p50, p99 = np.percentile(latencies_ms, [50, 99])
    return {
        "mean_ms": round(float(latencies_ms.mean()), 3),
        "sd_ms": round(float(latencies_ms.std()), 3),
        "p50_ms": round(float(p50), 3),
        "p99_ms": round(float(p99), 3),
        "max_ms": round(float(latencies_ms.max()), 3),
    }


def _by_second(done_s: np.ndarray, latencies_ms: np.ndarray) -> list[tuple[float, float]]:
    """The greatest latency in every tenth of a second, for plots."""
    tenths = (done_s * 10).astype(np.int64)
    starts = np.flatnonzero(np.diff(tenths, prepend=-1))
    tops = np.maximum.reduceat(latencies_ms, starts)
    return [(float(t) / 10, round(float(m), 3)) for t, m in zip(tenths[starts], tops, strict=True)]


def compare(
    runs: tuple[tuple[str, int, int], ...],
    *,
    seconds: float,
    interval_s: float,
    size_bytes: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Several runs of (technique, parts, tuples per second)."""
    results: list[dict[str, Any]] = []
    for technique, parts, rate in runs:
        result = run(
            technique,
            parts=parts,
            rate=rate,
            seconds=seconds,
            interval_s=interval_s,
            size_bytes=size_bytes,
        )
        say(
            f"{technique}, {parts} parts, {rate:,}/s: p99 {result['all']['p99_ms']} ms, "
            f"during a checkpoint {result['during'].get('p99_ms')} ms"
        )
        results.append(result)
    return results
