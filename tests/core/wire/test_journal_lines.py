"""Journal lines: round trip, torn ends, damage."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.wire.journal_lines import JsonEntry, decode_lines, encode_line
from holdfast.core.wire.log_records import CorruptRecord

ENTRIES = st.lists(
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=3)
    | st.lists(st.integers() | st.text(max_size=8), max_size=3),
    max_size=5,
)


@given(ENTRIES)
def test_what_is_written_is_read(entries: list[JsonEntry]) -> None:
    assert decode_lines(b"".join(map(encode_line, entries))) == entries


@given(ENTRIES, st.data())
def test_a_torn_end_leaves_the_whole_lines(entries: list[JsonEntry], data: st.DataObject) -> None:
    whole = b"".join(map(encode_line, entries))
    kept = whole[: data.draw(st.integers(0, len(whole)))]
    found = decode_lines(kept)
    assert not isinstance(found, CorruptRecord)
    assert found == entries[: len(found)]
    assert len(found) >= kept.count(b"\n")


@given(st.integers(0, 60), st.integers(0, 7))
def test_damage_before_the_last_line_is_named(at: int, bit: int) -> None:
    lines = [encode_line({"node": "a[0]", "incarnation": n}) for n in range(1, 4)]
    data = bytearray(b"".join(lines))
    at %= len(lines[0]) + len(lines[1]) - 1  # Not the end of the last line but one.
    data[at] ^= 1 << bit
    found = decode_lines(bytes(data))
    assert isinstance(found, CorruptRecord)
    assert "good lines follow" in found.reason
