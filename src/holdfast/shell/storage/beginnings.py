"""Where logs begin: marks in `begin/`, of which the newest counts.

A mark is put before anything that it excludes is deleted, and names what is kept: a reader that
meets a gap looks here whether it was removed or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.core.wire.beginnings import beginning_from, first_id_from
from holdfast.shell.storage.errors import TuplesMissing, TuplesRemoved
from holdfast.shell.storage.places import has_files, read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import NameTaken

if TYPE_CHECKING:
    from holdfast.core.queues.beginning import Beginning
    from holdfast.shell.stores.base import CheckpointStore

BEGIN: Final = "begin"
_T = TypeVar("_T")


def mark_name(first: int) -> str:
    """The name of a mark: of which commit, or tuple, is the first one that is kept."""
    return f"{BEGIN}/{first:020d}.json"


def marks_of(store: CheckpointStore) -> list[int]:
    """The first ones by all marks there are, in order."""
    stems = (PurePosixPath(name).stem for name in store.names(BEGIN) if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def beginning_of(store: CheckpointStore, place: str) -> Beginning | None:
    """Of an ingest log; None: nothing was removed. Raises `FileDamaged`."""
    return _newest(store, place, beginning_from)


def first_id_of(store: CheckpointStore, place: str) -> int:
    """Of a stream log: the first id that is kept; 0: nothing was removed. Raises `FileDamaged`."""
    found = _newest(store, place, first_id_from)
    return 0 if found is None else found[0]


def _newest(store: CheckpointStore, place: str, make: Callable[[dict[str, Any]], _T]) -> _T | None:
    """What the newest mark says; it may be followed by another one, and deleted, meanwhile."""
    while marks := marks_of(store):
        name = mark_name(marks[-1])
        content = read_if_any(store, name)
        if content is not None:
            return decode(content, f"{place}/{name}", make)
    return None


def first_kept(place: str) -> int:
    """Of the stream log at a place, as `first_id_of`."""
    if not has_files(place):
        return 0
    store = store_at(place)
    try:
        return first_id_of(store, place)
    finally:
        store.close()


def missing(place: str, next_id: int, before: int) -> TuplesMissing:
    """What to raise for tuples [next_id, before) that are not in a log: were they removed?"""
    first_id = first_kept(place)
    return (TuplesRemoved if next_id < first_id else TuplesMissing)(place, next_id, before)


def put_mark(store: CheckpointStore, first: int, content: bytes) -> None:
    """Make a beginning durable. One that is there already says the same, whoever put it."""
    try:
        store.put(mark_name(first), [content])
    except NameTaken:
        return


def delete_marks_before(store: CheckpointStore, first: int) -> None:
    """The newer one says all that they say."""
    for number in marks_of(store):
        if number < first:
            store.delete(mark_name(number))
