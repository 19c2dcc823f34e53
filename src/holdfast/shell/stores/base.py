"""What a checkpoint store must do. [SGuard §5]

A store holds named objects. Names are relative, unique, and written once: whoever writes a
checkpoint names its parts after its incarnation. An object counts only when something durable that
was written later leads to it, so a store need not hide what is being written.

Logs on file systems that cannot append, and the small files of a checkpoint location, are objects
of such a store too; `put` is for them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.checkpoint.loading import PageRun


class StoreUnavailable(StorageError):
    """The store does not answer, is full, or refuses; the job goes on without it for now."""


class NameTaken(StoreUnavailable):
    """There is an object of this name already."""


class ObjectDamaged(StorageError):
    """The store has the object and cannot read it, however often it is asked."""


class ObjectMissing(StorageError):
    """The store has no such object, or less of it than was asked for."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says of an object.

    Attributes:
        name: Its name.
        size_bytes: Its size.
        modified_us: When it was stored, by the store's clock.
    """

    name: str
    size_bytes: int
    modified_us: int


class ObjectWriter(Protocol):
    """Writes one object from its beginning to its end."""

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises `StoreUnavailable`."""
        ...

    def close(self) -> None:
        """Make the object durable. Raises `StoreUnavailable`; then it does not count."""
        ...

    def abort(self) -> None:
        """Give up; never raises. What was written may stay until it is deleted by name."""
        ...


class CheckpointStore(abc.ABC):
    """Named objects. Methods may be called from several threads side by side.

    Attributes:
        is_exclusive: Of two that put an object of one name at the same time only one succeeds.
    """

    is_exclusive = True

    @property
    def trouble(self) -> str:
        """What a read waits for that may not come, for people; empty: nothing."""
        return ""

    def reserve(
        self, sizes: Sequence[int], is_over: Callable[[], bool], refused: Callable[[], None]
    ) -> None:
        """Wait until objects of these sizes may be written; most stores take them at any time.

        Args:
            sizes: In bytes; of one checkpoint, before any of them is created.
            is_over: Whether nobody wants to write them any more; asked again and again.
            refused: Called once if others come first.

        Raises:
            StoreUnavailable: There is no place for them, or it is over.
        """
        del sizes, is_over, refused

    def release(self) -> None:
        """What `reserve` has waited for is written, or given up; never raises."""
        return

    @abc.abstractmethod
    def create(self, name: str) -> ObjectWriter:
        """Begin an object. Raises `NameTaken` and `StoreUnavailable`."""

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """Make a small object, whole and durable.

        Raises:
            NameTaken: There is an object of this name already; perhaps it is this one, stored by
                an attempt whose answer was lost.
            StoreUnavailable: It may have been stored nonetheless.
        """
        writer = self.create(name)
        try:
            for part in parts:
                writer.write(memoryview(part))
        except BaseException:
            writer.abort()
            raise
        writer.close()

    def put_soon(self, name: str, text: bytes) -> None:
        """As `put`, of a small text which blanks may follow; some stores are ready for it."""
        self.put(name, [text])

    @abc.abstractmethod
    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the object's bytes from `offset` on.

        Raises:
            ObjectMissing: There is no such object, or it is shorter.
            ObjectDamaged: It cannot be read any more.
            StoreUnavailable: The store does not answer.
        """

    def read_pages(self, name: str, run: PageRun) -> None:
        """Read pages that lie one after another into the memory that waits for them.

        Raises:
            ObjectDamaged: One of them is not what its checksum says.
            ObjectMissing, StoreUnavailable: As `read_into`.
        """
        self.read_into(name, run.offset, run.words.data.cast("B"))
        if not run.is_whole():
            raise ObjectDamaged(f"{name}: a page behind byte {run.offset} fails its checksum")

    @abc.abstractmethod
    def size(self, name: str) -> int:
        """Bytes of an object. Raises `ObjectMissing` and `StoreUnavailable`."""

    @abc.abstractmethod
    def names(self, folder_prefix: str = "") -> list[str]:
        """All names in folders whose name begins so, sorted. Raises `StoreUnavailable`."""

    def listing(self) -> list[StoredObject]:
        """All objects in folders, by name. Raises `StoreUnavailable`, also if it does not know."""
        raise StoreUnavailable("this store does not say how old its objects are")

    def children(self) -> list[str]:
        """What lies directly in the store: folders, and names without one. As `names` otherwise."""
        return sorted({name.partition("/")[0] for name in self.names()})

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Delete an object; that it is gone already is no error. Raises `StoreUnavailable`."""

    def read(self, name: str) -> memoryview:
        """A whole object. Raises as `read_into`."""
        buffer = memoryview(bytearray(self.size(name)))
        if len(buffer):
            self.read_into(name, 0, buffer)
        return buffer

    def close(self) -> None:  # noqa: B027  (most stores hold nothing open)
        """Let go of connections."""


class StoreSpec(Protocol):
    """How to reach a store; travels to tasks."""

    def open(self) -> CheckpointStore:
        """Connect. Raises `StoreUnavailable`."""
        ...
