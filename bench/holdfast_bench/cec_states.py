"""Tuples that fill windows of a given number with a state of a given size, and what comes of them.

The first tuples open the slow windows, one per key, and bring the texts that these collect: as many
laps of all keys as it takes. Then tuples come at a steady rate. Every second one is of a slow
window, without text, so that the state grows no more. The others are of windows of a
tenth of a second, which close all the time. So every run has slow windows and fast ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast_bench.running import BenchFailed

FAST_US: Final = 100_000
"""Length of each window."""
STANDING_US: Final = 4_000_000_000_000_000
"""In windows from this time on lie the slow tuples: no boundary comes so far before the end."""
_STANDING: Final = 50
"""So many of them, which close one after the other: no pass is to have all results. Each has keys
that follow each other, so that a pass has few of them."""
_RUN: Final = 4_096
"""So many tuples in a row are of one of them."""
_FAST_KEYS: Final = 16
_OWN_BYTES: Final = 88
"""Of a group without text: its record and its bucket."""
_TEXT_OWN_BYTES: Final = 40
"""Of each text: where it lies, and how long it is."""
_TEXT_LEAST: Final = 64
_TEXT_MAX: Final = 1_024
WORD: Final = 16
"""A text repeats its tuple's id, as so many digits."""
_READ_BYTES: Final = 2 << 20
_SCHEMA: Final = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("text", pa.string())])
_FACTOR: Final = 2_654_435_761


