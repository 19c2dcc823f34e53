"""What a node needs of a source: tuples from any id on, the same ones whenever asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from holdfast.core.model.tuples import TupleBatch

_LOOKED_AT = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The answer to one read.

    Attributes:
        batches: Consecutive tuples from the asked id on; empty when there is nothing yet.
        boundary_us: Nothing older follows; `END_US` when the source has ended.
        late_rows: How many tuples were put aside as late, from the stream's first one up to here;
            the same whoever reads.
        quiet_ms: Nothing more comes before so many milliseconds; 0: nobody knows.
    """

    batches: tuple[TupleBatch, ...]
    boundary_us: int
    late_rows: int = 0
    quiet_ms: int = 0


class SourceReader(Protocol):
    """Reads one stream of a source inside a node."""

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """What there is from `from_id` on, without waiting. Replayable: the same ids always give
        the same tuples."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@runtime_checkable
class StirringReader(Protocol):
    """A `SourceReader` that tells when there may be more to read."""

    def fileno(self) -> int:
        """A descriptor that is readable then, until the next read; -1: nobody tells."""
        ...


def stirs(reader: SourceReader) -> int:
    """The descriptor of a `StirringReader`; -1 for others."""
    return reader.fileno() if isinstance(reader, StirringReader) else -1


def newest_id(reader: SourceReader) -> int:
    """The end of what a source has by now. Cost: O(its tuples), unless the reader knows better."""
    known = getattr(reader, "newest_id", None)
    if known is not None:
        return int(known())
    next_id = 0
    while batches := reader.read(next_id, _LOOKED_AT).batches:
        next_id = batches[-1].next_id
    return next_id


class SourceSpec(Protocol):
    """Describes one stream of a source; it is shipped to the node, which opens it."""

    def open(self) -> SourceReader:
        """Open the stream on the node."""
        ...


@runtime_checkable
class RecordedSpec(Protocol):
    """A `SourceSpec` whose tuples may always come in the same batches."""

    def in_records(self) -> SourceSpec | None:
        """The same stream, every tuple in the same batch whenever it is read; None: not this one.

        Its reader refuses ids at which no batch begins.
        """
        ...


def in_records(spec: SourceSpec) -> SourceSpec | None:
    """See `RecordedSpec`."""
    return spec.in_records() if isinstance(spec, RecordedSpec) else None
