"""The IOService over real stores: what is written is loaded again, and damage is told apart."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit import events
from holdfast.core.haunit.prepared import OutputTuples, PreparedCheckpoint, StoredCheckpoint
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointUnreadable,
    LoadingFailed,
    StoreFailed,
)
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.state.page_manager import PageManager, StateLimitExceeded
from holdfast.core.state.paged_list import PagedList
from holdfast.shell.io_service import IOService
from holdfast.shell.stores.base import CheckpointStore, ObjectWriter, StoreUnavailable
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStore

NODE = NodeId("counts[0]")
STREAM = StreamId("out")
SCHEMA = with_time(pa.schema([("n", pa.int64())]))
STATE_BYTES = 1 << 30


class FullStore(FolderStore):
    """Takes the first bytes, and no more."""

    def create(self, name: str) -> ObjectWriter:
        writer = super().create(name)

        class Full:
            def write(self, data: bytes | memoryview) -> None:
                raise StoreUnavailable("no space left")

            def close(self) -> None:
                writer.close()

            def abort(self) -> None:
                writer.abort()

        return Full()


class BusyStore(FolderStore):
    """Others come first, once."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.is_free = threading.Event()
        self.said: list[object] = []

    def reserve(
        self, sizes: Sequence[int], is_over: Callable[[], bool], refused: Callable[[], None]
    ) -> None:
        self.said.append(sum(sizes))
        if not self.is_free.is_set():
            refused()
            while not self.is_free.wait(0.01):
                if is_over():
                    raise StoreUnavailable("given up")

    def release(self) -> None:
        self.said.append("released")


class AwayStore(FolderStore):
    """Does not answer readers."""

    def size(self, name: str) -> int:
        raise StoreUnavailable("no route to host")

    def read(self, name: str) -> memoryview:
        raise StoreUnavailable("no route to host")


class CancellingStore(FolderStore):
    """Somebody cancels the checkpoint as soon as the first file is there."""

    io: IOService
    checkpoint: CheckpointId

    def create(self, name: str) -> ObjectWriter:
        self.io.cancel(self.checkpoint)
        return super().create(name)


