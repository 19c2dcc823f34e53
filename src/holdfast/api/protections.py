"""Protections: what a failure may cost. [HA §3.1, §4]

More approaches of the paper follow; each is a class here, chosen per dataflow.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.errors import OptionError, UnsupportedError
from holdfast.core.haunit.plan import CheckpointPlan
from holdfast.shell.storage.places import is_remote, local_path, location_id
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow


CHECKPOINT_FOLDER = "checkpoint"
"""Below the checkpoint location. [SGuard §5]"""


class Guarantee(enum.Enum):
    """What holds for the output before and after a failure, taken together. [HA §3.1]"""

    PRECISE = "precise"
    ROLLBACK = "rollback"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Protection:
    """The base of all protections."""

    guarantee: str = Guarantee.PRECISE.value

    def check(self, flow: Dataflow) -> None:
        """Refuse what this protection cannot give. Raises `UnsupportedError`."""

    def describe(self) -> str:
        """What of it must be the same when a query goes on at a location."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class UpstreamBackup(Protection):
    """Nothing is copied: producers keep tuples, a replacement replays them. [HA §4.3]

    Survives any number of simultaneous failures, the driver's included. An incremental join never
    lets go of its input; what its producers keep for it then goes to the spill log for ever.
    """

    def check(self, flow: Dataflow) -> None:
        """Only precise recovery, which every operator here allows."""
        if self.guarantee != Guarantee.PRECISE.value:
            raise UnsupportedError(
                f"UpstreamBackup(guarantee={self.guarantee!r}); only 'precise', which costs "
                "nothing more here"
            )


@dataclass(frozen=True, slots=True)
class Checkpointed(Protection):
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

    interval: str = "10 seconds"
    store: str | os.PathLike[str] | StoreSpec | EmbeddedStore | None = None
    kept: int = 2
    workers: int = 2
    writers: int | None = None

    def check(self, flow: Dataflow) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        if self.guarantee != Guarantee.PRECISE.value:
            raise UnsupportedError(
                f"Checkpointed(guarantee={self.guarantee!r}); only 'precise', which costs nothing "
                "more here"
            )
        for name, value, low, high in (
            ("kept", self.kept, 2, 10),
            ("workers", self.workers, 1, 32),
        ):
            if not low <= value <= high:
                raise OptionError(f"Checkpointed({name}={value}); it lies between {low} and {high}")
        if self.writers is not None and not 1 <= self.writers <= 1_000:
            raise OptionError(f"Checkpointed(writers={self.writers}); it lies in 1 to 1,000")
        self.plan()

    def describe(self) -> str:
        """Where checkpoints are, for the description of a location; no secrets."""
        if isinstance(self.store, str | os.PathLike):
            return f"Checkpointed in {os.fspath(self.store)}"
        where = "" if self.store is None else f" in {type(self.store).__name__}"
        return f"Checkpointed{where}"

    def plan(self) -> CheckpointPlan:
        """What nodes are told. Raises `DataflowError` when the interval is no duration."""
        from holdfast.api.dataflow import duration_us

        interval_ms = duration_us(self.interval) // 1000
        if interval_ms < 1:
            raise OptionError(f"Checkpointed(interval={self.interval!r}); at least 1 millisecond")
        asks_first = self.writers is not None
        return CheckpointPlan(interval_ms, self.kept, self.workers, asks_first)

    def store_spec(self, location: str) -> StoreSpec:
        """The store that checkpoints go to, unless it is an embedded one."""
        if isinstance(self.store, EmbeddedStore):
            raise OptionError("an embedded store is reached while its query runs, by the query")
        if self.store is None:
            return _spec_of(os.path.join(location, CHECKPOINT_FOLDER))
        if not isinstance(self.store, str | os.PathLike):
            return self.store
        return _spec_of(os.path.join(os.fspath(self.store), location_id(location)))


def _spec_of(place: str) -> StoreSpec:
    if is_remote(place):
        return FileSystemStoreSpec(place)
    return FolderStoreSpec(os.path.abspath(local_path(place)))


@dataclass(frozen=True, slots=True)
class Unprotected(Protection):
    """Nothing is kept; a failed node fails the query. Only to measure what protection costs."""

    guarantee: str = Guarantee.GAP.value


def parse_protection(name: str, guarantee: str, interval: str) -> Protection:
    """A protection by its command-line name. Raises `UnsupportedError` for unknown ones."""
    if name == "upstream-backup":
        return UpstreamBackup(guarantee)
    if name == "checkpointed":
        return Checkpointed(guarantee, interval)
    if name == "none":
        return Unprotected()
    raise UnsupportedError(
        f"protection {name!r}; there are 'upstream-backup', 'checkpointed' and 'none'"
    )
