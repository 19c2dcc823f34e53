"""The commits of an ingest log as bytes: sealed JSON, which blanks may follow."""

from __future__ import annotations

from typing import Any

from holdfast.core.queues.recording import Commit, IngestFile
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.sealed_json import decode_sealed, encode_sealed

_FILE_FIELDS = 5
_SPAN_FIELDS = 3


def encode_commit(commit: Commit) -> bytes:
    """A commit as it is stored."""
    value: dict[str, object] = {
        "by": commit.by,
        "at_us": commit.at_us,
        "files": [_entry(file) for file in commit.files],
    }
    if commit.watermark_us is not None:
        value["watermark_us"] = commit.watermark_us
    if commit.idle_us is not None:
        value["idle_us"] = commit.idle_us
    if commit.origin:
        value["origin"] = commit.origin
    if commit.ends:
        value["ends"] = True
    return encode_sealed(value)


def decode_commit(data: bytes) -> Commit | CorruptRecord:
    """What a stored commit says. Any bytes may come."""
    value = decode_sealed(data)
    if isinstance(value, CorruptRecord):
        return value
    by, origin, ends = value.get("by"), value.get("origin", ""), value.get("ends", False)
    at_us = value.get("at_us")
    watermark_us, idle_us = value.get("watermark_us"), value.get("idle_us")
    entries = value.get("files")
    if not (
        isinstance(by, str)
        and isinstance(origin, str)
        and isinstance(ends, bool)
        and isinstance(at_us, int)
        and _is_whole(at_us)
        and (watermark_us is None or _is_whole(watermark_us))
        and (idle_us is None or _is_whole(idle_us))
        and isinstance(entries, list)
    ):
        return CorruptRecord("a field is missing or of another kind")
    if not all(_is_file(entry) for entry in entries):
        return CorruptRecord("an entry of its files makes no sense")
    files = tuple(_file(entry) for entry in entries)
    return Commit(by, files, at_us, watermark_us, idle_us, origin, ends)


def _entry(file: IngestFile) -> list[object]:
    times = [file.count, file.min_time_us, file.max_time_us, file.disorder_us]
    return [file.name, *times, *([file.spans] if file.spans else [])]


def _file(entry: list[Any]) -> IngestFile:
    given = entry[_FILE_FIELDS] if len(entry) > _FILE_FIELDS else ()
    spans = tuple((oldest, newest, count) for oldest, newest, count in given)
    name, count, oldest_us, newest_us, disorder_us = entry[:_FILE_FIELDS]
    return IngestFile(name, count, oldest_us, newest_us, disorder_us, spans)


def _is_file(entry: object) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) in (_FILE_FIELDS, _FILE_FIELDS + 1)
        and isinstance(entry[0], str)
        and all(_is_whole(number) for number in entry[1:_FILE_FIELDS])
        and entry[1] > 0
        and (len(entry) == _FILE_FIELDS or _are_spans(entry[_FILE_FIELDS]))
    )


def _are_spans(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(span, list) and len(span) == _SPAN_FIELDS and all(map(_is_whole, span))
        for span in value
    )


def _is_whole(value: object) -> bool:
    """Of 64 bits, as all that counts or is a time."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
