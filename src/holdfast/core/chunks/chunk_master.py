"""The chunk store's master: which objects exist, where their chunks go and are. [SGuard §2.2, §5]

Theory of operation. An object is written as an *upload*:

    (create) --> OPEN --(place, store a chunk)*--> OPEN --commit--> COMMITTING --journal written-->
    the object exists --delete, journal written--> it does not

- A name belongs to the upload that opened it until that commits, aborts, or is silent for
  `upload_timeout_ms`. A name that exists, or belongs to another upload, is refused.
- For each chunk the client asks for a chain of data nodes. The answer carries a new chunk id every
  time. Asked again with the same number, the master looks whether the chain still stands: if a data
  node of it is lost, the answer is a new id and a new chain. So clients notice broken chains by the
  master's failure detection.
- A client asks for the place of its chunk as long as that is on its way. One that was killed asks
  no more: soon its chunk holds up nobody. If it lives and asks again, it gets another place.
- A commit names the chunks. It waits until each has all its copies: those that lost one since are
  copied first. The object exists once its entry is durable in the journal; only then is the client
  told. Everything else that was placed for the upload is deleted.
- A data node says hello with what is in its folder, and gets an incarnation above all earlier ones.
  Chunks of committed objects and of open uploads stay, all others are deleted: those of uploads
  that nobody committed, of deleted objects, of failed attempts.
- A data node whose keep-alives stop is lost; see replication.py for what becomes of its chunks.
- A master that starts over a journal is an ordinary one with a higher epoch: objects come from the
  journal, with the machines that data nodes are to come up on (homes.py), places from the hellos.
  Open uploads are gone; their clients are refused.

Every request of a client may be repeated, and is answered in the same way: uploads have unique
names, which the journal keeps with the object.

Where chunks are placed, placing.py says.

Invariants: a chunk of a committed object is deleted only where there are too many copies or a
damaged one, and never the last sound one; an object is told to exist only when the journal has it;
incarnations only grow; the journal names the machine of every copy that made a commit possible.

Departures from the paper: chunk servers and processing nodes are separate processes. Copies made
again after a loss do not pass through Peace, and what is no checkpoint asks for its chunks one by
one, as it fills them. Places are not journalled: data nodes know them better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.chunks import messages as m
from holdfast.core.chunks.directory import (
    DataNodeRecord,
    Directory,
    ObjectRecord,
    homes_entry,
    object_entry,
)
from holdfast.core.chunks.effects import (
    JournalWritten,
    SendToClient,
    SendToDataNode,
    Started,
    WriteJournal,
)
from holdfast.core.chunks.placing import Placing, placed
from holdfast.core.chunks.replication import Replication
from holdfast.core.chunks.statistics import ChunkMasterStatistics
from holdfast.core.chunks.upload import Upload, Uploads
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, Machine, SetTimer, Stimulus, TimerFired
from holdfast.core.model.silence import SilenceWatch
from holdfast.core.peace import messages as peace_messages
from holdfast.core.peace.network_model import ServerName

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, StoredChunk
    from holdfast.core.chunks.settings import ChunkSettings

_CHECK: Final = "chunks"


class ChunkMaster:
    """The machine. Durable (in the journal): epoch, objects, homes. Volatile: the rest."""

    def __init__(
        self,
        *,
        epoch: int,
        settings: ChunkSettings,
        placement: Machine | None = None,
        journal: tuple[dict[str, object], ...] = (),
    ) -> None:
        """Begin a life over what earlier ones left in the journal.

        Args:
            epoch: Higher than those of all earlier lives.
            settings: The store's.
            placement: Peace, if it is to place and time the writes; else they are spread evenly.
            journal: All entries, oldest first.
        """
        self.epoch = epoch
        self._settings = settings
        self.directory = Directory()
        for entry in journal:
            self.directory.replay(entry)
        self._replication = Replication(self.directory, settings)
        self._silence = SilenceWatch(2 * settings.keep_alive_ms)
        self._uploads = Uploads(settings.uploads_max)
        self._placing = Placing(
            *(epoch, self.directory, self._uploads, settings.copies, placement),
            settings.uploads_max,
        )
        self._requests: dict[int, Callable[[int], list[Effect]]] = {}
        self._next_request = 1
        self._losses = 0
        self._damaged = 0
        self._stale_messages = 0

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    def _on_started(self, _: Started, now_ms: int) -> list[Effect]:
        delay_ms = self._settings.recopy_delay_ms
        chunks = list(self.directory.chunks)
        effects = self._replication.review(chunks, now_ms, delay_ms=delay_ms)
        return [*effects, SetTimer(_CHECK, now_ms + self._settings.keep_alive_ms)]

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != _CHECK:
            return self._placing.step(timer, now_ms)
        effects: list[Effect] = [SetTimer(_CHECK, now_ms + self._settings.keep_alive_ms)]
        limit_ms = self._settings.keep_alive_ms * self._settings.misses
        live = list(self.directory.live())
        self._silence.check(now_ms, [node.heard_ms for node in live], limit_ms)
        for node in live:
            if self._silence.is_lost(node.name, node.heard_ms, limit_ms, now_ms):
                effects += self._lose(node, now_ms)
        for upload in self._uploads.all():
            effects += self._check_upload(upload, now_ms - upload.heard_ms, now_ms)
        effects += self._placing.end_silent(now_ms, self._settings.asking_timeout_ms())
        return effects + self._settle_homes() + self._replication.check(now_ms)

    def _check_upload(self, upload: Upload, silent_ms: int, now_ms: int) -> list[Effect]:
        """Whose client is silent, it lets others write first; after long silence it is dropped."""
        if upload.is_committing:
            return []
        if silent_ms > self._settings.upload_timeout_ms:
            return self._drop(upload, now_ms)
        if upload.current is None or silent_ms <= self._settings.asking_timeout_ms():
            return []
        return self._placing.withdraw(upload, now_ms)

    def _settle_homes(self) -> list[Effect]:
        """Every chunk has all its copies: nobody needs what lies where no data node is."""
        if not self.is_safe():
            return []
        return [
            effect
            for node in self.directory.live()
            for effect in self._set_homes(node.name, (node.host,))
        ]

    def _set_homes(self, node: str, machines: tuple[str, ...]) -> list[Effect]:
        if self.directory.homes.get(node) == machines:
            return []
        self.directory.homes[node] = machines
        return [self._journal(homes_entry(node, machines), lambda _: [])]

    # -- data nodes -------------------------------------------------------------------------

    def _on_data_node_joined(self, joined: m.DataNodeJoined, now_ms: int) -> list[Effect]:
        known = self.directory.nodes.get(joined.node)
        if known is None:
            known = DataNodeRecord(joined.node, self.epoch << 32)
            self.directory.nodes[joined.node] = known
        if joined.launch < known.launch:
            return [SendToDataNode(joined.task, m.Dismissed("a later launch has taken over"))]
        if joined.task == known.task and joined.join <= known.join:
            return self._answer_again(known, joined.join, now_ms)
        effects = self._lose(known, now_ms) if known.is_live else []
        known.begin_life(joined, now_ms)
        homes = self.directory.homes.get(known.name, ())
        if known.host not in homes:
            effects += self._set_homes(known.name, (*homes, known.host))
        effects.append(SendToDataNode(known.task, m.Welcomed(joined.join, known.incarnation)))
        effects += self._reconcile(known, joined.chunks, (), now_ms)
        server = peace_messages.ServerJoined(ServerName(known.name), known.rack)
        return effects + self._placing.step(server, now_ms)

    def _answer_again(self, known: DataNodeRecord, join: int, now_ms: int) -> list[Effect]:
        """A hello came again.

        If the data node is lost since, it may never have got an answer, and know no incarnation
        that it could be fenced of: it hears which one it had, and that it counts no more.
        """
        if join < known.join:
            return []  # Too late: it has joined anew since.
        welcomed = SendToDataNode(known.task, m.Welcomed(join, known.incarnation))
        if not known.is_live:
            return [welcomed, SendToDataNode(known.task, m.Fenced(known.incarnation))]
        known.heard_ms = now_ms
        return [welcomed]

    def _reconcile(
        self,
        node: DataNodeRecord,
        sound: tuple[StoredChunk, ...],
        damaged: tuple[ChunkId, ...],
        now_ms: int,
    ) -> list[Effect]:
        """A full listing: what else was thought to be there is not; what nobody needs, goes."""
        former = dict(node.chunks)
        listed = {stored.chunk: stored for stored in sound}
        for chunk in former:
            if chunk not in listed:
                self.directory.unhold(node, chunk)
        self._damaged += sum(chunk not in node.damaged for chunk in damaged)
        node.damaged = dict.fromkeys(c for c in damaged if c not in node.deleting)
        unneeded = [
            chunk
            for chunk, stored in [*listed.items(), *((c, None) for c in damaged)]
            if chunk not in node.deleting and not self._is_needed(chunk, stored)
        ]
        for chunk, stored in listed.items():
            if chunk not in unneeded:
                self.directory.hold(node, stored)
        touched = dict.fromkeys([*former, *listed, *damaged])
        return [
            *self._replication.unwanted(node, tuple(unneeded)),
            *self._replication.review(touched, now_ms, delay_ms=self._settings.recopy_delay_ms),
        ]

    def _is_needed(self, chunk: ChunkId, stored: StoredChunk | None) -> bool:
        """Whether a chunk is part of an object that exists or may yet come to exist."""
        record = self.directory.chunks.get(chunk)
        if record is not None:
            return stored is None or record.stored == stored
        return any(chunk in upload.chains for upload in self._uploads.all())

    def _lose(self, node: DataNodeRecord, now_ms: int) -> list[Effect]:
        """From now on only a later incarnation of the data node counts."""
        self._losses += 1
        task, incarnation = node.task, node.incarnation
        held = self.directory.lose(node)
        effects: list[Effect] = [SendToDataNode(task, m.Fenced(incarnation))]
        effects += self._replication.review(held, now_ms, delay_ms=self._settings.recopy_delay_ms)
        server = peace_messages.ServerLost(ServerName(node.name))
        return effects + self._placing.step(server, now_ms)

    def _heard(self, name: str, incarnation: int, now_ms: int) -> DataNodeRecord | None:
        """The data node, if the message is of its present incarnation."""
        node = self.directory.current(name, incarnation)
        if node is None:
            self._stale_messages += 1
            return None
        node.heard_ms = now_ms
        return node

    def _reported(
        self, name: str, incarnation: int, sequence: int, now_ms: int
    ) -> DataNodeRecord | None:
        """The same for a numbered report; one older than the newest is dropped."""
        node = self._heard(name, incarnation, now_ms)
        if node is None or sequence <= node.sequence:
            return None
        node.sequence = sequence
        return node

    def _on_data_node_alive(self, alive: m.DataNodeAlive, now_ms: int) -> list[Effect]:
        if self._heard(alive.node, alive.incarnation, now_ms) is None:
            return [SendToDataNode(alive.task, m.Fenced(alive.incarnation))]
        return [SendToDataNode(alive.task, m.LeaseRenewed(alive.incarnation))]

    def _on_inventory_reported(self, report: m.InventoryReported, now_ms: int) -> list[Effect]:
        node = self._reported(report.node, report.incarnation, report.sequence, now_ms)
        if node is None:
            return []
        listed = {stored.chunk for stored in report.chunks} | set(report.damaged)
        again = tuple(chunk for chunk in node.deleting if chunk in listed)
        for chunk in [chunk for chunk in node.deleting if chunk not in listed]:
            del node.deleting[chunk]
        return [
            *self._replication.unwanted(node, again),
            *self._reconcile(node, report.chunks, report.damaged, now_ms),
        ]

    def _on_chunk_stored(self, report: m.ChunkStored, now_ms: int) -> list[Effect]:
        node = self._reported(report.node, report.incarnation, report.sequence, now_ms)
        if node is None:
            return []
        stored = report.chunk
        if not self._is_needed(stored.chunk, stored):
            return self._replication.unwanted(node, (stored.chunk,))
        self.directory.hold(node, stored)
        return self._replication.review((stored.chunk,), now_ms, delay_ms=0)

    def _on_chunks_deleted(self, report: m.ChunksDeleted, now_ms: int) -> list[Effect]:
        node = self._reported(report.node, report.incarnation, report.sequence, now_ms)
        if node is not None:
            for chunk in report.chunks:
                node.deleting.pop(chunk, None)
        return []

    # -- writing ----------------------------------------------------------------------------

    def _on_object_create_requested(
        self, asked: m.ObjectCreateRequested, now_ms: int
    ) -> list[Effect]:
        known = self._uploads.get(asked.upload)
        if known is not None:
            known.heard_ms = now_ms
            return [SendToClient(asked.client, m.UploadOpened(asked.upload, self.epoch))]
        self._placing.heard(asked.reservation, now_ms)
        reason = self._uploads.why_not(asked)
        if asked.name in self.directory.objects:
            reason = f"{asked.name} exists already"
        if reason:
            return self._refuse(asked.client, asked.upload, reason)
        self._uploads.begin(asked, now_ms)
        return [SendToClient(asked.client, m.UploadOpened(asked.upload, self.epoch))]

    def _refuse(self, client: str, upload: str, reason: str) -> list[Effect]:
        return [SendToClient(client, m.UploadRefused(upload, reason))]

    def _on_chunk_placement_requested(
        self, asked: m.ChunkPlacementRequested, now_ms: int
    ) -> list[Effect]:
        upload = self._uploads.get(asked.upload)
        if upload is None:
            return self._refuse(asked.client, asked.upload, "the master does not know the upload")
        upload.heard_ms = now_ms
        self._placing.heard(upload.asked.reservation, now_ms)
        if asked.request < upload.request or upload.is_committing:
            return []  # Said again, too late.
        if asked.request == upload.request and upload.current is not None:
            if self.directory.stands(upload.chains[upload.current]):
                return [placed(upload)]
            return [*self._placing.withdraw(upload, now_ms), *self._placing.place(upload, now_ms)]
        if asked.request == upload.request:
            return self._placing.place(upload, now_ms)
        effects = self._placing.withdraw(upload, now_ms)
        upload.request = asked.request
        return effects + self._placing.place(upload, now_ms)

    def _on_chunk_completed(self, done: m.ChunkCompleted, now_ms: int) -> list[Effect]:
        upload = self._uploads.get(done.upload)
        if upload is None or done.request != upload.request or upload.current is None:
            return []
        upload.heard_ms = now_ms
        return self._placing.completed(upload, now_ms)

    # -- committing -------------------------------------------------------------------------

    def _on_object_commit_requested(
        self, asked: m.ObjectCommitRequested, now_ms: int
    ) -> list[Effect]:
        existing = self.directory.objects.get(asked.name)
        if existing is not None and existing.upload == asked.upload:
            return [SendToClient(asked.client, m.ObjectCommitted(asked.upload))]
        upload = self._uploads.get(asked.upload)
        if upload is None or asked.epoch != self.epoch:
            return self._refuse(asked.client, asked.upload, "the master does not know the upload")
        upload.heard_ms = now_ms
        if upload.is_committing:
            return []  # The journal has it in hand; the answer follows.
        effects: list[Effect] = []
        if upload.record is None:
            reason = upload.why_not(asked, self._settings.object_chunks_max)
            if reason:
                dropped = self._drop(upload, now_ms)
                return dropped + self._refuse(asked.client, asked.upload, reason)
            upload.record = ObjectRecord(asked.upload, self._settings.copies, asked.chunks)
            effects += self._register(upload, upload.record, now_ms)
        return effects + self._commit(upload, upload.record)

    def _register(self, upload: Upload, record: ObjectRecord, now_ms: int) -> list[Effect]:
        """From now on the chunks are kept at as many data nodes as they should."""
        self.directory.register(record, upload.chains)
        chunks = [stored.chunk for stored in record.chunks]
        return self._replication.review(chunks, now_ms, delay_ms=0)

    def _commit(self, upload: Upload, record: ObjectRecord) -> list[Effect]:
        """Journal the object, if each of its chunks has all its copies; else it is asked again.

        Fewer will not do, though the chain had acknowledged: 1. X and Y store a chunk. 2. X is
        lost, and long forgotten when 3. Y is lost, which nobody has noticed yet. 4. The object is
        committed, with no copy of the chunk, though never more than one data node failed at once.
        """
        for stored in record.chunks:
            holders = len(self.directory.chunks[stored.chunk].holders)
            if holders < record.copies:
                reason = f"chunk {stored.chunk} has {holders} live copies of {record.copies}"
                word = m.PlacementDelayed(upload.asked.upload, 0, reason)
                return [SendToClient(upload.asked.client, word)]
        upload.is_committing = True
        entry = object_entry(upload.asked.name, record)
        return [self._journal(entry, lambda ms: self._committed(upload, record, ms))]

    def _committed(self, upload: Upload, record: ObjectRecord, now_ms: int) -> list[Effect]:
        """The journal has the entry: the object exists."""
        self._uploads.end(upload)
        self.directory.objects[upload.asked.name] = record
        for stored in record.chunks:
            del upload.chains[stored.chunk]
        return [
            SendToClient(upload.asked.client, m.ObjectCommitted(upload.asked.upload)),
            *self._placing.withdraw(upload, now_ms),
            *self._delete_chunks(tuple(upload.chains)),
        ]

    def _journal(
        self, entry: dict[str, object], done: Callable[[int], list[Effect]]
    ) -> WriteJournal:
        request_id = self._next_request
        self._next_request += 1
        self._requests[request_id] = done
        return WriteJournal(request_id, (entry,))

    def _on_journal_written(self, written: JournalWritten, now_ms: int) -> list[Effect]:
        done = self._requests.pop(written.request_id, None)
        return [] if done is None else done(now_ms)

    def _on_upload_aborted(self, aborted: m.UploadAborted, now_ms: int) -> list[Effect]:
        upload = self._uploads.get(aborted.upload)
        if upload is None or upload.is_committing:
            return []
        return self._drop(upload, now_ms)

    def _drop(self, upload: Upload, now_ms: int) -> list[Effect]:
        """Nothing will come of an upload; what it stored is deleted."""
        self._uploads.end(upload)
        effects: list[Effect] = []
        if upload.record is not None:
            chunks = self.directory.remove_chunks(upload.record)
            effects += self._replication.review(chunks, now_ms, delay_ms=0)
        effects += self._placing.withdraw(upload, now_ms)
        return effects + self._delete_chunks(tuple(upload.chains))

    def _delete_chunks(self, chunks: tuple[ChunkId, ...]) -> list[Effect]:
        """Nobody needs these chunks, wherever they are. What comes later is deleted when listed."""
        effects: list[Effect] = []
        for node in self.directory.live():
            there = [c for c in chunks if c in node.chunks or c in node.damaged]
            effects += self._replication.unwanted(node, tuple(there))
        return effects

    # -- reading and deleting ---------------------------------------------------------------

    def _on_object_locate_requested(
        self, asked: m.ObjectLocateRequested, now_ms: int
    ) -> list[Effect]:
        del now_ms
        found = self.directory.located(asked.name)
        if found is None:
            return [SendToClient(asked.client, m.ObjectUnknown(asked.request))]
        return [SendToClient(asked.client, m.ObjectLocated(asked.request, *found))]

    def _on_names_requested(self, asked: m.NamesRequested, now_ms: int) -> list[Effect]:
        del now_ms
        names = tuple(sorted(n for n in self.directory.objects if n.startswith(asked.prefix)))
        return [SendToClient(asked.client, m.NamesListed(asked.request, names))]

    def _on_object_delete_requested(
        self, asked: m.ObjectDeleteRequested, now_ms: int
    ) -> list[Effect]:
        answer = SendToClient(asked.client, m.ObjectDeleted(asked.request))
        upload = self._uploads.of_name(asked.name)
        if upload is not None and not upload.is_committing:
            return [*self._drop(upload, now_ms), answer]
        if upload is None and asked.name not in self.directory.objects:
            return [answer]
        entry: dict[str, object] = {"deleted": asked.name}
        return [self._journal(entry, lambda ms: [*self._deleted(asked.name, ms), answer])]

    def _deleted(self, name: str, now_ms: int) -> list[Effect]:
        """The journal has it: the object does not exist, and nothing needs its chunks."""
        chunks = self.directory.remove_object(name)
        effects = self._replication.review(chunks, now_ms, delay_ms=0)
        return effects + self._delete_chunks(chunks)

    # -- looking ----------------------------------------------------------------------------

    def is_safe(self) -> bool:
        """Whether every chunk that counts has all its copies."""
        return self._replication.wanting == 0

    def is_settled(self) -> bool:
        """Whether all is written, copied and deleted."""
        is_deleting = any(node.deleting for node in self.directory.live())
        return not (self._uploads or self._replication.wanting or is_deleting)

    def incarnations(self) -> dict[str, int]:
        """The newest incarnation of every data node; 0: it is lost."""
        return {n.name: n.incarnation * n.is_live for n in self.directory.nodes.values()}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the master's own state makes no sense."""
        self.directory.check_invariants()
        self._uploads.check_invariants()
        self._placing.check_invariants()
        for upload in self._uploads.all():
            if upload.asked.name in self.directory.objects:
                raise InvariantViolation(f"{upload.asked.name} is written and exists")

    def statistics(self) -> ChunkMasterStatistics:
        """A summary."""
        return ChunkMasterStatistics(
            data_nodes=sum(1 for _ in self.directory.live()),
            objects=len(self.directory.objects),
            chunks=len(self.directory.chunks),
            wanting_chunks=self._replication.wanting,
            out_of_reach=self._replication.out_of_reach,
            uploads=len(self._uploads),
            copies_started=self._replication.copies_started,
            losses=self._losses,
            damaged=self._damaged,
            stale_messages=self._stale_messages,
        )


