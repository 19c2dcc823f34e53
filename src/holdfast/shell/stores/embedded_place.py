"""Folders of the query's own chunk store, as places where logs may lie. [SGuard §5]

Where a chunk store's master is, and its keys, are known only while its query runs, and are no part
of any URL. So whoever opens `chunks://<location's id>/footprints/counts[0]` says before by `mount`
which store that is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from holdfast.shell.stores.base import CheckpointStore, ObjectWriter, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from holdfast.shell.stores.base import StoreSpec

SCHEME: Final = "chunks://"


class _Mounts:
    """The stores of this process, by name. Logs of several threads share a connection."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._specs: dict[str, StoreSpec] = {}
        self._stores: dict[str, CheckpointStore] = {}

    def set(self, name: str, spec: StoreSpec | None) -> None:
        """From now on it is this one; None: there is none."""
        with self._mutex:
            if self._specs.get(name) != spec and name in self._stores:
                self._stores.pop(name).close()
            self._specs.pop(name, None)
            if spec is not None:
                self._specs[name] = spec

    def store(self, name: str) -> CheckpointStore:
        """Connect, or have the connection that there is."""
        with self._mutex:
            if name not in self._specs:
                raise StoreUnavailable(
                    f"{SCHEME}{name} is the EmbeddedStore of a query that this process is no part "
                    "of: only the query itself reads what lies there"
                )
            if name not in self._stores:
                self._stores[name] = self._specs[name].open()
            return self._stores[name]


_MOUNTS: Final = _Mounts()


def place_in(name: str, *parts: str) -> str:
    """The URL of a folder in the store of this name."""
    return SCHEME + "/".join((name, *parts))


def mount(place: str, spec: StoreSpec | None) -> None:
    """Say which store a place lies in, if it is in one; None: in none any more."""
    if place.startswith(SCHEME):
        _MOUNTS.set(_parts(place)[0], spec)


def open_place(place: str) -> CheckpointStore:
    """The small files of a folder. Raises `StoreUnavailable` where its store is not mounted."""
    name, folder = _parts(place)
    return _Below(_MOUNTS.store(name), folder)


def _parts(place: str) -> tuple[str, str]:
    """The store's name, and the folder in it."""
    name, _, folder = place.removeprefix(SCHEME).partition("/")
    return name, folder.rstrip("/")


class _Below(CheckpointStore):
    """Objects whose names begin with those of a folder; to close it leaves the store open."""

    def __init__(self, store: CheckpointStore, folder: str) -> None:
        self._store = store
        self._prefix = f"{folder}/"
        self.is_exclusive = store.is_exclusive

    @property
    def trouble(self) -> str:
        """See the base."""
        return self._store.trouble

    def create(self, name: str) -> ObjectWriter:
        """See the base."""
        return self._store.create(self._prefix + name)

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """See the base."""
        self._store.put(self._prefix + name, parts)

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """See the base."""
        self._store.read_into(self._prefix + name, offset, buffer)

    def size(self, name: str) -> int:
        """See the base."""
        return self._store.size(self._prefix + name)

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        found = self._store.names(self._prefix + folder_prefix)
        return [name.removeprefix(self._prefix) for name in found]

    def delete(self, name: str) -> None:
        """See the base."""
        self._store.delete(self._prefix + name)
