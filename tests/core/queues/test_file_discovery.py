"""Which files become part of a stream, and in which order."""

from __future__ import annotations

from holdfast.core.queues.file_discovery import FileDiscovery, ListedFile
from holdfast.core.queues.recording import Commit, IngestFile, UserFile


def listed(path: str, modified_ns: int) -> ListedFile:
    return ListedFile(UserFile(path, 10, str(modified_ns)), modified_ns)


def commit(*paths: str) -> Commit:
    files = [IngestFile(path, 1, 0, 0, 0, (), UserFile(path, 10, "1")) for path in paths]
    return Commit("files", tuple(files), 0)


def test_files_come_by_modification_time_and_then_by_path() -> None:
    found = [listed("b", 2), listed("c", 1), listed("a", 2)]
    new = FileDiscovery().next_files(found, 10)
    assert [file.path for file in new] == ["c", "a", "b"]


def test_a_file_is_read_once_whatever_becomes_of_it() -> None:
    discovery = FileDiscovery()
    discovery.recorded(commit("a"))
    discovery.passed("empty")
    new = discovery.next_files([listed("a", 99), listed("empty", 1), listed("b", 3)], 10)
    assert [file.path for file in new] == ["b"]


def test_of_many_files_the_oldest_come_first_and_the_others_next_time() -> None:
    discovery = FileDiscovery()
    found = [listed(f"{number:02d}", number) for number in range(5)]
    taken: list[str] = []
    while new := discovery.next_files(found, 2):
        taken += [file.path for file in new]
        discovery.recorded(commit(*(file.path for file in new)))
    assert taken == ["00", "01", "02", "03", "04"]


def test_files_of_the_log_itself_are_no_users_files() -> None:
    discovery = FileDiscovery()
    discovery.recorded(Commit("batch", (IngestFile("a", 1, 0, 0, 0),), 0))
    assert [file.path for file in discovery.next_files([listed("a", 1)], 1)] == ["a"]
