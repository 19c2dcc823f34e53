"""Users' files for the simulator of ingest logs: they appear, vanish and come back, and are listed.

A life of the driver reads the commits there are, lists the folder, and makes new files part of the
stream by the next commit, as shell/sources/file_recorder.py does. A file that is no longer what was
listed once its times have been read waits for another look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.core.queues.file_discovery import FileDiscovery, ListedFile
from holdfast.core.queues.recording import Commit, Following, IngestFile, TakeCommit, UserFile

if TYPE_CHECKING:
    from holdfast.core.queues.beginning import Beginning
    from holdfast.core.queues.recording import Recording
    from holdfast.sim.scheduler import Scheduler

_T = TypeVar("_T")
_Part = Generator[Any, Any, _T]
BY: Final = "files"
_GONE_PERCENT: Final = 20
_BACK_PERCENT: Final = 50


class Host(Protocol):
    """What the simulator of ingest logs gives."""

    scheduler: Scheduler
    events: Counter[str]
    given: list[int]
    is_calm: bool
    folder: UserFolder

    def draw(self, concern: str, low: int, high: int) -> int:
        """A number between these."""

    def percent(self, concern: str, probability: int) -> bool:
        """Whether it happens; nothing does once all is calm."""

    def wait(self, us: int) -> _Part[None]:
        """Let time pass."""

    def beginning(self) -> _Part[Beginning]:
        """Where the log begins."""

    def run_machine(self, machine: Recording | Following) -> _Part[Any]:
        """Its result; None: there is none yet. Raises if it refuses."""

    def record(self, commit: Commit, number: int | None) -> _Part[bool]:
        """Whether a commit counts."""


class UserFolder:
    """The folder, at every moment.

    Attributes:
        there: What a listing finds, by path.
        rows: Of each path; they stay the same when the file comes back.
    """

    def __init__(self, simulation: Host) -> None:
        """It is empty."""
        self._simulation = simulation
        self.there: dict[str, ListedFile] = {}
        self.rows: dict[str, tuple[int, ...]] = {}

    def appear(self) -> None:
        """Another file, whose name says nothing of its age; perhaps it holds no rows."""
        draw, given = self._simulation.draw, self._simulation.given
        path = f"p{draw('file name', 0, 9)}-{len(self.rows)}"
        rows = tuple(range(len(given), len(given) + draw("file rows", 0, 3)))
        given += rows
        self.rows[path] = rows
        self._put(path)
        if self._simulation.percent("vanishes", _GONE_PERCENT):
            after_us = draw("vanishes after", 1_000, 400_000)
            self._simulation.scheduler.after(after_us, lambda: self._vanish(path))

    def _put(self, path: str) -> None:
        now_us = self._simulation.scheduler.now_us
        modified_us = now_us - self._simulation.draw("file age", 0, 3) * 20_000
        file = UserFile(path, len(self.rows[path]), f"{modified_us}:{now_us}")
        self.there[path] = ListedFile(file, modified_us * 1_000)

    def _vanish(self, path: str) -> None:
        simulation = self._simulation
        self.there.pop(path, None)
        simulation.events["vanished"] += 1
        if simulation.percent("comes back", _BACK_PERCENT):
            after_us = simulation.draw("comes back after", 1_000, 400_000)
            simulation.scheduler.after(after_us, lambda: self._put(path))

    def staying(self) -> set[int]:
        """The rows that must have come in the end."""
        return {row for path in self.there for row in self.rows[path]}


def files_life(simulation: Host, files_max: int) -> _Part[None]:
    """A life of the driver, to its end; see the module."""
    folder, draw = simulation.folder, simulation.draw
    beginning = yield from simulation.beginning()
    discovery, following = FileDiscovery(), Following(beginning.first_commit)
    for path in beginning.known:
        discovery.passed(path)
    while True:
        while (taken := (yield from simulation.run_machine(following))) is not None:
            assert isinstance(taken, TakeCommit)
            discovery.recorded(taken.commit)
        yield from simulation.wait(draw("listing", 100, 20_000))
        new = discovery.next_files(folder.there.values(), files_max)
        if not new and simulation.is_calm:
            return
        yield from simulation.wait(draw("look at files", 1_000, 100_000))
        made = _described(folder, new, discovery)
        if not made:
            continue
        commit = Commit(BY, made, simulation.scheduler.now_us)
        if not (yield from simulation.record(commit, following.next_number)):
            return


def _described(
    folder: UserFolder, new: Sequence[UserFile], discovery: FileDiscovery
) -> tuple[IngestFile, ...]:
    """What a commit says of files that are still what was listed, and hold rows."""
    made = []
    for file in new:
        found, rows = folder.there.get(file.path), folder.rows[file.path]
        if found is None or found.file != file:
            continue
        if not rows:
            discovery.passed(file.path)
            continue
        made.append(IngestFile(file.path, len(rows), min(rows), max(rows), 0, (), file))
    return tuple(made)
