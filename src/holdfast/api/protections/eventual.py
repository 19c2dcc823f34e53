"""Eventual checkpoints: each window leaves footprints of its own. [CEC]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections.base import (
    Protection,
    bytes_of,
    interval_ms_of,
    require_guarantee,
)
from holdfast.core.haunit.plan import FootprintPlan, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import OptionError

if TYPE_CHECKING:
    from holdfast.api.graph import Graph


@dataclass(frozen=True, slots=True)
class EventualCheckpoints(Protection):
    """Each window is checkpointed on its own, all the time; nothing stands still for it. [CEC]

    A unit with windows writes the state of each into a log when it opens, says there when it has
    closed, and between tuples writes the windows whose newest state is the oldest. A replacement
    reads the log's end, the *extent*, and replays what the windows lack. How long that takes is
    what the user names, instead of an interval. Units without state are replayed.

    Windows are `tumbling` and `sliding` ones, `sessions`, and `counting` ones of a key. Other state
    is refused when the query starts, with the operator's name. Survives any number of simultaneous
    failures, the driver's included.

    Attributes:
        share: Most of a node's time for all that is written of windows, above 0, up to 1. Where
            restart points would take more than half of it, they are noted less often.
        extent: Most that a replacement should have to read, as `"64 MiB"` or a number of bytes.
        recovery: Most time that a replacement should take to start, read and replay, as `tumbling`
            takes it; the detection of the failure is left out. None: no matter. The query's
            `lastProgress` says how long it would take now, and why the objective cannot be met, if
            it cannot.
        store: Where footprints are kept: `EmbeddedStore(...)`, data nodes of Holdfast's own; by
            default below the checkpoint location, which is a folder or a URL.
    """

    share: float = 0.05
    extent: str | int = "64 MiB"
    recovery: str | None = None
    store: EmbeddedStore | None = None

    def describe(self) -> str:
        """Which they are, and where, for the description of a location."""
        return "EventualCheckpoints" + ("" if self.store is None else " in EmbeddedStore")

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        require_guarantee(self, Guarantee.PRECISE)
        self.of_unit()

    def of_unit(self) -> UnitProtection:
        """Windows leave footprints."""
        if self.store is not None and not isinstance(self.store, EmbeddedStore):
            raise OptionError(
                f"EventualCheckpoints(store={self.store!r}); it is an EmbeddedStore, or None: then "
                "footprints lie at the checkpoint location, which may be a URL"
            )
        if isinstance(self.share, bool) or not 0 < self.share <= 1:
            raise OptionError(
                f"EventualCheckpoints(share={self.share}); it lies above 0 and up to 1"
            )
        extent_bytes = bytes_of(self, "extent", self.extent)
        recovery_us = None
        if self.recovery is not None:
            recovery_us = 1000 * interval_ms_of(self, self.recovery, "recovery")
        is_embedded = self.store is not None
        return UnitProtection(
            footprints=FootprintPlan(self.share, extent_bytes, recovery_us, is_embedded)
        )
