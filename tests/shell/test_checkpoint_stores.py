"""What every checkpoint store must do, and what the embedded one must survive."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from chunk_processes import QUICK, ChunkProcesses, wait_until

from holdfast.core.checkpoint.loading import PageRun
from holdfast.core.checkpoint.page_checksum import checksums
from holdfast.core.checkpoint.page_image import PageFile
from holdfast.core.model.ids import CheckpointId, Incarnation
from holdfast.core.peace.messages import CopyConstraint, PeaceSettings
from holdfast.core.peace.network_model import NetworkModel
from holdfast.core.peace.peace import Peace
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectDamaged,
    ObjectMissing,
    StoreSpec,
    StoreUnavailable,
)
from holdfast.shell.stores.chunks.client import ChunkStore
from holdfast.shell.stores.chunks.master_service import MasterService
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec

SIZE = 40 * QUICK.chunk_bytes // 16 + 1_234  # some chunks, and a part of one


def content(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def write(store: CheckpointStore, name: str, data: bytes) -> None:
    writer = store.create(name)
    for start in range(0, len(data), 100_000):
        writer.write(memoryview(data)[start : start + 100_000])
    writer.close()


# -- the contract ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChunkProcesses]:
    made = ChunkProcesses(tmp_path_factory.mktemp("chunks"))
    yield made
    made.end()


@pytest.fixture(params=["folder", "memory", "file", "chunks"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSpec:
    match request.param:
        case "folder":
            return FolderStoreSpec(str(tmp_path))
        case "memory":
            return FileSystemStoreSpec(f"memory://{uuid.uuid4()}")
        case "file":
            return FileSystemStoreSpec(f"file://{tmp_path}")
        case _:
            spec: StoreSpec = request.getfixturevalue("processes").spec
            return spec


@pytest.fixture
def store(spec: StoreSpec) -> Iterator[CheckpointStore]:
    opened = spec.open()
    for name in opened.names():
        opened.delete(name)
    yield opened
    opened.close()


def test_an_object_reads_back_whole_and_in_any_part(store: CheckpointStore) -> None:
    data = content(1)
    write(store, "counts[0]-1/1.0.pages", data)
    assert store.size("counts[0]-1/1.0.pages") == len(data)
    assert store.read("counts[0]-1/1.0.pages") == data
    draw = random.Random(2)
    for _ in range(20):
        start = draw.randrange(len(data))
        part = bytearray(draw.randrange(1, len(data) - start + 1))
        store.read_into("counts[0]-1/1.0.pages", start, memoryview(part))
        assert part == data[start : start + len(part)]


def test_an_empty_object_exists(store: CheckpointStore) -> None:
    store.create("a-1/empty").close()
    assert store.size("a-1/empty") == 0
    assert bytes(store.read("a-1/empty")) == b""
    assert store.names() == ["a-1/empty"]


def test_a_name_can_be_taken_once(store: CheckpointStore) -> None:
    write(store, "a-1/x", b"first")
    with pytest.raises(StoreUnavailable):
        write(store, "a-1/x", b"second")
    assert store.read("a-1/x") == b"first"


@pytest.mark.parametrize("size", [0, 5, 4_096, 4_097, 50_000])
def test_a_text_may_be_put_soon_and_blanks_may_follow(store: CheckpointStore, size: int) -> None:
    text = b"x" * size
    for number in range(3):
        store.put_soon(f"a-1/{number}", text)
        with pytest.raises(StoreUnavailable):
            store.put_soon(f"a-1/{number}", b"another")
    for number in range(3):
        assert bytes(store.read(f"a-1/{number}")).rstrip(b" ") == text
    assert store.names() == [f"a-1/{number}" for number in range(3)]
    assert store.children() == ["a-1"]


def test_a_folder_has_one_spare_file_however_many_put_at_once(tmp_path: Path) -> None:
    stores = [FolderStoreSpec(str(tmp_path)).open() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            puts = [
                pool.submit(s.put_soon, f"a-1/{number}", b"%d" % i) for i, s in enumerate(stores)
            ]
            errors = [put.exception() for put in puts]
            assert sum(error is None for error in errors) == 1
            assert all(error is None or isinstance(error, NameTaken) for error in errors)
            winner = next(i for i, error in enumerate(errors) if error is None)
            assert bytes(stores[0].read(f"a-1/{number}")).rstrip() == b"%d" % winner
    assert sorted(map(int, os.listdir(tmp_path / "a-1"))) == [*range(20)]
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(".spare")) == [".spare"]
    assert os.listdir(tmp_path / ".drafts") == []
    used = (tmp_path / ".spare").stat().st_ino
    stores[0].put_soon("a-1/last", b"text")
    assert (tmp_path / "a-1" / "last").stat().st_ino == used
    assert (tmp_path / "a-1" / "last").stat().st_nlink == 1


def test_a_spare_file_that_cannot_be_used_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStoreSpec(str(tmp_path)).open()
    store.put_soon("a-1/first", b"text")
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", lambda *_: 3)  # The disk takes no more.
        store.put_soon("a-1/second", b"text")
    for name in ("first", "second"):
        assert bytes(store.read(f"a-1/{name}")).rstrip() == b"text"
    assert os.listdir(tmp_path / ".drafts") == []


def test_what_is_not_there_is_missing(store: CheckpointStore) -> None:
    write(store, "a-1/short", b"12345")
    with pytest.raises(ObjectMissing):
        store.size("a-1/none")
    with pytest.raises(ObjectMissing):
        store.read_into("a-1/none", 0, memoryview(bytearray(1)))
    with pytest.raises(ObjectMissing):
        store.read_into("a-1/short", 3, memoryview(bytearray(3)))


def test_pages_are_checked_as_they_are_read(store: CheckpointStore) -> None:
    """Runs longer and shorter than what is checked at once, from the middle of an object."""
    words_per_page, count = 1 << 10, 75
    pages = np.random.default_rng(3).integers(0, 1 << 62, count * words_per_page)
    seeds = np.arange(7, 7 + count, dtype=np.uint64)
    wanted = checksums(pages, 10, np.arange(count), seeds)
    stored = bytearray(pages.tobytes())
    write(store, "a-1/whole", bytes(stored))
    stored[8 * words_per_page * 70 + 11] ^= 1
    write(store, "a-1/damaged", bytes(stored))
    write(store, "a-1/short", bytes(stored[: 8 * words_per_page * 60 + 5]))

    def read(name: str, first: int, last: int) -> np.ndarray:
        run = PageRun(
            PageFile(CheckpointId(1, Incarnation(1)), 0, count),
            first * words_per_page * 8,
            np.zeros((last - first) * words_per_page, dtype=np.int64),
            10,
            seeds[first:last],
            wanted[first:last],
        )
        store.read_pages(name, run)
        return run.words

    for first, last in ((0, count), (3, 4), (1, 66), (40, 75)):
        expected = pages[first * words_per_page : last * words_per_page]
        assert np.array_equal(read("a-1/whole", first, last), expected)
    read("a-1/damaged", 0, 70)
    with pytest.raises(ObjectDamaged):
        read("a-1/damaged", 1, count)
    with pytest.raises(ObjectMissing):
        read("a-1/short", 30, 61)
    with pytest.raises(ObjectMissing):
        read("a-1/none", 0, 1)


def test_names_are_found_by_the_beginning_of_their_folder(store: CheckpointStore) -> None:
    for name in ("b-1/y", "a-10/x", "a-1/x"):
        write(store, name, b"-")
    assert store.names() == ["a-1/x", "a-10/x", "b-1/y"]
    assert store.names("a-") == ["a-1/x", "a-10/x"]
    assert store.names("c") == []


def test_a_deleted_object_is_gone_and_its_name_free(store: CheckpointStore) -> None:
    write(store, "a-1/x", content(3))
    store.delete("a-1/x")
    store.delete("a-1/x")
    assert store.names() == []
    with pytest.raises(ObjectMissing):
        store.read("a-1/x")
    write(store, "a-1/x", b"again")
    assert store.read("a-1/x") == b"again"


def test_an_object_given_up_is_gone_once_it_is_deleted(store: CheckpointStore) -> None:
    writer = store.create("a-1/x")
    writer.write(content(4))
    writer.abort()
    writer.abort()
    store.delete("a-1/x")
    assert store.names() == []
    write(store, "a-1/x", b"again")


def test_threads_write_and_read_side_by_side(store: CheckpointStore) -> None:
    def one(number: int) -> bool:
        data = content(number)
        write(store, f"a-{number}/x", data)
        return bool(store.read(f"a-{number}/x") == data)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(8)))
    assert len(store.names()) == 8


def test_a_spec_travels_to_other_processes(spec: StoreSpec) -> None:
    opened = pickle.loads(pickle.dumps(spec)).open()
    write(opened, f"travels-{uuid.uuid4().hex}/x", b"1")
    opened.close()


# -- the embedded store ---------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChunkProcesses]:
    made = ChunkProcesses(tmp_path)
    yield made
    made.end()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def finished(running: tuple[threading.Thread, list[BaseException]]) -> None:
    thread, errors = running
    thread.join(240)
    assert not thread.is_alive()
    assert not errors, errors


def test_a_data_node_killed_in_the_middle_of_a_write_loses_nothing(
    cluster: ChunkProcesses,
) -> None:
    store, data = cluster.store(), content(5, 12 << 20)
    running = in_thread(lambda: write(store, "a-1/x", data))
    wait_until(lambda: bool(cluster.files("data-1")), "a chunk is at data-1")
    cluster.signal("data-1", signal.SIGKILL)
    finished(running)
    assert store.read("a-1/x") == data
    cluster.wait_for(2)
    cluster.wait_until_settled()
    wait_until(lambda: set(cluster.service.copies_of("a-1/x")) == {2}, "all have two copies")
    cluster.launch("data-1")
    cluster.wait_for(3)
    assert cluster.store().read("a-1/x") == data


def test_a_data_node_killed_in_the_middle_of_a_read_loses_nothing(
    cluster: ChunkProcesses,
) -> None:
    store, data = cluster.store(), content(6, 4 << 20)
    write(store, "a-1/x", data)
    cluster.signal("data-0", signal.SIGSTOP)  # So that the read cannot be over before the kill.
    buffer = bytearray(len(data))
    running = in_thread(lambda: store.read_into("a-1/x", 0, memoryview(buffer)))
    wait_until(lambda: buffer.count(0) < len(buffer), "some pieces have come")
    cluster.signal("data-0", signal.SIGKILL)
    finished(running)
    assert buffer == data


def test_a_paused_data_node_is_passed_over_and_joins_again(cluster: ChunkProcesses) -> None:
    store = cluster.store()
    write(store, "a-1/x", content(7))
    cluster.signal("data-2", signal.SIGSTOP)
    write(store, "a-1/y", content(8, 3 << 20))
    assert store.read("a-1/x") == content(7)
    cluster.wait_for(2)
    cluster.wait_until_settled()
    cluster.signal("data-2", signal.SIGCONT)
    cluster.wait_for(3)
    cluster.wait_until_settled()
    assert store.read("a-1/y") == content(8, 3 << 20)
    for name in ("a-1/x", "a-1/y"):
        store.delete(name)
    wait_until(lambda: not any(map(cluster.files, cluster.nodes)), "no chunk is left")


def test_committed_objects_survive_a_restart_of_the_driver_and_others_go(
    cluster: ChunkProcesses,
) -> None:
    store = cluster.store()
    write(store, "a-1/x", content(9))
    write(store, "a-1/gone", content(10))
    store.delete("a-1/gone")
    unfinished = store.create("a-2/x")
    unfinished.write(content(11, 1 << 20))
    cluster.end()
    cluster.begin()
    store = cluster.store()
    assert store.names() == ["a-1/x"]
    assert store.read("a-1/x") == content(9)
    cluster.wait_until_settled()
    chunks = len(cluster.service.copies_of("a-1/x"))
    wait_until(
        lambda: sum(len(cluster.files(node)) for node in cluster.nodes) == 2 * chunks,
        "only committed chunks are left",
    )


def test_a_damaged_chunk_is_passed_over_and_repaired(cluster: ChunkProcesses) -> None:
    store = cluster.store()
    write(store, "a-1/x", content(12))
    damaged = cluster.files("data-0")
    assert damaged
    wrong: list[bytes] = []
    for file in damaged:  # As soon as somebody has read one, it is taken away.
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 1
        wrong.append(bytes(whole))
        file.write_bytes(whole)
    for node in ("data-1", "data-2"):  # So that data-0 is asked for certain.
        cluster.signal(node, signal.SIGSTOP)
    found: list[bytes] = []
    running = in_thread(lambda: found.append(bytes(store.read("a-1/x"))))
    wait_until(lambda: cluster.service.statistics.damaged > 0, "the damage is known")
    for node in ("data-1", "data-2"):
        cluster.signal(node, signal.SIGCONT)
    finished(running)
    assert found == [content(12)]
    wait_until(lambda: not cluster.files("data-0", "*.damaged"), "the damaged files are gone")
    wait_until(lambda: set(cluster.service.copies_of("a-1/x")) == {2}, "all have two copies")
    unmarked = 0
    for file in cluster.files("data-0"):
        with contextlib.suppress(FileNotFoundError):  # Erased: nobody needs it.
            unmarked += file.read_bytes() in wrong
    marked = len(wrong) - unmarked
    assert marked > 0
    assert cluster.service.statistics.damaged >= marked


def test_with_too_few_data_nodes_a_write_waits_and_a_read_fails_clearly(tmp_path: Path) -> None:
    from dataclasses import replace

    short = replace(QUICK, operation_timeout_ms=5_000, reach_timeout_ms=5_000)
    cluster = ChunkProcesses(tmp_path, short, data_nodes=2)
    try:
        store = cluster.store()
        write(store, "a-1/x", b"here")
        for node in cluster.nodes:
            cluster.signal(node, signal.SIGKILL)
        cluster.wait_for(0)
        with pytest.raises(StoreUnavailable, match="0 data nodes live, 2 copies are wanted"):
            write(store, "a-1/y", b"-")
        with pytest.raises(ObjectMissing, match="a-1/x: no data node within reach has chunk"):
            store.read("a-1/x")
        for node in cluster.nodes:
            cluster.launch(node)
        cluster.wait_for(2)
        assert store.read("a-1/x") == b"here"
    finally:
        cluster.end()


def test_a_checkpoint_waits_until_another_one_has_given_its_places_back(tmp_path: Path) -> None:
    settings = PeaceSettings(constraints=(CopyConstraint.ANY_SERVER,), can_writer_hold_copy=True)
    peace = Peace(NetworkModel.of_racks({}), settings=settings, random=random.Random(1))
    processes = ChunkProcesses(tmp_path, data_nodes=2, placement=peace)
    first, second = processes.store(), processes.store()
    sizes, data = [2 * QUICK.chunk_bytes], content(1, 2 * QUICK.chunk_bytes)
    was_refused = threading.Event()

    def never() -> bool:
        return False

    def unexpected() -> None:
        raise AssertionError("it was first")

    try:
        first.reserve(sizes, never, unexpected)
        waiting = in_thread(lambda: second.reserve(sizes, never, was_refused.set))
        while not was_refused.wait(0.05):
            first.reserve(sizes, never, unexpected)  # It lives.
        write(first, "a-1/x", data)
        assert bytes(first.read("a-1/x")) == data
        first.release()
        finished(waiting)
        write(second, "a-1/y", data)
        with pytest.raises(StoreUnavailable, match="given up"):
            first.reserve([100 * QUICK.chunk_bytes], lambda: True, unexpected)
        second.release()
    finally:
        processes.end()


def test_a_store_without_a_master_is_unavailable(tmp_path: Path) -> None:
    from dataclasses import replace

    service = MasterService(str(tmp_path), replace(QUICK, operation_timeout_ms=300))
    spec = service.start()
    service.stop()
    store = spec.open()
    with pytest.raises(StoreUnavailable):
        store.names()
    with pytest.raises(StoreUnavailable):
        store.create("a-1/x")
    store.close()
    with pytest.raises(StoreUnavailable):
        store.names()


def test_keys_are_never_shown(processes: ChunkProcesses) -> None:
    node = processes.service.data_node("data-9", "/nowhere")
    for shown in (repr(processes.spec), repr(node), str(processes.spec)):
        assert "secret" not in shown
        assert processes.spec.keys.server_secret.decode() not in shown


def test_nobody_listens_beyond_this_host(processes: ChunkProcesses) -> None:
    assert processes.spec.master.startswith("tcp://127.0.0.1:")


def test_the_journal_stays_short(tmp_path: Path) -> None:
    cluster = ChunkProcesses(tmp_path, data_nodes=2)
    cluster.end()
    service = MasterService(str(tmp_path), QUICK, journal_bytes_max=2_000)
    cluster.service, cluster.spec = service, service.start()
    for node in cluster.nodes:
        cluster.launch(node)
    cluster.wait_for(2)
    store = cluster.store()
    assert isinstance(store, ChunkStore)
    for number in range(20):
        write(store, f"a-{number}/x", b"1")
        store.delete(f"a-{number}/x")
    write(store, "kept-1/x", b"2")
    cluster.end()
    journal = list((tmp_path / "chunks" / "journal").iterdir())
    assert len(journal) == 1
    assert journal[0].stat().st_size < 4_000
    cluster.begin()
    store = cluster.store()
    assert store.names() == ["kept-1/x"]
    assert store.read("kept-1/x") == b"2"
    cluster.end()


def test_an_object_on_a_local_disk_appears_with_all_that_is_in_it(tmp_path: Path) -> None:
    store, place = store_at(f"local://{tmp_path}"), tmp_path / "object"
    body, seen = bytes(64 << 20), list[int]()

    def look() -> None:
        while not place.exists():
            pass
        seen.append(place.stat().st_size)

    looking = threading.Thread(target=look)
    looking.start()
    store.put("object", [body])
    looking.join()
    assert seen == [len(body)]
    with pytest.raises(NameTaken):
        store.put("object", [b"another"])
