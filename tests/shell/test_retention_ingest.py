"""An ingest log of which the oldest commits were removed: the same tuples, ids and lateness."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from holdfast.core.queues.recording import IngestFile
from holdfast.core.queues.retention import FOR_EVER, Retention
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.spark.data_source import LogSource
from holdfast.shell.storage import ingest_log, ingest_packing
from holdfast.shell.storage.commit_counting import CommitCounter, first_id_of
from holdfast.shell.storage.errors import JournalSuperseded, StorageError, TuplesRemoved
from holdfast.shell.storage.ingest_log import IngestLogReader, IngestMeta, late_rows_of
from holdfast.shell.storage.ingest_trimming import IngestTrimmer
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.user_rows import FilesFormat

SCHEMA = pa.schema([("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
META = IngestMeta(SCHEMA, "at", 40, 500)
NOTHING_KEPT = Retention(time_us=1)
LATER_US = 2**60
"""By this clock all commits are old."""


def put(root: str, draw: random.Random, number: int, first: int) -> int:
    """A commit of some files, tuples late and far ahead among them; the next value."""
    files: list[IngestFile] = []
    for _ in range(draw.randrange(4)):
        times = [number * 50 + draw.randrange(-120, 60) for _ in range(draw.randrange(1, 6))]
        if draw.random() < 0.05:
            times[0] += 10**15
        values = pa.array(range(first, first + len(times)), pa.int64())
        at = pa.array(times, pa.int64()).cast(SCHEMA.field("at").type)
        rows = pa.RecordBatch.from_arrays([values, at], schema=SCHEMA)
        made = ingest_log.write_file(root, META, [rows])
        assert made is not None
        files.append(made)
        first += len(times)
    watermark_us = number * 50 - 30 if draw.random() < 0.3 else None
    ingest_log.commit(root, number, files, by="q", watermark_us=watermark_us)
    return first


def recording(root: str, seed: int, commits: int = 12) -> None:
    draw, first = random.Random(seed), 0
    ingest_log.prepare(root, META)
    for number in range(commits):
        first = put(root, draw, number, first)


class Read(NamedTuple):
    """What a reader finds, and says of itself at the end."""

    tuples: list[tuple[int, int]]
    boundary_us: int
    late_rows: int
    rows_read: int


def read(root: str, partition: int, partitions: int, from_id: int) -> Read:
    reader = IngestLogReader(root, partition, partitions, from_id)
    found: list[tuple[int, int]] = []
    while batches := reader.poll(max_rows=1):
        for logged in batches:
            values = logged.batch.column(0).to_pylist()
            found += zip(range(logged.first_id, reader.next_id), values, strict=False)
    reader.close()
    return Read(found, reader.boundary_us, reader.late_rows, reader.rows_read)


def never() -> None:
    """This driver leads."""


def trimmed(root: str, needed: int, partitions: int = 2) -> int:
    """What is gone once nobody needs tuples before an id of any instance."""
    trimmer = IngestTrimmer(root, partitions, never)
    ids = {(instance, partitions): needed for instance in range(partitions)}
    try:
        return trimmer.trim(NOTHING_KEPT, ids, LATER_US)
    finally:
        trimmer.close()


@pytest.mark.parametrize("seed", range(12))
def test_readers_find_the_same_behind_what_was_removed(tmp_path: Path, seed: int) -> None:
    root = str(tmp_path)
    recording(root, seed)
    ways = [(0, 1), (0, 2), (1, 2)]
    whole = {way: read(root, *way, 0) for way in ways}
    late = late_rows_of(root, 2)
    counted = CommitCounter(root, 1, 2).rows()
    removed = 0
    for needed in range(0, 40, 5):
        removed += trimmed(root, needed)
        for way in ways:
            begins = first_id_of(root, *way)
            assert way == (0, 1) or begins <= needed
            for from_id in (begins, begins + 3):
                found = read(root, *way, from_id)
                assert found.tuples == [each for each in whole[way].tuples if each[0] >= from_id]
                assert found[1:] == whole[way][1:]
            if begins:
                with pytest.raises(TuplesRemoved, match="comes too late"):
                    read(root, *way, begins - 1)
        assert (late_rows_of(root, 2), CommitCounter(root, 1, 2).rows()) == (late, counted)
    assert removed > 3
    names = sorted(path.name for path in (tmp_path / "files").iterdir())
    kept = {file.name for n in range(removed, 12) for file in commit(tmp_path, n)}
    assert names == sorted(kept)


def commit(root: Path, number: int) -> tuple[IngestFile, ...]:
    store = ingest_log.CommitStore(str(root))
    found = store.commit(number)
    assert found is not None
    return found.files


def test_the_newest_commits_stay_so_that_spark_goes_on(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 1)
    assert trimmed(root, 10**6) == 10
    assert not ingest_log.commit(root, 11, [], by="q"), "recorded again, it counts once"
    put(root, random.Random(5), 12, 1_000)
    with pytest.raises(StorageError, match="commit 8 is missing"):
        ingest_log.commit(root, 9, [], by="q")


def test_the_user_says_how_much_is_kept(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 1)
    trimmer = IngestTrimmer(root, 1, never)
    needed = {(0, 1): 10**6}
    assert trimmer.trim(FOR_EVER, needed, LATER_US) == 0
    size = trimmer.size_bytes
    stored = sum(path.stat().st_size for path in (tmp_path / "files").rglob("*") if path.is_file())
    assert size == stored
    assert trimmer.trim(Retention(size_bytes=size), needed, LATER_US) == 0
    assert trimmer.trim(Retention(size_bytes=size // 2), needed, LATER_US) > 2
    assert size // 4 < trimmer.size_bytes <= size // 2
    assert trimmer.trim(Retention(time_us=10**12), needed, 0) == 0, "nothing is so old"
    assert trimmer.trim(NOTHING_KEPT, {(0, 1): 0}, LATER_US) == 0, "a restart needs all of it"


def test_a_batch_whose_commit_was_removed_is_refused_by_name(tmp_path: Path) -> None:
    """As when a query's own checkpoints are gone, and it numbers its batches from 0 again."""
    root = str(tmp_path)
    recording(root, 3)
    assert trimmed(root, 10**6)
    with pytest.raises(StorageError, match="batch 0 was recorded and removed before"):
        ingest_log.commit(root, 0, [], by="q", origin="other")


