"""Cuts of a sink into files: each tuple in one file, whoever dies, sleeps, or comes too late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from holdfast.core.errors import LocalProtocolError
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import Incarnation
from holdfast.core.queues.file_cuts import (
    NO_RECORD,
    Claiming,
    CutFile,
    CutRecord,
    Cutting,
    FilesNamed,
    ListRecords,
    NameFiles,
    PutRecord,
    ReadRecord,
    RecordPut,
    RecordRead,
    RecordsListed,
    RecordTaken,
    Replaced,
    Settled,
)

TUPLES = 12


@dataclass
class Folder:
    """What records and files there are; every file has the ids of its tuples."""

    records: dict[int, CutRecord] = field(default_factory=dict)
    temporary: dict[str, range] = field(default_factory=dict)
    named: dict[str, range] = field(default_factory=dict)
    counted: list[CutRecord] = field(default_factory=list)

    def perform(self, effect: Effect) -> Stimulus:
        match effect:
            case ListRecords():
                return RecordsListed(max(self.records, default=NO_RECORD))
            case ReadRecord(number):
                return RecordRead(number, self.records.get(number))
            case PutRecord(number, record):
                if number in self.records:
                    return RecordTaken()
                self.records[number] = record
                return RecordPut()
        raise AssertionError(effect)

    def name(self, file: CutFile) -> None:
        if file.temporary in self.temporary:
            self.named[file.name] = self.temporary.pop(file.temporary)


def performed(folder: Folder, machine: Claiming | Cutting, effects: list[Effect]) -> Iterator[None]:
    """A machine's effects one after the other; others may do something between any two."""
    while not isinstance(effects[0], (Settled, Replaced)):
        (effect,) = effects
        if isinstance(effect, NameFiles):
            for file in effect.files:
                folder.name(file)
                yield
            effects = machine.step(FilesNamed())
        else:
            effects = machine.step(folder.perform(effect))
            yield
    return effects[0]  # type: ignore[return-value]  # For `yield from`.


def writing(
    folder: Folder, incarnation: int, chance: random.Random, *, sweeps_early: bool = False
) -> Iterator[None]:
    """One incarnation's life: it opens the sink and writes what is left, in cuts as they come."""
    claiming = Claiming(Incarnation(incarnation), f"made up by {incarnation}")
    if sweeps_early:
        folder.temporary.clear()
    settled = yield from performed(folder, claiming, claiming.start())
    if isinstance(settled, Replaced):
        return
    for name in list(folder.temporary):
        if int(name.partition("/")[0]) < incarnation:
            del folder.temporary[name]
    cutting = Cutting(settled.number, settled.record)
    yield
    while cutting.next_id < TUPLES:
        first, before = cutting.next_id, min(TUPLES, cutting.next_id + chance.randint(1, 4))
        middle = chance.randint(first, before)
        parts = [range(first, middle), range(middle, before)]
        files = []
        for part in parts:
            if part:
                name = f"{part.start}-{part.stop}"
                files.append(CutFile(f"{incarnation}/{name}", name))
                folder.temporary[files[-1].temporary] = part
                yield
        settled = yield from performed(
            folder, cutting, cutting.cut(before, tuple(files), before, ends=before == TUPLES)
        )
        if isinstance(settled, Replaced):
            return
        for number in [n for n in folder.records if n < settled.number]:
            folder.records.pop(number, None)
            yield


def interleaved(seed: int, *, sweeps_early: bool = False) -> Folder:
    """Incarnations that begin one after the other; each may sleep, or die, at any moment."""
    chance, folder = random.Random(seed), Folder()
    lives = [writing(folder, 1, chance, sweeps_early=sweeps_early)]
    born = 1
    for _ in range(400):
        if born < 6 and (not lives or chance.random() < 0.04):
            born += 1
            lives.append(writing(folder, born, chance, sweeps_early=sweeps_early))
        if not lives:
            break
        position = chance.randrange(len(lives))
        if chance.random() < 0.01 or next(lives[position], "over") == "over":
            del lives[position]
    last = writing(folder, born + 1, chance)
    for life in (*lives, last):
        for _ in life:
            pass
    return folder


