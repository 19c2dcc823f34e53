"""Which piece a data node checks next, so that rotten chunks are found before they are needed.

A copy that rots on a disk is one copy less, and nobody knows until somebody reads it: perhaps when
it is the last one. So a data node goes round all its chunks, piece by piece, at a low rate, when
nobody else reads. [Ghemawat et al., The Google File System, SOSP 2003, §5.2]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.chunks.messages import ChunkId, StoredChunk
    from holdfast.core.chunks.settings import ChunkSettings


class Scrubber:
    """Checks the chunks of a folder, one after another. Volatile: a new life begins anew."""

    def __init__(self, settings: ChunkSettings) -> None:
        """Nothing has been checked."""
        self._settings = settings
        self._unchecked: list[StoredChunk] = []  # in this tour, the next one last
        self._index = 0  # of the next piece of the next chunk

    def next_piece(self, chunks: Mapping[ChunkId, StoredChunk]) -> tuple[StoredChunk, int] | None:
        """A chunk of those that are held now, and the index of a piece; None: none is held."""
        while self._unchecked and chunks.get(self._unchecked[-1].chunk) != self._unchecked[-1]:
            self._unchecked.pop()  # Gone meanwhile.
            self._index = 0
        if not self._unchecked:
            self._unchecked = list(chunks.values())[::-1]
        if not self._unchecked:
            return None
        stored, index = self._unchecked[-1], self._index
        self._index += 1
        if self._index == self._settings.pieces(stored.size):
            self._unchecked.pop()
            self._index = 0
        return stored, index
