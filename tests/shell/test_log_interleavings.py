"""Real logs, in a folder and in a store, while others do something at each look they take.

At every look into the log, and before a writer begins, a seed draws what others do meanwhile: open
the log, write as a zombie or not, merge, read it whole. They are interrupted in the same way.
"""

import itertools
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_parts, part_marks
from holdfast.core.wire.log_owners import Owners, Place, by_incarnation
from holdfast.core.wire.store_steps import PutObject
from holdfast.shell.storage import part_log, part_log_reader, stream_log
from holdfast.shell.storage.errors import TuplesMissing, WrittenByOther
from holdfast.shell.storage.logs import OpenedLog, open_reader, open_writer

SCHEMA = with_time(pa.schema([("writer", pa.int64())]))
DEPTH = 3
INTERRUPTIONS = 60


class Interleaved:
    """All who work on one log."""

    def __init__(self, place: str, seed: int) -> None:
        self.place = place
        self._random = random.Random(seed)
        self._writers: dict[int, OpenedLog] = {}
        self._busy: list[int] = []
        self._depth = 0
        self._left = INTERRUPTIONS
        self._begun = 0  # the newest incarnation that has begun to open the log
        self.counts: dict[int, int] = {}
        """Who wrote a tuple that was durable when nobody had begun to replace its writer."""
        self.slow_openers = 0

    def meanwhile(self, *, is_beginning: bool) -> None:
        """What others do now, perhaps; most often between finding the end and beginning there."""
        if self._depth >= DEPTH or self._random.random() > (0.5 if is_beginning else 0.1):
            return
        self._depth += 1
        for _ in range(min(self._left, self._random.randint(1, 3))):
            self._left -= 1
            self.act()
        self._depth -= 1

    def act(self) -> None:
        """One of them does something."""
        chance = self._random.random()
        free = [i for i in self._writers if i not in self._busy]
        if chance < 0.1 or not free:
            self._open()
        elif chance < 0.35:
            self.read_whole()
        else:
            self._write(self._random.choice(free))

    def _open(self) -> None:
        self._begun += 1
        incarnation = self._begun
        end = max(self.counts, default=-1) + 1
        with suppress(WrittenByOther):
            writer = self._writers[incarnation] = open_writer(self.place, SCHEMA, "s", incarnation)
            if incarnation == self._begun:
                assert writer.next_id >= end, f"{incarnation} begins at {writer.next_id}, not {end}"
            else:
                self.slow_openers += 1

    def _write(self, incarnation: int) -> None:
        writer, count = self._writers[incarnation], self._random.randint(1, 3)
        self._busy.append(incarnation)
        first_id = writer.next_id
        ids = pa.array(range(first_id, first_id + count), pa.int64())
        rows = pa.RecordBatch.from_arrays([pa.array([incarnation] * count), ids], schema=SCHEMA)
        writer.append(TupleType.STABLE, first_id, rows, BEGINNING_US, 0)
        writer.sync()
        if incarnation == self._begun:
            self.counts |= dict.fromkeys(range(first_id, first_id + count), incarnation)
        writer.tidy()
        self._busy.remove(incarnation)

    def read_whole(self) -> None:
        """A reader that ends where the log ends."""
        due = dict(self.counts)
        found: list[int] = []
        reader = open_reader(self.place)
        while batches := reader.poll(max_rows=2):
            for batch in batches:
                assert batch.first_id == len(found)
                found += batch.batch.column(0).to_pylist()
        reader.close()
        read = dict(enumerate(found))
        assert {i: read.get(i) for i in due} == due


def interrupted(original: Callable[..., Any], log: Interleaved) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        puts = [one.name for one in arguments if isinstance(one, PutObject)]
        is_beginning = any(name.startswith(log_parts.MARKS) for name in puts)
        log.meanwhile(is_beginning=is_beginning or original.__name__ == "_begin")
        return original(*arguments, **named)

    return wrapped


@pytest.fixture(params=["folder", "store"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Empty places for logs, of one kind."""
    names = (str(uuid.uuid4()) for _ in itertools.count())
    return (f"{tmp_path}/{n}" if request.param == "folder" else f"memory://{n}" for n in names)


def run(place: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> Interleaved:
    """Let them all work, then read the log once more."""
    monkeypatch.setattr(part_log, "PART_INTERVAL_S", 0.0)
    monkeypatch.setattr(log_parts, "MERGED_PARTS", 3)
    log = Interleaved(place, seed)
    with monkeypatch.context() as patch:
        for owner, name in (
            (part_log.PartLogWriter, "_perform"),
            (part_log_reader, "perform_in"),
            (stream_log.SegmentFolder, "listed"),
            (stream_log._SegmentReader, "_fill"),
            (stream_log.StreamLogWriter, "_begin"),
        ):
            patch.setattr(owner, name, interrupted(getattr(owner, name), log))
        for _ in range(40):
            log.act()
    log.read_whole()
    return log


def test_every_durable_tuple_is_read_by_whoever_begins_later(
    places: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [run(place, seed, monkeypatch) for seed, place in zip(range(20), places, strict=False)]
    assert sum(log.slow_openers for log in logs) > 5


def test_without_named_owners_a_slow_opener_would_hide_some(
    places: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_first_ids(places: Iterable[Place], said: Callable[[Place], Owners | None]) -> Owners:
        return by_incarnation(place for place in places if said(place) is not None)

    for module in (stream_log, part_marks):
        monkeypatch.setattr(module, "owners_of", by_first_ids)
    with pytest.raises((AssertionError, TuplesMissing)):
        _ = [run(place, seed, monkeypatch) for seed, place in zip(range(60), places, strict=False)]
