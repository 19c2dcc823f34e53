"""Events that were written before and become visible in small files at a steady rate.

A chunk is what happens within `TICK_S`; event time goes as fast as the clock. A chunk costs its
reader's machine a rename per file, so that feeding takes next to nothing from the two cores.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.queues.recording import IngestFile
from holdfast.nexmark.generator import PER_GROUP, NexmarkConfig, event_time_us, generate, schema_of
from holdfast.nexmark.queries import KINDS
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast_bench.peers.events import write_csv

TICK_S: Final = 0.05
_TICK_US: Final = 50_000
_GROUP: Final = sum(PER_GROUP.values())
_OFFSET: Final = {"person": 0, "auction": 1, "bid": 4}
_ROUND: Final = 1_000
"""Events per second of all kinds are a multiple of this, so that every tick has whole groups."""


@dataclass(slots=True)
class Staged:
    """Chunks ready to be released, in one format.

    Attributes:
        query: What reads them.
        form: Their format.
        rate: Tuples per second that the query reads.
        chunks: How many.
        inputs: The folder per kind into which they are released.
        config: Of the generator.
        is_final: Whether results wait for the end of their window.
        stages: Per kind the files of the chunks.
        released: How many are visible.
        released_at_s: When each of them became so, seconds since the epoch.
    """

    query: str
    form: str
    rate: float
    chunks: int
    inputs: dict[str, str]
    config: NexmarkConfig
    is_final: bool
    stages: dict[str, list[Path | IngestFile]]
    released: int = 0
    released_at_s: list[float] = field(default_factory=list)

    def release(self) -> None:
        """Make the next chunk visible, of all kinds; it counts as made just before."""
        self.released_at_s.append(time.time())
        for kind, folder in self.inputs.items():
            file = self.stages[kind][self.released]
            if isinstance(file, IngestFile):
                ingest_log.append_batch(folder, [file])
            else:
                os.utime(file)  # Spark reads files in the order of their times.
                file.rename(Path(folder) / file.name)
        self.released += 1

    def end(self) -> None:
        """Nothing more comes; only an ingest log can say so."""
        if self.form == "log":
            for folder in self.inputs.values():
                ingest_log.end(folder)

    @property
    def closed_us(self) -> int:
        """Up to which event time all is visible."""
        last = {k: self.released * _per_tick(k, self.config) - 1 for k in self.inputs}
        return min(event_time_us(kind, index, self.config) for kind, index in last.items())

    def chunk_of(self, cause_us: Any) -> Any:
        """Which chunk has the first event at or after these times."""
        return (cause_us - self.config.base_time_us) // _TICK_US

    def cause_us(self, results: pa.Table) -> Any:
        """The event time that a result had to wait for: of its event, or its window's end."""
        if self.is_final:
            return results.column("window_end").to_numpy()
        if self.query == "q1":
            return results.column("date_time").to_numpy()
        if self.query == "q3":
            return self._times_us("auction", results.column("id"))
        person_us = self._times_us("person", results.column("id"))
        return np.maximum(person_us, self._times_us("auction", results.column("auction")))

    def _times_us(self, kind: str, ids: Any) -> Any:
        """`event_time_us` of many events."""
        index, per_group = ids.to_numpy(), PER_GROUP[kind]
        number = index // per_group * _GROUP + _OFFSET[kind] + index % per_group
        return self.config.base_time_us + number * 1_000_000 // self.config.events_per_second


def _per_tick(kind: str, config: NexmarkConfig) -> int:
    return int(config.events_per_second * TICK_S) // _GROUP * PER_GROUP[kind]


def stage(
    query: str, form: str, rate: float, seconds: float, folder: Path, *, is_final: bool
) -> Staged:
    """Write what a query reads in so many seconds at about so many tuples per second."""
    kinds = KINDS[query]
    share = sum(PER_GROUP[kind] for kind in kinds) / _GROUP
    events_per_second = max(1, round(rate / share / _ROUND)) * _ROUND
    config = NexmarkConfig(events_per_second=events_per_second)
    chunks = int(seconds / TICK_S)
    staged = Staged(
        query,
        form,
        events_per_second * share,
        chunks,
        {kind: str(folder / kind) for kind in kinds},
        config,
        is_final,
        {kind: [] for kind in kinds},
    )
    for kind in kinds:
        per_tick = _per_tick(kind, config)
        write = _writer(form, kind, folder)
        for chunk in range(chunks):
            events = generate(kind, chunk * per_tick, per_tick, config)
            staged.stages[kind].append(write(chunk, events))
    return staged


