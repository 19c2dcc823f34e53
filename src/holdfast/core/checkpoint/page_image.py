"""Where every page of a checkpoint is stored. [SGuard §4.4]

Checkpoints are incremental: pages that have not changed stay where an earlier checkpoint has put
them. An image names for every PageID the file, the place in it and the checksum. Files of which
few pages are still in use are emptied, so that the store never holds much more than the state:
`rewrites` picks pages to be written again although they have not changed, the more the fewer of
their file's pages count, and at most half as many as have changed, so that checkpoints stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import CheckpointId
from holdfast.core.state.page_manager import PageSetId

if TYPE_CHECKING:
    from holdfast.core.state.page_manager import Snapshot

_WORTH_KEEPING_PERCENT: Final = 25
"""A file is emptied when fewer of its pages than that are in use."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of pages.

    Attributes:
        checkpoint: The checkpoint that wrote it.
        worker: Which of its files it is, from 0 on.
        pages: How many pages it holds, those no longer in use included.
    """

    checkpoint: CheckpointId
    worker: int
    pages: int


@dataclass(frozen=True, slots=True)
class PageImage:
    """All pages of a checkpoint, in the order of its snapshot.

    Attributes:
        page_bytes: Size of a page.
        page_sets: Ids, ascending.
        counts: int64, pages per set.
        next_set: The id that the next page set gets.
        files: The files with a page in use.
        file: int32 (n,), per page the number of its file.
        position: int64 (n,), its number within the file.
        checksum: uint64 (n,).
        emptied: The number of the file to be emptied; -1: none is worth it. Found with the image,
            as a node stands still while it looks what to write.
    """

    page_bytes: int
    page_sets: tuple[PageSetId, ...]
    counts: np.ndarray
    next_set: int
    files: tuple[PageFile, ...]
    file: np.ndarray
    position: np.ndarray
    checksum: np.ndarray
    emptied: int = -1

    @property
    def reading_order(self) -> np.ndarray:
        """The pages as they lie in their files, int64 permutation."""
        follows = (self.file[1:] > self.file[:-1]) | (
            (self.file[1:] == self.file[:-1]) & (self.position[1:] > self.position[:-1])
        )
        if bool(follows.all()):  # A whole checkpoint; sorting takes longer than all else here.
            return np.arange(len(self.file), dtype=np.int64)
        order: np.ndarray = np.lexsort((self.position, self.file))
        return order

    def seeds(self) -> np.ndarray:
        """What tells pages of equal content apart in checksums, uint64 (n,)."""
        return page_seeds(self.page_sets, self.counts)

    def rewrites(self, snapshot_counts: dict[PageSetId, int], changed: int) -> np.ndarray | None:
        """Which pages to write again, to empty a file; None: nothing is worth it.

        Args:
            snapshot_counts: Pages per set now.
            changed: How many pages are to be written anyway.

        Returns:
            bool, one per page of the state now, in the order of a snapshot.
        """
        if self.emptied < 0 or changed < 2:
            return None
        chosen = self.file == self.emptied
        chosen[np.flatnonzero(chosen)[changed // 2 :]] = False
        again = np.zeros(sum(snapshot_counts.values()), dtype=np.bool_)
        for here, there in self.shared_with(sorted(snapshot_counts.items())):
            again[here] = chosen[there]
        return again

    def shared_with(
        self, page_counts: Iterable[tuple[PageSetId, int]]
    ) -> Iterator[tuple[slice, slice]]:
        """Where the pages that a state has too lie there, and here, page set by page set.

        Args:
            page_counts: Of the state, by ascending page set.
        """
        ends = np.cumsum(self.counts)
        firsts = dict(zip(self.page_sets, (ends - self.counts).tolist(), strict=True))
        counts = dict(zip(self.page_sets, self.counts.tolist(), strict=True))
        at = 0
        for page_set, count in page_counts:
            shared = min(count, counts.get(page_set, 0))
            if shared:
                first = firsts[page_set]
                yield slice(at, at + shared), slice(first, first + shared)
            at += count


def page_seeds(page_sets: tuple[PageSetId, ...], counts: np.ndarray) -> np.ndarray:
    """Per page its PageID as one word, uint64 (n,)."""
    ids = np.array(page_sets, dtype=np.uint64)
    total = int(counts.sum())
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    sequences = (np.arange(total, dtype=np.int64) - firsts).astype(np.uint64)
    seeds: np.ndarray = (np.repeat(ids, counts) << np.uint64(32)) | sequences
    return seeds


def split_among_workers(snapshot: Snapshot, workers: int) -> list[np.ndarray]:
    """Positions to be written, cut into at most so many runs of about the same length."""
    parts = np.array_split(snapshot.changed, workers)
    return [part for part in parts if len(part)]


def file_to_empty(files: tuple[PageFile, ...], file: np.ndarray) -> int:
    """The number of the file of which the smallest part is in use, if that is small enough, or -1.

    Args:
        files: The files.
        file: As in `PageImage`.
    """
    in_use = np.bincount(file, minlength=len(files)).tolist()
    worth = [
        (used / each.pages, number)
        for number, (used, each) in enumerate(zip(in_use, files, strict=True))
        if 100 * used < _WORTH_KEEPING_PERCENT * each.pages
    ]
    return min(worth)[1] if worth else -1


def next_image(
    snapshot: Snapshot,
    base: PageImage | None,
    page_bytes: int,
    checkpoint: CheckpointId,
    written: list[tuple[np.ndarray, np.ndarray]],
) -> PageImage:
    """The image of a snapshot of which the changed pages have been written.

    Args:
        snapshot: The snapshot.
        base: The image that the unchanged pages are taken from.
        page_bytes: Size of a page.
        checkpoint: Names the new files.
        written: Per worker the positions it wrote, in the file's order, and their checksums.

    Raises:
        InvariantViolation: An unchanged page is not in the base, or a changed one not written.
    """
    total = len(snapshot.pages)
    file = np.full(total, -1, dtype=np.int32)
    position = np.zeros(total, dtype=np.int64)
    checksum = np.zeros(total, dtype=np.uint64)
    files: list[PageFile] = []
    if base is not None:
        files += base.files
        counted = zip(snapshot.page_sets, snapshot.counts.tolist(), strict=True)
        for here, there in base.shared_with(counted):
            file[here] = base.file[there]
            position[here] = base.position[there]
            checksum[here] = base.checksum[there]
    file[snapshot.is_changed] = -1
    for worker, (positions, sums) in enumerate(written):
        file[positions] = len(files)
        position[positions] = np.arange(len(positions), dtype=np.int64)
        checksum[positions] = sums
        files.append(PageFile(checkpoint, worker, len(positions)))
    if total and int(file.min()) < 0:
        raise InvariantViolation("a page of the checkpoint is stored nowhere")
    in_use = np.unique(file)
    renumbered = np.zeros(len(files) + 1, dtype=np.int32)
    renumbered[in_use] = np.arange(len(in_use), dtype=np.int32)
    kept = tuple(files[number] for number in in_use.tolist())
    file = renumbered[file]
    return PageImage(
        page_bytes,
        snapshot.page_sets,
        snapshot.counts,
        snapshot.next_set,
        kept,
        file,
        position,
        checksum,
        file_to_empty(kept, file),
    )
