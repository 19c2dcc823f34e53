"""Deliberate bugs of the chunk store: each must be found by its simulator within 200 seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from holdfast.core.chunks import chunk_master, data_node, object_reading, object_writing
from holdfast.core.chunks import effects as e
from holdfast.core.chunks.chunk_master import ChunkMaster
from holdfast.core.chunks.data_node import DataNode
from holdfast.core.chunks.homes import Destination
from holdfast.core.chunks.object_writing import ObjectWriting
from holdfast.core.chunks.placing import Placing
from holdfast.core.chunks.replication import Replication
from holdfast.core.chunks.upload import Upload
from holdfast.core.machine import Effect
from holdfast.core.peace import peace
from holdfast.core.peace.peace import Peace
from holdfast.sim import chunks as sim_chunks

_TABLES = (
    chunk_master._HANDLERS,
    data_node._HANDLERS,
    object_writing._HANDLERS,
    object_reading._HANDLERS,
    peace._HANDLERS,
)


@dataclass(frozen=True, slots=True)
class ChunkMutant:
    """A bug: what replaces a method of a class, or a function of modules.

    Attributes:
        owners: Who has it.
        name: What is replaced.
        bug: Makes the replacement from the original.
        invariants: One of these must be what is violated; empty: any.
    """

    owners: tuple[Any, ...]
    name: str
    bug: Callable[[Any], Any]
    invariants: tuple[str, ...] = ()

    @contextmanager
    def switched_in(self) -> Iterator[None]:
        """The bug is there within the block."""
        original = getattr(self.owners[0], self.name)
        mutated = self.bug(original)
        with ExitStack() as stack:
            for owner in self.owners:
                stack.enter_context(patch.object(owner, self.name, mutated))
            for table in _TABLES:
                replaced = {key: mutated for key, f in table.items() if f is original}
                stack.enter_context(patch.dict(table, replaced))  # type: ignore[arg-type]
            yield


def _acknowledge_before_it_is_sealed(original: Any) -> Any:
    def take(self: DataNode, key: Any, write: Any, piece: Any, now_ms: int) -> Any:
        effects = original(self, key, write, piece, now_ms)
        if write.stored is not None and write.is_passed_on:
            write.is_sealed = True
            effects += self._acknowledge(key, write)
        return effects

    return take


def _check_only_what_is_read(_: Any) -> Any:
    return lambda self, now_ms: []


def _acknowledge_before_the_next_has_it(original: Any) -> Any:
    def acknowledge(self: DataNode, key: Any, write: Any) -> Any:
        write.is_passed_on = True
        return original(self, key, write)

    return acknowledge


def _commit_before_the_journal(original: Any) -> Any:
    def commit(self: ChunkMaster, upload: Any, record: Any) -> Any:
        effects = original(self, upload, record)
        if effects and isinstance(effects[-1], e.WriteJournal):
            done = self._requests.pop(effects[-1].request_id)
            return [*done(0), *effects]
        return effects

    return commit


def _delete_before_the_journal(original: Any) -> Any:
    def delete(self: ChunkMaster, asked: Any, now_ms: int) -> Any:
        effects = original(self, asked, now_ms)
        record = self.directory.objects.get(asked.name)
        if record is None:
            return effects
        chunks = tuple(stored.chunk for stored in record.chunks)
        return [*self._delete_chunks(chunks), *effects]

    return delete


def _forget_what_could_not_be_erased(_: Any) -> Any:
    def failed(self: DataNode, failed: Any, _: int) -> Any:
        self._erasing.pop(failed.stored.chunk)
        return []

    return failed


def _never_copy_again(_: Any) -> Any:
    return lambda self, now_ms: []


def _commit_with_what_is_left(_: Any) -> Any:
    def commit(self: ChunkMaster, upload: Any, record: Any) -> Any:
        upload.is_committing = True
        entry = chunk_master.object_entry(upload.asked.name, record)
        return [self._journal(entry, lambda ms: self._committed(upload, record, ms))]

    return commit


def _check_nothing(_: Any) -> Any:
    return lambda stored, index, table, data: True


def _need_everything(_: Any) -> Any:
    return lambda self, chunk, stored: True


def _need_only_what_is_committed(_: Any) -> Any:
    def is_needed(self: ChunkMaster, chunk: Any, stored: Any) -> bool:
        return chunk in self.directory.chunks

    return is_needed


def _trim_too_much(original: Any) -> Any:
    def trim(self: Replication, record: Any) -> Any:
        effects = original(self, record)
        if effects and record.holders:
            last = self._directory.nodes[next(iter(record.holders))]
            effects += self.unwanted(last, (record.stored.chunk,))
        return effects

    return trim


def _believe_any_chain(original: Any) -> Any:
    def acked(self: ObjectWriting, acked: Any, now_ms: int) -> Any:
        if self._expected is None:
            return []
        return original(self, replace(acked, stored=self._expected), now_ms)

    return acked


def _report_nothing(_: Any) -> Any:
    return lambda self, now_ms: []


def _come_up_anywhere(_: Any) -> Any:
    return lambda homes, present, *, must_find_home: Destination()


def _forget_homes(_: Any) -> Any:
    return lambda self, node, machines: []


def _tell_peace_of_no_end(_: Any) -> Any:
    def withdraw(self: Placing, upload: Upload, now_ms: int) -> list[Effect]:
        del self, now_ms
        upload.current = None
        return []

    return withdraw


def _tell_peace_of_nobody(_: Any) -> Any:
    def joined(self: Peace, stimulus: Any, now_ms: int) -> list[Effect]:
        del self, stimulus, now_ms
        return []

    return joined


def _leave_places_as_they_are(_: Any) -> Any:
    def leave(self: Placing, upload: Upload, place: Any, now_ms: int) -> list[Effect]:
        del self, place, now_ms
        upload.taken = None
        return []

    return leave


def _keep_places(_: Any) -> Any:
    def give_back(self: Placing, reservation: str, now_ms: int) -> list[Effect]:
        del self, reservation, now_ms
        return []

    return give_back


CHUNK_MUTANTS = {
    "acknowledges before it is sealed": ChunkMutant(
        (DataNode,), "_take_piece", _acknowledge_before_it_is_sealed
    ),
    "acknowledges before the next has it": ChunkMutant(
        (DataNode,), "_acknowledge", _acknowledge_before_the_next_has_it
    ),
    "commits before the journal": ChunkMutant(
        (ChunkMaster,), "_commit", _commit_before_the_journal, ("C-NAMES", "C-ACK", "C-LOST")
    ),
    "forgets what could not be erased": ChunkMutant(
        (DataNode,), "_on_erase_failed", _forget_what_could_not_be_erased, ("C-LEAK",)
    ),
    "deletes before the journal": ChunkMutant(
        (ChunkMaster,), "_on_object_delete_requested", _delete_before_the_journal
    ),
    "checks only what is read": ChunkMutant(
        (DataNode,), "_scrub", _check_only_what_is_read, ("C-ROT",)
    ),
    "never copies again": ChunkMutant((Replication,), "check", _never_copy_again),
    "commits with what is left": ChunkMutant((ChunkMaster,), "_commit", _commit_with_what_is_left),
    "checks nothing": ChunkMutant(
        (data_node, object_reading), "is_whole", _check_nothing, ("C-READ", "C-ROT")
    ),
    "needs everything": ChunkMutant((ChunkMaster,), "_is_needed", _need_everything, ("C-LEAK",)),
    "needs only what is committed": ChunkMutant(
        (ChunkMaster,), "_is_needed", _need_only_what_is_committed
    ),
    "trims too much": ChunkMutant((Replication,), "_trim", _trim_too_much),
    "believes any chain": ChunkMutant((ObjectWriting,), "_on_chunk_acked", _believe_any_chain),
    "comes up anywhere": ChunkMutant((sim_chunks,), "destination", _come_up_anywhere),
    "forgets homes": ChunkMutant((ChunkMaster,), "_set_homes", _forget_homes),
    "tells Peace of no end": ChunkMutant(
        (Placing,), "withdraw", _tell_peace_of_no_end, ("C-LIVE",)
    ),
    "tells Peace of no chunk of a checkpoint": ChunkMutant(
        (Placing,), "_leave_place", _leave_places_as_they_are, ("C-LIVE",)
    ),
    "takes no places back": ChunkMutant((Placing,), "give_back", _keep_places, ("C-LIVE",)),
    "tells Peace of nobody": ChunkMutant(
        (Peace,), "_on_server_joined", _tell_peace_of_nobody, ("C-LIVE",)
    ),
    "reports nothing": ChunkMutant((DataNode,), "_report_inventory", _report_nothing),
}
