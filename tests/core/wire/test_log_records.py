"""Records of the stream log: round trip, any bytes are safe, every flipped bit is found."""

import struct
from dataclasses import replace

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.ids import Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire.log_owners import chained
from holdfast.core.wire.log_records import (
    CorruptRecord,
    Incomplete,
    LogRecord,
    RecordKind,
    SegmentHeader,
    decode_record,
    decode_segment_header,
    encode_record,
    encode_segment_header,
)

SCHEMA = with_time(pa.schema([("v", pa.int64()), ("s", pa.string())]))


def batch(rows: int) -> pa.RecordBatch:
    columns = [
        pa.array(range(rows)),
        pa.array([f"s{i}" for i in range(rows)]),
        pa.array(range(rows)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def encoded(rows: int = 3, first_id: int = 7) -> bytes:
    parts = encode_record(RecordKind.DATA, TupleType.STABLE, 2, first_id, 99, 5, batch(rows))
    return b"".join(bytes(part) for part in parts)


@given(st.integers(1, 50), st.integers(0, 2**62))
def test_a_record_comes_back_as_it_was(rows: int, first_id: int) -> None:
    data = encoded(rows, first_id)
    record = decode_record(memoryview(data), SCHEMA)
    assert isinstance(record, LogRecord)
    assert (record.first_id, record.boundary_us, record.created_us) == (first_id, 99, 5)
    assert record.batch is not None
    assert record.batch.equals(batch(rows))
    assert record.size == len(data)
    assert len(data) % 64 == 0


@given(st.binary(max_size=400))
def test_any_bytes_are_safe(data: bytes) -> None:
    assert isinstance(decode_record(memoryview(data), SCHEMA), CorruptRecord | Incomplete)
    assert isinstance(decode_segment_header(data), CorruptRecord | Incomplete)


def test_every_changed_byte_of_header_and_payload_is_found() -> None:
    data = encoded()
    (size,) = struct.unpack_from("<I", data, 40)
    for position in [*range(52), *range(64, 64 + size)]:
        broken = bytearray(data)
        broken[position] ^= 0x10
        found = decode_record(memoryview(bytes(broken)), SCHEMA)
        assert isinstance(found, CorruptRecord | Incomplete), position


def test_every_cut_is_incomplete_and_says_how_much_is_needed() -> None:
    data = encoded()
    for length in range(len(data)):
        found = decode_record(memoryview(data)[:length], SCHEMA)
        assert isinstance(found, Incomplete)
        assert length < found.needed <= len(data)


def test_a_segment_header_comes_back_as_it_was_and_a_changed_one_does_not() -> None:
    data = encode_segment_header("counts[0]", 3, 12, SCHEMA)
    header = decode_segment_header(data)
    assert isinstance(header, SegmentHeader)
    assert (header.stream, header.incarnation, header.first_id) == ("counts[0]", 3, 12)
    assert header.schema.equals(SCHEMA)
    for position in range(40):
        broken = bytearray(data)
        broken[position] ^= 0x01
        assert not isinstance(decode_segment_header(bytes(broken)), SegmentHeader), position


@pytest.mark.parametrize("version", [1, 2, 3])  # Version 4 differs by its number alone.
def test_a_segment_of_an_earlier_version_is_read(version: int) -> None:
    schema, name = SCHEMA.serialize().to_pybytes(), b"counts[0]"
    magic = b"HFSEG\x00\x00" + bytes([version])
    head = struct.pack("<8sIIIxxxxq", magic, len(name), len(schema), 3, 12)
    digest = xxhash.xxh3_64(head)
    digest.update(name + schema)
    data = head + struct.pack("<Q", digest.intdigest()) + name + schema
    header = decode_segment_header(data.ljust(-(-len(data) // 64) * 64, b"\0"))
    assert isinstance(header, SegmentHeader)
    assert (header.stream, header.first_id, header.owners) == ("counts[0]", 12, ())
    assert encode_segment_header("counts[0]", 3, 12, SCHEMA)[:8] == b"HFSEG\x00\x00\x05", (
        "older readers know that they cannot read what follows"
    )


def test_a_segment_names_the_owners_of_its_log() -> None:
    owners = chained([(Incarnation(1), 0), (Incarnation(2), 7), (Incarnation(3), 12)])
    data = encode_segment_header("counts[0]", 3, 12, SCHEMA, owners)
    header = decode_segment_header(data)
    assert isinstance(header, SegmentHeader)
    assert header.owners == owners
    for length in range(40, header.size - 64):
        found = decode_segment_header(data[:length])
        assert isinstance(found, Incomplete)
        assert length < found.needed <= header.size
    mixed_up = encode_segment_header("counts[0]", 3, 12, SCHEMA, (owners[1], owners[0]))
    assert isinstance(decode_segment_header(mixed_up), CorruptRecord)


def test_a_record_made_by_hand_from_the_documented_layout_is_read() -> None:
    payload = batch(2).serialize().to_pybytes()
    head = struct.pack("<4sBBxxIqqqIIQ", b"HFR\x01", 1, 0, 4, 100, 77, 55, 2, len(payload), 0)[:-8]
    digest = xxhash.xxh3_64(head)
    digest.update(payload)
    data = (head + struct.pack("<Q", digest.intdigest())).ljust(64, b"\0") + payload
    record = decode_record(memoryview(data.ljust(-(-len(data) // 64) * 64, b"\0")), SCHEMA)
    assert isinstance(record, LogRecord)
    assert (record.incarnation, record.first_id, record.count) == (4, 100, 2)


@pytest.mark.parametrize("kind", [RecordKind.BOUNDARY, RecordKind.END])
def test_records_without_tuples_have_no_payload(kind: RecordKind) -> None:
    parts = encode_record(kind, TupleType.BOUNDARY, 1, 5, 42, 0, None)
    record = decode_record(memoryview(b"".join(bytes(p) for p in parts)), SCHEMA)
    assert isinstance(record, LogRecord)
    assert (record.kind, record.batch, record.boundary_us) == (kind, None, 42)


def test_a_small_record_is_packed_where_what_is_shorter_is_better() -> None:
    fields = (RecordKind.DATA, 0, 4, 100, 77, 55, batch(3))
    plain = b"".join(map(bytes, encode_record(*fields)))
    packed = b"".join(map(bytes, encode_record(*fields, narrows=True)))
    assert packed[:4] == b"HFR\x04"
    assert len(packed) < len(plain)
    wanted = decode_record(memoryview(plain), SCHEMA)
    assert isinstance(wanted, LogRecord)
    assert decode_record(memoryview(packed), SCHEMA) == replace(wanted, size=len(packed))
    large = encode_record(RecordKind.DATA, 0, 4, 100, 77, 55, batch(4000), narrows=True)
    assert bytes(large[0])[:4] != b"HFR\x04"


@pytest.mark.parametrize("rows", [5, 2_000])
def test_a_record_that_is_written_often_takes_nothing_of_the_pool_that_grows_by_pages(
    rows: int,
) -> None:
    written, pool = batch(rows), pa.default_memory_pool()
    before = pool.num_allocations()
    encode_record(RecordKind.DATA, 0, 4, 100, 77, 55, written, narrows=True)
    assert pool.num_allocations() == before
    encode_record(RecordKind.DATA, 0, 4, 100, 77, 55, written)
    assert pool.num_allocations() > before


@pytest.mark.parametrize("payload", [b"", b"abc", b"\xff" * 64, struct.pack("<I", 60) + b"abc"])
def test_a_packed_record_that_is_none_is_corrupt(payload: bytes) -> None:
    head = struct.pack("<4sBBxxIqqqIIQ", b"HFR\x04", 1, 0, 4, 100, 77, 55, 2, len(payload), 0)[:-8]
    digest = xxhash.xxh3_64(head)
    digest.update(payload)
    data = (head + struct.pack("<Q", digest.intdigest())).ljust(64, b"\0") + payload
    found = decode_record(memoryview(data.ljust(-(-len(data) // 64) * 64, b"\0")), SCHEMA)
    assert isinstance(found, CorruptRecord)
