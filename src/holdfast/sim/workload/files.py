"""Draws sources made of users' files: they appear, some of them late, and are listed and read.

A file has a time of modification and appears then or later; a listing finds those that are there.
`FileDiscovery`, the core, says which of them become part of the stream, in lives of the driver that
know one another's commits alone. Here the same is said once more, by plain Python, for the oracle.

A file says of each piece of its rows how old those behind it are, as the statistics of Parquet do.
Nodes read a commit's files by turns, each from the file and row at which it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.file_discovery import FileDiscovery, ListedFile
from holdfast.core.queues.recording import Commit, IngestFile, UserFile
from holdfast.sim.workload.base import CommittedRecording, RecordedCommit

if TYPE_CHECKING:
    from holdfast.sim.draw import Draw
    from holdfast.sim.workload.base import Record
    from holdfast.sim.workload.commits import Strays
    from holdfast.sim.workload.source import Arrival

FILES_PERCENT: Final = 12
"""So many of the logs name users' files."""
_EMPTY_PERCENT: Final = 10
_LATE_PERCENT: Final = 20
_NEW_LIFE_PERCENT: Final = 25


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A user's file.

    Attributes:
        path: Where it lies.
        modified_us: When it was modified last.
        appears_us: From when on a listing finds it.
        records: Its rows; none: it holds no rows, and never becomes part of the stream.
    """

    path: str
    modified_us: int
    appears_us: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """A listing.

    Attributes:
        at_us: When.
        is_first: Whether another life of the driver looks, which has to read what was recorded.
    """

    at_us: int
    is_first: bool


Choose = Callable[[Look, list[FoundFile]], list[FoundFile]]
"""Those of the files that are there, which become part of the stream by a listing."""


@dataclass(frozen=True, slots=True)
class FilesRecording(CommittedRecording):
    """Users' files; `commits` is what plain Python says of them.

    Attributes:
        files: All that there will be.
        looks: The listings, the last ones of which find nothing new.
        files_max: Of one commit.
        has_watermark: Whether commits say to which watermark Spark would have come.
    """

    files: tuple[FoundFile, ...] = ()
    looks: tuple[Look, ...] = ()
    files_max: int = 1
    has_watermark: bool = False

    def arrivals(self, partition: int, partitions: int) -> tuple[Arrival, ...]:
        """See the base; by the core that finds files."""
        made = self.by_listings(_Discovering(self.files_max).choose)
        return CommittedRecording.arrivals(replace(self, commits=made), partition, partitions)

    def by_listings(self, choose: Choose) -> tuple[RecordedCommit, ...]:
        """The commits, by whoever chooses."""
        commits: list[RecordedCommit] = []
        newest_us = BEGINNING_US
        for look in self.looks:
            there = [file for file in self.files if file.appears_us <= look.at_us]
            chosen = [file for file in choose(look, there) if file.records]
            if not chosen:
                continue
            rows = [row for file in chosen for record in file.records for row in record]
            mark_us = max(0, newest_us // 1_000 * 1_000 - self.delay_us)
            commits.append(
                RecordedCommit(
                    look.at_us,
                    tuple(file.records for file in chosen),
                    mark_us if self.has_watermark else None,
                )
            )
            newest_us = max(newest_us, *(row.time_us for row in rows))
        return tuple(commits)

    def plainly(self) -> Choose:
        """As the oracle chooses: in order of modification and path, so many, and each once.

        Nothing is recorded of files without rows: another life looks at them once more.
        """
        passed: list[str] = []
        empty = {file.path for file in self.files if not file.records}

        def choose(look: Look, there: list[FoundFile]) -> list[FoundFile]:
            if look.is_first:
                passed[:] = [path for path in passed if path not in empty]
            new = [file for file in there if file.path not in passed]
            new.sort(key=lambda file: file.path)
            new.sort(key=lambda file: file.modified_us)
            passed.extend(file.path for file in new[: self.files_max])
            return new[: self.files_max]

        return choose


class _Discovering:
    """Lives of the driver, one after the other, that find files."""

    def __init__(self, files_max: int) -> None:
        """No file has been seen."""
        self._files_max = files_max
        self._discovery = FileDiscovery()
        self._commits: list[Commit] = []

    def choose(self, look: Look, there: list[FoundFile]) -> list[FoundFile]:
        """What a listing makes part of the stream."""
        if look.is_first:
            self._discovery = FileDiscovery()
            for commit in self._commits:
                self._discovery.recorded(commit)
        by_path = {file.path: file for file in there}
        listed = [ListedFile(_user_file(file), file.modified_us * 1_000) for file in there]
        new = self._discovery.next_files(listed, self._files_max)
        chosen = [by_path[file.path] for file in new]
        for file in chosen:
            if not file.records:
                self._discovery.passed(file.path)
        made = tuple(_named(file) for file in chosen if file.records)
        if made:
            self._commits.append(Commit("files", made, look.at_us))
            self._discovery.recorded(self._commits[-1])
        return chosen


def _user_file(file: FoundFile) -> UserFile:
    return UserFile(file.path, len(file.records), str(file.modified_us))


def _named(file: FoundFile) -> IngestFile:
    count = sum(map(len, file.records))
    return IngestFile(file.path, count, 0, 0, 0, (), _user_file(file))


def files_drawn(
    draw: Draw,
    recording: CommittedRecording,
    records: Sequence[Record],
    span_us: int,
    strays: Strays | None,
) -> FilesRecording:
    """A source of files that hold these rows.

    Args:
        draw: What happened; of its own.
        recording: The source as a log of micro-batches, of which its columns and settings are kept.
        records: The rows, in the order in which they were made.
        span_us: When the last file has appeared.
        strays: Of which rows the times are wrong; None: of none.
    """
    files = tuple(_files(draw, records, span_us, strays))
    files_max = draw.one_of((1, 2, 3, 1_000))
    looks, at_us, last_us = [], 0, max(file.appears_us for file in files)
    step_us = draw.one_of((span_us // 50, span_us // 10, span_us // 3))
    while at_us < last_us:
        at_us = min(last_us, at_us + draw.number(1, step_us))
        looks.append(Look(at_us, draw.percent(_NEW_LIFE_PERCENT)))
    looks += [Look(last_us, draw.percent(_NEW_LIFE_PERCENT)) for _ in files]
    made = FilesRecording(
        recording.schema,
        recording.delay_us,
        (),
        recording.partitions,
        recording.is_recorded,
        recording.ahead_us,
        says_behind=True,
        files=files,
        looks=tuple(looks),
        files_max=files_max,
        has_watermark=draw.percent(30),
    )
    return replace(made, commits=made.by_listings(made.plainly()))


def _files(
    draw: Draw, records: Sequence[Record], span_us: int, strays: Strays | None
) -> list[FoundFile]:
    """Files of one to three records each, whose names say nothing of their order."""
    files: list[FoundFile] = []
    left = list(records)
    while left:
        count = draw.number(1, 3)
        taken, left = left[:count], left[count:]
        if strays is not None:
            taken = [tuple(strays.among(list(record))) for record in taken]
        at_us = span_us * (len(records) - len(left)) // len(records)
        modified_us = max(0, at_us - draw.one_of((0, 0, 100, 20_000)))
        late_us = draw.number(0, span_us // 4) if draw.percent(_LATE_PERCENT) else 0
        name = f"part-{draw.number(0, 99):02d}-{len(files)}"
        if draw.percent(_EMPTY_PERCENT):
            files.append(FoundFile(f"{name}-empty", modified_us, at_us, ()))
        appears_us = min(span_us, at_us + late_us)
        files.append(FoundFile(name, modified_us // 1_000 * 1_000, appears_us, tuple(taken)))
    return files
