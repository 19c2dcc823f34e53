"""Checkpoints that go to a store, of each unit on its own. [SGuard §3]"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections.base import Protection, interval_ms_of, require_guarantee
from holdfast.core.haunit.plan import CheckpointPlan, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import OptionError
from holdfast.shell.storage.places import is_remote, local_path, location_id
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec

if TYPE_CHECKING:
    from holdfast.api.graph import Graph

CHECKPOINT_FOLDER = "checkpoint"
"""Below the checkpoint location. [SGuard §5]"""


@dataclass(frozen=True, slots=True)
class StoredCheckpoints(Protection):
    """What all protections have in common whose checkpoints go to a store.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it.
        store: Where they are kept; see `Checkpointed`.
    """

    interval: str = "10 seconds"
    store: str | os.PathLike[str] | StoreSpec | EmbeddedStore | None = None

    def describe(self) -> str:
        """Which they are, and where, for the description of a location; no secrets."""
        return f"{type(self).__name__}{self.where()}"

    def where(self) -> str:
        """Where checkpoints are, in words; empty: below the checkpoint location."""
        if isinstance(self.store, str | os.PathLike):
            return f" in {os.fspath(self.store)}"
        return "" if self.store is None else f" in {type(self.store).__name__}"

    def store_spec(self, location: str) -> StoreSpec:
        """The store that checkpoints go to, unless it is an embedded one."""
        if isinstance(self.store, EmbeddedStore):
            raise OptionError("an embedded store is reached while its query runs, by the query")
        if self.store is None:
            return _spec_of(os.path.join(location, CHECKPOINT_FOLDER))
        if not isinstance(self.store, str | os.PathLike):
            return self.store
        return _spec_of(os.path.join(os.fspath(self.store), location_id(location)))

    def _require_within(self, name: str, low: int, high: int) -> None:
        """Raise `OptionError` unless a setting lies between these, both included."""
        value = getattr(self, name)
        if not low <= value <= high:
            kind = type(self).__name__
            raise OptionError(f"{kind}({name}={value}); it lies between {low} and {high}")


@dataclass(frozen=True, slots=True)
class Checkpointed(StoredCheckpoints):
    """Operators' state is checkpointed while they go on; a replacement loads it. [SGuard §3]

    Every unit checkpoints on its own, incrementally, and is recovered precisely: it loads its
    newest checkpoint and replays what came after. Should that be damaged, the one before is used.
    Units without state need no checkpoint. Survives any number of simultaneous failures, the
    driver's included, as long as the store does.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it; what a failure may have to replay.
        store: Where checkpoints are kept: a path or URL as fsspec takes it (`s3://…`,
            `webhdfs://…`), a `StoreSpec`, or `EmbeddedStore(...)`: data nodes of Holdfast's own; by
            default a folder below the checkpoint location. In a given path or URL every checkpoint
            location has a folder of its own, so that queries may share it.
        kept: How many checkpoints of a unit are kept, 2 to 10.
        workers: Files per checkpoint, written and read side by side, 1 to 32.
        writers: How many units may write a checkpoint at once, 1 to 1,000, so that a slow store
            serves each soon instead of all late [SGuard §5]; None: as many as want to.
    """

    kept: int = 2
    workers: int = 2
    writers: int | None = None

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        require_guarantee(self, Guarantee.PRECISE)
        self._require_within("kept", 2, 10)
        self._require_within("workers", 1, 32)
        if self.writers is not None and not 1 <= self.writers <= 1_000:
            raise OptionError(f"Checkpointed(writers={self.writers}); it lies in 1 to 1,000")
        self.plan()

    def written(self) -> str:
        """What was set beside the interval, as one would write it; of a store object its class."""
        default = Checkpointed()
        settings = [
            f"{name}={getattr(self, name)}"
            for name in ("kept", "workers", "writers")
            if getattr(self, name) != getattr(default, name)
        ]
        if isinstance(self.store, str | os.PathLike):
            settings.insert(0, f"store={json.dumps(os.fspath(self.store))}")
        elif self.store is not None:
            settings.insert(0, f"store={type(self.store).__name__}(...)")
        return ", ".join(settings)

    def of_unit(self) -> UnitProtection:
        """The state of units that have one is checkpointed."""
        return UnitProtection(checkpoints=self.plan())

    def plan(self) -> CheckpointPlan:
        """What nodes are told. Raises `DataflowError` when the interval is no duration."""
        interval_ms = interval_ms_of(self, self.interval)
        asks_first = self.writers is not None
        return CheckpointPlan(interval_ms, self.kept, self.workers, asks_first)


def _spec_of(place: str) -> StoreSpec:
    if is_remote(place):
        return FileSystemStoreSpec(place)
    return FolderStoreSpec(os.path.abspath(local_path(place)))
