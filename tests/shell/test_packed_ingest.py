"""An ingest log of which old commits were packed: the same tuples, ids, boundaries and lateness."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_retention_ingest import (
    LATER_US,
    META,
    NOTHING_KEPT,
    Crash,
    crashing,
    never,
    put,
    read,
    recording,
)

from holdfast.core.queues import packing
from holdfast.core.queues.packing import PackName, due, packs_in, within_others
from holdfast.core.queues.recording import Recording
from holdfast.core.queues.retention import FOR_EVER, Piece
from holdfast.core.wire.ingest_commits import encode_commit
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.storage import commit_packs, ingest_log, ingest_packing
from holdfast.shell.storage.commit_counting import CommitCounter, CommitFinder, first_id_of
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.errors import (
    FileDamaged,
    JournalSuperseded,
    StorageError,
    TuplesRemoved,
)
from holdfast.shell.storage.ingest_log import IngestLogReader, late_rows_of, read_meta, records_of
from holdfast.shell.storage.ingest_trimming import IngestTrimmer
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.user_rows import FilesFormat

BLOCKS = (4, 8)
WAYS = [(0, 1), (0, 2), (1, 2)]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few commits are a pack that a test makes many."""
    monkeypatch.setattr(ingest_packing, "due", due_in(BLOCKS))


def due_in(blocks: tuple[int, ...]) -> Callable[..., list[PackName]]:
    def soon(pieces: Any, packs: Any, now_us: int) -> list[PackName]:
        return due(pieces, packs, now_us, blocks)

    return soon


def packed(root: str, now_us: int = LATER_US, blocks: tuple[int, ...] = BLOCKS) -> int:
    trimmer = IngestTrimmer(root, 2, never)
    try:
        trimmer.trim(FOR_EVER, {}, 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ingest_packing, "due", due_in(blocks))
            return trimmer.pack(now_us)
    finally:
        trimmer.close()


def names_in(root: str, folder: str) -> list[str]:
    return [name.rpartition("/")[2] for name in store_at(root).names(folder)]


@pytest.mark.parametrize(("seed", "scheme"), [(0, ""), (1, ""), (2, ""), (3, "local://")])
def test_readers_find_the_same_in_packs(tmp_path: Path, seed: int, scheme: str) -> None:
    root = f"{scheme}{tmp_path}"
    recording(root, seed, commits=23)
    whole = {way: read(root, *way, 0) for way in WAYS}
    late, counted = late_rows_of(root, 2), CommitCounter(root, 1, 2).rows()
    newest = CommitFinder(root).newest()
    assert packed(root) == 3
    assert [str(p) for p in packs_in(store_at(root).names("packs"))] == [
        str(PackName(0, 8)), str(PackName(8, 16)), str(PackName(16, 20))
    ]  # fmt: skip
    assert names_in(root, "commits") == [f"{number:020d}.json" for number in (20, 21, 22)]
    kept = [f for n in (20, 21, 22) for f in commit_files(root, n)]
    assert sorted({n.split("/")[1] for n in store_at(root).names("files")}) == sorted(kept)
    for way in WAYS:
        for from_id in (0, 3, 17, whole[way].tuples[-1][0]):
            found = read(root, *way, from_id)
            assert found.tuples == [each for each in whole[way].tuples if each[0] >= from_id]
            assert found[1:] == whole[way][1:]
    assert (late_rows_of(root, 2), CommitCounter(root, 1, 2).rows()) == (late, counted)
    assert CommitFinder(root).newest() == newest
    assert packed(root) == 0, "once is enough"


def commit_files(root: str, number: int) -> list[str]:
    found = CommitStore(root).commit(number)
    assert found is not None
    return [file.name for file in found.files]


@pytest.mark.parametrize("rows_before", range(0, 12, 2))
def test_a_reader_goes_on_where_its_files_have_gone_into_a_pack(
    tmp_path: Path, rows_before: int
) -> None:
    root = str(tmp_path)
    recording(root, 2, commits=20)
    whole = read(root, 0, 1, 0)
    reader, found = IngestLogReader(root, 0, 1), list[tuple[int, int]]()
    while len(found) < rows_before and (more := pairs(reader)):
        found += more
    packed(root)
    while more := pairs(reader):
        found += more
    assert len(found) > 12
    assert found == whole.tuples
    assert (reader.boundary_us, reader.late_rows) == (whole.boundary_us, whole.late_rows)


def pairs(reader: IngestLogReader) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for logged in reader.poll(max_rows=1):
        values = logged.batch.column(0).to_pylist()
        found += zip(range(logged.first_id, reader.next_id), values, strict=True)
    return found


