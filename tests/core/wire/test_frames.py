"""Frames: round trip, and refusal of everything else."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.haunit.events import AckReceived, BatchReceived, BoundaryReceived
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.wire.frames import (
    CorruptFrame,
    FrameAddress,
    FrameKind,
    decode,
    encode_batch,
    encode_positions,
)

STREAM = StreamId("bids:ingest[0]>counts[1].0")
ADDRESS = FrameAddress(3, Incarnation(5), Incarnation(7))
SCHEMA = pa.schema([("name", pa.string()), (TIME_COLUMN, pa.int64())])


def batch(rows: int = 3) -> TupleBatch:
    names = pa.array([f"n{i}" for i in range(rows)])
    times = pa.array(np.arange(rows, dtype=np.int64))
    return TupleBatch(11, pa.RecordBatch.from_arrays([names, times], schema=SCHEMA), -5, 77)


def parts(value: list[object]) -> list[bytes]:
    return [bytes(memoryview(part)) for part in value]  # type: ignore[arg-type]


def test_a_batch_comes_back_as_it_was() -> None:
    got = decode(list(parts(encode_batch(ADDRESS, STREAM, batch()))), {STREAM: SCHEMA}, 3)
    assert isinstance(got, BatchReceived)
    assert (got.sender, got.receiver, got.stream) == (5, 7, STREAM)
    assert got.batch == batch()


def test_positions_come_back_as_they_were() -> None:
    boundary = encode_positions(FrameKind.BOUNDARY, ADDRESS, STREAM, (9, -3, 0))
    assert decode(boundary, {}, 3) == BoundaryReceived(
        STREAM, Incarnation(5), Incarnation(7), 9, -3
    )
    ack = encode_positions(FrameKind.ACK, ADDRESS, STREAM, (9, 3, 10))
    assert decode(ack, {}, 3) == AckReceived(STREAM, Incarnation(5), Incarnation(7), 9, 3, 10)


def test_a_frame_of_another_epoch_is_refused() -> None:
    frame = encode_positions(FrameKind.ACK, ADDRESS, STREAM, (9, 3, 10))
    assert decode(frame, {}, 4) == CorruptFrame("epoch 3, now 4")


def test_a_batch_of_another_schema_is_refused() -> None:
    other = pa.schema([("number", pa.int64()), (TIME_COLUMN, pa.int64())])
    frame = list(parts(encode_batch(ADDRESS, STREAM, batch())))
    assert isinstance(decode(frame, {STREAM: other}, 3), CorruptFrame)
    assert isinstance(decode(frame, {}, 3), CorruptFrame)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_safe(frame: list[bytes]) -> None:
    decode(list(frame), {STREAM: SCHEMA}, 3)


def test_every_flipped_bit_and_every_truncation_of_a_batch_is_safe() -> None:
    header, body = parts(encode_batch(ADDRESS, STREAM, batch()))
    for part, other in ((0, body), (1, header)):
        whole = header if part == 0 else body
        for position in range(len(whole) * 8):
            flipped = bytearray(whole)
            flipped[position // 8] ^= 1 << (position % 8)
            frame = [bytes(flipped), other] if part == 0 else [other, bytes(flipped)]
            got = decode(list(frame), {STREAM: SCHEMA}, 3)
            if isinstance(got, BatchReceived):
                got.batch.batch.to_pylist()
        for length in range(len(whole)):
            frame = [whole[:length], other] if part == 0 else [other, whole[:length]]
            got = decode(list(frame), {STREAM: SCHEMA}, 3)
            assert isinstance(got, CorruptFrame) or part == 1
