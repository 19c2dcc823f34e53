"""Deliberate bugs in recording: each must be found by its simulator within 400 seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from holdfast.core.queues.beginning import Account
from holdfast.core.queues.file_discovery import FileDiscovery
from holdfast.core.queues.recording import (
    Commit,
    Counted,
    Following,
    ListCommits,
    Recording,
    Refusal,
    Refuse,
    TakeCommit,
)
from holdfast.sim import recording as sim_recording
from holdfast.sim.packed_log import PackedLog


@dataclass(frozen=True, slots=True)
class RecordingMutant:
    """A bug: what replaces a method of a class, or a function of a module.

    Attributes:
        owner: Who has it.
        name: What is replaced.
        bug: Makes the replacement from the original.
        invariants: One of these must be what is violated.
    """

    owner: Any
    name: str
    bug: Callable[[Any], Any]
    invariants: tuple[str, ...]

    @contextmanager
    def switched_in(self) -> Iterator[None]:
        """The bug is there within the block."""
        with patch.object(self.owner, self.name, self.bug(getattr(self.owner, self.name))):
            yield


def _append_what_has_a_number(original: Any) -> Any:
    def make(self: Recording, commit: Commit, number: int | None = None) -> None:
        original(self, commit, None if commit.ends else number)

    return make


def _end_in_a_second_step(original: Any) -> Any:
    """A commit says nothing of the end."""
    return lambda commit: original(replace(commit, ends=False))


def _write_behind_an_end(original: Any) -> Any:
    def on_before(self: Recording, before: Commit | None) -> Any:
        effects = original(self, before)
        is_refused = isinstance(effects[0], Refuse) and effects[0].refusal is Refusal.ENDED
        return self._put_next() if is_refused else effects

    return on_before


def _go_past_an_end_that_came_between(original: Any) -> Any:
    def on_taken(self: Recording, found: Commit | None) -> Any:
        if self._number is None and found is not None and found != self._commit:
            self._before = self._put
            return self._put_next()
        return original(self, found)

    return on_taken


def _take_its_own_for_anothers(original: Any) -> Any:
    def on_taken(self: Recording, found: Commit | None) -> Any:
        return original(self, None if found is None else replace(found, at_us=-1))

    return on_taken


def _count_whatever_is_there(original: Any) -> Any:
    def on_recorded(self: Recording, found: Commit) -> Any:
        return original(self, replace(found, origin=""))

    return on_recorded


def _go_on_behind_an_end(original: Any) -> Any:
    def take(self: Following, commit: Commit) -> Any:
        return original(self, replace(commit, ends=False))

    return take


def _pass_over_a_gap(original: Any) -> Any:
    def on_absent(self: Following) -> Any:
        effects = original(self)
        if effects and isinstance(effects[0], Refuse):
            self.next_number += 1
            return []
        return effects

    return on_absent


def _never_seek_a_gap(original: Any) -> Any:
    def on_absent(self: Following) -> Any:
        effects = original(self)
        return [] if effects and isinstance(effects[0], ListCommits) else effects

    return on_absent


def _take_a_commit_twice(original: Any) -> Any:
    def take(self: Following, commit: Commit) -> list[TakeCommit]:
        effects = original(self, commit)
        if self._absent_looks % 5 == 4 and not commit.ends:
            self.next_number -= 1
            self._absent_looks += 1
        return effects  # type: ignore[no-any-return]

    return take


def _tell_before_it_is_put(original: Any) -> Any:
    def put(self: Recording) -> Any:
        effects = original(self)
        return [Counted(self._put, is_ours=True)] if self._put % 3 == 2 else effects

    return put


def _list_files_by_name(_: Any) -> Any:
    def next_files(self: FileDiscovery, listed: Any, most: int) -> Any:
        new = [found.file for found in listed if found.file.path not in self._seen]
        return sorted(new, key=lambda file: file.path)[:most]

    return next_files


def _forget_what_was_let_go(original: Any) -> Any:
    """A beginning does not say which files it has passed."""

    def next_after(self: Account, commit: Commit, late_rows: Any) -> Any:
        return replace(original(self, commit, late_rows), known=())

    return next_after


def _forget_recorded_files(_: Any) -> Any:
    return lambda self, commit: None


def _look_into_no_pack(_: Any) -> Any:
    def commit(self: PackedLog, number: int) -> Any:
        del self, number
        yield from ()

    return commit


RECORDING_MUTANTS = {
    "looks into no pack": RecordingMutant(
        PackedLog, "commit", _look_into_no_pack, ("R-NAME", "R-ALL")
    ),
    "lists files by name": RecordingMutant(
        FileDiscovery, "next_files", _list_files_by_name, ("R-ORDER",)
    ),
    "forgets files that were recorded": RecordingMutant(
        FileDiscovery, "recorded", _forget_recorded_files, ("R-ONCE",)
    ),
    "forgets files of removed commits": RecordingMutant(
        Account, "next_after", _forget_what_was_let_go, ("R-ONCE",)
    ),
    "appends what has a number": RecordingMutant(
        Recording, "__init__", _append_what_has_a_number, ("R-ONCE", "R-NAME", "R-END")
    ),
    "ends in a second step": RecordingMutant(
        sim_recording, "encode_commit", _end_in_a_second_step, ("R-END", "R-ALL", "R-NAME")
    ),
    "writes behind an end": RecordingMutant(
        Recording, "_on_before", _write_behind_an_end, ("R-ALL",)
    ),
    "goes past an end that came between": RecordingMutant(
        Recording, "_on_taken", _go_past_an_end_that_came_between, ("R-ALL", "R-ONCE")
    ),
    "takes its own for another's": RecordingMutant(
        Recording, "_on_taken", _take_its_own_for_anothers, ("R-ONCE", "R-NAME")
    ),
    "counts whatever is there": RecordingMutant(
        Recording, "_on_recorded", _count_whatever_is_there, ("R-ALL",)
    ),
    "tells before it is put": RecordingMutant(
        Recording, "_put_next", _tell_before_it_is_put, ("R-ALL", "R-NAME")
    ),
    "goes on behind an end": RecordingMutant(
        Following, "_take_commit", _go_on_behind_an_end, ("R-END",)
    ),
    "passes over a gap": RecordingMutant(
        Following, "_on_absent", _pass_over_a_gap, ("R-SAME", "R-ALL")
    ),
    "never seeks a gap": RecordingMutant(Following, "_on_absent", _never_seek_a_gap, ("R-ALL",)),
    "takes a commit twice": RecordingMutant(
        Following, "_take_commit", _take_a_commit_twice, ("R-ONCE",)
    ),
}
