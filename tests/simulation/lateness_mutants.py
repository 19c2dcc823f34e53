"""Deliberate bugs in what is late, and in how far time has come within a recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants import Mutant

from holdfast.core.queues.committed_stream import CommittedStream
from holdfast.core.queues.lateness import Lateness
from holdfast.core.queues.reach import Reach

_RESTARTS = ("kill", "machine-crash")


def _judge_within_a_commit(original: Any) -> Any:
    """The second file is late against the first."""

    def split(self: Lateness, batch: Any, *behind_us: Any) -> Any:
        found = original(self, batch, *behind_us)
        newest_us = int(batch.column(batch.num_columns - 1).to_numpy().max())
        self._floor_us = max(self._floor_us, newest_us - self._delay_us)
        return found

    return split


def _judge_by_the_own_share(original: Any) -> Any:
    def begin(self: Lateness, commit: Any, share: Any) -> None:
        original(self, replace(commit, files=share), share)

    return begin


def _watermark_counts_at_once(original: Any) -> Any:
    """Spark judges by the watermark of the batch before."""

    def begin(self: Lateness, commit: Any, share: Any) -> None:
        original(self, replace(commit, idle_us=commit.watermark_us), share)

    return begin


def _forget_idleness(original: Any) -> Any:
    """Only who was there when Spark was idle knows of it."""

    def begin(self: CommittedStream, commit: Any, share: Any) -> None:
        original(self, replace(commit, idle_us=None), share)

    return begin


def _forget_the_files_behind(original: Any) -> Any:
    def begin(self: Lateness, commit: Any, share: Any) -> None:
        original(self, commit, share)
        self._oldest_left_us = [self._next_floor_us] * len(share)

    return begin


def _pass_what_is_late(original: Any) -> Any:
    """A replacement numbers late tuples that lie before its start."""

    def enter(self: CommittedStream, file: Any) -> bool:
        if self.next_id + file.count <= self._from_id:
            file = replace(file, oldest_us=file.newest_us)
        entered: bool = original(self, file)
        return entered

    return enter


def _move_time_by_any_row(original: Any) -> Any:
    """One of a broken clock, too: all that follows is late."""

    def admit(self: Reach, spans: Any, now_us: int) -> int | None:
        self._ahead_us = None
        found: int | None = original(self, spans, now_us)
        return found

    return admit


def _believe_any_watermark(_: Any) -> Any:
    return lambda self, watermark_us, now_us: True


LATENESS_MUTANTS: dict[str, Mutant] = {
    "judges within a commit": Mutant(Lateness, "split", _judge_within_a_commit, ()),
    "judges by the own share": Mutant(Lateness, "begin", _judge_by_the_own_share, ()),
    "counts a watermark in its own commit": Mutant(
        Lateness, "begin", _watermark_counts_at_once, ()
    ),
    "forgets that Spark was idle": Mutant(CommittedStream, "begin", _forget_idleness, _RESTARTS),
    "forgets the files behind": Mutant(Lateness, "begin", _forget_the_files_behind, ()),
    "numbers what was late": Mutant(CommittedStream, "enter", _pass_what_is_late, _RESTARTS),
    "lets any row move time": Mutant(Reach, "admit", _move_time_by_any_row, ()),
    "believes any watermark": Mutant(Reach, "believes", _believe_any_watermark, ()),
}