def test_a_file_that_goes_while_it_is_read_is_read_on_in_the_pack(tmp_path: Path) -> None:
    """Records are taken one by one, and those of before are not taken again."""
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    at = pa.array(range(9), pa.int64())
    rows = pa.RecordBatch.from_arrays(
        [at, at.cast(META.schema.field("at").type)], META.schema.names
    )
    for number in range(6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ingest_log, "_RECORD_ROWS", 3)
            file = ingest_log.write_file(root, META, [rows.cast(META.schema)])
        assert file is not None
        ingest_log.commit(root, number, [file], by="q")
    reader = IngestLogReader(root, 0, 1)
    found = [logged.count for logged in reader.poll(max_rows=1)]
    assert found == [3]
    packed(root)
    while batches := reader.poll(max_rows=1):
        found += [logged.count for logged in batches]
    assert found == [3] * 18


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_crash_between_any_two_changes_loses_nothing(tmp_path: Path, scheme: str) -> None:
    at, steps = 0, 10**6
    recording(f"{scheme}{tmp_path / 'begun'}", 3, commits=10)
    whole = read(f"{scheme}{tmp_path / 'begun'}", 0, 2, 0)
    while at < steps:
        root = f"{scheme}{tmp_path / str(at)}"
        shutil.copytree(tmp_path / "begun", tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            changes = crashing(patch, root, at)
            with suppress(Crash):
                packed(root)
                steps = changes()
        assert read(root, 0, 2, 0).tuples == whole.tuples
        packed(root)
        assert read(root, 0, 2, 0).tuples == whole.tuples
        assert names_in(root, "packs") == [str(PackName(0, 8)).rpartition("/")[2]]
        assert len(names_in(root, "commits")) == 2
        at += 3 if scheme else 1
    assert at > 9


def test_packs_are_trimmed_as_commits_are(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 2, commits=30)
    whole = read(root, 0, 1, 0)
    assert packed(root) == 4
    trimmer = IngestTrimmer(root, 1, never)
    before = trimmer.trim(FOR_EVER, {}, 0)
    size = trimmer.size_bytes
    assert before == 0
    needed = whole.tuples[len(whole.tuples) // 2][0]
    assert trimmer.trim(NOTHING_KEPT, {(0, 1): needed}, LATER_US) > 8
    assert trimmer.size_bytes < size
    begins = first_id_of(root, 0, 1)
    assert 0 < begins <= needed
    assert read(root, 0, 1, begins).tuples == [t for t in whole.tuples if t[0] >= begins]
    with pytest.raises(TuplesRemoved):
        read(root, 0, 1, begins - 1)
    beginning = CommitStore(root).beginning()
    assert beginning is not None
    assert all(p.end > beginning.first_commit for p in packs_in(store_at(root).names("packs")))
    first = max(p.end for p in packs_in(store_at(root).names("packs")))
    trimmer.trim(NOTHING_KEPT, {(0, 1): 10**6}, LATER_US)
    assert first <= 28
    assert not names_in(root, "packs")


def test_a_writer_that_stood_still_takes_the_packed_commit_for_its_own(tmp_path: Path) -> None:
    """1. It looks at the commit before. 2. Others record on, and pack. 3. It puts its own."""
    root = str(tmp_path)
    recording(root, 3, commits=12)
    whole = read(root, 0, 1, 0)
    packed(root)
    assert not ingest_log.commit(root, 5, [], by="q"), "recorded again, it counts once"
    store = CommitStore(root)
    stray = ingest_log.write_file(root, META, [])
    assert stray is None
    late = Recording(replace(commit_at(root, 11), origin="", files=()), 3)
    late_put: list[int] = []
    held = store.packs.content

    def put_first(number: int) -> bytes | None:
        """The name is free, and it is taken before anybody looks into packs."""
        late_put.append(number)
        return held(number)

    store.packs.content = put_first  # type: ignore[method-assign]
    assert not store.record(late).is_ours
    assert late_put
    assert "00000000000000000003.json" not in names_in(root, "commits")
    assert read(root, 0, 1, 0).tuples == whole.tuples


def test_a_late_writer_is_refused_whose_commit_goes_into_a_longer_pack_meanwhile(
    tmp_path: Path,
) -> None:
    """1. It lists packs. 2. A longer one is made of them. 3. It looks into those it has listed."""
    root = str(tmp_path)
    recording(root, 3, commits=12)
    whole = read(root, 0, 1, 0)
    packed(root, blocks=(4,))
    store, late = CommitStore(root), replace(commit_at(root, 3), by="somebody else")
    listed = store.packs.look

    def look(**options: Any) -> None:
        listed(**options)
        if "00000000000000000003.json" in names_in(root, "commits"):
            assert packed(root) == 1

    store.packs.look = look  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="batch 3 was written by 'q'"):
        store.record(Recording(late, 3))
    assert names_in(root, "packs") == [str(PackName(0, 8)).rpartition("/")[2]]
    assert read(root, 0, 1, 0).tuples == whole.tuples


def test_what_is_in_a_pack_is_found_in_the_longer_one_that_was_made_of_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 3, commits=12)
    packed(root, blocks=(4,))
    packs = [CommitStore(root).packs for _ in range(3)]
    for each in packs:
        each.look()
    whole = packs[0].content(3)
    packed(root)
    assert whole is not None
    assert packs[1].holds(3)
    assert packs[2].size_of_rows(3) is not None
    assert packs[0].content(3) == whole


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_reader_takes_no_commit_whose_name_a_late_writer_has_taken_again(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs are made right after the reader has listed them."""
    monkeypatch.setattr(commit_packs, "_LOOK_INTERVAL_S", 1e9)
    root = f"{scheme}{tmp_path}"
    recording(root, 3, commits=12)
    reader, right = CommitStore(root), commit_at(root, 6)
    assert reader.commit(5) is not None
    packed(root)
    late = replace(right, files=())
    store_at(root).put("commits/00000000000000000006.json", [encode_commit(late)])
    assert right.files
    assert reader.commit(6) == right


def test_records_that_are_fewer_than_their_commit_says_are_refused(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 3, commits=12)
    packed(root)
    store = CommitStore(root)
    files = [(number, file) for number in range(12) for file in commit_at(root, number).files]
    meta = read_meta(root)
    for number, file in (files[0], files[-1]):
        assert sum(each.count for each in records_of(root, store, number, file, meta)) == file.count
        more = replace(file, count=file.count + 1)
        with pytest.raises(FileDamaged, match="its commit says"):
            list(records_of(root, store, number, more, meta))
    assert (files[0][0] < 8, files[-1][0] > 9) == (True, True), "in a pack, and in its own file"


def test_a_pack_is_read_once_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    recording(root, 3, commits=44)
    trimmer = IngestTrimmer(root, 1, never)
    trimmer.trim(FOR_EVER, {}, 0)
    assert trimmer.pack(LATER_US) > 4
    assert trimmer.pack(LATER_US) == 0
    asked: list[str] = []
    kind = type(store_at(root))
    for name in ("size", "read_into"):
        monkeypatch.setattr(kind, name, lambda _, of, *more: asked.append(of))
    assert trimmer.pack(LATER_US) == 0
    assert not asked


def test_short_packs_are_found_within_longer_ones_without_comparing_all() -> None:
    class Packs(tuple[PackName, ...]):
        passes = 0

        def __iter__(self) -> Iterator[PackName]:
            Packs.passes += 1
            return super().__iter__()

    short = [PackName(first, first + 4) for first in range(0, 400, 4)]
    assert within_others(Packs([PackName(0, 8), PackName(16, 24), *short])) == [
        PackName(0, 4), PackName(4, 8), PackName(16, 20), PackName(20, 24)
    ]  # fmt: skip
    assert Packs.passes <= 3


def test_who_looks_for_the_newest_commit_lists_packs_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_packs, "_LOOK_INTERVAL_S", 1e9)
    root = str(tmp_path)
    recording(root, 3, commits=12)
    finder, listings = CommitFinder(root), list[str]()
    kind = type(store_at(root))
    names = kind.names

    def counted(self: Any, folder: str = "") -> list[str]:
        listings.append(folder)
        return names(self, folder)

    monkeypatch.setattr(kind, "names", counted)
    assert [finder.newest() for _ in range(5)] == [11] * 5
    assert sorted(listings) == ["commits", "packs"]
    put(root, random.Random(1), 12, 1_000)
    assert finder.newest() == 12


def test_names_of_packs_are_durable_before_what_they_hold_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver has put them, and may not have come as far."""
    root = str(tmp_path)
    recording(root, 3, commits=12)
    with monkeypatch.context() as patch:
        patch.setattr(ingest_packing.Packer, "_clear", lambda *_: None)
        packed(root)
    changes: list[str] = []
    kind = type(store_at(root))
    delete = kind.delete

    def noted(self: Any, name: str) -> None:
        changes.append(name)
        delete(self, name)

    monkeypatch.setattr(kind, "delete", noted)
    monkeypatch.setattr(ingest_packing, "sync_path", lambda path: changes.append(str(path)))
    packed(root)
    assert changes[:2] == [f"{root}/packs", root]
    assert any(change.startswith("commits/") for change in changes[2:])
    changes.clear()
    packed(root)
    assert not changes, "nothing was to be deleted"


def commit_at(root: str, number: int) -> Any:
    found = CommitStore(root).commit(number)
    assert found is not None
    return found


def test_a_pack_that_is_damaged_is_named_and_one_that_is_not_whole_does_not_count(
    tmp_path: Path,
) -> None:
    root = str(tmp_path)
    recording(root, 3, commits=12)
    whole = read(root, 0, 1, 0)
    (tmp_path / "packs").mkdir()
    name = tmp_path / str(PackName(0, 8))
    name.write_bytes(b"cut short")
    assert read(root, 0, 1, 0).tuples == whole.tuples
    packed(root)
    assert read(root, 0, 1, 0).tuples == whole.tuples
    content = bytearray(name.read_bytes())
    for at in (100, len(content) - 40):
        damaged = content.copy()
        damaged[at] ^= 1
        name.write_bytes(damaged)
        with pytest.raises(FileDamaged, match=r"packs/.* is damaged"):
            read(root, 0, 1, 0)


def test_what_is_young_large_or_new_stays(tmp_path: Path) -> None:
    pieces = [Piece(number, 10, number) for number in range(5, 30)]
    assert due(pieces, [], LATER_US, BLOCKS) == [
        PackName(8, 16), PackName(16, 24), PackName(24, 28)
    ]  # fmt: skip
    assert due(pieces, [PackName(8, 16), PackName(16, 20)], LATER_US, BLOCKS) == [
        PackName(16, 24), PackName(24, 28)
    ]  # fmt: skip
    assert due(pieces, [], packing.PACKED_AFTER_US + 12, BLOCKS) == [PackName(8, 12)]
    large = [replace(p, size_bytes=packing.PACK_BYTES_MAX // 5) for p in pieces]
    assert due(large, [], LATER_US, BLOCKS) == [
        PackName(8, 12), PackName(12, 16), PackName(16, 20), PackName(20, 24), PackName(24, 28)
    ]  # fmt: skip
    assert due([], [], LATER_US) == []
    root = str(tmp_path)
    recording(root, 1)
    assert packed(root, now_us=0) == 0, "nothing is so old"


def test_a_driver_that_does_not_lead_packs_nothing(tmp_path: Path) -> None:
    recording(str(tmp_path), 3)
    before = sorted(tmp_path.rglob("*"))

    def superseded() -> None:
        raise JournalSuperseded("another driver has begun")

    trimmer = IngestTrimmer(str(tmp_path), 1, superseded)
    trimmer.trim(FOR_EVER, {}, 0)
    with pytest.raises(JournalSuperseded):
        trimmer.pack(LATER_US)
    assert sorted(tmp_path.rglob("*")) == before


def test_commits_that_name_users_files_are_packed_and_the_files_stay(tmp_path: Path) -> None:
    folder, root = tmp_path / "theirs", str(tmp_path / "ingest" / "files")
    folder.mkdir()
    for number in range(8):
        times = pa.array([number * 100 + n for n in range(3)], pa.int64())
        table = pa.table([times, times.cast(META.schema.field("at").type)], schema=META.schema)
        with pa.ipc.new_file(str(folder / f"{number}.arrow"), META.schema) as writer:
            writer.write_table(table)
    meta = replace(META, user_files=FilesFormat("arrow", ()))
    source = FilesSource(str(folder), meta, is_available_now=True, files_max=1)

    def recorded() -> None:
        recorder = FileRecorder("files", source, str(tmp_path))
        recorder.start(None)  # type: ignore[arg-type]
        recorder.wait()
        assert recorder.error is None

    recorded()
    whole = read(root, 0, 1, 0)
    assert packed(root) == 1
    recorded()
    assert len(list(folder.iterdir())) == 8
    assert read(root, 0, 1, 0).tuples == whole.tuples
    put_on = CommitFinder(root).newest()
    assert put_on == 7, "no file was read again"


def test_the_log_goes_on_behind_packs(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 1, commits=10)
    packed(root)
    first = len(read(root, 0, 1, 0).tuples)
    draw = random.Random(9)
    value = 1_000
    for number in range(10, 20):
        value = put(root, draw, number, value)
    whole = read(root, 0, 1, 0)
    assert len(whole.tuples) > first
    assert packed(root) == 1
    assert read(root, 0, 1, 0) == whole
