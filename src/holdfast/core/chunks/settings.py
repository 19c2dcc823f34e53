"""Every number of the chunk store: unit, default, bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.errors import LocalProtocolError

PIECE_BYTES_MAX: Final = 1 << 20
"""No piece of a chunk is larger, whatever the settings say."""


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """Settings that the master, the data nodes and the clients of one store share.

    Attributes:
        copies: Data nodes that hold each chunk; copies - 1 of them may be lost at once.
        chunk_bytes: Size of a chunk; the last one of an object may be smaller. Also what a writer
            keeps in memory.
        piece_bytes: What travels and is checked as one; at most 1 MiB.
        keep_alive_ms: Period of a data node's keep-alives.
        misses: Missed keep-alives after which a data node is taken for lost; and missed questions
            after which a client is taken to write nothing.
        lease_ms: A data node without word from the master for so long ends itself.
        inventory_ms: Period of a data node's full listings.
        write_idle_ms: A data node gives up a chunk of which nothing more came for so long.
        writes_max: Chunks that one data node receives at a time.
        reads_max: Pieces that one data node reads at a time.
        upload_timeout_ms: The master gives up an object whose writer was silent for so long.
        uploads_max: Objects that are being written at a time.
        object_chunks_max: Chunks of one object.
        scrub_ms: A data node checks one of its pieces every so long, if nobody reads.
        recopy_delay_ms: How long the master waits for a lost data node before its chunks are
            copied again: one that was killed comes back with them.
        copy_timeout_ms: A copy between data nodes that takes longer is asked for again.
        copies_in_flight_max: Copies between data nodes at a time.
        resend_ms: A client, or a data node, asks again after so long without an answer.
        chain_timeout_ms: A client asks for another chain after so long without an answer of one.
        read_timeout_ms: A client asks another copy after so long without an answer.
        read_window: Pieces that one reader asks for at a time.
        operation_timeout_ms: After so long without success an operation fails.
        reach_timeout_ms: For so long a chunk without a live copy is waited for, and a data node
            waits for the machine of its chunks while there are such.
    """

    copies: int = 2
    chunk_bytes: int = 8 << 20
    piece_bytes: int = 256 << 10
    keep_alive_ms: int = 200
    misses: int = 5
    lease_ms: int = 30_000
    inventory_ms: int = 10_000
    write_idle_ms: int = 30_000
    writes_max: int = 256
    reads_max: int = 1_024
    upload_timeout_ms: int = 120_000
    uploads_max: int = 4_096
    object_chunks_max: int = 65_536
    scrub_ms: int = 100
    recopy_delay_ms: int = 3_000
    copy_timeout_ms: int = 10_000
    copies_in_flight_max: int = 4
    resend_ms: int = 200
    chain_timeout_ms: int = 10_000
    read_timeout_ms: int = 1_500
    read_window: int = 8
    operation_timeout_ms: int = 30_000
    reach_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name in self.__slots__:
            low = 0 if name == "recopy_delay_ms" else 1
            if getattr(self, name) < low:
                raise LocalProtocolError(f"{name} is {getattr(self, name)}, below {low}")
        if self.piece_bytes > PIECE_BYTES_MAX:
            raise LocalProtocolError(f"piece_bytes is {self.piece_bytes}, above {PIECE_BYTES_MAX}")
        if self.chunk_bytes < self.piece_bytes:
            raise LocalProtocolError(
                f"chunk_bytes is {self.chunk_bytes}, below piece_bytes, {self.piece_bytes}"
            )

    def asking_timeout_ms(self) -> int:
        """A client that did not ask for so long writes no chunk, whatever place it was given."""
        return self.resend_ms * self.misses

    def pieces(self, size: int) -> int:
        """How many pieces a chunk of so many bytes has."""
        return -(-size // self.piece_bytes)

    def fits(self, size: int, *, is_last: bool) -> bool:
        """Whether a piece may have so many bytes: the last one of a chunk may be shorter."""
        return 0 < size <= self.piece_bytes and (is_last or size == self.piece_bytes)
