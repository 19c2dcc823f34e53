"""What is late in a recording, and what may be promised, against the rule in plain Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import with_time
from holdfast.core.queues.committed_stream import Accepted, CommittedStream
from holdfast.core.queues.lateness import CommitTimes, FileTimes, FileTimesMaker

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


@dataclass(frozen=True)
class Commit:
    """Files as lists of times, and what Spark said."""

    files: list[list[int]]
    watermark_us: int | None = None
    idle_us: int | None = None

    @property
    def times(self) -> CommitTimes:
        return CommitTimes([times_of(f) for f in self.files], self.watermark_us, self.idle_us)


def times_of(file: list[int]) -> FileTimes:
    newest = file[0]
    disorder = 0
    for time in file:
        newest = max(newest, time)
        disorder = max(disorder, newest - time)
    return FileTimes(len(file), min(file), max(file), disorder)


def follow(
    commits: list[Commit], delay_us: int, partition: int, partitions: int, from_id: int = 0
) -> tuple[CommittedStream, list[Accepted], list[int]]:
    """Read in records of two rows; what is accepted, and the boundary after each step."""
    stream = CommittedStream(delay_us, from_id)
    accepted: list[Accepted] = []
    boundaries: list[int] = []
    for commit in commits:
        share = commit.files[partition::partitions]
        stream.begin(commit.times, [times_of(file) for file in share])
        boundaries.append(stream.boundary_us)
        for file in share:
            if stream.enter(times_of(file)):
                for start in range(0, len(file), 2):
                    found = stream.accept(record(file[start : start + 2]))
                    accepted += [] if found is None else [found]
                    boundaries.append(stream.boundary_us)
    return stream, accepted, boundaries


def record(times: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(times), pa.array(times)], schema=SCHEMA)


def on_time(commits: list[Commit], delay_us: int) -> list[list[list[int]]]:
    """Per commit and file the times that are not late."""
    floor, newest = BEGINNING_US, BEGINNING_US
    kept = []
    for commit in commits:
        floor = max(floor, BEGINNING_US if commit.idle_us is None else commit.idle_us)
        kept.append([[time for time in file if time >= floor] for file in commit.files])
        newest = max([newest, *(time for file in commit.files for time in file)])
        by_delay = BEGINNING_US if newest == BEGINNING_US else newest - delay_us
        if commit.watermark_us is not None:
            floor = max(floor, commit.watermark_us)
        elif commit.files:
            floor = max(floor, by_delay)
    return kept


FILES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=7), max_size=5)
WORDS = st.none() | st.integers(0, 60)
COMMITS = st.lists(st.builds(Commit, FILES, WORDS, WORDS), min_size=1, max_size=6)


@given(COMMITS, st.integers(0, 20), st.integers(1, 3))
def test_a_tuple_is_late_by_the_commits_before_its_own_alone(
    commits: list[Commit], delay_us: int, partitions: int
) -> None:
    expected = on_time(commits, delay_us)
    for partition in range(partitions):
        stream, accepted, boundaries = follow(commits, delay_us, partition, partitions)
        found = [time for each in accepted for time in each.batch.column(0).to_pylist()]
        kept = [t for files in expected for file in files[partition::partitions] for t in file]
        assert found == kept
        assert stream.late_rows == stream.rows_read - len(kept)
        assert boundaries == sorted(boundaries)


@given(COMMITS, st.integers(0, 20), st.integers(1, 3))
def test_nothing_older_than_a_boundary_follows_it(
    commits: list[Commit], delay_us: int, partitions: int
) -> None:
    for partition in range(partitions):
        _, accepted, _ = follow(commits, delay_us, partition, partitions)
        promised = BEGINNING_US
        for each in accepted:
            assert min(each.batch.column(0).to_pylist()) >= promised
            promised = each.boundary_us


@given(COMMITS, st.integers(0, 20), st.integers(0, 40))
def test_a_replacement_judges_and_counts_as_its_predecessor(
    commits: list[Commit], delay_us: int, from_id: int
) -> None:
    whole, accepted, _ = follow(commits, delay_us, 0, 1)
    again, rest, _ = follow(commits, delay_us, 0, 1, from_id)
    expected = {
        each.first_id + i: (time, each.boundary_us)
        for each in accepted
        for i, time in enumerate(each.batch.column(0).to_pylist())
        if each.first_id + i >= from_id
    }
    found = {
        each.first_id + i: (time, each.boundary_us)
        for each in rest
        for i, time in enumerate(each.batch.column(0).to_pylist())
    }
    assert found == expected
    for name in ("next_id", "rows_read", "late_rows", "boundary_us"):
        assert getattr(again, name) == getattr(whole, name)


def test_time_moves_within_a_commit_as_far_as_the_rest_of_the_share_allows() -> None:
    """A bounded DataFrame is one commit of sorted files; windows close while it is read."""
    _, _, boundaries = follow([Commit([[1, 2, 5, 6, 9]])], 0, 0, 1)
    assert boundaries == [1, 2, 6, 9]
    _, _, boundaries = follow([Commit([[1, 2, 5, 6], [4, 8]])], 0, 0, 1)
    assert boundaries == [1, 2, 4, 8]
    _, _, boundaries = follow([Commit([[1, 2, 5, 6], [4, 8]])], 3, 0, 1)
    assert boundaries == [1, 2, 4, 5]


def test_all_instances_have_come_equally_far_behind_a_commit() -> None:
    for partition in range(4):
        stream, _, _ = follow([Commit([[1, 9], [4, 5]])], 2, partition, 4)
        assert stream.boundary_us == 7


NOW = 1_700_000_000_000_000
YEAR_9999 = 253_370_764_800_000_000


def spanned(file: list[int], at_us: int) -> FileTimes:
    maker = FileTimesMaker(1_000, at_us)
    for time in file:
        maker.add(np.array([time], np.int64))
    return maker.made()


@pytest.mark.parametrize("watermark_us", [None, YEAR_9999 - 5])
def test_a_row_of_a_broken_clock_makes_no_later_one_late(watermark_us: int | None) -> None:
    """Neither by the delay, nor by the watermark that Spark has come to by it."""
    stream = CommittedStream(5, ahead_us=1_000)
    for number, file in enumerate([[NOW, YEAR_9999, NOW + 1], [NOW - 4, NOW + 9], [NOW + 8]]):
        share = [spanned(file, NOW)]
        told_us = watermark_us if number else None if watermark_us is None else 0
        stream.begin(CommitTimes(share, told_us, at_us=NOW), share)
        assert stream.enter(share[0])
        assert stream.accept(record(file)) is not None
    assert (stream.rows_read, stream.late_rows, stream.rows_ahead) == (6, 0, 1)
    assert stream.boundary_us == NOW + 9 - 5


def test_without_the_bound_it_would() -> None:
    stream = CommittedStream(5)
    for file in ([NOW, YEAR_9999], [NOW + 1]):
        share = [times_of(file)]
        stream.begin(CommitTimes(share, at_us=NOW), share)
        assert stream.enter(share[0])
        stream.accept(record(file))
    assert stream.late_rows == 1
