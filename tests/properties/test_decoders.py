"""Every decoder on any bytes: a value, or the project's own word for what is none. Nothing else.

Random bytes rarely pass a checksum, so the structured cases put a right one under wrong content:
what an authenticated peer, or whoever can write to a store, could make.
"""

import json
import re
import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.chunks import messages as m
from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    NotesReceived,
    PositionsReceived,
)
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
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.queues.recording import Commit, IngestFile
from holdfast.core.wire import chunk_words, frames, log_parts, log_records, manifests
from holdfast.core.wire.frame_codecs import BY_KIND
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.ingest_commits import decode_commit, encode_commit
from holdfast.core.wire.journal_entries import decode_entries
from holdfast.core.wire.journal_lines import decode_lines
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.note_codecs import (
    NOTE_CODECS,
    decode_note,
    decode_notes,
    encode_note,
    encode_notes,
)

STREAM = StreamId("bids:ingest[0]>counts[1].0")
SCHEMA = pa.schema([("name", pa.string()), (TIME_COLUMN, pa.int64())])
ROWS = pa.RecordBatch.from_arrays(
    [pa.array(["a", "bc", None]), pa.array([1, 2, 3], pa.int64())], schema=SCHEMA
)
HEAD = struct.Struct("<HBBBBHIII")
LAYOUTS = {kind: codec.fields for kind, codec in BY_KIND.items()}
NOTES = (PlacedNote(1, 2, CheckpointMarker(5)), PlacedNote(2, 2, CheckpointMarker(6)))
INT64 = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "1-2", STREAM]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def sealed(head: bytes, name: bytes, body: list[bytes]) -> list[bytes]:
    """A frame with a right checksum, whatever is in it."""
    digest = xxhash.xxh3_64(head + name)
    for part in body:
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return [head + struct.pack("<Q", digest.intdigest()) + name, *body]


def decoded(parts: list[bytes]) -> Any:
    return frames.decode(list(parts), {STREAM: SCHEMA}, 3)


def test_the_seal_of_these_tests_is_that_of_frames() -> None:
    ack = AckReceived(STREAM, Incarnation(1), Incarnation(2), 4, 5, 6)
    (frame,) = (bytes(memoryview(part)) for part in frames.encode(ack, 3))  # type: ignore[arg-type]
    head = frame[: HEAD.size + LAYOUTS[frames.FrameKind.ACK].size]
    assert sealed(head, STREAM.encode(), []) == [frame]


def fields_of(kind: int, values: list[int]) -> bytes:
    """So many of these as the kind has, each cut to what its field can hold."""
    packed = LAYOUTS.get(kind, struct.Struct("<4q"))
    codes = "".join(
        code * int(count or 1) for count, code in re.findall(r"([0-9]*)([qIB])", packed.format)
    )
    bounds = {"q": 2**63, "I": 2**32, "B": 2**8}
    chosen = zip(codes, (values * 2)[: len(codes)], strict=True)
    return packed.pack(*(v if c == "q" else v % bounds[c] for c, v in chosen))


@settings(max_examples=800)
@given(
    st.integers(0, 12),
    st.integers(0, 9),
    st.integers(0, 5),
    st.lists(INT64 | st.integers(-2, 4), min_size=7, max_size=7),
    st.lists(
        st.binary(max_size=64)
        | JSON.map(lambda value: json.dumps(value).encode())
        | st.just(ROWS.serialize().to_pybytes())
        | st.just(encode_notes(NOTES, 0, 0)),
        max_size=3,
    ),
    st.sampled_from([STREAM.encode(), b"", b"\xff", b"x" * 512]),
)
def test_frames_with_a_right_checksum_and_any_content(
    kind: int, tuple_type: int, flags: int, fields: list[int], body: list[bytes], name: bytes
) -> None:
    head = HEAD.pack(0x4648, frames.VERSION, kind, tuple_type, flags, len(name), 3, 1, 2)
    got = decoded(sealed(head + fields_of(kind, fields), name, body))
    if not isinstance(got, CorruptFrame):
        assert [bytes(memoryview(part)) for part in frames.encode(got, 3, [STREAM])]


