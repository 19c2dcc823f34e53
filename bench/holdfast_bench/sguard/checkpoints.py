"""Preparing, writing and loading checkpoints of one large state. [SGuard Figures 6 and 9]"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import queue
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.core.checkpoint.loading import PageLoader
from holdfast.core.haunit import events
from holdfast.core.haunit.prepared import PreparedCheckpoint, StoredCheckpoint
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.state.page_manager import STATE_BYTES_MAX_DEFAULT
from holdfast.shell.io_service import IOService
from holdfast.shell.stores.folder import FolderStore
from holdfast_bench.sguard.states import AggregateState

_NODE: Final = NodeId("state[0]")
_TIMEOUT_S: Final = 120


class Writer:
    """Takes checkpoints of one state, as the ChkptMngr of a node does."""

    def __init__(self, state: AggregateState, folder: Path, workers: int = 2) -> None:
        """Checkpoints go to `folder`."""
        self.state = state
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        store = FolderStore(str(folder))
        self.io = IOService(store, _NODE, workers, self._answers.put, lambda *_: ())
        self._sequence = 0
        self._base: StoredCheckpoint | None = None
        self._prepared: PreparedCheckpoint | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._prepared is not None

    def begin(self) -> float:
        """Prepare a checkpoint and have it written; for how long the unit stood still, seconds."""
        began = time.perf_counter()
        pages = self.state.pages
        self._sequence += 1
        self._prepared = PreparedCheckpoint(
            _NODE,
            CheckpointId(self._sequence, Incarnation(1)),
            RestartPoint(self._sequence),
            pages.arena,
            pages.page_bytes,
            pages.checkpoint(),
            self._base.image if self._base else None,
            (),
            (),
            workers=2,
        )
        self.io.write(self._prepared)
        return time.perf_counter() - began

    def poll(self, timeout_s: float = 0.0) -> StoredCheckpoint | None:
        """Take answers: thaw what has been copied; the checkpoint, once it is stored."""
        while self._prepared is not None:
            try:
                answer = self._answers.get(timeout=timeout_s) if timeout_s else self._next()
            except queue.Empty:
                return None
            if isinstance(answer, events.PagesCopied):
                self.state.pages.thaw(self._prepared.snapshot, answer.positions)
            elif isinstance(answer, events.CheckpointWritten):
                self.state.pages.finish(self._prepared.snapshot)
                self._prepared, self._base = None, answer.stored
                return answer.stored
            else:
                raise RuntimeError(f"the checkpoint failed: {answer}")
        return None

    def _next(self) -> Any:
        return self._answers.get_nowait()

    def take(self) -> StoredCheckpoint:
        """A whole checkpoint."""
        self.begin()
        stored = self.poll(_TIMEOUT_S)
        if stored is None:
            raise RuntimeError("the checkpoint was never stored")
        return stored


def preparing(
    sizes_mb: tuple[int, ...], repeats: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """How long the unit stands still: freezing pages, against serializing the same state."""
    results: list[dict[str, Any]] = []
    for size_mb in sizes_mb:
        for page_bytes in (8 << 10, 64 << 10):
            state = AggregateState.of(size_mb * 10**6, page_bytes)
            times: list[float] = []
            for _ in range(repeats):
                began = time.perf_counter()
                snapshot = state.pages.checkpoint()
                times.append(time.perf_counter() - began)
                state.pages.cancel(snapshot)
            result: dict[str, Any] = {
                "size_mb": round(state.size_bytes() / 1e6),
                "page_bytes": page_bytes,
                "prepare_ms": statistics.median(times) * 1e3,
                "prepare_max_ms": max(times) * 1e3,
            }
            if page_bytes == 8 << 10:
                result |= _serializing(state)
            results.append(result)
            say(f"preparing {result['size_mb']} MB: {result['prepare_ms']:.2f} ms")
    return results


def _serializing(state: AggregateState) -> dict[str, Any]:
    """The same state through Arrow, and group by group through JSON, whole, into memory."""
    rows = state.operator.state_rows
    began = time.perf_counter()
    table = rows()
    sink = io.BytesIO()
    for batch in table.to_batches():
        sink.write(batch.serialize())
    arrow_s = time.perf_counter() - began
    entries = dict(zip(table["key"].to_pylist(), table["n"].to_pylist(), strict=True))
    began = time.perf_counter()
    json.dumps(entries)
    return {
        "serialize_arrow_ms": arrow_s * 1e3,
        "serialize_objects_ms": (time.perf_counter() - began) * 1e3,
    }


def incremental(size_mb: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """What a checkpoint writes when a share of the pages has been touched."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-sguard-") as folder:
        state = AggregateState.of(size_mb * 10**6, 8 << 10)
        writer = Writer(state, Path(folder))
        whole = writer.take()
        (record_set,) = [s for s, n in state.pages.page_counts().items() if n == _largest(state)]
        for percent in (1, 5, 20):
            pages = state.pages.page_counts()[record_set]
            for sequence in range(0, pages, 100 // percent):
                state.pages.writable(record_set, sequence)
            touched = state.pages.dirty_pages()
            stored = writer.take()
            results.append(
                {
                    "touched_percent": 100 * touched / len(stored.image.file),
                    "written_percent": 100 * stored.written_bytes / whole.written_bytes,
                    "written_bytes": stored.written_bytes,
                }
            )
            say(f"touched {results[-1]['touched_percent']:.2f} %: {results[-1]}")
        writer.io.close()
    return results


def _largest(state: AggregateState) -> int:
    return max(state.pages.page_counts().values())


def restoring(
    sizes_mb: tuple[int, ...], repeats: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """How fast a checkpoint is loaded, against reading the same files into fresh memory."""
    results: list[dict[str, Any]] = []
    for size_mb in sizes_mb:
        with tempfile.TemporaryDirectory(prefix="holdfast-sguard-") as folder:
            state = AggregateState.of(size_mb * 10**6, 8 << 10)
            writer = Writer(state, Path(folder))
            stored = writer.take()
            ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
            reads, loads, tables = [], [], []
            for _ in range(repeats):
                reads.append(_read_files(Path(folder)))
                began = time.perf_counter()
                loaded = writer.io.load_now(ref, {}, STATE_BYTES_MAX_DEFAULT)
                loads.append(time.perf_counter() - began)
                del loaded
                began = time.perf_counter()
                PageLoader(stored.image, STATE_BYTES_MAX_DEFAULT)
                tables.append(time.perf_counter() - began)
            writer.io.close()
            size = state.size_bytes()
            results.append(
                {
                    "size_mb": round(size / 1e6),
                    "load_ms": statistics.median(loads) * 1e3,
                    "read_ms": statistics.median(reads) * 1e3,
                    "load_mb_per_s": size / statistics.median(loads) / 1e6,
                    "speed_percent": 100
                    * statistics.median(r / x for r, x in zip(reads, loads, strict=True)),
                    "page_tables_ms": statistics.median(tables) * 1e3,
                }
            )
            say(f"restoring: {results[-1]}")
    return results


def _read_files(folder: Path) -> float:
    """Read all files of pages into fresh memory, by as many threads as the IOService has.

    The memory is of the kind that pages lie in, with large pages: NumPy's own takes half as long
    again.
    """
    from concurrent.futures import ThreadPoolExecutor

    paths = list(folder.rglob("*.pages"))
    began = time.perf_counter()
    buffers = [_fresh_memory(path.stat().st_size) for path in paths]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_read_file, paths, buffers))
    return time.perf_counter() - began


def _fresh_memory(size: int) -> np.ndarray:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def _read_file(path: Path, buffer: np.ndarray) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        done = 0
        while done < len(buffer):
            done += os.preadv(file, [buffer[done : done + (4 << 20)].data], done)
    finally:
        os.close(file)