@dataclass(frozen=True, slots=True)
class StateSource:
    """The source and its only partition; see the module.

    Attributes:
        windows: That stay open.
        state_bytes: Of all of them together, about.
        rate: Tuples per second, once they are filled.
        origin_us: When that begins, wall clock.
        end_path: A file that, once it exists, holds the number of tuples in all.
    """

    windows: int
    state_bytes: int
    rate: int
    origin_us: int
    end_path: str

    @property
    def _texts_bytes(self) -> int:
        """Of all texts of a window; less than 0: the window alone is larger."""
        return self.state_bytes // self.windows - _OWN_BYTES

    @property
    def text_bytes(self) -> int:
        """Of each text; 0: there is none."""
        some = min(_TEXT_MAX, self._texts_bytes - _TEXT_OWN_BYTES) // WORD * WORD
        return some if some >= _TEXT_LEAST else 0

    @property
    def laps(self) -> int:
        """How many texts each window collects, or else tuples."""
        each = self.text_bytes + _TEXT_OWN_BYTES
        return max(1, self._texts_bytes // each) if self.text_bytes else 1

    @property
    def filled(self) -> int:
        """With so many tuples the state is there."""
        return self.windows * self.laps

    @property
    def schema(self) -> pa.Schema:
        """Of its tuples."""
        return _SCHEMA

    def spec(self, partition: int, partitions: int) -> StateSource:
        """Itself. Raises `BenchFailed` for more than one partition."""
        if partitions != 1:
            raise BenchFailed(f"these tuples have one partition, not {partitions}")
        return self

    def open(self) -> SourceReader:
        """A reader of the only partition."""
        return _Reader(self)

    def to_dataframe(self, spark: Any) -> Any:
        """Refused: `Expected` is this source's oracle."""
        raise BenchFailed("tuples that fill a state have no batch twin")

    def is_slow(self, ids: np.ndarray) -> np.ndarray:
        """Whether tuples are of windows that stay open. bool (n,)."""
        slow: np.ndarray = (ids < self.filled) | (ids % 2 == 1)
        return slow

    def keys(self, ids: np.ndarray) -> np.ndarray:
        """Of tuples. int64 (n,)."""
        each = self.windows // _STANDING
        later = ids // _RUN % _STANDING * each + (ids * _FACTOR >> 7) % each
        slow = np.where(ids < self.filled, ids % self.windows, later)
        return np.where(self.is_slow(ids), slow, ids // 2 % _FAST_KEYS)

    def times_us(self, ids: np.ndarray) -> np.ndarray:
        """Of tuples. int64 (n,)."""
        standing = STANDING_US + self.keys(ids) * _STANDING // self.windows * FAST_US
        times: np.ndarray = np.where(self.is_slow(ids), standing, self.reached_us(ids))
        return times

    def reached_us(self, ids: np.ndarray) -> np.ndarray:
        """How far time is when these come. int64 (n,)."""
        reached: np.ndarray = np.maximum(0, ids - self.filled) * 1_000_000 // self.rate
        return reached

    def due(self) -> tuple[int, bool]:
        """How many tuples there are by now, and whether that is all there will be."""
        end = Path(self.end_path)
        if end.exists():
            return int(end.read_text()), True
        elapsed_s = time.time() - self.origin_us / 1e6
        return self.filled + max(0, int(elapsed_s * self.rate)), False


class _Reader:
    """Makes any range of the tuples that there are."""

    def __init__(self, source: StateSource) -> None:
        self._source = source
        self._schema = with_time(source.schema)
        self._closed = 0  # of the windows that stay open, in the end

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        source = self._source
        due, is_all = source.due()
        end = min(due, from_id + max_tuples)
        if from_id < source.filled:
            some = max(1, _READ_BYTES // (source.text_bytes + 24))
            end = min(end, from_id + some, source.filled)
        boundary_us = int(source.reached_us(np.array([end]))[0])
        if is_all and end >= due:
            self._closed += 1
            boundary_us = STANDING_US + self._closed * FAST_US
            if self._closed > _STANDING:
                boundary_us = END_US
        if end <= from_id:
            return SourceRows((), boundary_us)
        ids = np.arange(from_id, end, dtype=np.int64)
        columns = [source.keys(ids), ids, _texts(source, ids), source.times_us(ids)]
        batch = pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=self._schema)
        created_us = 0
        if from_id >= source.filled:
            created_us = source.origin_us + int((from_id - source.filled) / source.rate * 1e6)
        return SourceRows((TupleBatch(from_id, batch, boundary_us, created_us),), boundary_us)

    def close(self) -> None:
        """Nothing is open."""


def _texts(source: StateSource, ids: np.ndarray) -> pa.Array:
    """What the tuples of the fill bring; null: nothing."""
    if not source.text_bytes or ids[0] >= source.filled:
        return pa.nulls(len(ids), pa.string())
    words = pa.array([f"{i:0{WORD}d}" for i in ids.tolist()])
    return pc.binary_repeat(words, source.text_bytes // WORD)


class Expected:
    """The results of so many tuples, by arithmetic; compared with a sink's log, row by row."""

    def __init__(self, source: StateSource, total: int) -> None:
        """Of tuples [0, total)."""
        self._source = source
        ids = np.arange(total, dtype=np.int64)
        keys, slow = source.keys(ids), source.is_slow(ids)
        self.counts = np.bincount(keys[slow], minlength=source.windows)
        self.sums = _sums(keys[slow], ids[slow], source.windows)
        fast = ids[~slow]
        windows = source.reached_us(fast) // FAST_US * _FAST_KEYS + keys[~slow]
        self.windows, at, counts = np.unique(windows, return_inverse=True, return_counts=True)
        self.fast_counts, self.fast_sums = counts, _sums(at, fast, len(counts))

    def difference(self, found: pa.Table) -> str | None:
        """The first way in which these rows are not the results; None: they are."""
        starts = found.column("window_start").cast(pa.int64()).to_numpy()
        keys, n, total, pieces, chars, first, last = (
            found.column(name).to_numpy()
            for name in ("key", "n", "total", "pieces", "chars", "first", "last")
        )
        slow = starts >= STANDING_US
        order = np.argsort(keys[slow], kind="stable")
        if not np.array_equal(keys[slow][order], np.arange(self._source.windows)):
            return f"{int(slow.sum())} slow windows, or other keys, not {self._source.windows}"
        every, has_texts = np.arange(self._source.windows), bool(self._source.text_bytes)
        laps = self._source.laps if has_texts else 0
        for what, mine, wanted in (
            ("counts", n, self.counts),
            ("sums", total, self.sums),
            ("numbers of texts", pieces, np.full(len(every), laps)),
            ("texts", chars, np.full(len(every), laps * self._source.text_bytes)),
            ("first texts", first, every * has_texts),
            ("last texts", last, (every + len(every) * (laps - 1)) * has_texts),
            ("windows", starts, STANDING_US + every * _STANDING // len(every) * FAST_US),
        ):
            if wrong := np.flatnonzero(mine[slow][order] != wanted).tolist():
                return f"{what} of {len(wrong)} slow windows differ, first that of key {wrong[0]}"
        windows = starts[~slow] // FAST_US * _FAST_KEYS + keys[~slow]
        if not np.array_equal(np.sort(windows), self.windows):
            return f"{len(windows)} fast windows, or others, not {len(self.windows)}"
        order = np.argsort(windows, kind="stable")
        if not np.array_equal(n[~slow][order], self.fast_counts):
            return "counts of fast windows differ"
        if not np.array_equal(total[~slow][order], self.fast_sums):
            return "sums of fast windows differ"
        return None


def _sums(numbers: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Of the values with each number. int64 (count,)."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, numbers, values)
    return sums
