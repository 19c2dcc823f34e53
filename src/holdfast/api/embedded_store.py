"""What a user says to keep checkpoints on the cluster's own disks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.peace.messages import PeaceSettings
from holdfast.core.peace.network_model import NetworkModel
from holdfast.core.peace.peace import Peace
from holdfast.errors import OptionError
from holdfast.shell.stores.chunks.network_file import read_network_file

_BOUNDS = {
    "copies": (1, 8),
    "data_nodes": (1, 1_000),
    "chunk_bytes": (1 << 20, 64 << 20),
}


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A chunk store made of data nodes, which are Spark tasks next to the processing nodes.

    Attributes:
        copies: Data nodes that keep each chunk: copies - 1 of them may be lost at once.
        data_nodes: How many data nodes there are; each takes a slot of Spark. More than `copies`,
            so that checkpoints can go on being written while one is away.
        chunk_bytes: Size of a chunk; also what a writer keeps in memory.
        local_directory: Where data nodes keep their chunks on their hosts. Needed on a cluster; in
            local mode they lie in the checkpoint location.
        network: A YAML file that describes the network for Peace, its servers named `data-0` and so
            on; empty: every data node's host is a rack of its own.
    """

    copies: int = 2
    data_nodes: int = 3
    chunk_bytes: int = 8 << 20
    local_directory: str = ""
    network: str = ""

    def __post_init__(self) -> None:
        """Refuse what makes no sense. Raises `OptionError`."""
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise OptionError(
                    f"EmbeddedStore({name}={value}); it lies between {low} and {high}"
                )
        if self.data_nodes < self.copies:
            raise OptionError(
                f"EmbeddedStore(copies={self.copies}, data_nodes={self.data_nodes}); every copy "
                "needs a data node of its own"
            )

    def settings(self) -> ChunkSettings:
        """All settings of the store."""
        return ChunkSettings(copies=self.copies, chunk_bytes=self.chunk_bytes)

    def placement(self) -> Peace:
        """Who places and times the writes. Raises `NetworkFileInvalid`."""
        model = read_network_file(self.network) if self.network else NetworkModel.of_racks({})
        settings = PeaceSettings(can_writer_hold_copy=self.data_nodes <= self.copies)
        return Peace(model, settings=settings, random=random.Random())