@settings(max_examples=600)
@given(st.binary(max_size=120), INT64 | st.integers(0, 9), INT64 | st.integers(0, 9))
def test_notes_from_any_bytes_are_in_order_and_where_they_may_stand(
    data: bytes, from_number: int, from_id: int
) -> None:
    try:
        notes = decode_notes(data, from_number, from_id, from_id + 99)
    except ValueError:
        return
    assert all(from_id <= note.before_id <= from_id + 99 for note in notes)
    numbers = [from_number - 1, *(note.number for note in notes)]
    assert numbers == sorted(set(numbers))
    assert decode_notes(encode_notes(notes, from_number, from_id), from_number, from_id, 2**63) == (
        notes
    )


ROOM = StreamNote.__module__
SAID = st.one_of(
    st.builds(CheckpointMarker, INT64),
    st.builds(CheckpointIndex, INT64),
    st.builds(LoopMark, INT64, INT64, INT64),
    st.builds(
        CheckpointClocks,
        INT64,
        st.lists(INT64, max_size=9).map(tuple),
        st.integers(0, 2**500),
        st.integers(0, 2**70),
    ),
    st.builds(Undo, st.builds(Run, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))),
    st.builds(RecDone, st.builds(Run, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))),
)


def test_every_kind_of_note_can_be_said() -> None:
    kinds = {note.__name__ for note in StreamNote.__subclasses__() if note.__module__ == ROOM}
    assert kinds == {codec.note.__name__ for codec in NOTE_CODECS}
    assert len({codec.kind for codec in NOTE_CODECS}) == len(NOTE_CODECS)


@given(SAID)
def test_a_note_comes_back_as_it_was(note: StreamNote) -> None:
    assert decode_note(encode_note(note)) == note


@settings(max_examples=300)
@given(SAID, st.integers(0, 2**20), st.integers(0, 255))
def test_a_note_with_other_bytes_is_a_note_or_named_as_none(
    note: StreamNote, place: int, byte: int
) -> None:
    data = bytearray(encode_note(note))
    data[place % len(data)] = byte
    for changed in (bytes(data), bytes(data[: place % len(data)]), bytes([*data, byte])):
        with suppress(ValueError):
            assert isinstance(decode_note(changed), StreamNote)


DELTA = {
    "is_full": False,
    "pages": 9,
    "page_sets": [[1, 5]],
    "gone": [3],
    "next_set": 11,
    "cut": {
        "sequence": 1,
        "boundary_us": 1,
        "needed_from": {},
        "processed_before": {},
        "next_ids": {},
    },
    "outputs": [[11, 14]],
    "batches": [[0, STREAM, 11, 3, 5, 6, 0]],
}


@settings(max_examples=600)
@given(st.sampled_from(sorted(DELTA)), JSON)
def test_deltas_with_one_wrong_field(field: str, value: object) -> None:
    text = json.dumps({**DELTA, field: value}).encode()
    head = HEAD.pack(0x4648, frames.VERSION, frames.FrameKind.DELTA, 0, 0, len(STREAM), 3, 1, 2)
    head += fields_of(frames.FrameKind.DELTA, [4])
    decoded(sealed(head, STREAM.encode(), [text, ROWS.serialize().to_pybytes()]))


def test_the_delta_of_the_test_before_is_one() -> None:
    text = json.dumps(DELTA).encode()
    head = HEAD.pack(0x4648, frames.VERSION, frames.FrameKind.DELTA, 0, 0, len(STREAM), 3, 1, 2)
    head += fields_of(frames.FrameKind.DELTA, [4])
    got = decoded(sealed(head, STREAM.encode(), [text, ROWS.serialize().to_pybytes()]))
    assert not isinstance(got, CorruptFrame)


