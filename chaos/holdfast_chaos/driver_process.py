"""A query in a process of its own, so that its driver can be killed too.

The process says what there is to know by lines of JSON (`tell`). Its other output does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import holdfast
from holdfast.shell.processes import die_with_parent

_TOLD: Final = "@"


class DriverProcess:
    """The process.

    Attributes:
        told: What it has told last.
        is_over: Set once it tells nothing more.
    """

    def __init__(
        self,
        module: str,
        arguments: list[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        **at_first: Any,
    ) -> None:
        """Start it.

        Args:
            module: What it runs.
            arguments: Of the module.
            folder: Its errors go into `errors.txt` there, behind those of others before it.
            environment: Variables besides this process's own. A `PYTHONPATH` goes before its.
            at_first: What counts as told until it tells something.
        """
        given = dict(environment or {})
        packages = [str(Path(holdfast.__file__).parents[1]), str(Path(__file__).parents[1])]
        if "PYTHONPATH" in given:
            packages.insert(0, given["PYTHONPATH"])
        with (folder / "errors.txt").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | given | {"PYTHONPATH": os.pathsep.join(packages)},
                preexec_fn=die_with_parent,
            )
        self.told: dict[str, Any] = at_first
        self.is_over = threading.Event()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, pipe: IO[str]) -> None:
        for line in pipe:
            if line.startswith(_TOLD):
                self.told = json.loads(line.removeprefix(_TOLD))
        self.is_over.set()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it is."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL; its nodes may live on for a moment."""
        self._process.kill()
        self._process.wait()


def tell(what: dict[str, Any]) -> None:
    """In such a process: this is what there is to know now."""
    print(f"{_TOLD}{json.dumps(what)}", flush=True)
