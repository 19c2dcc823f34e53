"""Notes as bytes and back, by a table with one row per kind. See docs/formats.md.

A note is its kind, then its fields: whole numbers as LEB128 varints (negative ones by zigzag),
sequences of them behind their count, sets of bits as bytes behind their number. So a note of two
small numbers takes three bytes. Whoever adds a kind of note adds a row.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.model.ids import Incarnation, Run, StreamId
from holdfast.core.model.notes import (
    CheckpointClocks,
    CheckpointIndex,
    CheckpointMarker,
    LoopMark,
    PlacedNote,
    RecDone,
    StreamNote,
    Undo,
)

NOTE_BYTES_MAX: Final = 1 << 16
"""More than any note has: clocks of a scope of thousands of members."""
_VARINT_BYTES_MAX: Final = 10
"""Of 64 bits, seven by seven."""
_INT64_MAX: Final = 2**63 - 1
_UINT32_MAX: Final = 2**32 - 1


class Shape(enum.Enum):
    """How a field is written."""

    NUMBER = "number"  # int64
    NUMBERS = "numbers"  # a tuple of them
    BITS = "bits"  # an int of any size, not negative
    RUN = "run"  # a `Run`


@dataclass(frozen=True, slots=True)
class NoteCodec:
    """One kind of note.

    Attributes:
        kind: Its number in frames and checkpoints; never given to another one.
        note: Its class.
        shapes: Of its fields, in order.
    """

    kind: int
    note: type[StreamNote]
    shapes: tuple[Shape, ...]


NOTE_CODECS: Final = (
    NoteCodec(1, CheckpointMarker, (Shape.NUMBER,)),
    NoteCodec(2, CheckpointIndex, (Shape.NUMBER,)),
    NoteCodec(3, CheckpointClocks, (Shape.NUMBER, Shape.NUMBERS, Shape.BITS, Shape.BITS)),
    NoteCodec(4, Undo, (Shape.RUN,)),
    NoteCodec(5, RecDone, (Shape.RUN,)),
    NoteCodec(6, LoopMark, (Shape.NUMBER, Shape.NUMBER, Shape.NUMBER)),
)
_BY_NOTE: Final = {codec.note: codec for codec in NOTE_CODECS}
_BY_KIND: Final = {codec.kind: codec for codec in NOTE_CODECS}


def encode_notes(notes: Sequence[PlacedNote], from_number: int, from_id: int) -> bytes:
    """Notes of one stream in the order of their numbers.

    Args:
        notes: The notes.
        from_number: None of them has a lower number.
        from_id: None of them stands before an earlier tuple.

    Raises:
        KeyError: There is no codec for one.
        ValueError: Their numbers or places are not in order.
    """
    data = bytearray()
    number, before_id = from_number, from_id
    for placed in notes:
        if placed.number < number or placed.before_id < before_id:
            raise ValueError(f"note {placed.number} before {placed.before_id} is out of order")
        body = encode_note(placed.note)
        _put_varint(data, placed.number - number)
        _put_varint(data, placed.before_id - before_id)
        _put_varint(data, len(body))
        data += body
        number, before_id = placed.number + 1, placed.before_id
    return bytes(data)


def decode_notes(data: bytes, from_number: int, from_id: int, to_id: int) -> tuple[PlacedNote, ...]:
    """The inverse.

    Args:
        data: The bytes, all of them.
        from_number: As above.
        from_id: As above.
        to_id: None of them stands before a later tuple.

    Raises:
        ValueError: They are none.
    """
    notes: list[PlacedNote] = []
    at, number, before_id = 0, from_number, from_id
    while at < len(data):
        passed, at = _varint(data, at)
        further, at = _varint(data, at)
        size, at = _varint(data, at)
        number, before_id = number + passed, before_id + further
        if number > _INT64_MAX or before_id > to_id:
            raise ValueError(f"note {number} before {before_id}")
        if size > min(NOTE_BYTES_MAX, len(data) - at):
            raise ValueError(f"a note of {size} bytes in {len(data) - at}")
        notes.append(PlacedNote(number, before_id, decode_note(data[at : at + size])))
        number, at = number + 1, at + size
    return tuple(notes)


def encode_note(note: StreamNote) -> bytes:
    """One note. Raises `KeyError`: there is no codec for it."""
    codec = _BY_NOTE[type(note)]
    data = bytearray()
    _put_varint(data, codec.kind)
    names: Sequence[str] = type(note).__slots__
    for name, shape in zip(names, codec.shapes, strict=True):
        _PUT[shape](data, getattr(note, name))
    return bytes(data)


def decode_note(data: bytes) -> StreamNote:
    """The inverse. Raises `ValueError` on anything else."""
    kind, at = _varint(data, 0)
    codec = _BY_KIND.get(kind)
    if codec is None:
        raise ValueError(f"note of kind {kind}")
    values: list[Any] = []
    for shape in codec.shapes:
        value, at = _GET[shape](data, at)
        values.append(value)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind a note")
    return codec.note(*values)


def notes_to_json(notes: dict[StreamId, tuple[PlacedNote, ...]]) -> dict[str, str]:
    """Notes of several streams for a JSON object: per stream as above, in hexadecimal digits."""
    return {stream: encode_notes(placed, 0, 0).hex() for stream, placed in notes.items()}


def notes_from_json(value: object) -> dict[StreamId, tuple[PlacedNote, ...]]:
    """The inverse. Raises `ValueError` on anything else."""
    if not isinstance(value, dict):
        raise ValueError("notes are an object")
    notes: dict[StreamId, tuple[PlacedNote, ...]] = {}
    for stream, digits in value.items():
        if not isinstance(digits, str):
            raise ValueError(f"notes of {stream} are no text")
        notes[StreamId(stream)] = decode_notes(bytes.fromhex(digits), 0, 0, _INT64_MAX)
    return notes


# -- fields -----------------------------------------------------------------------------------


def _put_varint(data: bytearray, value: int) -> None:
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 64:
                raise ValueError("a number of more than 64 bits")
            return value, at + place + 1
    raise ValueError("a number without an end")


def _put_number(data: bytearray, value: int) -> None:
    _put_varint(data, value << 1 if value >= 0 else (~value << 1) | 1)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (~(value >> 1) if value & 1 else value >> 1), at


def _put_numbers(data: bytearray, values: Sequence[int]) -> None:
    _put_varint(data, len(values))
    for value in values:
        _put_number(data, value)


def _numbers(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _varint(data, at)
    if count > len(data) - at:  # Each takes a byte at least.
        raise ValueError(f"{count} numbers in {len(data) - at} bytes")
    values: list[int] = []
    for _ in range(count):
        value, at = _number(data, at)
        values.append(value)
    return tuple(values), at


def _put_bits(data: bytearray, value: int) -> None:
    size = (value.bit_length() + 7) // 8
    _put_varint(data, size)
    data += value.to_bytes(size, "little")


def _bits(data: bytes, at: int) -> tuple[int, int]:
    size, at = _varint(data, at)
    if size > len(data) - at:
        raise ValueError(f"{size} bytes of bits in {len(data) - at}")
    return int.from_bytes(data[at : at + size], "little"), at + size


def _put_run(data: bytearray, run: Run) -> None:
    _put_varint(data, run.incarnation)
    _put_varint(data, run.number)


def _run(data: bytes, at: int) -> tuple[Run, int]:
    incarnation, at = _varint(data, at)
    number, at = _varint(data, at)
    if max(incarnation, number) > _UINT32_MAX:
        raise ValueError(f"run {number} of incarnation {incarnation}")
    return Run(Incarnation(incarnation), number), at


_PUT: Final[dict[Shape, Any]] = {
    Shape.NUMBER: _put_number,
    Shape.NUMBERS: _put_numbers,
    Shape.BITS: _put_bits,
    Shape.RUN: _put_run,
}
_GET: Final[dict[Shape, Any]] = {
    Shape.NUMBER: _number,
    Shape.NUMBERS: _numbers,
    Shape.BITS: _bits,
    Shape.RUN: _run,
}