class Crash(Exception):
    """The driver dies."""


def crashing(monkeypatch: pytest.MonkeyPatch, root: str, at: int) -> Callable[[], int]:
    """From the change of the store number `at` on everything fails; how many there were."""
    count = 0

    def counting(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Crash
            return change(*args, **options)

        return changed

    kind = type(store_at(root))
    monkeypatch.setattr(kind, "put", counting(kind.put))
    monkeypatch.setattr(kind, "delete", counting(kind.delete))
    monkeypatch.setattr(ingest_packing.shutil, "rmtree", counting(ingest_packing.shutil.rmtree))
    return lambda: count


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_crash_between_any_two_changes_loses_nothing(tmp_path: Path, scheme: str) -> None:
    at, steps = 0, 10**6
    while at < steps:
        root = f"{scheme}{tmp_path / str(at)}"
        recording(root, 3, commits=6)
        whole = read(root, 0, 2, 0)
        trimmed(root, 3)
        with pytest.MonkeyPatch.context() as patch:
            changes = crashing(patch, root, at)
            with suppress(Crash):
                trimmed(root, 8)
                steps = changes()
        begins = first_id_of(root, 0, 2)
        assert read(root, 0, 2, begins).tuples == [t for t in whole.tuples if t[0] >= begins]
        trimmed(root, 8)
        begins = first_id_of(root, 0, 2)
        assert read(root, 0, 2, begins).tuples == [t for t in whole.tuples if t[0] >= begins]
        store = store_at(root)
        numbers = [int(name.rpartition("/")[2][:20]) for name in store.names("commits")]
        marks = [int(name.rpartition("/")[2][:20]) for name in store.names("begin")]
        assert marks == [min(numbers)], f"change {at}"
        files = {name.split("/")[1] for name in store.names("files")}
        found = ingest_log.CommitStore(root)
        kept = [found.commit(number) for number in numbers]
        assert files == {file.name for each in kept if each is not None for file in each.files}
        at += 1
    assert at > 4


def test_a_driver_that_does_not_lead_removes_nothing(tmp_path: Path) -> None:
    recording(str(tmp_path), 3)
    before = sorted(tmp_path.rglob("*"))

    def superseded() -> None:
        raise JournalSuperseded("another driver has begun")

    trimmer = IngestTrimmer(str(tmp_path), 1, superseded)
    with pytest.raises(JournalSuperseded):
        trimmer.trim(NOTHING_KEPT, {(0, 1): 10**6}, LATER_US)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_gone_without_a_mark_was_lost(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 3)
    trimmed(root, 5)
    begins = first_id_of(root, 0, 1)
    first = min((tmp_path / "commits").iterdir())
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(StorageError, match="is missing although later ones"):
        read(root, 0, 1, begins)
    first.write_bytes(content)
    (mark,) = (tmp_path / "begin").iterdir()
    damaged = bytearray(mark.read_bytes())
    damaged[20] ^= 1
    mark.write_bytes(damaged)
    with pytest.raises(StorageError, match=r"begin/.* is damaged"):
        read(root, 0, 1, begins)
    mark.unlink()
    with pytest.raises(StorageError, match="commit 0 is missing although later ones"):
        read(root, 0, 1, begins)


def test_a_reader_that_was_overtaken_is_told(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 3)
    reader, other = IngestLogReader(root, 0, 1), IngestLogReader(root, 0, 1)
    reader.poll(max_rows=1)
    trimmed(root, 10**6)
    for late in (reader, other):
        with pytest.raises(TuplesRemoved, match=r"retention=\.\.\."):
            list(iter(partial(late.poll, max_rows=1), []))


def options(root: str, **more: str) -> dict[str, str]:
    return {"path": root, "metadata": "true", **more}


def ids(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column(batch.num_columns - 2).to_pylist()]


def test_spark_begins_where_the_log_does_and_late_positions_are_refused(tmp_path: Path) -> None:
    root = str(tmp_path)
    recording(root, 4)
    source = LogSource(options(root))
    follower = source.streamReader(source.schema())
    early = follower.initialOffset()
    trimmed(root, 8, partitions=1)
    begins = first_id_of(root, 0, 1)
    assert early == {"0": 0}
    assert begins > 0
    batch = source.reader(source.schema())
    (part,) = batch.partitions()
    found = ids(batch.read(part))
    assert found[0] == begins
    again = LogSource(options(root)).streamReader(source.schema())
    assert again.initialOffset() == {"0": begins}
    latest: Mapping[str, int] = again.latestOffset()
    assert latest == {"0": found[-1] + 1}
    assert [n for p in again.partitions({"0": begins}, latest) for n in ids(again.read(p))] == found
    with pytest.raises(TuplesRemoved):
        [n for p in again.partitions(early, latest) for n in ids(again.read(p))]
    three = LogSource(options(root, partitions="3"))
    with pytest.raises(StorageError, match="ids go on for 1 partitions alone, not for 3"):
        three.reader(three.schema()).partitions()


def user_file(folder: Path, number: int) -> None:
    times = pa.array([number * 100 + n for n in range(3)], pa.int64())
    table = pa.table([times, times.cast(SCHEMA.field("at").type)], schema=SCHEMA)
    with pa.ipc.new_file(str(folder / f"{number}.arrow"), SCHEMA) as writer:
        writer.write_table(table)


def test_files_of_users_stay_and_are_not_read_again(tmp_path: Path) -> None:
    folder, root = tmp_path / "theirs", str(tmp_path / "ingest" / "files")
    folder.mkdir()
    meta = replace(META, user_files=FilesFormat("arrow", ()))
    source = FilesSource(str(folder), meta, is_available_now=True, files_max=1)

    def recorded() -> FileRecorder:
        recorder = FileRecorder("files", source, str(tmp_path))
        recorder.start(None)  # type: ignore[arg-type]
        recorder.wait()
        assert recorder.error is None
        return recorder

    for number in range(5):
        user_file(folder, number)
    recorder = recorded()
    (folder / "1.arrow").unlink()
    trimmer = IngestTrimmer(root, 1, never, recorder.still_there)
    assert trimmer.trim(NOTHING_KEPT, {(0, 1): 9}, LATER_US) == 3
    assert len(list(folder.iterdir())) == 4
    user_file(folder, 5)
    recorded()
    assert [v for _, v in read(root, 0, 1, 9).tuples] == [
        number * 100 + n for number in (3, 4, 5) for n in range(3)
    ]
    mark = ingest_log.CommitStore(root).beginning()
    assert mark is not None
    assert mark.known == tuple(str(folder / f"{n}.arrow") for n in (0, 2))
