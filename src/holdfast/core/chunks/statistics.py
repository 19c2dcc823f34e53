"""Figures of the chunk store, as its master sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkMasterStatistics:
    """What the store is like.

    Attributes:
        data_nodes: Live ones.
        objects: Committed ones.
        chunks: Of committed objects.
        wanting_chunks: Those with fewer live copies than wanted.
        out_of_reach: Those without any.
        uploads: Objects being written.
        copies_started: Copies asked for since the start.
        losses: Data nodes taken for lost since the start.
        damaged: Damaged chunks reported since the start.
        stale_messages: Messages of former incarnations since the start.
    """

    data_nodes: int
    objects: int
    chunks: int
    wanting_chunks: int
    out_of_reach: int
    uploads: int
    copies_started: int
    losses: int
    damaged: int
    stale_messages: int
