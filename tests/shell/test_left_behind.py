"""What a killed process leaves is deleted by whoever comes next; what a living one uses is not."""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.shell.stores.drafts import Drafts
from holdfast.shell.stores.folder import FolderStore
from holdfast.shell.transport.socket_folder import SocketFolder


def process(begin: Callable[[], object]) -> int:
    """A process that has begun something, and lives."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        held = begin()
        os.write(writer, b"1")
        signal.pause()
        del held
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_drafts_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    def begin() -> object:
        new = Drafts(tmp_path).new()
        new.__enter__()
        return new

    children = [process(begin) for _ in range(3)]
    drafts = tmp_path / ".drafts"
    assert len(os.listdir(drafts)) == 3
    for child in children[:2]:
        kill(child)
    try:
        store = FolderStore(str(tmp_path))
        assert len(os.listdir(drafts)) == 3
        store.put("folder/name", [b"1"])
        assert len(os.listdir(drafts)) == 1
        store.put_soon("folder/soon", b"2")
        assert len(os.listdir(drafts)) == 1
        assert store.names() == ["folder/name", "folder/soon"]
    finally:
        kill(children[2])
    FolderStore(str(tmp_path)).put_soon("folder/last", b"3")
    assert os.listdir(drafts) == []


def test_a_spare_file_that_was_taken_by_a_killed_process_goes_too(tmp_path: Path) -> None:
    FolderStore(str(tmp_path)).put_soon("a", b"1")

    def begin() -> object:
        taken = Drafts(tmp_path).of(tmp_path / ".spare")
        assert taken.__enter__() is not None
        return taken

    kill(process(begin))
    assert len(os.listdir(tmp_path / ".drafts")) == 1
    FolderStore(str(tmp_path)).put_soon("b", b"2")
    assert os.listdir(tmp_path / ".drafts") == []


def test_folders_of_sockets_of_killed_processes_go_and_those_of_living_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "holdfast-of-somebody-else").mkdir()
    children = [process(SocketFolder) for _ in range(12)]
    assert len(os.listdir(tmp_path)) == 13
    for child in children[1:]:
        kill(child)
    try:
        mine = SocketFolder()
        found = set(os.listdir(tmp_path))
        assert os.path.basename(mine.path) in found
        assert len(found) == 3
        mine.close()
        assert len(os.listdir(tmp_path)) == 2
    finally:
        kill(children[0])
    SocketFolder().close()
    assert os.listdir(tmp_path) == ["holdfast-of-somebody-else"]


def test_a_folder_of_sockets_is_for_its_user_alone() -> None:
    folder = SocketFolder()
    assert os.stat(folder.path).st_mode & 0o077 == 0
    folder.close()
    assert not os.path.exists(folder.path)
