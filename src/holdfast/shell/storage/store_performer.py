"""Performs the requests of core/wire/store_steps.py in a real store."""

from __future__ import annotations

from holdfast.core.wire.store_steps import (
    DeleteObject,
    ListNames,
    PutObject,
    ReadObject,
    StoreAnswer,
    StoreRequest,
)
from holdfast.shell.stores.base import CheckpointStore, ObjectMissing


def perform_in(store: CheckpointStore, request: StoreRequest) -> StoreAnswer:
    """Do it; the answer. Raises `StoreUnavailable`; `NameTaken` of an object to be put."""
    match request:
        case ListNames():
            names = store.names(request.folder)
            return [name for name in names if name.startswith(f"{request.folder}/")]
        case ReadObject():
            try:
                return store.read(request.name)
            except ObjectMissing:
                return None
        case PutObject():
            store.put(request.name, request.parts)
        case DeleteObject():
            store.delete(request.name)
    return None
