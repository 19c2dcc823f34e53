"""The folder of a data node: what its disk refuses is an answer, and no thread dies of it."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from holdfast.core.chunks import effects as e
from holdfast.core.chunks.messages import ChunkId, StoredChunk
from holdfast.core.machine import Stimulus
from holdfast.shell.stores.base import StoreUnavailable
from holdfast.shell.stores.chunks.chunk_folder import ChunkFolder, DiskThreads

CHUNK = ChunkId("1-4")
STORED = StoredChunk(CHUNK, 4, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ChunkFolder]:
    made = ChunkFolder(str(tmp_path), piece_bytes=4, wait_s=1)
    yield made
    made.close()


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize("refused", ["unlink", "rename", "fsync", "close"])
def test_what_the_disk_refuses_is_an_answer_and_the_next_chunk_is_sealed(
    folder: ChunkFolder, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    answers: SimpleQueue[Stimulus] = SimpleQueue()
    disk = DiskThreads(folder, 1, answers.put)
    work = [e.WritePiece(CHUNK, 0, 0, b"1234"), e.SealChunk(0, STORED, b"table")]
    with monkeypatch.context() as patch:
        if refused in ("unlink", "rename"):
            patch.setattr(Path, refused, refuse)
        else:
            close = os.close

            def closed(file: int) -> None:
                close(file)
                refuse()

            patch.setattr(os, refused, closed if refused == "close" else refuse)
        for effect in (*work, e.EraseChunk(STORED)):
            disk.submit(effect, CHUNK)
        sealed, erased = answers.get(timeout=240), answers.get(timeout=240)
    assert isinstance(sealed, e.ChunkSealed if refused == "unlink" else e.WriteFailed)
    assert isinstance(erased, e.EraseFailed if refused == "unlink" else e.ChunkErased)
    for effect in (e.WritePiece(CHUNK, 1, 0, b"1234"), e.SealChunk(1, STORED, b"table")):
        disk.submit(effect, CHUNK)
    assert answers.get(timeout=240) == e.ChunkSealed(1, STORED)
    disk.require_all()
    disk.close()


def test_a_thread_that_dies_is_missed(folder: ChunkFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise AssertionError

    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: died.set())
    monkeypatch.setattr(folder, "perform", broken)
    disk = DiskThreads(folder, 1, print)
    disk.submit(e.EraseChunk(STORED), CHUNK)
    assert died.wait(240)
    disk.close()
    with pytest.raises(StoreUnavailable, match="chunk-disk has died"):
        disk.require_all()
