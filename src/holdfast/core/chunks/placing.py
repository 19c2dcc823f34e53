"""Where the chunks of uploads are placed, and what their clients are told of it. [SGuard §5]

Placement is a machine of Peace's stimuli and effects: Peace itself, or `LeastLoaded`. It is asked
for all chunks of a checkpoint at once, if its writer says how many there will be
(reservations.py); else for one at a time, the newest of an upload. Every answer carries a new chunk
id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.chunks import messages as m
from holdfast.core.chunks.effects import SendToClient
from holdfast.core.chunks.placement import Candidate, LeastLoaded
from holdfast.core.chunks.reservations import Reservation, Reservations
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
        reservations_max: int,
    ) -> None:
        """Begin without chunks.

        Args:
            epoch: The master's; a part of every chunk id.
            directory: Of the data nodes.
            uploads: The open ones.
            copies: How many data nodes hold each chunk.
            placement: Peace, if it is to place and time the writes; else they are spread evenly.
            reservations_max: Checkpoints that have, or wait for, places at a time.
        """
        self._epoch = epoch
        self._directory = directory
        self._uploads = uploads
        self._copies = copies
        self._placement = placement or LeastLoaded(self._candidate)
        self._reservations = Reservations(reservations_max)
        self._next_chunk = 1

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take a stimulus of the placement; its decisions become words to clients."""
        effects = self._placement.step(stimulus, now_ms)
        return [out for effect in effects for out in self._decided(effect, now_ms)]

    # -- places of whole checkpoints --------------------------------------------------------

    def reserve(self, asked: m.PlacesRequested, now_ms: int) -> list[Effect]:
        """Find places for all chunks of a checkpoint, or have it wait."""
        if reason := self._too_few():
            return [_refused(asked, reason)]
        effects: list[Effect] = []
        known = self._reservations.get(asked.reservation)
        if known is None:
            known = self._reservations.begin(asked, now_ms)
            if known is None:
                return [_refused(asked, "too many checkpoints are being written")]
        elif known.asked.chunks != asked.chunks:
            if known.taken:
                effects = self.step(peace_messages.WriteWithdrawn(known.key()), now_ms)
            self._reservations.begin_anew(known, asked)
        known.asked = asked
        known.heard_ms = now_ms
        if known.taken:
            return [_granted(asked)]  # It is being written: the answer was lost.
        beside = ServerName(self._directory.beside(asked.host))
        request = peace_messages.WriteRequested(known.key(), beside, self._copies, asked.chunks)
        return [*effects, *self.step(request, now_ms)]

    def give_back(self, reservation: str, now_ms: int) -> list[Effect]:
        """A checkpoint needs no more places."""
        known = self._reservations.get(reservation)
        if known is None:
            return []
        self._reservations.end(known)
        return self.step(peace_messages.WriteWithdrawn(known.key()), now_ms)

    def heard(self, reservation: str, now_ms: int) -> None:
        """A client that has it, or waits for it, has said something."""
        known = self._reservations.get(reservation)
        if known is not None:
            known.heard_ms = now_ms

    def end_silent(self, now_ms: int, limit_ms: int) -> list[Effect]:
        """Clients that say nothing need no places; one that is only slow has its chunks placed one
        by one from now on.
        """
        silent = self._reservations.silent(now_ms, limit_ms)
        return [e for each in silent for e in self.give_back(each.asked.reservation, now_ms)]

    # -- chunks -----------------------------------------------------------------------------

    def place(self, upload: Upload, now_ms: int) -> list[Effect]:
        """Find data nodes for the newest chunk of an upload."""
        if reason := self._too_few():
            return [_delayed(upload, reason)]
        reservation = self._reservations.get(upload.asked.reservation)
        if reservation is not None and not reservation.is_used_up:
            place = reservation.take(self._is_live)
            if place is None:
                reservation.waiting[upload.asked.upload] = None
                return [_delayed(upload, "its checkpoint waits for the next places")]
            upload.taken = reservation.key(), place[0]
            return self._granted(upload, place[1])
        beside = ServerName(self._directory.beside(upload.asked.host))
        return self.step(
            peace_messages.WriteRequested(upload.key(), beside, self._copies, 1), now_ms
        )

    def _too_few(self) -> str:
        """Why nothing can be placed; empty: it can."""
        live = sum(1 for _ in self._directory.live())
        if live >= self._copies:
            return ""
        return f"{live} data nodes live, {self._copies} copies are wanted"

    def _is_live(self, server: ServerName) -> bool:
        return self._directory.nodes[server].is_live

    def completed(self, upload: Upload, now_ms: int) -> list[Effect]:
        """The newest chunk is stored."""
        if upload.taken is not None:
            return self._leave_place(upload, upload.taken, now_ms)
        return self.step(peace_messages.ChunkWritten(upload.key(), 0), now_ms)

    def _leave_place(
        self, upload: Upload, place: tuple[peace_messages.WriteRequestId, int], now_ms: int
    ) -> list[Effect]:
        """Its chunk is written, or will be placed anew elsewhere: Peace need not wait for it."""
        upload.taken = None
        if self._reservations.of(place[0]) is None:
            return []  # It has been given back since.
        return self.step(peace_messages.ChunkWritten(*place), now_ms)

    def withdraw(self, upload: Upload, now_ms: int) -> list[Effect]:
        """The newest chunk is stored, or will be placed anew: Peace need not wait for it."""
        upload.current = None
        if upload.taken is not None:
            return self._leave_place(upload, upload.taken, now_ms)
        if upload.request == 0:
            return []
        return self.step(peace_messages.WriteWithdrawn(upload.key()), now_ms)

    def _decided(self, effect: Effect, now_ms: int) -> list[Effect]:
        match effect:
            case peace_messages.GrantWrite(request_id=key):
                reservation, upload = self._reservations.of(key), self._waiting(key)
                if reservation is not None:
                    return self._places_granted(reservation, effect, now_ms)
                if upload is None:
                    return self.step(peace_messages.WriteWithdrawn(key), now_ms)
                return self._granted(upload, effect.placements[0].servers)
            case peace_messages.RefuseWrite(request_id=key):
                return self._not_granted(key, "waits for its turn", is_queued=True)
            case peace_messages.FailWrite(request_id=key):
                return self._not_granted(key, effect.reason, is_queued=False)
        return [effect]

    def _places_granted(
        self, reservation: Reservation, grant: peace_messages.GrantWrite, now_ms: int
    ) -> list[Effect]:
        """Its client may begin; or uploads that wait for the next places go on."""
        reservation.granted(grant)
        effects = [] if reservation.taken else [_granted(reservation.asked)]
        waiting, reservation.waiting = reservation.waiting, {}
        for name in waiting:
            upload = self._uploads.get(name)
            if upload is not None and upload.request and upload.current is None:
                effects += self.place(upload, now_ms)
        return effects

    def _not_granted(
        self, key: peace_messages.WriteRequestId, reason: str, *, is_queued: bool
    ) -> list[Effect]:
        reservation, upload = self._reservations.of(key), self._waiting(key)
        if reservation is not None:
            if not is_queued:
                self._reservations.end(reservation)
            return [_refused(reservation.asked, reason, is_queued=is_queued)]
        return [] if upload is None else [_delayed(upload, reason)]

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

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when places make no sense."""
        self._reservations.check_invariants()

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


def _granted(asked: m.PlacesRequested) -> Effect:
    return SendToClient(asked.client, m.PlacesGranted(asked.reservation))


def _refused(asked: m.PlacesRequested, reason: str, *, is_queued: bool = False) -> Effect:
    return SendToClient(asked.client, m.PlacesRefused(asked.reservation, is_queued, reason))


def _delayed(upload: Upload, reason: str) -> Effect:
    word = m.PlacementDelayed(upload.asked.upload, upload.request, reason)
    return SendToClient(upload.asked.client, word)
