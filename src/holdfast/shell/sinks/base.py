"""What a node needs of a sink that is no log of its own: a topic, or files that anybody reads."""

from __future__ import annotations

import threading
from dataclasses import Field
from typing import Any, ClassVar, Protocol

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
    """Describes one sink stream, as a dataclass; it is shipped to the node, which opens it."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def stream(self) -> str:
        """Its name, e.g. `counts[0]`."""
        ...

    @property
    def interval_s(self) -> float:
        """See `OutsideWriter.interval_s`."""
        ...

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> OutsideWriter:
        """Open it; may wait until `closing` is set, and say in `waits` for what."""
        ...

    def settled(self) -> int:
        """Finish what its last writer has decided; the id of the tuple that comes next.

        Nobody is fenced: a writer that is at work goes on, and may be further in a moment.

        Raises:
            StorageError: It cannot be found out.
        """
        ...
