"""The lines of a journal: entries to bytes and back, without files.

A line is a JSON object or list with its XXH3 checksum in front. What a crash tears off is the end
of the last write, which nobody acted on. Damage with good lines behind it is something else:
whatever the lost line said, an incarnation or a restart point, has had effects.
"""

from __future__ import annotations

import json

import xxhash

from holdfast.core.wire.log_records import CorruptRecord

JsonEntry = dict[str, object] | list[object]
"""What a line holds."""


def encode_line(entry: JsonEntry) -> bytes:
    """One entry as a line."""
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)


def decode_lines(data: bytes) -> list[JsonEntry] | CorruptRecord:
    """All whole entries; a torn end is left out."""
    entries: list[JsonEntry] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if not _is_whole(line):
            if any(_is_whole(later) for later in lines[number + 1 :]):
                return CorruptRecord(f"line {number + 1} is damaged, and good lines follow it")
            break
        try:
            entry = json.loads(line[17:])
        except (ValueError, RecursionError) as error:
            return CorruptRecord(f"line {number + 1} is no JSON: {error}")
        if not isinstance(entry, dict | list):
            return CorruptRecord(f"line {number + 1} is no entry")
        entries.append(entry)
    return entries


def _is_whole(line: bytes) -> bool:
    checksum, _, text = line.partition(b" ")
    return bool(text) and checksum == b"%016x" % xxhash.xxh3_64_intdigest(text)