_HANDLERS: dict[type[Stimulus], Callable[[ChunkMaster, Any, int], list[Effect]]] = {
    Started: ChunkMaster._on_started,
    TimerFired: ChunkMaster._on_timer_fired,
    JournalWritten: ChunkMaster._on_journal_written,
    m.DataNodeJoined: ChunkMaster._on_data_node_joined,
    m.DataNodeAlive: ChunkMaster._on_data_node_alive,
    m.InventoryReported: ChunkMaster._on_inventory_reported,
    m.ChunkStored: ChunkMaster._on_chunk_stored,
    m.ChunksDeleted: ChunkMaster._on_chunks_deleted,
    m.ObjectCreateRequested: ChunkMaster._on_object_create_requested,
    m.PlacesRequested: lambda master, asked, now_ms: master._placing.reserve(asked, now_ms),
    m.PlacesReturned: lambda master, word, now_ms: master._placing.give_back(
        word.reservation, now_ms
    ),
    m.ChunkPlacementRequested: ChunkMaster._on_chunk_placement_requested,
    m.ChunkCompleted: ChunkMaster._on_chunk_completed,
    m.ObjectCommitRequested: ChunkMaster._on_object_commit_requested,
    m.UploadAborted: ChunkMaster._on_upload_aborted,
    m.ObjectLocateRequested: ChunkMaster._on_object_locate_requested,
    m.NamesRequested: ChunkMaster._on_names_requested,
    m.ObjectDeleteRequested: ChunkMaster._on_object_delete_requested,
}