class Bench:
    """A page manager with a list, and an IOService whose answers wait in a queue."""

    def __init__(self, store: CheckpointStore) -> None:
        self.pages = PageManager(page_bytes=512)
        self.list = PagedList(self.pages)
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.io = IOService(store, NODE, 2, self.answers.put, self._spilled)
        self.sequence = 0
        self.base: StoredCheckpoint | None = None

    def _spilled(self, stream: StreamId, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        return (_batch(from_id, to_id),)

    def answer(self) -> Any:
        """The next answer that is no progress."""
        while True:
            answer = self.answers.get(timeout=240)
            if not isinstance(answer, events.PagesCopied):
                return answer

    def write(self, *, gives_way: bool = False) -> Any:
        self.sequence += 1
        snapshot = self.pages.checkpoint()
        prepared = PreparedCheckpoint(
            NODE,
            CheckpointId(self.sequence, Incarnation(1)),
            RestartPoint(self.sequence, next_ids={STREAM: 9}),
            self.pages.arena,
            self.pages.page_bytes,
            snapshot,
            self.base.image if self.base else None,
            (OutputTuples(STREAM, 3, 9, (_batch(5, 9),)),),
            (),
            workers=2,
            gives_way=gives_way,
        )
        self.io.write(prepared)
        answer = self.answer()
        if isinstance(answer, events.CheckpointWritten):
            self.pages.finish(snapshot)
            self.base = answer.stored
        else:
            self.pages.cancel(snapshot)
        return answer

    def load(self, stored: StoredCheckpoint) -> Any:
        ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
        self.io.load(ref, {STREAM: SCHEMA}, STATE_BYTES)
        return self.answer()


def _batch(from_id: int, to_id: int) -> TupleBatch:
    numbers = pa.array(range(from_id, to_id), pa.int64())
    return TupleBatch(from_id, pa.RecordBatch.from_arrays([numbers, numbers], schema=SCHEMA), to_id)


def _rows(first: int, count: int) -> np.ndarray:
    return np.arange(first, first + count * 4, dtype=np.int64).reshape(count, 4)


@pytest.fixture(params=["folder", "memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "folder":
        return FolderStore(str(tmp_path / "store"))
    url = f"memory://{tmp_path}" if request.param == "memory" else f"file://{tmp_path}/store"
    return FileSystemStoreSpec(url).open()


def test_what_is_written_is_loaded_again(store: CheckpointStore) -> None:
    bench = Bench(store)
    bench.list.append(_rows(0, 2000))
    first = bench.write()
    assert isinstance(first, events.CheckpointWritten)
    bench.list.overwrite(1000, _rows(7, 3))
    second = bench.write()
    assert isinstance(second, events.CheckpointWritten)
    assert second.stored.written_bytes < first.stored.written_bytes / 10
    answer = bench.load(second.stored)
    assert isinstance(answer, CheckpointLoaded)
    loaded = answer.loaded
    loaded.pages.check_invariants()
    assert PagedList(loaded.pages).scan().tolist() == bench.list.scan().tolist()
    assert [(b.first_id, b.next_id) for b in loaded.outputs[STREAM]] == [(3, 5), (5, 9)]
    older = bench.load(first.stored)
    assert isinstance(older, CheckpointLoaded)
    bench.io.close()


def test_forgotten_checkpoints_leave_nothing_behind(store: CheckpointStore) -> None:
    bench = Bench(store)
    bench.list.append(_rows(0, 100))
    stored = bench.write().stored
    assert bench.io.found() == (stored.checkpoint,)
    bench.io.forget((stored.checkpoint,))
    bench.io.close()
    assert store.names() == []


@pytest.mark.parametrize("part", ["manifest", "pages", "outputs"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_is_told_and_never_loaded(tmp_path: Path, part: str, damage: str) -> None:
    bench = Bench(FolderStore(str(tmp_path)))
    bench.list.append(_rows(0, 500))
    stored = bench.write().stored
    path = next(p for p in sorted(tmp_path.rglob("*")) if p.is_file() and part in p.name)
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) - 7])
    else:
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    answer = bench.load(stored)
    assert isinstance(answer, CheckpointUnreadable)
    assert part in answer.reason or "manifest" in answer.reason
    bench.io.close()


def test_a_full_store_fails_the_checkpoint_and_the_next_one_holds_everything(
    tmp_path: Path,
) -> None:
    bench = Bench(FullStore(str(tmp_path)))
    bench.list.append(_rows(0, 500))
    failed = bench.write()
    assert isinstance(failed, events.CheckpointFailed)
    assert "no space left" in failed.reason
    bench.io.close()
    assert FolderStore(str(tmp_path)).names() == []
    again = Bench(FolderStore(str(tmp_path)))
    again.pages, again.list, again.sequence = bench.pages, bench.list, 1
    stored = again.write().stored
    answer = again.load(stored)
    assert PagedList(answer.loaded.pages).scan().tolist() == bench.list.scan().tolist()
    again.io.close()


def test_a_refused_checkpoint_is_said_to_be_and_later_that_its_turn_has_come(
    tmp_path: Path,
) -> None:
    store = BusyStore(str(tmp_path))
    bench = Bench(store)
    bench.list.append(_rows(0, 500))
    assert isinstance(bench.write(gives_way=True), events.CheckpointRefused)
    bench.list.append(_rows(500, 500))
    store.is_free.set()
    assert bench.answer() == events.WriteAdmitted()
    assert isinstance(bench.write(gives_way=True), events.CheckpointWritten)
    first, second, last = store.said
    assert isinstance(first, int)
    assert isinstance(second, int)
    assert second > first  # It is as large as the state has become.
    assert last == "released"
    bench.io.close()


def test_what_cannot_give_way_waits_as_it_is_and_ends_with_the_node(tmp_path: Path) -> None:
    store = BusyStore(str(tmp_path))
    bench = Bench(store)
    bench.list.append(_rows(0, 500))
    threading.Timer(0.05, store.is_free.set).start()
    assert isinstance(bench.write(), events.CheckpointWritten)
    store.is_free.clear()
    bench.list.append(_rows(500, 500))
    assert isinstance(bench.write(gives_way=True), events.CheckpointRefused)
    bench.io.close()
    assert bench.answers.empty()


def test_a_store_that_does_not_answer_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.shell.stores.patience._RETRY_S", 0)
    bench = Bench(FolderStore(str(tmp_path)))
    bench.list.append(_rows(0, 10))
    stored = bench.write().stored
    bench.io.close()
    away = Bench(AwayStore(str(tmp_path)))
    answer = away.load(stored)
    assert isinstance(answer, StoreFailed)
    assert "no route to host" in answer.reason
    away.io.close()


def test_a_cancelled_checkpoint_is_neither_answered_nor_left(tmp_path: Path) -> None:
    store = CancellingStore(str(tmp_path))
    bench = Bench(store)
    bench.list.append(_rows(0, 500))
    snapshot = bench.pages.checkpoint()
    prepared = PreparedCheckpoint(
        NODE,
        CheckpointId(1, Incarnation(1)),
        RestartPoint(1),
        bench.pages.arena,
        512,
        snapshot,
        None,
        (),
        (),
        workers=1,
    )
    store.io, store.checkpoint = bench.io, prepared.checkpoint
    bench.io.write(prepared)
    bench.io.close()
    assert bench.answers.empty()
    assert store.names() == []


def test_what_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    first = Bench(FolderStore(str(tmp_path)))
    first.list.append(_rows(0, 100))
    stored = first.write().stored
    second = Bench(FolderStore(str(tmp_path)))
    second.list.append(_rows(5, 100))
    failed = second.write()
    assert isinstance(failed, events.CheckpointFailed)
    assert "exists already" in failed.reason
    assert isinstance(first.load(stored), CheckpointLoaded)
    first.io.close()
    second.io.close()


def test_a_bad_sector_is_damage_and_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(FolderStore(str(tmp_path)))
    bench.list.append(_rows(0, 100))
    stored = bench.write().stored

    def preadv(file: int, buffers: object, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("holdfast.shell.stores.folder.os.preadv", preadv)
    assert isinstance(bench.load(stored), CheckpointUnreadable)
    bench.io.close()


def test_too_small_a_bound_is_neither_damage_nor_outage(tmp_path: Path) -> None:
    bench = Bench(FolderStore(str(tmp_path)))
    bench.list.append(_rows(0, 5000))
    stored = bench.write().stored
    ref = CheckpointRef(stored.checkpoint, stored.checksum, stored.bases())
    bench.io.load(ref, {STREAM: SCHEMA}, 20 * 512)
    answer = bench.answer()
    assert isinstance(answer, LoadingFailed)
    assert isinstance(answer.error, StateLimitExceeded)
    bench.io.close()