def ids_in(folder: Folder) -> list[int]:
    return sorted(number for ids in folder.named.values() for number in ids)


@pytest.mark.parametrize("batch", range(10))
def test_every_tuple_is_in_one_file_whoever_dies_sleeps_or_comes_late(batch: int) -> None:
    for seed in range(batch * 200, batch * 200 + 200):
        folder = interleaved(seed)
        assert ids_in(folder) == list(range(TUPLES)), f"seed {seed}"
        assert len({record.writer for record in folder.records.values()}) == 1


def test_the_check_finds_whoever_deletes_temporary_files_before_it_has_claimed() -> None:
    wrong = [
        seed
        for seed in range(300)
        if ids_in(interleaved(seed, sweeps_early=True)) != list(range(TUPLES))
    ]
    assert wrong, "files of a cut that counts were deleted, and nobody saw it"


def test_a_cut_whose_writer_died_before_naming_its_files_is_named_by_the_next() -> None:
    file = CutFile("tmp/a", "a")
    claiming = Claiming(Incarnation(2), "unused")
    assert claiming.start() == [ListRecords()]
    assert claiming.step(RecordsListed(7)) == [ReadRecord(7)]
    found = CutRecord(Incarnation(1), "w", 5, 9, (file,), 100)
    assert claiming.step(RecordRead(7, found)) == [ListRecords()]
    assert claiming.step(RecordsListed(7)) == [NameFiles((file,))]
    claim = CutRecord(Incarnation(2), "w", 9, 9, (), 100)
    assert claiming.step(FilesNamed()) == [PutRecord(8, claim)]
    assert claiming.step(RecordPut()) == [ListRecords()]
    assert claiming.step(RecordsListed(8)) == [Settled(8, claim)]


def test_a_claim_that_is_not_the_newest_record_begins_again() -> None:
    claiming = Claiming(Incarnation(2), "w")
    claiming.start()
    claiming.step(RecordsListed(NO_RECORD))
    assert claiming.step(RecordPut()) == [ListRecords()]
    assert claiming.step(RecordsListed(3)) == [ReadRecord(3)]


def test_a_record_that_is_not_the_newest_any_more_when_it_was_read_does_not_count() -> None:
    claiming = Claiming(Incarnation(9), "w")
    claiming.start()
    claiming.step(RecordsListed(5))
    stale = CutRecord(Incarnation(1), "w", 5, 9, (CutFile("tmp/a", "a"),))
    assert claiming.step(RecordRead(5, stale)) == [ListRecords()]
    assert claiming.step(RecordsListed(7)) == [ReadRecord(7)]


def test_a_later_incarnation_is_not_claimed_from() -> None:
    claiming = Claiming(Incarnation(2), "w")
    claiming.start()
    claiming.step(RecordsListed(0))
    claiming.step(RecordRead(0, CutRecord(Incarnation(3), "w", 0, 0)))
    (replaced,) = claiming.step(RecordsListed(0))
    assert isinstance(replaced, Replaced)


def test_an_answer_that_was_lost_is_found_again() -> None:
    cutting = Cutting(0, CutRecord(Incarnation(1), "w", 0, 0))
    (put,) = cutting.cut(5, (), 10)
    assert isinstance(put, PutRecord)
    assert cutting.step(RecordTaken()) == [ReadRecord(1)]
    assert cutting.step(RecordRead(1, put.record)) == [ListRecords()]
    assert cutting.step(RecordsListed(1)) == [NameFiles(())]
    assert cutting.step(FilesNamed()) == [Settled(1, put.record)]
    assert cutting.next_id == 5


def test_two_cuts_at_once_are_refused() -> None:
    cutting = Cutting(0, CutRecord(Incarnation(1), "w", 0, 0))
    cutting.cut(5, (), 10)
    with pytest.raises(LocalProtocolError):
        cutting.cut(6, (), 10)
