"""Where the chunks of uploads are placed, and what their clients are told of it. [SGuard §5]

Placement is a machine of Peace's stimuli and effects: Peace itself, or `LeastLoaded`. It is asked
for one chunk at a time, the newest of an upload. Every answer carries a new chunk id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.chunks import messages as m
from holdfast.core.chunks.effects import SendToClient
from holdfast.core.chunks.placement import Candidate, LeastLoaded
from holdfast.core.errors import InvariantViolation
from holdfast.core.peace import messages as peace_messages
from holdfast.core.peace.network_model import ServerName

if TYPE_CHECKING:
    from holdfast.core.chunks.directory import Directory
    from holdfast.core.chunks.upload import Upload, Uploads
    from holdfast.core.machine import Effect, Machine, Stimulus


class Placing:
    """Asks the placement for chunks of uploads, and passes its answers on. Volatile."""

    def __init__(
        self,
        epoch: int,
        directory: Directory,
        uploads: Uploads,
        copies: int,
        placement: Machine | None,
    ) -> None:
        """Begin without chunks.

        Args:
            epoch: The master's; a part of every chunk id.
            directory: Of the data nodes.
            uploads: The open ones.
            copies: How many data nodes hold each chunk.
            placement: Peace, if it is to place and time the writes; else they are spread evenly.
        """
        self._epoch = epoch
        self._directory = directory
        self._uploads = uploads
        self._copies = copies
        self._placement = placement or LeastLoaded(self._candidate)
        self._next_chunk = 1

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take a stimulus of the placement; its decisions become words to clients."""
        effects = self._placement.step(stimulus, now_ms)
        return [out for effect in effects for out in self._decided(effect, now_ms)]

    def place(self, upload: Upload, now_ms: int) -> list[Effect]:
        """Find data nodes for the newest chunk of an upload."""
        live = sum(1 for _ in self._directory.live())
        if live < self._copies:
            return [_delayed(upload, f"{live} data nodes live, {self._copies} copies are wanted")]
        beside = ServerName(self._directory.beside(upload.asked.host))
        return self.step(
            peace_messages.WriteRequested(upload.key(), beside, self._copies, 1), now_ms
        )

    def withdraw(self, upload: Upload, now_ms: int) -> list[Effect]:
        """The newest chunk is stored, or will be placed anew: Peace need not wait for it."""
        upload.current = None
        if upload.request == 0:
            return []
        return self.step(peace_messages.WriteWithdrawn(upload.key()), now_ms)

    def _decided(self, effect: Effect, now_ms: int) -> list[Effect]:
        if isinstance(effect, peace_messages.GrantWrite):
            upload = self._waiting(effect.request_id)
            if upload is None:
                return self.step(peace_messages.WriteWithdrawn(effect.request_id), now_ms)
            return self._granted(upload, effect.placements[0].servers)
        if isinstance(effect, peace_messages.RefuseWrite | peace_messages.FailWrite):
            upload = self._waiting(effect.request_id)
            reason = "waits for its turn"
            if isinstance(effect, peace_messages.FailWrite):
                reason = effect.reason
            return [] if upload is None else [_delayed(upload, reason)]
        return [effect]

    def _waiting(self, key: peace_messages.WriteRequestId) -> Upload | None:
        upload = self._uploads.get(key.rpartition("/")[0])
        return upload if upload is not None and upload.key() == key else None

    def _granted(self, upload: Upload, servers: tuple[ServerName, ...]) -> list[Effect]:
        chunk = m.chunk_id(self._epoch, self._next_chunk)
        self._next_chunk += 1
        nodes = [self._directory.nodes[server] for server in servers]
        upload.chains[chunk] = tuple(node.replica() for node in nodes)
        upload.current = chunk
        return [placed(upload)]

    def _candidate(self, server: ServerName) -> Candidate:
        node = self._directory.nodes[server]
        coming = sum(u.is_on_its_way_to(server, node.chunks) for u in self._uploads.all())
        return Candidate(node.name, node.host, len(node.chunks) + coming)


def placed(upload: Upload) -> Effect:
    """The answer that says where the newest chunk of an upload goes."""
    if upload.current is None:
        raise InvariantViolation(f"{upload.asked.upload} is answered without a place")
    chain = upload.chains[upload.current]
    word = m.ChunkPlaced(upload.asked.upload, upload.request, upload.current, chain)
    return SendToClient(upload.asked.client, word)


def _delayed(upload: Upload, reason: str) -> Effect:
    word = m.PlacementDelayed(upload.asked.upload, upload.request, reason)
    return SendToClient(upload.asked.client, word)
