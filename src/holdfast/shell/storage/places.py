"""Where logs and checkpoint locations may lie: a folder that all hosts see, or any fsspec URL.

A plain path, and `file://`, is a folder. Anything else with `://` is a URL: there are files that
can be created, read, listed and deleted, but not appended to. What opens it, its credentials
included, is told to fsspec in its own way: by the environment or its configuration files, on the
driver and on every executor.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import xxhash

from holdfast.shell.storage.errors import FileDamaged, FileMissing
from holdfast.shell.storage.small_files import decode_text
from holdfast.shell.stores.base import CheckpointStore, NameTaken, ObjectMissing
from holdfast.shell.stores.embedded_place import SCHEME, open_place
from holdfast.shell.stores.file_system import open_url
from holdfast.shell.stores.folder import FolderStore

if TYPE_CHECKING:
    import pyarrow as pa

_LOCAL = "file://"
DATAFLOW_FILE = "dataflow.txt"
_ID_FILE = "location.id"
_OLD_ID = re.compile("[0-9a-f]{16}")


def local_path(place: str) -> str:
    """A place that is a folder as a plain path; a URL as it is."""
    return place.removeprefix(_LOCAL) if place.startswith(_LOCAL) else place


def whole_place(place: str) -> str:
    """A place by its one name: a folder's whole path, or its URL without a last slash."""
    return place.rstrip("/") if is_remote(place) else os.path.abspath(local_path(place))


def is_remote(place: str) -> bool:
    """Whether files there cannot be appended to."""
    return "://" in place and not place.startswith(_LOCAL)


def store_at(place: str) -> CheckpointStore:
    """The small files of a place. Raises `StoreUnavailable`."""
    if place.startswith(SCHEME):
        return open_place(place)
    if is_remote(place):
        return open_url(place, {})
    return FolderStore(local_path(place))


def has_files(place: str) -> bool:
    """Whether there is anything."""
    if is_remote(place):
        return bool(store_at(place).children())
    return os.path.isdir(local_path(place))


def put_or_read(
    store: CheckpointStore, name: str, parts: Sequence[bytes | pa.Buffer], *, is_soon: bool = False
) -> bytes:
    """Make an object unless there is one; what it holds now, whoever made it.

    Args:
        store: Where.
        name: Its name.
        parts: What it is to hold.
        is_soon: It is a small text to be put by `CheckpointStore.put_soon`; blanks at the end of
            what is there do not count.
    """
    content = b"".join(bytes(part) for part in parts)
    try:
        if is_soon:
            store.put_soon(name, content)
        else:
            store.put(name, parts)
    except NameTaken:
        found = bytes(store.read(name))
        return found.rstrip() if is_soon else found
    return content


def put_over(store: CheckpointStore, name: str, content: bytes) -> None:
    """Make an object that is to hold this, also if there is one that holds something else.

    Who is killed in between leaves none.
    """
    if put_or_read(store, name, [content]) != content:
        store.delete(name)
        store.put(name, [content])


def read_if_any(store: CheckpointStore, name: str) -> bytes | None:
    """An object's content; None if there is none."""
    try:
        return bytes(store.read(name))
    except ObjectMissing:
        return None


def location_id(location: str) -> str:
    """What tells a checkpoint location from all others; made up when it is first asked for.

    That is before the dataflow is recorded there.

    Raises:
        FileDamaged: It is not what was made up.
        FileMissing: It is gone; checkpoints elsewhere may lie under it.
    """
    store, place = store_at(location), os.path.join(location, _ID_FILE)
    found = read_if_any(store, _ID_FILE)
    if found is None:
        if read_if_any(store, DATAFLOW_FILE) is not None:
            raise FileMissing(place, "a query has run here")
        made_up = secrets.token_hex(8)
        found = put_or_read(store, _ID_FILE, [f"{_check_digits(made_up)}-{made_up}".encode()])
    text = decode_text(found, place)
    digits, _, made_up = text.partition("-")
    if digits != _check_digits(made_up) and _OLD_ID.fullmatch(text) is None:
        raise FileDamaged(place, "it is no id")
    return text


def _check_digits(made_up: str) -> str:
    return f"{xxhash.xxh3_64_intdigest(made_up.encode()):016x}"[:4]
