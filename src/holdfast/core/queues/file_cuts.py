"""Makes the tuples of a sink into files that anybody may read, each tuple in one cut.

Theory of operation. A *cut* is a run of tuples that appears at once: some files, each of which gets
its name when it is whole. Who writes a cut

1. writes its files under temporary names, which readers pass over, and makes them durable;
2. creates the *record* of the cut, which names them. Records are numbered, and created exclusively;
3. looks whether its record is the newest one. If not, it has been replaced, and does nothing more;
4. gives the files their names. A file that has lost its temporary name has its own already;
5. deletes the records before its own.

Who opens the sink reads the newest record, and does step 4 of it, whoever has made it, if it is
still the newest one: that cut counts. Then it puts a *claim* behind it, an empty record of its own
incarnation, by steps 2 and 3.
From then on the former writer cannot put a record that counts: the number is taken, or its record
is not the newest one. Only then may files be deleted that have temporary names, and only those of
earlier incarnations: a later one may have put a record by now.

1. Na has put record 7 and died. Nb reads it and names its files: none is lost, none written twice.
2. Na lives, slow. Nb claims 8. Na finds 8 taken, and its temporary files gone: it has ended.
3. Na slept at 3 for long, while Nb has put 4 to 9 and deleted up to 8. Na puts 4 once more, and
   sees 9: that one does not count. Nobody reads it, as 9 is newer.
4. Nb has seen 7, and sleeps, while Na puts 8 and 9, and deletes up to 8. Nb puts its claim as 8,
   sees 9, and begins again.
5. Nb has seen that 5 is the newest one, and sleeps; Na is as in 3, and puts 5 once more. Nb reads
   that, sees 9, and begins again.

Every record says where its cut ends; so the newest one alone says which tuple comes next.

Invariants: the newest record is never deleted; the cuts that count follow one another without gap
or overlap; a record behind another one has no lower incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from holdfast.core.errors import LocalProtocolError
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import BEGINNING_US, Incarnation

NO_RECORD: Final = -1


@dataclass(frozen=True, slots=True)
class CutFile:
    """One file of a cut; names are relative to the sink's folder.

    Attributes:
        temporary: Where it was written.
        name: What readers know it by.
    """

    temporary: str
    name: str


@dataclass(frozen=True, slots=True)
class CutRecord:
    """What a record says.

    Attributes:
        incarnation: Who has put it.
        writer: What tells the sink's files from those of all other sinks.
        first_id: Of the cut's first tuple.
        next_id: Of the tuple behind the cut; `first_id` if it is a claim, or the end.
        files: Of a claim, none.
        boundary_us: Nothing older follows behind the cut.
        ends: Whether nothing follows.
    """

    incarnation: Incarnation
    writer: str
    first_id: int
    next_id: int
    files: tuple[CutFile, ...] = ()
    boundary_us: int = BEGINNING_US
    ends: bool = False


# -- what has happened ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordsListed(Stimulus):
    """The highest number of a record; -1: there is none."""

    newest: int


@dataclass(frozen=True, slots=True)
class RecordRead(Stimulus):
    """What a record says; None: it is gone."""

    number: int
    record: CutRecord | None


@dataclass(frozen=True, slots=True)
class RecordPut(Stimulus):
    """The record is durable."""


@dataclass(frozen=True, slots=True)
class RecordTaken(Stimulus):
    """There is a record of this number already; perhaps it is ours."""


@dataclass(frozen=True, slots=True)
class FilesNamed(Stimulus):
    """All files of a cut have their names, durably."""


# -- what is to be done ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListRecords(Effect):
    """Answered by `RecordsListed`."""


@dataclass(frozen=True, slots=True)
class ReadRecord(Effect):
    """Answered by `RecordRead`."""

    number: int


@dataclass(frozen=True, slots=True)
class PutRecord(Effect):
    """Create it exclusively and durably; answered by `RecordPut` or `RecordTaken`."""

    number: int
    record: CutRecord


@dataclass(frozen=True, slots=True)
class NameFiles(Effect):
    """Give those files their names that have temporary ones; answered by `FilesNamed`."""

    files: tuple[CutFile, ...]


@dataclass(frozen=True, slots=True)
class Settled(Effect):
    """The record counts, and its files are there.

    Attributes:
        number: Of the record; those before it may be deleted.
        record: What it says.
    """

    number: int
    record: CutRecord


@dataclass(frozen=True, slots=True)
class Replaced(Effect):
    """A later incarnation writes the sink, or has claimed it; nothing more may be done."""

    text: str


class Claiming:
    """Opens a sink: `start` begins, `Settled` with a claim ends it."""

    def __init__(self, incarnation: Incarnation, writer: str) -> None:
        """Nothing is known; `writer` counts if the sink has never been opened."""
        self._incarnation = incarnation
        self._claim = CutRecord(incarnation, writer, 0, 0)
        self._found = NO_RECORD
        self._before: CutRecord | None = None  # what the newest record says

    def start(self) -> list[Effect]:
        """Look for the newest record."""
        return [ListRecords()]

    def step(self, stimulus: Stimulus) -> list[Effect]:
        """Take one stimulus; what to do next."""
        match stimulus:
            case RecordsListed(newest):
                return self._on_listed(newest)
            case RecordRead(_, record):
                return self._on_read(record)
            case FilesNamed():
                return [PutRecord(self._found + 1, self._claim)]
            case RecordPut():
                self._found += 1
                self._before = self._claim
                return [ListRecords()]
            case RecordTaken():
                return self.start()
        raise AssertionError(stimulus)

    def _on_listed(self, newest: int) -> list[Effect]:
        if self._before is not None and newest == self._found:
            return self._on_confirmed(self._before)
        self._found, self._before = newest, None
        if newest == NO_RECORD:
            return [PutRecord(0, self._claim)]
        return [ReadRecord(newest)]

    def _on_read(self, record: CutRecord | None) -> list[Effect]:
        """It counts if it is still the newest one; else its number may have been put again."""
        self._before = record
        return [ListRecords()]

    def _on_confirmed(self, record: CutRecord) -> list[Effect]:
        """The newest record says so, and has been the newest since it was read."""
        if record is self._claim:
            return [Settled(self._found, self._claim)]
        if record.incarnation >= self._incarnation:
            return [Replaced(f"incarnation {record.incarnation} writes it")]
        self._claim = replace(
            record, incarnation=self._incarnation, first_id=record.next_id, files=()
        )
        return [NameFiles(record.files)]


class Cutting:
    """Makes cuts one after the other, behind a claim; its files are durable when one begins."""

    def __init__(self, number: int, claim: CutRecord) -> None:
        """Go on behind a record of our own."""
        self._number = number
        self._last = claim
        self._record: CutRecord | None = None  # on its way

    @property
    def next_id(self) -> int:
        """Behind the last cut."""
        return self._last.next_id

    def cut(
        self, next_id: int, files: tuple[CutFile, ...], boundary_us: int, *, ends: bool = False
    ) -> list[Effect]:
        """Begin a cut that ends before an id. Raises `LocalProtocolError` within another one."""
        if self._record is not None or self._last.ends or next_id < self.next_id:
            raise LocalProtocolError(f"a cut up to {next_id} behind {self._last}")
        self._record = replace(
            self._last,
            first_id=self.next_id,
            next_id=next_id,
            files=files,
            boundary_us=max(boundary_us, self._last.boundary_us),
            ends=ends,
        )
        return [PutRecord(self._number + 1, self._record)]

    def step(self, stimulus: Stimulus) -> list[Effect]:
        """Take one stimulus; what to do next."""
        record = self._record
        assert record is not None
        match stimulus:
            case RecordTaken():
                return [ReadRecord(self._number + 1)]
            case RecordRead(_, found) if found != record:
                return [Replaced("another incarnation has claimed it")]
            case RecordPut() | RecordRead():
                return [ListRecords()]
            case RecordsListed(newest) if newest != self._number + 1:
                return [Replaced(f"record {newest} is newer")]
            case RecordsListed():
                return [NameFiles(record.files)]
            case FilesNamed():
                self._number, self._last, self._record = self._number + 1, record, None
                return [Settled(self._number, record)]
        raise AssertionError(stimulus)