def whole_frames() -> list[list[bytes]]:
    ends = (STREAM, Incarnation(5), Incarnation(7))
    messages = [
        BatchReceived(*ends, TupleBatch(11, ROWS, -5, 77)),
        PositionsReceived(*ends, ((1, 2), (3, 0))),
        AckReceived(*ends, 9, 3, 10),
        NotesReceived(*ends, 9, 3, None, (PlacedNote(4, 7, CheckpointMarker(2)),)),
        BatchReceived(
            *ends, TupleBatch(11, ROWS, -5, 77), 3, None, (PlacedNote(4, 12, CheckpointMarker(2)),)
        ),
    ]
    return [
        [bytes(memoryview(part)) for part in frames.encode(message, 3)]  # type: ignore[arg-type]
        for message in messages
    ]


@pytest.mark.parametrize("frame", whole_frames())
def test_every_flipped_bit_of_a_frame_is_refused(frame: list[bytes]) -> None:
    for number, part in enumerate(frame):
        for bit in range(len(part) * 8):
            flipped = bytearray(part)
            flipped[bit // 8] ^= 1 << bit % 8
            changed = [*frame[:number], bytes(flipped), *frame[number + 1 :]]
            assert isinstance(decoded(changed), CorruptFrame), (number, bit)


@pytest.mark.parametrize("frame", whole_frames())
def test_every_cut_and_every_order_of_parts_is_refused(frame: list[bytes]) -> None:
    for number, part in enumerate(frame):
        for length in range(len(part)):
            changed = [*frame[:number], part[:length], *frame[number + 1 :]]
            assert isinstance(decoded(changed), CorruptFrame)
    assert isinstance(decoded([*frame, b""]), CorruptFrame)
    assert isinstance(decoded(frame[:-1]), CorruptFrame)
    if len(frame) > 1:
        assert isinstance(decoded(frame[::-1]), CorruptFrame)


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(kind.__name__ for kind in chunk_words.WORDS)),
    st.lists(JSON, max_size=9),
)
def test_the_chunk_stores_words_with_any_fields(kind: str, values: list[object]) -> None:
    text = json.dumps([kind, *values]).encode()
    for kinds in (chunk_words.TO_MASTER, chunk_words.TO_DATA_NODE, chunk_words.TO_CLIENT):
        got = chunk_words.decode([text], kinds)
        assert isinstance(got, CorruptFrame | m.Message)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=90), min_size=1, max_size=4))
def test_the_chunk_stores_words_from_any_bytes(parts: list[bytes]) -> None:
    assert isinstance(chunk_words.decode(parts, chunk_words.DOWN_THE_CHAIN), CorruptFrame)


@settings(max_examples=400)
@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1) | st.integers(0, 4),
    st.binary(max_size=80) | st.just(ROWS.serialize().to_pybytes()),
    st.sampled_from([0, 0, 1, 2, 65_535]),
    st.sampled_from(log_records.RECORD_MAGICS[1:]),
)
def test_records_with_a_right_checksum_and_any_content(
    kind: int, tuple_type: int, rows: int, payload: bytes, narrow: int, with_narrow: bytes
) -> None:
    magic = with_narrow if narrow else log_records.RECORD_MAGICS[0]
    fields = (magic, kind, tuple_type, narrow, 1, 0, 0, 0, rows, len(payload))
    head = struct.pack("<4sBBHIqqqII", *fields)
    checksum = xxhash.xxh3_64(head)
    checksum.update(payload)
    record = (head + struct.pack("<Q", checksum.intdigest())).ljust(64, b"\0") + payload
    record += bytes(-len(record) % 64)
    log_records.decode_record(memoryview(record), SCHEMA)
    header = log_records.encode_segment_header("s", 1, 0, SCHEMA)
    log_parts.decode_part(memoryview(header + record))


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_logs_journals_and_manifests_from_any_bytes(data: bytes) -> None:
    log_records.decode_segment_header(data)
    log_parts.decode_part(memoryview(data))
    decode_lines(data)
    assert isinstance(manifests.decode_manifest(data), CorruptRecord)


