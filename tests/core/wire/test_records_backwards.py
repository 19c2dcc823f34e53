"""Where records begin in a piece of a segment that somebody reads from its end."""

import random

import pyarrow as pa
import pytest

from holdfast.core.wire.log_records import ALIGNMENT, RECORD_MAGICS, RecordKind, encode_record
from holdfast.core.wire.records_backwards import records_up_to

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.binary()), ("__time_us", pa.int64())])


def record(first_id: int, rows: int, text: bytes) -> bytes:
    ids = list(range(first_id, first_id + rows))
    columns = [pa.array(ids), pa.array([text] * rows, pa.binary()), pa.array(ids)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    parts = encode_record(RecordKind.DATA, 0, 1, first_id, 0, 0, batch)
    return b"".join(bytes(part) for part in parts)


@pytest.mark.parametrize("seed", range(30))
def test_all_whole_records_of_a_piece_are_found_wherever_it_begins(seed: int) -> None:
    rng = random.Random(seed)
    texts = [magic * ALIGNMENT for magic in RECORD_MAGICS]  # Bodies are full of what begins one.
    records = [record(n, rng.randint(1, 9), rng.choice(texts)) for n in range(5)]
    content = b"".join(records)
    ends = [sum(map(len, records[: at + 1])) for at in range(5)]
    begin = rng.randrange(0, ends[3], ALIGNMENT)
    torn = rng.randbytes(rng.choice([0, 3, 70, 300]))
    found = records_up_to(memoryview(content + torn)[begin:], SCHEMA, is_torn=bool(torn))
    assert found is not None
    at, whole, stop = found
    expected = next(n for n in range(5) if ends[n] - len(records[n]) >= begin)
    assert begin + at == ends[expected] - len(records[expected])
    assert [each.first_id for each in whole] == list(range(expected, 5))
    assert begin + stop == len(content)


def test_a_piece_without_a_whole_record_has_none() -> None:
    content = record(0, 3, RECORD_MAGICS[0] * ALIGNMENT)
    assert records_up_to(memoryview(content)[ALIGNMENT:], SCHEMA, is_torn=True) is None
    assert records_up_to(memoryview(content[:-ALIGNMENT]), SCHEMA, is_torn=False) is None
    assert records_up_to(memoryview(b""), SCHEMA, is_torn=True) is None
