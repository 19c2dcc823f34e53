"""The chunks of one data node as files of a folder.

    <chunk>.<size>.<checksum>.chunk     a whole chunk: its bytes, then its table of checksums
    <chunk>.<size>.<checksum>.damaged   one that failed a checksum
    <chunk>.<write>.part                one being received; deleted when the folder is opened
    lock                                held for as long as a process uses the folder

A file gets a chunk's name only after it was synced, so the list of names is the list of chunks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks.messages import ChunkId, StoredChunk, parse_chunk_id
from holdfast.core.machine import Effect, Stimulus
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.small_files import read_at
from holdfast.shell.stores.base import StoreUnavailable

_NAME: Final = re.compile(r"(\d+-\d+)\.(\d+)\.([0-9a-f]{16})\.(chunk|damaged)")
_TABLE_ENTRY: Final = 8
_LOCK_POLL_S: Final = 0.05
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ChunkFolder:
    """One folder, for one process at a time. Not for several threads on the same chunk."""

    def __init__(self, path: str, *, piece_bytes: int, wait_s: float) -> None:
        """Take the folder; what was being received is forgotten.

        Raises:
            StoreUnavailable: It cannot be made, or another process holds it for `wait_s`.
        """
        self._root = Path(path)
        self._piece_bytes = piece_bytes
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.open(self._root / "lock", flags, 0o600)
            self._take_lock(time.monotonic() + wait_s)
            for part in self._root.glob("*.part"):
                part.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror}") from error
        self._parts: dict[tuple[ChunkId, int], int] = {}

    def _take_lock(self, deadline_s: float) -> None:
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    os.close(self._lock)
                    raise StoreUnavailable(f"{self._root} is held by another process") from None
                time.sleep(_LOCK_POLL_S)
            else:
                return

    def found(self) -> tuple[tuple[StoredChunk, ...], tuple[StoredChunk, ...]]:
        """The sound chunks by their names, and those known as damaged. Raises `OSError`."""
        sound: list[StoredChunk] = []
        damaged: list[StoredChunk] = []
        for name in sorted(os.listdir(self._root)):
            match = _NAME.fullmatch(name)
            if match is None or parse_chunk_id(match[1]) is None:
                continue
            stored = StoredChunk(ChunkId(match[1]), int(match[2]), int(match[3], 16))
            (sound if match[4] == "chunk" else damaged).append(stored)
        return tuple(sound), tuple(damaged)

    def path(self, stored: StoredChunk, ending: str = "chunk") -> Path:
        """The file of a chunk."""
        name = f"{stored.chunk}.{stored.size}.{stored.checksum:016x}.{ending}"
        return self._root / name

    def _unfinished_file(self, chunk: ChunkId, write: int) -> Path:
        return self._root / f"{chunk}.{write}.part"

    # -- what the machine asks for ----------------------------------------------------------

    def perform(self, effect: Effect) -> Stimulus | None:
        """Do it; the answer, if there is one."""
        match effect:
            case e.WritePiece():
                return self._write(effect)
            case e.SealChunk():
                return self._seal(effect)
            case e.DropWrite():
                self._drop(effect.chunk, effect.write)
            case e.EraseChunk():
                return self._erase(effect.stored)
            case e.MarkDamaged():
                with contextlib.suppress(OSError):  # Then a restart finds out again.
                    path = self.path(effect.stored)
                    path.rename(self.path(effect.stored, "damaged"))
            case e.LoadPiece():
                return self._load(effect)
        return None

    def _write(self, effect: e.WritePiece) -> Stimulus | None:
        key = (effect.chunk, effect.write)
        try:
            if effect.index == 0:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                self._parts[key] = os.open(self._unfinished_file(*key), flags, 0o600)
            if key in self._parts:
                _write_all(self._parts[key], effect.data)
        except OSError as error:
            self._drop(*key)
            return e.WriteFailed(effect.chunk, effect.write, str(error.strerror))
        return None

    def _seal(self, effect: e.SealChunk) -> Stimulus:
        key = (effect.stored.chunk, effect.write)
        file = self._parts.pop(key, None)
        if file is None:
            return e.WriteFailed(*key, "a piece could not be written")
        try:
            try:
                _write_all(file, effect.table)
                os.fsync(file)
            finally:
                os.close(file)
            self._unfinished_file(*key).rename(self.path(effect.stored))
            sync_path(self._root)
        except OSError as error:
            self._drop(*key)
            return e.WriteFailed(*key, str(error.strerror))
        return e.ChunkSealed(effect.write, effect.stored)

    def _drop(self, chunk: ChunkId, write: int) -> None:
        """What stays of it is deleted when the folder is opened again."""
        file = self._parts.pop((chunk, write), None)
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)
        with contextlib.suppress(OSError):
            self._unfinished_file(chunk, write).unlink(missing_ok=True)

    def _erase(self, stored: StoredChunk) -> Stimulus:
        try:
            for ending in ("chunk", "damaged"):
                self.path(stored, ending).unlink(missing_ok=True)
        except OSError:
            return e.EraseFailed(stored)
        return e.ChunkErased(stored)

    def _load(self, effect: e.LoadPiece) -> Stimulus:
        size, at = effect.stored.size, effect.index * self._piece_bytes
        table_bytes = -(-size // self._piece_bytes) * _TABLE_ENTRY
        try:
            path = self.path(effect.stored)
            file = os.open(path, _READ)
            try:
                data = read_at(file, path, min(self._piece_bytes, size - at), at)
                table = read_at(file, path, table_bytes, size)
            finally:
                os.close(file)
        except OSError as error:
            return e.LoadFailed(effect.request_id, str(error.strerror))
        except StorageError as error:
            return e.LoadFailed(effect.request_id, str(error))
        return e.PieceLoaded(effect.request_id, table, data)

    def close(self) -> None:
        """Let others have the folder."""
        for file in self._parts.values():
            os.close(file)
        self._parts.clear()
        os.close(self._lock)


class DiskThreads:
    """A few threads that work on a folder, so that the loop never waits for the disk.

    All work on one chunk is done by one thread, in order. What waits is bounded by the machine:
    `writes_max` chunks and `reads_max` pieces. What the disk refuses is an answer; a thread that
    ends by anything else is missed.
    """

    def __init__(self, folder: ChunkFolder, count: int, tell: Callable[[Stimulus], None]) -> None:
        """Start them; `tell` takes the answers, called from their threads."""
        self._folder = folder
        self._tell = tell
        self._queues: list[SimpleQueue[Effect | None]] = [SimpleQueue() for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._run, args=(queue,), name="chunk-disk", daemon=True)
            for queue in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, effect: Effect, chunk: ChunkId) -> None:
        """Have it done."""
        _, number = parse_chunk_id(chunk) or (0, 0)
        self._queues[number % len(self._queues)].put(effect)

    def require_all(self) -> None:
        """Raise `StoreUnavailable` if a thread has died: its share of the chunks would wait."""
        for thread in self._threads:
            if not thread.is_alive():
                raise StoreUnavailable(f"thread {thread.name} has died; its error stands above")

    def _run(self, queue: SimpleQueue[Effect | None]) -> None:
        while (effect := queue.get()) is not None:
            answer = self._folder.perform(effect)
            if answer is not None:
                self._tell(answer)

    def close(self) -> None:
        """Finish what is under way, and end."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(file, view) :]
