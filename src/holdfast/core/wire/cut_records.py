"""The records of a sink's cuts as bytes: sealed JSON."""

from __future__ import annotations

from typing import Any

from holdfast.core.model.ids import Incarnation
from holdfast.core.queues.file_cuts import CutFile, CutRecord
from holdfast.core.wire.sealed_json import encode_sealed


def encode_record(record: CutRecord) -> bytes:
    """A record as it is stored."""
    return encode_sealed(
        {
            "incarnation": record.incarnation,
            "writer": record.writer,
            "first_id": record.first_id,
            "next_id": record.next_id,
            "files": [[file.temporary, file.name] for file in record.files],
            "boundary_us": record.boundary_us,
            "ends": record.ends,
        }
    )


def record_from(value: dict[str, Any]) -> CutRecord:
    """What a stored record says, of its members. Raises what comes of members that make no sense.

    Raises:
        KeyError: One is missing.
        ValueError, TypeError: One is of another kind.
    """
    record = CutRecord(
        Incarnation(int(value["incarnation"])),
        str(value["writer"]),
        int(value["first_id"]),
        int(value["next_id"]),
        tuple(CutFile(str(temporary), str(name)) for temporary, name in value["files"]),
        int(value["boundary_us"]),
        bool(value["ends"]),
    )
    if not 0 <= record.first_id <= record.next_id:
        raise ValueError(f"its cut is {record.first_id} to {record.next_id}")
    return record
