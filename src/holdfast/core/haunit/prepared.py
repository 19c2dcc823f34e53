"""A checkpoint between its preparation and the store. [SGuard §3, §4.4]

A checkpoint consists of the pages of all operators, and of the output tuples that receivers may
still need. Both are incremental: what an earlier checkpoint of the same node holds is referred to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.model.ids import CheckpointId, NodeId, StreamId

if TYPE_CHECKING:
    import numpy as np

    from holdfast.core.checkpoint.page_image import PageImage
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import Snapshot


@dataclass(frozen=True, slots=True)
class OutputTuples:
    """Output tuples [from_id, to_id) of a stream that a checkpoint has to write.

    Attributes:
        stream: The output stream.
        from_id: The first.
        to_id: The one after the last.
        batches: The last of them; what comes before these is in the stream's spill log.
        is_held: Whether they wait for their sink's log, which will hold them, too.
    """

    stream: StreamId
    from_id: int
    to_id: int
    batches: tuple[TupleBatch, ...]
    is_held: bool = False

    @property
    def in_memory_from(self) -> int:
        """The first that is in `batches`; what comes before it is spilled."""
        return self.batches[0].first_id if self.batches else self.to_id


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """Where output tuples [from_id, to_id) of a stream are stored.

    Attributes:
        stream: The output stream.
        from_id: The first.
        to_id: The one after the last.
        checkpoint: The checkpoint whose file of output tuples holds them.
        offset: Where in the file their records begin, in bytes.
        size: How many bytes they take.
    """

    stream: StreamId
    from_id: int
    to_id: int
    checkpoint: CheckpointId
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class PreparedCheckpoint:
    """All that is needed to write a checkpoint while its node goes on.

    Attributes:
        node: The node.
        checkpoint: Its name.
        point: The cut.
        arena: The memory with the pages; frozen pages in it do not change.
        page_bytes: Size of a page.
        snapshot: Which pages there are, and which of them are to be written.
        base: Where the others are stored.
        outputs: Output tuples to be written.
        kept_outputs: Output tuples stored before.
        workers: Into how many files to split the pages.
        notes: The notes among the output tuples, and behind them.
        gives_way: Whether its pages are thawed while the store has no place for it, and it is
            prepared anew then; else it waits as it is.
    """

    node: NodeId
    checkpoint: CheckpointId
    point: RestartPoint
    arena: np.ndarray
    page_bytes: int
    snapshot: Snapshot
    base: PageImage | None
    outputs: tuple[OutputTuples, ...]
    kept_outputs: tuple[OutputSegment, ...]
    workers: int
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """What became of a prepared checkpoint.

    Attributes:
        checkpoint: Its name.
        checksum: Of its manifest.
        image: Where its pages are stored.
        outputs: Where its output tuples are stored.
        written_bytes: How much was written for it.
    """

    checkpoint: CheckpointId
    checksum: int
    image: PageImage
    outputs: tuple[OutputSegment, ...]
    written_bytes: int

    def bases(self) -> tuple[CheckpointId, ...]:
        """The earlier checkpoints whose files it needs, ascending."""
        needed = {file.checkpoint: None for file in self.image.files}
        needed |= {segment.checkpoint: None for segment in self.outputs}
        needed.pop(self.checkpoint, None)
        return tuple(sorted(needed))
