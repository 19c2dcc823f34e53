"""What a node needs of a sink that is no log of its own: a topic, or files that anybody reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from holdfast.shell.storage.logs import LogWriter


class Waits:
    """What something waits for: a text for the user, empty if nothing."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.trouble = ""


class OutsideWriter(LogWriter, Protocol):
    """Writes one sink stream as one incarnation; what was appended counts when it is synced.

    `append` belongs to the node's thread, `sync` and `tidy` to another.
    """

    @property
    def is_prompt(self) -> bool:
        """Whether a `sync` is wanted as soon as something was appended."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether a `sync` should not wait for the interval, as so much was appended."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether a `sync` is wanted although nothing was appended."""
        ...

    @property
    def interval_s(self) -> float:
        """From the beginning of a `sync` to that of the next, at least."""
        ...


class OutsideSpec(Protocol):
    """Describes one sink stream; it is shipped to the node, which opens it."""

    @property
    def stream(self) -> str:
        """Its name, e.g. `counts[0]`."""
        ...

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> OutsideWriter:
        """Open it; may wait until `closing` is set, and say in `waits` for what."""
        ...


class SinkOpening:
    """Opens sinks in a thread of its own: the broker may be away, and the node must say so."""

    def __init__(
        self,
        specs: list[OutsideSpec],
        incarnation: int,
        closing: threading.Event,
        waits: Waits,
        wake: Callable[[], None],
    ) -> None:
        """Begin; `wake` is called, by the thread, when all is over."""
        self.writers: dict[str, OutsideWriter] = {}
        self.error: Exception | None = None
        self._is_over = False
        self._wake = wake
        self._thread = threading.Thread(
            target=self._run, args=(specs, incarnation, closing, waits), daemon=True
        )
        self._thread.start()

    def _run(
        self, specs: list[OutsideSpec], incarnation: int, closing: threading.Event, waits: Waits
    ) -> None:
        try:
            for spec in specs:
                self.writers[spec.stream] = spec.open(incarnation, closing, waits)
            waits.trouble = ""
        except Exception as error:  # The node raises it.
            self.error = error
        self._is_over = True
        self._wake()

    @property
    def is_done(self) -> bool:
        """Whether all are open, or one could not be. Raises what was wrong with that."""
        if not self._is_over:
            return False
        if self.error is not None:
            raise self.error
        return True
