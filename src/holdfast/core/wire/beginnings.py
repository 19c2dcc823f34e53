"""The beginnings of logs as bytes: sealed JSON. See core/queues/beginning.py, and log_owners.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from holdfast.core.queues.beginning import Beginning
from holdfast.core.queues.committed_stream import Share
from holdfast.core.queues.lateness import Standing
from holdfast.core.wire.sealed_json import encode_sealed


def encode_beginning(beginning: Beginning) -> bytes:
    """Of an ingest log."""
    return encode_sealed(
        {
            "first_commit": beginning.first_commit,
            "standing": list(astuple(beginning.standing)),
            "shares": {
                str(count): [[share.next_id, share.rows] for share in shares]
                for count, shares in beginning.shares.items()
            },
            "newest_us": beginning.newest_us,
            "at_us": beginning.at_us,
            "known": list(beginning.known),
        }
    )


def beginning_from(value: Mapping[str, Any]) -> Beginning:
    """What the members say. Raises what comes of members that are missing or make no sense."""
    shares = {
        int(count): tuple(Share(_count(next_id), _count(rows)) for next_id, rows in of_all)
        for count, of_all in value["shares"].items()
    }
    if any(len(of_all) != count for count, of_all in shares.items()):
        raise ValueError("instances are missing")
    return Beginning(
        _count(value["first_commit"]),
        Standing(*map(_whole, value["standing"])),
        shares,
        _whole(value["newest_us"]),
        _whole(value["at_us"]),
        tuple(map(str, value["known"])),
    )


def encode_first_id(first_id: int, at_us: int) -> bytes:
    """Of a stream log: the first tuple that is kept, and when the ones before it were written."""
    return encode_sealed({"first_id": first_id, "at_us": at_us})


def first_id_from(value: Mapping[str, Any]) -> tuple[int, int]:
    """The inverse of `encode_first_id`; raises as `beginning_from`."""
    return _count(value["first_id"]), _whole(value["at_us"])


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _count(value: object) -> int:
    found = _whole(value)
    if found < 0:
        raise ValueError(f"{found} is no count")
    return found
