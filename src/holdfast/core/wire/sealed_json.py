"""JSON objects that tell whether they are what was written: the small files of a location.

The last member is `xxh3`, the checksum of the text before it in 16 hexadecimal digits. Objects
without one are of earlier versions, and are taken as they are; one whose name or quotes were
damaged is known by its place and length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import xxhash

from holdfast.core.wire.log_records import CorruptRecord

_KEY: Final = "xxh3"
_COMMA: Final = b", "


def encode_sealed(value: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """An object as JSON, with its checksum."""
    text = json.dumps(value, indent=indent).encode()[:-1].rstrip()
    return text + (_COMMA if value else b"") + _seal_of(text)


def decode_sealed(data: bytes) -> dict[str, Any] | CorruptRecord:
    """The members of an object, behind which blanks may follow."""
    text = data.rstrip()
    try:
        value = json.loads(text)
    except UnicodeDecodeError:
        return CorruptRecord("it is no text")
    except (ValueError, RecursionError) as error:
        return CorruptRecord(f"it is no JSON: {error}")
    if not isinstance(value, dict):
        return CorruptRecord("it is no JSON object")
    seal = _seal_of(b"")
    sealed, found = text[: -len(seal)].removesuffix(_COMMA), text[-len(seal) :]
    if _is_like(found, seal) and found != _seal_of(sealed):
        return CorruptRecord("its checksum is wrong")
    value.pop(_KEY, None)
    return value


def _seal_of(text: bytes) -> bytes:
    """The member that seals a text, and the end of the object."""
    return b'"%s": "%016x"}' % (_KEY.encode(), xxhash.xxh3_64_intdigest(text))


def _is_like(found: bytes, seal: bytes) -> bool:
    """Whether it has a seal's punctuation where a seal has it."""
    marks = b'": }'
    return len(found) == len(seal) and all(
        one == other for one, other in zip(found, seal, strict=True) if other in marks
    )
