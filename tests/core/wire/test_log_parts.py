"""Names, marks and parts of a log in a store that cannot append."""

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_parts, log_records
from holdfast.core.wire.log_opening import LogEnd
from holdfast.core.wire.log_parts import Part, PartName, StoredPart
from holdfast.core.wire.log_records import CorruptRecord, Incomplete, RecordKind

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


def part(first_id: int, counts: list[int], *, has_ended: bool = False) -> bytes:
    body: list[bytes | pa.Buffer] = []
    next_id = first_id
    for count in counts:
        ids = pa.array(range(next_id, next_id + count), pa.int64())
        rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
        body += log_records.encode_record(
            RecordKind.DATA, TupleType.STABLE, 1, next_id, next_id, 0, rows
        )
        next_id += count
    encoded = log_parts.encode_part(
        "s", 1, SCHEMA, first_id, body, next_id, next_id, has_ended=has_ended
    )
    return b"".join(bytes(one) for one in encoded)


def decoded(data: bytes) -> Part:
    found = log_parts.decode_part(memoryview(data))
    assert isinstance(found, Part)
    return found


def test_names_say_what_they_were_made_of() -> None:
    one = Incarnation(3)
    for name in (PartName(one, 70), PartName(one, 70, 90), PartName(one, 70, None, 4)):
        assert log_parts.parse_part(str(name)) == name
        assert log_parts.marks_in([str(name)]) == []
    mark = log_parts.mark_name(70, 3)
    assert log_parts.parse_part(mark) is None
    assert log_parts.marks_in([mark]) == [(3, 70)]
    for other in ("", "a", "writers/x-1", "0000000001/7", "0000000001/7.part.draft", "1/2/3.part"):
        assert log_parts.parse_part(other) is None
        assert log_parts.marks_in([other]) == []


def test_of_several_parts_the_longest_merged_one_is_read() -> None:
    one = Incarnation(1)
    small = [PartName(one, first, None) for first in (0, 10, 20, 30)]
    merged = [PartName(one, 0, 20), PartName(one, 0, 30)]
    assert log_parts.covering(small, 15) == small[1]
    assert log_parts.covering([*small, *merged], 15) == merged[1]
    assert log_parts.covering([*small, *merged], 35) == small[3]
    assert log_parts.covering(merged, 35) is None
    again = [*small, PartName(one, 30, None, 1), PartName(one, 30, None, 2)]
    assert log_parts.covering(again, 35) == again[-1]


def test_the_last_part_of_a_writer_is_found_among_leftovers_of_merging() -> None:
    """1. Parts are merged. 2. Some are not deleted. 3. What they became is merged once more."""
    one = Incarnation(1)
    leftovers = [PartName(one, 20), PartName(one, 30)]
    merged = PartName(one, 0, 80)
    assert log_parts.last_of([*leftovers, merged]) == merged
    assert log_parts.last_of([*leftovers, merged, PartName(one, 80)]) == PartName(one, 80)
    behind = [PartName(one, 80), PartName(one, 80, None, 1)]
    assert log_parts.last_of([*leftovers, merged, *behind]) == behind[1]
    assert log_parts.last_of(leftovers) == leftovers[1]


def test_every_prefix_of_a_part_gives_its_whole_records_and_no_end() -> None:
    data = part(5, [3, 2])
    whole = decoded(data)
    assert [r.first_id for r in whole.records] == [5, 8]
    assert log_parts.end_of(whole, NO_ID) == LogEnd(10, 10)
    for size in range(len(data)):
        found = log_parts.decode_part(memoryview(data)[:size])
        if isinstance(found, Part):
            assert found.end is None
            assert found.corrupt is None
            assert found.records == whole.records[: len(found.records)]
        else:
            assert isinstance(found, Incomplete)


def test_no_flipped_bit_before_the_last_record_goes_unnoticed() -> None:
    """A part whose last record is damaged looks like one that is being written."""
    data = part(5, [3, 2])
    whole = decoded(data)
    for at in range(len(data) - log_records.RECORD_HEADER_BYTES):
        for bit in (0, 5):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            found = log_parts.decode_part(memoryview(flipped))
            if isinstance(found, Part) and found.corrupt is None and found.end is not None:
                assert found.records == whole.records  # Only padding was hit.
            else:
                assert isinstance(found, CorruptRecord | Incomplete) or (
                    isinstance(found, Part) and found.corrupt is not None
                )


def test_where_a_log_ends_depends_on_who_goes_on_from_where() -> None:
    whole = decoded(part(5, [3, 2], has_ended=True))
    assert log_parts.end_of(whole, NO_ID) == LogEnd(10, 10, has_ended=True)
    assert log_parts.end_of(whole, 10) == LogEnd(10, 10, has_ended=True)
    assert log_parts.end_of(whole, 9) == LogEnd(9, 5)
    assert log_parts.end_of(whole, 4) is None
    assert log_parts.end_of(decoded(part(7, [])), NO_ID) == LogEnd(7, 7)
    torn = decoded(part(5, [3, 2])[:-100])
    assert log_parts.end_of(torn, NO_ID) == LogEnd(8, 5)
    empty = part(7, [])
    assert log_parts.end_of(decoded(empty[: -log_records.RECORD_HEADER_BYTES]), NO_ID) is None


def test_a_log_does_not_end_before_what_it_has_promised() -> None:
    rows = [0, 100, BEGINNING_US]
    ids = pa.array([1, 2])
    batch = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
    body = [
        part
        for n, boundary in enumerate(rows)
        for part in log_records.encode_record(
            RecordKind.DATA, TupleType.STABLE, 1, 2 * n, boundary, 0, batch
        )
    ]
    encoded = log_parts.encode_part("s", 1, SCHEMA, 0, body, 6, BEGINNING_US, has_ended=False)
    whole = decoded(b"".join(bytes(one) for one in encoded))
    assert log_parts.end_of(whole, NO_ID) == LogEnd(6, 100)


def test_sixteen_parts_of_a_rank_become_one_of_the_next() -> None:
    parts: list[StoredPart] = []
    merges = 0
    for number in range(4_096):
        parts.append(StoredPart(number, number + 1, 100))
        while wanted := log_parts.to_merge(parts):
            assert len(wanted) == log_parts.MERGED_PARTS
            size, level = sum(p.size for p in wanted), wanted[0].level + 1
            parts[-len(wanted) :] = [
                StoredPart(wanted[0].first_id, wanted[-1].end, size, level, is_merged=True)
            ]
            merges += len(wanted)
        assert len(parts) <= 3 * 15 + 1
    assert [(p.first_id, p.end) for p in parts] == [(0, 4_096)]
    assert merges < 4_096 * 1.1


def test_large_parts_and_gaps_are_not_merged() -> None:
    large = [StoredPart(i, i + 1, log_parts.SMALL_BYTES) for i in range(40)]
    assert log_parts.to_merge(large) == []
    apart = [StoredPart(2 * i, 2 * i + 1, 100) for i in range(40)]
    assert log_parts.to_merge(apart) == []
