"""What a node waits for before it works is done in a thread beside its loop.

Logs may be long, and stores and brokers slow, or away. The loop turns meanwhile: the node says that
it lives and what it waits for, and hears that it is to stop, or that another one has replaced it.
Were its logs opened in the loop, it would be silent for as long as that takes, and be taken for
dead; whoever replaces it would open the same logs in the same store.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.model.ids import NodeId

_LONG_S: Final = 1.0


class BringUp:
    """Does one thing at a time in a thread; what comes of it is taken in the loop."""

    def __init__(self, node: NodeId, wake: Callable[[], None]) -> None:
        """Nothing is under way; `wake` has the loop look at once."""
        self._node = node
        self._wake = wake
        self._done: deque[Callable[[], None]] = deque()
        self._what = ""  # is under way
        self._since_s = 0.0

    def run(self, what: str, work: Callable[[], Callable[[], None]]) -> None:
        """Have something done.

        Args:
            what: It is, for people: a sentence about the node.
            work: Called by the thread. What it returns is called in the loop; an error that it
                raises is raised there.
        """
        self._what, self._since_s = what, time.monotonic()
        threading.Thread(target=self._run, args=(work,), name="bring-up", daemon=True).start()

    def _run(self, work: Callable[[], Callable[[], None]]) -> None:
        try:
            then = work()
        except Exception as error:  # The loop raises it.
            then = _raises(error)
        self._done.append(then)
        self._wake()

    def go_on(self) -> None:
        """Take what has been done. Raises what went wrong with it."""
        while self._done:
            self._what = ""
            self._done.popleft()()

    @property
    def trouble(self) -> str:
        """What has been under way for long, for people; empty: nothing."""
        is_long = self._what and time.monotonic() - self._since_s > _LONG_S
        return f"{self._node} comes up: {self._what}" if is_long else ""


def _raises(error: Exception) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then