def _writer(form: str, kind: str, folder: Path) -> Any:
    """What writes a chunk: events in, the staged file out."""
    visible, hidden = folder / kind, folder / f"{kind}-staged"
    if form == "log":
        meta = IngestMeta(schema_of(kind), "date_time", 0)
        ingest_log.prepare(str(visible), meta)
        return lambda _, events: ingest_log.write_file(str(visible), meta, [events])
    visible.mkdir(parents=True)
    hidden.mkdir()

    def write(chunk: int, events: pa.RecordBatch) -> Path:
        path = hidden / f"{chunk:06d}.{'parquet' if form == 'parquet' else 'csv'}"
        table = pa.Table.from_batches([events])
        if form == "parquet":
            pq.write_table(table, path, use_dictionary=False)
        else:
            write_csv(table, path, form)
        return path

    return write


class Feeder:
    """Releases chunks at their times until told to stop or none is left."""

    def __init__(self, staged: Staged) -> None:
        """Nothing happens yet."""
        self._staged = staged
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self.latest_s = 0.0
        """How late a release was at most."""

    def start(self) -> None:
        """Begin with the next chunk."""
        self._thread.start()

    def _feed(self) -> None:
        first, began_s = self._staged.released, time.monotonic()
        while self._staged.released < self._staged.chunks:
            due_s = began_s + (self._staged.released - first) * TICK_S
            if self._is_over.wait(max(0.0, due_s - time.monotonic())):
                return
            self.latest_s = max(self.latest_s, time.monotonic() - due_s)
            self._staged.release()

    @property
    def is_running(self) -> bool:
        """Whether more comes."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """No more chunks; may be said again."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()


class Follower:
    """Follows an output: which rows were seen, and how long after their cause each came."""

    def __init__(self, output: Any, staged: Staged) -> None:
        """Nothing has been read yet."""
        self._output, self._staged = output, staged
        self.seen: list[tuple[pa.Table, float]] = []
        """All that has come, in order, and when: seconds since the epoch."""
        self._newest, self._looked_at = -1, 0
        self._has_glanced = False
        self.count = 0

    def glance(self) -> bool:
        """Note that something is visible now, and take it later where that is possible."""
        glance = getattr(self._output, "glance", None)
        if glance is None:
            return bool(self.poll())
        self._has_glanced = True
        return bool(glance())

    def poll(self) -> list[pa.Table]:
        """Take what is visible now."""
        tables: list[pa.Table] = self._output.poll()
        now_s = time.time()
        self.seen += [(table, now_s) for table in tables]
        self.count += sum(table.num_rows for table in tables)
        return tables

    @property
    def newest_chunk(self) -> int:
        """The newest cause of all that has come; -1: nothing has."""
        for table, _ in self.seen[self._looked_at :]:
            self._newest = max(self._newest, int(self._chunks_of(table).max(initial=-1)))
        self._looked_at = len(self.seen)
        return self._newest

    def _chunks_of(self, table: pa.Table) -> np.ndarray:
        return np.asarray(self._staged.chunk_of(self._staged.cause_us(table)))

    def latencies_s(self, first_chunk: int) -> np.ndarray:
        """Of all results whose cause is in that chunk or a later one that has been released."""
        if self._has_glanced:
            self.seen = self._output.glanced_at()
        if not self.seen:
            return np.empty(0)
        chunks = np.concatenate([self._chunks_of(table) for table, _ in self.seen])
        seen = np.concatenate([np.full(table.num_rows, at_s) for table, at_s in self.seen])
        released_s = np.array(self._staged.released_at_s)
        is_meant = (chunks >= first_chunk) & (chunks < len(released_s))
        return np.asarray(seen[is_meant] - released_s[chunks[is_meant]])
