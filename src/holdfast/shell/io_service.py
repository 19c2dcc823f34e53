"""The IOService: writes and reads checkpoints with several workers side by side. [SGuard §5]

First come the output tuples, while they can still be read; then every worker writes its pages into
one file of its own; last comes the manifest. A worker copies a piece, says so, writes it, and only
then copies the next: a slow store holds up the checkpoint, never the memory or the job. The bytes
are made and checked by core/wire/checkpoint_files and core/checkpoint/loading.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.loading import PageLoader
from holdfast.core.haunit import events
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointUnreadable,
    LoadedCheckpoint,
    LoadingFailed,
    StoreFailed,
)
from holdfast.core.wire import manifests
from holdfast.core.wire.checkpoint_files import CheckpointFiles, ReadSpill, read_outputs
from holdfast.core.wire.log_records import CorruptRecord, EncodeRecord, encode_narrow
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectDamaged,
    ObjectMissing,
    StoreUnavailable,
)
from holdfast.shell.stores.patience import patiently

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.checkpoint.loading import PageRun
    from holdfast.core.haunit.prepared import PreparedCheckpoint, StoredCheckpoint
    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import CheckpointId, NodeId, StreamId
    from holdfast.core.recovery.restart_point import CheckpointRef
    from holdfast.core.state.page_manager import PageManager
    from holdfast.core.wire.manifests import Manifest

_NICENESS = 10


class _Cancelled(Exception):
    """Nobody wants the checkpoint any more."""


class _Refused(Exception):
    """There was no place for the checkpoint; now there is, for one of the state as it is."""


class _Damaged(Exception):
    """A part of a checkpoint is missing, or is not what its checksum says."""


class IOService:
    """Performs a node's checkpoint effects; one checkpoint is written at a time."""

    def __init__(
        self,
        store: CheckpointStore,
        node: NodeId,
        workers: int,
        tell: Callable[[Stimulus], None],
        read_spill: ReadSpill,
        encode_held: EncodeRecord = encode_narrow,
    ) -> None:
        """Start without work.

        Args:
            store: Where checkpoints are kept.
            node: Whose they are.
            workers: How many pages files are written, or read, side by side.
            tell: Takes the answers; called from other threads.
            read_spill: Reads what an output queue has spilled; called from other threads.
            encode_held: Makes records of what waits for its log; called from other threads.
        """
        self._store = store
        self._node = node
        self._tell = tell
        self._read_spill = read_spill
        self._encode_held = encode_held
        self._worker_count = workers
        self._workers = ThreadPoolExecutor(workers, "checkpoint-pages", _yield_to_the_node)
        self._jobs = ThreadPoolExecutor(1, "checkpoint")
        self._readers = ThreadPoolExecutor(workers, "checkpoint-read")
        self._undeleted: set[CheckpointId] = set()
        self._cancelled = threading.Event()
        self._writing: CheckpointId | None = None

    # -- writing ----------------------------------------------------------------------------

    def write(self, prepared: PreparedCheckpoint) -> None:
        """Write a checkpoint; answered by `tell`."""
        self._cancelled = threading.Event()
        self._writing = prepared.checkpoint
        self._jobs.submit(self._write, prepared, self._cancelled)

    def write_now(self, prepared: PreparedCheckpoint) -> StoredCheckpoint:
        """Write a checkpoint and wait for it. Raises what the store raises."""
        return self._write_all(CheckpointFiles(prepared), threading.Event())

    def cancel(self, checkpoint: CheckpointId) -> None:
        """Stop writing it as soon as may be; there is no answer."""
        if self._writing == checkpoint:
            self._cancelled.set()

    def _write(self, prepared: PreparedCheckpoint, cancelled: threading.Event) -> None:
        try:
            stored = self._write_in_turn(prepared, cancelled)
        except _Refused:
            self._tell(events.WriteAdmitted())
        except _Cancelled:
            self._forget(prepared.checkpoint)
        except NameTaken as error:  # What is there is somebody else's.
            self._tell(events.CheckpointFailed(prepared.checkpoint, str(error)))
        except Exception as error:  # Whatever it is, the job goes on without this checkpoint.
            self._forget(prepared.checkpoint)
            reason = f"{type(error).__name__}: {error}"
            self._tell(events.CheckpointFailed(prepared.checkpoint, reason))
        else:
            self._tell(events.CheckpointWritten(stored))

    def _write_in_turn(
        self, prepared: PreparedCheckpoint, cancelled: threading.Event
    ) -> StoredCheckpoint:
        """Write it when the store has a place for all of it. [SGuard §5]

        Raises:
            _Refused: Its pages were thawed meanwhile.
        """
        files, was_refused = CheckpointFiles(prepared), False

        def refused() -> None:
            nonlocal was_refused
            was_refused = prepared.gives_way
            if was_refused:
                self._tell(events.CheckpointRefused(prepared.checkpoint))

        try:
            self._store.reserve(files.sizes(), cancelled.is_set, refused)
        except StoreUnavailable:
            if cancelled.is_set():
                raise _Cancelled from None
            if was_refused:  # Nobody waits for this one: the next one meets the store.
                raise _Refused from None
            raise
        if was_refused:
            raise _Refused
        try:
            return self._write_all(files, cancelled)
        finally:
            self._store.release()

    def _write_all(self, files: CheckpointFiles, cancelled: threading.Event) -> StoredCheckpoint:
        prepared = files.prepared
        # Output tuples first: what is spilled can be trimmed soon.
        parts, segments = files.outputs(self._read_spill, self._encode_held)
        if segments:
            name = manifests.outputs_name(prepared.node, prepared.checkpoint)
            self._write_object(name, [memoryview(part) for part in parts])
        del parts
        jobs = [
            self._workers.submit(self._write_pages, files, worker, cancelled)
            for worker in range(len(files.parts))
        ]
        _wait_for_all(jobs, cancelled)
        manifest, stored = files.finish(segments, created_ms=time.time_ns() // 1_000_000)
        if cancelled.is_set():
            raise _Cancelled
        name = manifests.manifest_name(prepared.node, prepared.checkpoint)
        self._write_object(name, [memoryview(manifest)])
        return stored

    def _write_pages(self, files: CheckpointFiles, worker: int, cancelled: threading.Event) -> None:
        prepared = files.prepared
        name = manifests.pages_name(prepared.node, prepared.checkpoint, worker)

        def pieces() -> Iterator[memoryview]:
            for positions in files.pieces(worker):
                if cancelled.is_set():
                    raise _Cancelled
                words = files.pages(worker, positions)
                self._tell(events.PagesCopied(prepared.checkpoint, positions))
                yield words.data.cast("B")

        self._write_object(name, pieces())

    def _write_object(self, name: str, parts: Iterable[memoryview]) -> None:
        writer = self._store.create(name)
        try:
            for part in parts:
                writer.write(part)
        except BaseException:
            writer.abort()
            raise
        writer.close()

    # -- forgetting -------------------------------------------------------------------------

    def forget(self, checkpoints: tuple[CheckpointId, ...]) -> None:
        """Delete the files of checkpoints, in the background."""
        self._jobs.submit(self._forget, *checkpoints)

    def forget_now(self, checkpoint: CheckpointId) -> None:
        """Delete a checkpoint's files, if there are any."""
        self._forget(checkpoint)

    def _forget(self, *checkpoints: CheckpointId) -> None:
        """What cannot be deleted now is tried again with the next, or by the next incarnation."""
        self._undeleted.update(checkpoints)
        try:
            for name in self._store.names(f"{self._node}-"):
                parsed = manifests.parse_name(name)
                if parsed is not None and parsed[0] == self._node and parsed[1] in self._undeleted:
                    self._store.delete(name)
        except StorageError:
            return
        self._undeleted.clear()

    def found(self) -> tuple[CheckpointId, ...]:
        """The node's checkpoints that have files in the store; none if it does not answer."""
        try:
            names = self._store.names(f"{self._node}-")
        except StorageError:
            return ()
        return manifests.checkpoints_in(names, self._node)

    # -- reading ----------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """What the store waits for; see there."""
        return self._store.trouble

    def load(
        self, ref: CheckpointRef, schemas: Mapping[StreamId, pa.Schema], state_bytes_max: int
    ) -> None:
        """Load a checkpoint; answered by `tell`."""
        self._jobs.submit(self._load, ref, schemas, state_bytes_max)

    def _load(
        self, ref: CheckpointRef, schemas: Mapping[StreamId, pa.Schema], state_bytes_max: int
    ) -> None:
        try:
            loaded = patiently(lambda: self.load_now(ref, schemas, state_bytes_max))
        except (_Damaged, ObjectDamaged, ObjectMissing) as error:
            self._tell(CheckpointUnreadable(str(error)))
        except StoreUnavailable as error:  # Not damage: the same files may be there later.
            self._tell(StoreFailed(str(error)))
        except Exception as error:  # The node fails by it, as by an error of its own.
            self._tell(LoadingFailed(error))
        else:
            self._tell(CheckpointLoaded(loaded))

    def load_now(
        self, ref: CheckpointRef, schemas: Mapping[StreamId, pa.Schema], state_bytes_max: int
    ) -> LoadedCheckpoint:
        """A checkpoint with all its parts.

        Raises:
            ObjectMissing: A part is missing.
            StoreUnavailable: The store does not answer.
            StateLimitExceeded: It is larger than the bound.
        """
        manifest = self._manifest(ref)
        pages = self._load_pages(manifest, state_bytes_max)
        files = {
            segment.checkpoint: self._store.read(
                manifests.outputs_name(self._node, segment.checkpoint)
            )
            for segment in manifest.outputs
        }
        outputs = read_outputs(manifest, files, schemas)
        if isinstance(outputs, CorruptRecord):
            raise _Damaged(f"outputs of checkpoint {ref.checkpoint.sequence}: {outputs.reason}")
        return LoadedCheckpoint(pages, manifest.image, manifest.outputs, outputs, manifest.notes)

    def load_pages_now(self, ref: CheckpointRef, state_bytes_max: int) -> PageManager:
        """The pages of a checkpoint alone. Raises as `load_now`."""
        return self._load_pages(self._manifest(ref), state_bytes_max)

    def _manifest(self, ref: CheckpointRef) -> Manifest:
        name = manifests.manifest_name(self._node, ref.checkpoint)
        manifest = manifests.decode_manifest(bytes(self._store.read(name)), ref.checksum)
        if isinstance(manifest, CorruptRecord):
            raise _Damaged(f"{name}: {manifest.reason}")
        return manifest

    def _load_pages(self, manifest: Manifest, state_bytes_max: int) -> PageManager:
        loader = PageLoader(manifest.image, state_bytes_max)
        runs = iter(loader.runs())
        failed = threading.Event()
        jobs = [
            self._readers.submit(self._read_runs, runs, failed) for _ in range(self._worker_count)
        ]
        _wait_for_all(jobs, failed)
        return loader.pages

    def _read_runs(self, runs: Iterator[PageRun], failed: threading.Event) -> None:
        """Take one run after another, until the others and this one have read them all."""
        for run in runs:
            if failed.is_set():
                raise _Cancelled
            name = manifests.pages_name(self._node, run.file.checkpoint, run.file.worker)
            self._store.read_pages(name, run)

    def close(self) -> None:
        """Stop what is being written, finish the rest, and let go of the store."""
        self._cancelled.set()
        self._jobs.shutdown()
        self._workers.shutdown()
        self._readers.shutdown()
        self._store.close()


def _yield_to_the_node() -> None:
    """Threads that write give way to the one that works, wherever they want the same processor."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _wait_for_all(jobs: list[Future[None]], cancelled: threading.Event) -> None:
    """Wait; the first error ends the others and is raised."""
    error: BaseException | None = None
    for job in jobs:
        try:
            job.result()
        except BaseException as raised:
            cancelled.set()
            error = error if error is not None and not isinstance(error, _Cancelled) else raised
    if error is not None:
        raise error
