"""A stream log at a URL of which the oldest parts were removed."""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trimmed_logs import lead, read

from holdfast.core.model.tuples import with_time
from holdfast.core.queues.retention import FOR_EVER, Retention
from holdfast.core.wire.log_parts import MERGED_PARTS, live_parts, parse_part
from holdfast.shell.storage import part_log
from holdfast.shell.storage.errors import JournalSuperseded, StreamLogCorrupt, TuplesRemoved
from holdfast.shell.storage.logs import open_kept, open_reader
from holdfast.shell.storage.part_log import PartLogWriter
from holdfast.shell.storage.part_trimming import PartTrimmer, trimmer_at
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.file_system import FileSystemStore

SCHEMA = with_time(pa.schema([("v", pa.int64())]))
NOTHING_KEPT = Retention(time_us=1)
LATER_US = 2**60


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(part_log, "PART_INTERVAL_S", 0.0)
    memory = f"memory://{uuid.uuid4()}"
    return memory if request.param == "memory" else f"local://{tmp_path}/log"


def opened(place: str, incarnation: int) -> PartLogWriter:
    return PartLogWriter(place, SCHEMA, "s", incarnation)


def put(log: PartLogWriter, parts: int) -> None:
    """Two tuples a part."""
    for _ in range(parts):
        ids = pa.array([log.next_id, log.next_id + 1])
        log.append(0, log.next_id, pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA), 0, 0)
        log.sync()


def trim(place: str, needed_from: int | None = None, kept: Retention = NOTHING_KEPT) -> int:
    return trimmer_at(place, lead).trim(kept, needed_from, LATER_US)


def test_what_is_removed_is_gone_from_the_front_and_readers_are_told(place: str) -> None:
    assert trim(place) == 0
    log = opened(place, 1)
    put(log, 6)
    early = open_reader(place, 0)
    trimmer = PartTrimmer(place, lead)
    assert trimmer.trim(FOR_EVER, None, LATER_US) == 0
    before_bytes = trimmer.size_bytes
    assert trimmer.trim(NOTHING_KEPT, 5, LATER_US) == 2
    assert 0 < trimmer.size_bytes < before_bytes
    assert read(place, 4) == list(range(4, 12))
    assert open_kept(place).next_id == 4
    for late in (early, open_reader(place, 3)):
        with pytest.raises(TuplesRemoved, match=r"tuples [03] to 3 were removed"):
            late.poll()
    assert trim(place) == 2
    assert trim(place) == 0
    put(log, 1)
    assert read(place, 8) == list(range(8, 14))
    assert len([n for n in store_at(place).names() if parse_part(n)]) == 3


def test_by_size_and_by_age_only_what_is_too_much_goes(place: str) -> None:
    put(opened(place, 1), 5)
    trimmer = PartTrimmer(place, lead)
    trimmer.trim(FOR_EVER, None, LATER_US)
    whole = trimmer.size_bytes
    assert trim(place, kept=Retention(size_bytes=whole)) == 0
    assert trim(place, kept=Retention(size_bytes=whole - 1)) == 1
    assert trimmer.oldest_us is not None
    young = Retention(time_us=3_600_000_000)
    assert trimmer.trim(young, None, trimmer.oldest_us + 60_000_000) == 0
    assert trimmer.trim(young, None, trimmer.oldest_us + 7_200_000_000) == 2


def test_its_writer_merges_what_is_left(place: str) -> None:
    log = opened(place, 1)
    put(log, MERGED_PARTS - 1)
    trim(place, needed_from=5)
    put(log, 1)
    log.tidy()
    put(log, 2)
    log.tidy()
    assert read(place, 4) == list(range(4, 2 * MERGED_PARTS + 4))
    merged = [p for n in store_at(place).names() if (p := parse_part(n)) and p.end is not None]
    assert [(part.first_id, part.end) for part in merged] == [(4, 2 * MERGED_PARTS + 4)]
    put(log, 3)
    trim(place)
    assert read(place, log.next_id - 4) == list(range(log.next_id - 4, log.next_id))


def test_a_part_that_is_gone_without_a_mark_was_lost(place: str) -> None:
    log = opened(place, 1)
    put(log, MERGED_PARTS)
    store = store_at(place)
    store.delete(next(name for name in store.names() if parse_part(name)))
    with pytest.raises(StreamLogCorrupt, match="not there any more"):
        log.tidy()


def test_who_takes_the_log_over_finds_its_end_behind_a_zombie(place: str) -> None:
    former = opened(place, 1)
    put(former, 4)
    log = opened(place, 2)
    put(former, 5)  # Nobody reads them.
    assert trim(place) == 3
    assert read(place, 6) == [6, 7]
    assert log.next_id == 8
    put(log, 3)
    assert trim(place) == 2
    assert opened(place, 3).next_id == 14
    assert read(place, 10) == [10, 11, 12, 13]


def test_where_parts_end() -> None:
    names = [
        *("0000000001/00000000000000000000-00000000000000000004.part",),
        *("0000000001/00000000000000000002.part", "0000000001/00000000000000000004.part"),
        *("0000000001/00000000000000000009.part", "0000000002/00000000000000000006.part"),
        "0000000002/00000000000000000006.0000000001.part",
    ]
    parts = [part for name in names if (part := parse_part(name))]
    live = live_parts(parts, [(1, 0), (2, 6)])  # type: ignore[list-item]
    assert [(part.first_id, end) for part, end in live.items()] == [
        *((0, 4), (2, 4), (4, 6), (6, None), (6, None))
    ]


class Crash(Exception):
    """The driver dies."""


def test_a_crash_between_any_two_changes_leaves_a_log_without_gaps(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = steps = 0
    while at <= steps:
        here, count = f"{place}/{at}", 0
        put(opened(here, 1), 6)
        trim(here, needed_from=2)

        def counting(change: Any) -> Any:
            def changed(*args: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count > at:  # noqa: B023
                    raise Crash
                return change(*args, **options)

            return changed

        with monkeypatch.context() as patch:
            for name in ("put", "delete"):
                patch.setattr(FileSystemStore, name, counting(getattr(FileSystemStore, name)))
            try:
                trim(here, needed_from=6)
            except Crash:
                pass
            else:
                assert count > 3
                return
        first_id = open_kept(here).next_id
        assert read(here, first_id) == list(range(first_id, 12))
        trim(here, needed_from=6)
        assert len([n for n in store_at(here).names() if parse_part(n)]) == 3
        at, steps = at + 1, at + 1


def test_who_no_longer_leads_removes_nothing(place: str) -> None:
    put(opened(place, 1), 5)

    def superseded() -> None:
        raise JournalSuperseded("another driver leads")

    with pytest.raises(JournalSuperseded):
        PartTrimmer(place, superseded).trim(NOTHING_KEPT, None, LATER_US)
    assert read(place, 0) == list(range(10))
