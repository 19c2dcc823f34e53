"""Kills of nodes, however busy the machine is."""

import contextlib
import os
import signal
import time

import holdfast as hf


def kill(query: hf.Query, node: str) -> None:
    """Kill whoever is the node; on a slow machine it may just be being replaced."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(query.pid(node), signal.SIGKILL)
            return
        time.sleep(0.01)
