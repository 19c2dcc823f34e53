"""The ingest log: exactly once by batch id, the same stream for every reader, lateness."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.tuples import EARLIEST_US, LATEST_US
from holdfast.core.queues.recording import IngestFile
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.commit_counting import CommitCounter
from holdfast.shell.storage.errors import LogEnded, SchemaMismatch, StorageError, UnknownStream
from holdfast.shell.storage.ingest_log import (
    IngestLogReader,
    IngestMeta,
)

SCHEMA = pa.schema([("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
META = IngestMeta(SCHEMA, "at", 0)


def rows(times: Sequence[int | None], first: int = 0) -> pa.RecordBatch:
    at = pa.array(times, pa.int64()).cast(pa.timestamp("us")).cast(SCHEMA.field("at").type)
    return pa.RecordBatch.from_arrays(
        [pa.array(range(first, first + len(times)), pa.int64()), at], schema=SCHEMA
    )


def file(
    root: Path, times: Sequence[int | None], first: int = 0, meta: IngestMeta = META
) -> IngestFile:
    made = ingest_log.write_file(str(root), meta, [rows(times, first)])
    assert made is not None
    return made


def read(root: Path, partition: int = 0, partitions: int = 1) -> tuple[list[int], list[int]]:
    """On-time and late values."""
    reader = IngestLogReader(str(root), partition, partitions)
    on_time: list[int] = []
    late: list[int] = []
    while batches := reader.poll():
        on_time += [v for logged in batches for v in logged.batch.column(0).to_pylist()]
    late += [v for batch in reader.take_late() for v in batch.column(0).to_pylist()]
    return on_time, late


def test_a_batch_counts_once_however_often_it_is_committed(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    made = file(tmp_path, [1, 2, 3])
    assert ingest_log.commit(str(tmp_path), 0, [made], by="query a")
    again = file(tmp_path, [1, 2, 3])
    assert not ingest_log.commit(str(tmp_path), 0, [again], by="query a")
    assert read(tmp_path) == ([0, 1, 2], [])


def test_many_rows_are_had_before_it_is_looked_whether_there_are_more(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    for number, count in enumerate((10, 20, 5_000, 30, 4_096)):
        times = [number * 10_000 + n for n in range(count)]
        assert ingest_log.commit(str(tmp_path), number, [file(tmp_path, times)], by="query a")
    reader = IngestLogReader(str(tmp_path), 0, 1)
    polls = []
    while batches := reader.poll():
        polls.append([logged.count for logged in batches])
    assert polls == [[10, 20, 5_000], [30, 4_096]]


def test_files_without_a_commit_do_not_count(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    file(tmp_path, [1])
    assert read(tmp_path) == ([], [])


def test_a_file_shows_up_when_it_is_whole(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    shown: list[list[str]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in (0, 200_000):
            yield rows(range(200_000), first)
            found = (tmp_path / "files").glob("*")
            shown.append([path.name for path in found if not path.name.endswith(".draft")])

    made = ingest_log.write_file(str(tmp_path), META, batches())
    assert made is not None
    assert shown == [[], []]
    assert [path.name for path in (tmp_path / "files").iterdir()] == [made.name]


def test_what_was_read_ahead_is_not_read_again(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    reader = IngestLogReader(str(tmp_path), 0, 1)
    made = file(tmp_path, [1, 2, 3])
    reader.read_ahead([made.name])
    assert reader.poll() == []
    shutil.rmtree(tmp_path / "files")
    ingest_log.commit(str(tmp_path), 0, [made], by="query a")
    assert [logged.batch.column(0).to_pylist() for logged in reader.poll()] == [[0, 1, 2]]
    assert (reader.next_id, reader.rows_read, reader.boundary_us) == (3, 3, 3)


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=6))
def test_reading_ahead_changes_nothing(batches: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root, delayed = Path(name), IngestMeta(SCHEMA, "at", 7)
        ingest_log.prepare(name, delayed)
        ahead = IngestLogReader(name, 0, 1)
        for number, times in enumerate(batches):
            made = file(root, times, 10 * number, delayed)
            ahead.read_ahead([made.name])
            ingest_log.commit(name, number, [made], by="query a")
        plain = IngestLogReader(name, 0, 1)
        seen = [
            (logged.first_id, logged.boundary_us, logged.batch.column(0).to_pylist())
            for logged in plain.poll()
        ]
        found = [
            (logged.first_id, logged.boundary_us, logged.batch.column(0).to_pylist())
            for logged in ahead.poll()
        ]
        assert found == seen
        assert [b.to_pylist() for b in ahead.take_late()] == [
            b.to_pylist() for b in plain.take_late()
        ]


def test_what_is_wrong_with_a_file_counts_when_it_is_committed(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    reader = IngestLogReader(str(tmp_path), 0, 1)
    made = file(tmp_path, [1, 2, 3])
    (segment,) = (tmp_path / "files" / made.name).iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    reader.read_ahead(["nowhere", ".no name", made.name, "gone"])
    ingest_log.commit(str(tmp_path), 0, [replace(made, count=4)], by="query a")
    with pytest.raises(StorageError, match="holds 3 rows, its commit says 4"):
        reader.poll()


def test_what_nobody_commits_is_forgotten(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    reader = IngestLogReader(str(tmp_path), 0, 1)
    made = [file(tmp_path, [at], first=at) for at in range(17)]
    large = file(tmp_path, range(300_000))
    for one in (*made, large):
        reader.read_ahead([one.name])
    shutil.rmtree(tmp_path / "files")
    ingest_log.commit(str(tmp_path), 0, made[1:], by="query a")
    assert len(reader.poll()) == 16
    for number, lost in enumerate((made[0], large), 1):
        ingest_log.commit(str(tmp_path), number, [lost], by="query a")
        with pytest.raises(StorageError, match="holds 0 rows"):
            reader.poll()


def test_batch_writes_at_the_same_time_all_count(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    files = [file(tmp_path, [5], first=i) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda made: ingest_log.append_batch(str(tmp_path), [made]), files))
    on_time, late = read(tmp_path)
    assert (sorted(on_time), late) == (list(range(40)), [])


def test_a_query_and_a_batch_write_cannot_share_a_log(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    ingest_log.append_batch(str(tmp_path), [file(tmp_path, [1])])
    with pytest.raises(StorageError, match="batch 0 was written by 'batch', this is 'query a'"):
        ingest_log.commit(str(tmp_path), 0, [file(tmp_path, [2])], by="query a")


def test_nothing_follows_an_end(tmp_path: Path) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    ingest_log.append_batch(root, [file(tmp_path, [1])])
    assert not ingest_log.has_ended(root)
    ingest_log.append_batch(root, [file(tmp_path, [2], 1)], ends=True)
    assert ingest_log.has_ended(root)
    with pytest.raises(LogEnded, match="it has ended with commit 1, and nothing can follow"):
        ingest_log.append_batch(root, [file(tmp_path, [3], 2)])
    with pytest.raises(LogEnded, match="ended with commit 1"):
        ingest_log.commit(root, 2, [file(tmp_path, [3], 2)], by="batch")
    ingest_log.end(root)
    reader = IngestLogReader(root, 0, 1)
    while reader.poll():
        assert not reader.ended
    assert (reader.next_id, reader.ended) == (2, True)


def test_a_dataframe_recorded_again_counts_once_with_its_end(tmp_path: Path) -> None:
    """Its end is part of its commit: there is no moment at which it is recorded and not ended."""
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    for is_first in (True, False):
        made = file(tmp_path, [1, 2])
        assert ingest_log.commit(root, 0, [made], by=ingest_log.BATCH, ends=True) is is_first
        assert ingest_log.has_ended(root)
    assert read(tmp_path) == ([0, 1], [])


def test_a_batch_made_from_other_offsets_is_refused(tmp_path: Path) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    ingest_log.commit(root, 0, [file(tmp_path, [1])], by="query a", origin="x")
    assert not ingest_log.commit(root, 0, [file(tmp_path, [1])], by="query a", origin="x")
    with pytest.raises(StorageError, match="batch 0 was recorded from other offsets"):
        ingest_log.commit(root, 0, [file(tmp_path, [1])], by="query a", origin="y")


def test_a_commit_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    for first in range(3):
        ingest_log.append_batch(str(tmp_path), [file(tmp_path, [first], first)])
    second = tmp_path / "commits" / f"{1:020d}.json"
    whole = second.read_bytes()
    for damaged in (b"", whole[:30], b"[]", b"{}", b"\xff\xfe"):
        second.write_bytes(damaged)
        with pytest.raises(StorageError, match=f"commits/{1:020d}.json is damaged"):
            read(tmp_path)
        with pytest.raises(StorageError, match="is damaged"):
            CommitCounter(str(tmp_path), 0, 1).rows()
    second.unlink()
    with pytest.raises(StorageError, match="commit 1 is missing although later ones were made"):
        read(tmp_path)
    with pytest.raises(StorageError, match="commit 1 is missing"):
        ingest_log.commit(str(tmp_path), 2, [file(tmp_path, [3])], by="batch")


def test_rows_out_of_order_beyond_the_delay_are_late_and_kept(tmp_path: Path) -> None:
    meta = IngestMeta(SCHEMA, "at", 10)
    ingest_log.prepare(str(tmp_path), meta)
    for first, times in ((0, [100, 105]), (2, [95, 94]), (4, [200])):
        ingest_log.append_batch(str(tmp_path), [file(tmp_path, times, first, meta)])
    assert read(tmp_path) == ([0, 1, 2, 4], [3])


def test_every_start_gives_the_rest_of_the_same_stream(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    for i in range(6):
        ingest_log.append_batch(
            str(tmp_path), [file(tmp_path, [i * 10, i * 10 - 15, i * 10 + 1], i * 3)]
        )
    whole = [
        (logged.first_id + k, value)
        for logged in IngestLogReader(str(tmp_path), 0, 1).poll()
        for k, value in enumerate(logged.batch.column(0).to_pylist())
    ]
    for start in range(len(whole)):
        rest = [
            (logged.first_id + k, value)
            for logged in IngestLogReader(str(tmp_path), 0, 1, start).poll()
            for k, value in enumerate(logged.batch.column(0).to_pylist())
        ]
        assert rest == whole[start:]


def test_partitions_share_the_files_of_a_commit(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    files = [file(tmp_path, [5, 5], first=i * 2) for i in range(4)]
    ingest_log.append_batch(str(tmp_path), files)
    assert read(tmp_path, 0, 2)[0] == [0, 1, 4, 5]
    assert read(tmp_path, 1, 2)[0] == [2, 3, 6, 7]


def test_a_row_without_a_time_is_refused_with_the_cure(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    with pytest.raises(SchemaMismatch, match="at IS NOT NULL"):
        file(tmp_path, [1, None])


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), LATEST_US + 1, EARLIEST_US - 1])
def test_a_time_outside_of_all_years_is_refused_with_the_cure(tmp_path: Path, time: int) -> None:
    """As a boundary it would be the end of the stream."""
    ingest_log.prepare(str(tmp_path), META)
    with pytest.raises(SchemaMismatch, match=rf"in 1 rows, the first .* {time} us.*BETWEEN 1 AND"):
        file(tmp_path, [5, time, 7])


@pytest.mark.parametrize("time", [LATEST_US, EARLIEST_US])
@pytest.mark.parametrize("delay_us", [0, 10**17])
def test_the_first_and_the_last_time_of_all_end_no_stream(
    tmp_path: Path, time: int, delay_us: int
) -> None:
    meta = IngestMeta(SCHEMA, "at", delay_us, ahead_us=None)
    ingest_log.prepare(str(tmp_path), meta)
    ingest_log.append_batch(str(tmp_path), [file(tmp_path, [time], 0, meta)])
    ingest_log.append_batch(str(tmp_path), [file(tmp_path, [LATEST_US], 1, meta)])
    source = LogSourceSpec(str(tmp_path), "ingest").open()
    rows = source.read(0, 10)
    assert [batch.count for batch in rows.batches] == [1, 1]
    assert rows.boundary_us == LATEST_US - delay_us
    assert rows.late_rows == 0
    source.close()


def test_a_row_of_the_year_9999_is_kept_named_and_moves_no_time(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    for first, times in ((0, [5, LATEST_US, 6]), (3, [7, 6]), (5, [LATEST_US - 5]), (6, [8])):
        ingest_log.append_batch(str(tmp_path), [file(tmp_path, times, first)])
    source = LogSourceSpec(str(tmp_path), "ingest").open()
    rows = source.read(0, 10)
    assert [batch.count for batch in rows.batches] == [3, 2, 1, 1]
    assert (rows.boundary_us, rows.late_rows) == (8, 0)
    assert re.search("2 rows in .* more than 86400 s ahead .* by their at", source.warning)
    source.close()


def test_without_a_bound_ahead_every_row_moves_time(tmp_path: Path) -> None:
    meta = replace(META, ahead_us=None)
    ingest_log.prepare(str(tmp_path), meta)
    for first, times in ((0, [5, LATEST_US]), (2, [7])):
        ingest_log.append_batch(str(tmp_path), [file(tmp_path, times, first, meta)])
    assert read(tmp_path) == ([0, 1], [2])


def test_other_columns_and_another_delay_are_refused(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    with pytest.raises(SchemaMismatch, match="other columns; differing: w int64"):
        ingest_log.prepare(
            str(tmp_path), IngestMeta(SCHEMA.append(pa.field("w", pa.int64())), "at", 0)
        )
    with pytest.raises(SchemaMismatch, match="delay of"):
        ingest_log.prepare(str(tmp_path), IngestMeta(SCHEMA, "at", 5))
    with pytest.raises(UnknownStream, match=r"no meta\.json"):
        ingest_log.read_meta(str(tmp_path / "nowhere"))


def test_rows_of_one_commit_are_never_late_against_each_other(tmp_path: Path) -> None:
    """As when Spark reads two files in two tasks of one micro-batch."""
    meta = IngestMeta(SCHEMA, "at", 3)
    ingest_log.prepare(str(tmp_path), meta)
    files = [file(tmp_path, range(100), first, meta) for first in (0, 100)]
    ingest_log.commit(str(tmp_path), 0, files, by="q")
    for partitions in (1, 2, 3):
        found = [read(tmp_path, partition, partitions) for partition in range(partitions)]
        assert sorted(v for on_time, _ in found for v in on_time) == list(range(200))
        assert not any(late for _, late in found)


def test_what_is_late_is_so_for_any_number_of_partitions(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    ingest_log.commit(str(tmp_path), 0, [file(tmp_path, [100], 0)], by="q")
    files = [file(tmp_path, [at], first) for first, at in ((1, 99), (2, 100), (3, 98))]
    ingest_log.commit(str(tmp_path), 1, files, by="q")
    for partitions in (1, 2, 3, 4):
        found = [read(tmp_path, partition, partitions) for partition in range(partitions)]
        assert sorted(v for _, late in found for v in late) == [1, 3]


def test_a_partition_without_files_does_not_hold_up_time(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    ingest_log.append_batch(str(tmp_path), [file(tmp_path, [5, 7])])
    reader = IngestLogReader(str(tmp_path), 1, 2)
    assert (reader.poll(), reader.boundary_us) == ([], 7)


def test_a_watermark_counts_behind_its_commit_as_in_spark(tmp_path: Path) -> None:
    """Spark judges the rows of a batch by the watermark of the batch before."""
    root = str(tmp_path)
    meta = IngestMeta(SCHEMA, "at", 1000)
    ingest_log.prepare(root, meta)
    ingest_log.commit(root, 0, [file(tmp_path, [100], 0, meta)], by="q", watermark_us=0)
    made = [file(tmp_path, [120, 95], 1, meta)]
    ingest_log.commit(root, 1, made, by="q", watermark_us=110)
    made = [file(tmp_path, [111, 50], 3, meta)]
    ingest_log.commit(root, 2, made, by="q", watermark_us=110)
    assert read(tmp_path) == ([0, 1, 2, 3], [4])


def test_a_watermark_moves_the_boundary_without_rows(tmp_path: Path) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    ingest_log.commit(root, 0, [], by="q", watermark_us=77)
    reader = IngestLogReader(root, 0, 1)
    assert reader.poll() == []
    assert reader.boundary_us == 77


def test_an_idle_sparks_watermark_counts_at_once(tmp_path: Path) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    ingest_log.commit(root, 0, [file(tmp_path, [100])], by="q", watermark_us=0)
    follower = IngestLogReader(root, 0, 1)
    assert [logged.boundary_us for logged in follower.poll()] == [0]
    ingest_log.tell_idle(root, 0, 97)
    assert (follower.poll(), follower.boundary_us) == ([], 97)
    ingest_log.commit(root, 1, [file(tmp_path, [96, 98], 1)], by="q", watermark_us=97)
    follower.poll()
    assert (follower.next_id, follower.late_rows) == (2, 1)
    assert read(tmp_path) == ([0, 2], [1])


def test_a_word_of_idleness_behind_the_next_batch_has_no_effect(tmp_path: Path) -> None:
    root = str(tmp_path)
    ingest_log.prepare(root, META)
    ingest_log.commit(root, 0, [file(tmp_path, [100])], by="q", watermark_us=0)
    ingest_log.commit(root, 1, [file(tmp_path, [50], 1)], by="q", watermark_us=97)
    ingest_log.tell_idle(root, 0, 97)
    assert read(tmp_path) == ([0, 1], [])


def test_a_log_in_which_other_rows_were_late_is_refused(tmp_path: Path) -> None:
    ingest_log.prepare(str(tmp_path), META)
    meta = json.loads((tmp_path / "meta.json").read_text())
    del meta["version"], meta["xxh3"]  # As it was written then.
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    for act in (ingest_log.read_meta, lambda root: ingest_log.prepare(root, META)):
        with pytest.raises(SchemaMismatch, match="of version 2, this is version 3"):
            act(str(tmp_path))


def test_readers_and_commits_count_the_same_rows(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert CommitCounter(root, 0, 2).rows() == 0
    ingest_log.prepare(root, META)
    counter = CommitCounter(root, 0, 2)
    ingest_log.append_batch(root, [file(tmp_path, [5, 6]), file(tmp_path, [7])])
    assert counter.rows() == 2
    ingest_log.append_batch(root, [file(tmp_path, [1, 9, 10])])
    assert (counter.rows(), CommitCounter(root, 1, 2).rows()) == (5, 1)
    for from_id in (0, 3):
        reader = IngestLogReader(root, 0, 2, from_id)
        while reader.poll():
            pass
        assert (reader.rows_read, reader.next_id) == (5, 4)