@settings(max_examples=300)
@given(
    JSON, st.integers(0, 2**64 - 1) | st.integers(0, 3), st.integers(0, 2**64 - 1), st.booleans()
)
def test_manifests_with_a_right_checksum_and_any_content(
    value: object, sets: int, pages: int, has_all: bool
) -> None:
    if has_all:
        value = dict.fromkeys(
            (
                *("node", "checkpoint", "point", "created_ms", "written_bytes"),
                *("page_bytes", "next_set", "files", "outputs"),
            ),
            value,
        )
    text = json.dumps(value).encode()
    body = struct.pack("<8sQQQ", b"HFCKP\x00\x00\x02", len(text), sets, pages) + text
    data = body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    manifests.decode_manifest(data)


@settings(max_examples=300)
@given(st.lists(JSON, max_size=3))
def test_journals_with_right_checksums_and_any_content(values: list[object]) -> None:
    lines = b""
    for value in values:
        text = json.dumps(value, separators=(",", ":")).encode()
        lines += b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)
    got = decode_lines(lines)
    if isinstance(got, list):
        assert all(isinstance(entry, dict | list) for entry in got)
        assert isinstance(decode_entries(got), list | CorruptRecord)


@settings(max_examples=300)
@given(
    st.sampled_from(["RecoveryDecision", "PointNoted", "PointNoted3", "LineMoved"]),
    st.lists(JSON, max_size=5),
)
def test_entries_of_a_journal_with_any_fields(kind: str, values: list[object]) -> None:
    assert isinstance(decode_entries([[kind, *values]]), list | CorruptRecord)


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, 2**63 - 1])
def test_a_stated_length_allocates_nothing(length: int) -> None:
    lies = [
        sealed(
            HEAD.pack(0x4648, frames.VERSION, kind, 0, flags, len(STREAM), 3, 1, 2)
            + fields_of(kind, [0, length, 4, length]),
            STREAM.encode(),
            [b"x" * 64, b"x" * 64],
        )
        for kind in range(1, 10)
        for flags in (0, 2)
    ]
    manifest = struct.pack("<8sQQQ", b"HFCKP\x00\x00\x02", length, length, length)
    manifest += struct.pack("<Q", xxhash.xxh3_64_intdigest(manifest))
    tracemalloc.start()
    before = pa.default_memory_pool().max_memory()
    for lie in lies:
        assert isinstance(decoded(lie), CorruptFrame)
        assert isinstance(decoded(lie[:2]), CorruptFrame)
    assert isinstance(manifests.decode_manifest(manifest), CorruptRecord)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert pa.default_memory_pool().max_memory() == before


@given(st.binary(max_size=64) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_commit_or_named_as_none(data: bytes) -> None:
    assert isinstance(decode_commit(data), Commit | CorruptRecord)


FIELDS = ("by", "at_us", "files", "watermark_us", "idle_us", "origin", "ends")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
def test_any_fields_are_a_commit_or_named_as_none(value: dict[str, Any]) -> None:
    whole = {"by": "batch", "files": [["f", 1, 2, 3, 0]]} | value
    assert isinstance(decode_commit(json.dumps(whole).encode()), Commit | CorruptRecord)


@given(
    st.builds(IngestFile, st.text(), st.integers(1, 2**63 - 1), INT64, INT64, INT64), st.booleans()
)
def test_a_commit_comes_back_as_it_was(file: IngestFile, ends: bool) -> None:
    commit = Commit("query a", (file,), 5, None if ends else -7, 6, "" if ends else "x", ends)
    assert decode_commit(encode_commit(commit) + b"   ") == commit
