"""One run of a peer's script: its processes, their memory, what it says, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import holdfast
from holdfast.shell.processes import die_with_parent, is_alive
from holdfast_bench.peers.jobs.contract import MARK, Job
from holdfast_bench.running import BenchFailed, memory_bytes

_JOBS = Path(__file__).parent / "jobs"
_PACKAGES = f"{Path(holdfast.__file__).parents[1]}{os.pathsep}{Path(__file__).parents[2]}"
"""Where scripts find these packages: those on Spark share the baseline's settings."""

_SAMPLE_S = 0.25
_SAID_MAX = 500
_ERROR = re.compile(r"\w(Error|Exception): ")


class JobRun:
    """A script at work in a session of its own, so that all its processes can be found."""

    def __init__(
        self, python: Path, script: str, job: Job, folder: Path, *, weighs: bool = False
    ) -> None:
        """Start it.

        Args:
            python: Of its environment.
            script: Name in `jobs/`, or a path.
            job: What it is told.
            folder: For the file it is told by, and what it prints.
            weighs: Whether to look at its memory, which takes the machine a tenth of a core.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        self.says: dict[str, Any] = {}
        self.peak_bytes = 0
        self._errors = folder / "errors.txt"
        self.began_s = time.time()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(python), str(_JOBS / script), str(folder / "job.json")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"PYTHONPATH": _PACKAGES},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        for work in (self._listen, *((self._sample,) if weighs else ())):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._errors.open("a") as rest:
            for line in self._process.stdout:
                if line.startswith(MARK):
                    self.says |= json.loads(line.removeprefix(MARK))
                else:
                    rest.write(line)

    def _sample(self) -> None:
        while self.is_running:
            self.peak_bytes = max(
                self.peak_bytes, sum(memory_bytes(pid)["pss"] for pid in self.pids())
            )
            time.sleep(_SAMPLE_S)  # A look takes a tenth of a core as it is.

    @property
    def is_running(self) -> bool:
        """Whether its first process is."""
        return self._process.poll() is None

    def pids(self) -> list[int]:
        """All its processes."""
        return [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._owns(pid)
        ]

    def _owns(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self._process.pid
        except ProcessLookupError:
            return False

    def require(self, what: str) -> None:
        """Raise `BenchFailed`, with its last words, if it has failed."""
        code = self._process.poll()
        if code:
            raise BenchFailed(f"{what}: its process ended with {code}: {self.last_words()}")

    def last_words(self) -> str:
        """The last error that it printed, or else the end of what it did."""
        text = self._errors.read_text(errors="replace")
        errors = [line for line in text.splitlines() if _ERROR.search(line)]
        return errors[-1].strip()[:_SAID_MAX] if errors else text[-_SAID_MAX:]

    def end(self) -> None:
        """Kill whatever of it is still there."""
        while pids := [pid for pid in self.pids() if is_alive(pid)]:
            kill(pids)
            time.sleep(0.01)  # Killed processes take a moment to go, and may have started others.
        self._process.wait()

    def __enter__(self) -> JobRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()


def kill(pids: list[int]) -> None:
    """SIGKILL; some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
