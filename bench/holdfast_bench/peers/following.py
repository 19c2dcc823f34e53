"""A script that follows its input, from its start until it keeps up with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast_bench.inputs import FILES_PER_TRIGGER
from holdfast_bench.peers import rows
from holdfast_bench.peers.jobs.contract import Job
from holdfast_bench.peers.paced import TICK_S, Feeder, Follower, Staged
from holdfast_bench.peers.peer import Peer
from holdfast_bench.peers.process import JobRun
from holdfast_bench.running import BenchFailed

LOOK_S: Final = {
    "log": 0.001,
    "lines": 0.005,
    "parts": 0.02,
    "spark": 0.02,
    "parquet": 0.005,
    "delta": 0.005,
}
"""How often an output is looked at while nothing comes; a look at folders costs more the more files
they hold."""

PRIMED_S: Final = {True: 12.5, False: 1.0}
"""Event time that is there before a script starts, enough for its first result: where results wait
for the end of their window that, and what systems wait for stragglers."""

_TIMEOUT_S = 300.0


class Following:
    """One script, what it reads, and what it puts out; it may be started again."""

    def __init__(
        self, peer: Peer, python: Path, staged: Staged, folder: Path, warm_up: dict[str, str] | None
    ) -> None:
        """Prime the input; nothing runs yet."""
        self.peer, self.staged, self._python, self._folder = peer, staged, python, folder
        self.job = Job(
            staged.query,
            staged.inputs,
            output=str(folder / "output"),
            state=str(folder / "state"),
            follows=True,
            warm_up=warm_up,
            files_at_once=FILES_PER_TRIGGER,
            scratch=str(folder / "scratch"),
        )
        self.what = f"{peer.title}, {staged.query} at {staged.rate:,.0f} tuples/s"
        self.follower = Follower(self.output(), staged)
        self.feeder = Feeder(staged)
        for _ in range(int(PRIMED_S[staged.is_final] / TICK_S)):
            staged.release()
        self.first_chunk = staged.released

    def output(self) -> rows.Output:
        """Its output, read from the start."""
        return rows.OUTPUTS[self.peer.output](self.job.output, self.staged.query)

    def start(self) -> JobRun:
        """Start the script, for the first time or after a kill."""
        return JobRun(self._python, self.peer.job, self.job, self._folder)

    def wait(
        self, run: JobRun, is_so: Callable[[], bool], what: str, *, glances: bool = False
    ) -> None:
        """Follow the output until something holds.

        Args:
            run: The script that runs.
            is_so: Whether it holds.
            what: It, for people.
            glances: Whether it is enough to know when results came, and to read them later.

        Raises:
            BenchFailed: It does not in time, or the script has failed.
        """
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not is_so():
            run.require(self.what)
            if time.monotonic() > deadline_s:
                words = run.last_words()
                raise BenchFailed(f"{self.what}: {what} not within {_TIMEOUT_S:.0f} s: {words}")
            if not (self.follower.glance() if glances else self.follower.poll()):
                time.sleep(LOOK_S[self.peer.output])  # Looking takes from what is looked at.

    def begin(self, run: JobRun) -> None:
        """Wait for the first result, then let the input flow."""
        self.wait(run, lambda: self.follower.count > 0, "the first result")
        self.feeder.start()
