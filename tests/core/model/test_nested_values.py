"""Arrays, maps and structs as byte strings."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.nested_values import from_bytes, to_bytes
from holdfast.core.model.schema import RecordPacking
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.string_pages import StringPages

_MOMENT = datetime.datetime(1999, 12, 31, 23, 59, 59, 999_999)
SCALARS = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=9),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(38, 4): st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-4)),
}


def _types(depth: int) -> st.SearchStrategy[pa.DataType]:
    plain = st.sampled_from(list(SCALARS))
    if not depth:
        return plain
    inner = _types(depth - 1)
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda kinds: pa.struct([(f"f{n}", kind) for n, kind in enumerate(kinds)])
    )
    maps = st.tuples(plain, inner).map(lambda both: pa.map_(*both))
    return st.one_of(inner.map(pa.list_), structs, maps)


def _values(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_list(kind):
        some: st.SearchStrategy[object] = st.lists(_values(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        pair = st.tuples(SCALARS[kind.key_type], _values(kind.item_type))
        some = st.lists(pair, max_size=3)
    elif pa.types.is_struct(kind):
        some = st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    else:
        some = SCALARS[kind]
    return st.none() | some


@st.composite
def _columns(draw: st.DrawFn) -> pa.Array:
    kind = draw(_types(draw(st.integers(1, 3))))
    column = pa.array(draw(st.lists(_values(kind), max_size=6)), kind)
    first = draw(st.integers(0, len(column)))
    return column.slice(first, draw(st.integers(0, len(column) - first)))


@settings(max_examples=300, deadline=None)
@given(_columns())
def test_values_come_back_from_their_bytes(column: pa.Array) -> None:
    back = from_bytes(to_bytes(column), column.type)
    back.validate(full=True)
    assert back.type == column.type
    assert back.to_pylist() == column.to_pylist()


@settings(max_examples=100, deadline=None)
@given(_columns())
def test_equal_values_have_equal_bytes(column: pa.Array) -> None:
    again = pa.array(column.to_pylist(), column.type)
    assert to_bytes(again).to_pylist() == to_bytes(column).to_pylist()


def test_what_a_null_hides_is_not_kept() -> None:
    child = pa.array([1, 2, 3])
    hidden = pa.StructArray.from_arrays([child], ["a"], mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), hidden)
    plain = pa.array([[{"a": 1}], [None], [{"a": 3}]], lists.type)
    assert to_bytes(lists).to_pylist() == to_bytes(plain).to_pylist()


def test_pages_keep_nested_values_beside_others() -> None:
    types = [pa.int64(), pa.list_(pa.string()), pa.map_(pa.string(), pa.float64())]
    columns = [
        pa.array([1, None, 3]),
        pa.array([["a", None], None, []], types[1]),
        pa.array([None, [("k", 1.0)], []], types[2]),
    ]
    packing, strings = RecordPacking(types), StringPages(PageManager())
    rows = packing.pack(columns, strings)
    assert packing.text_words == [2, 3]
    back = packing.unpack(np.ascontiguousarray(rows[::-1]), strings)
    assert [column.to_pylist() for column in back] == [c.to_pylist()[::-1] for c in columns]


def test_keys_are_no_nested_values() -> None:
    with pytest.raises(LocalProtocolError, match="keys are no arrays, maps and structs"):
        RecordPacking([pa.list_(pa.int64())], is_key=True)


def test_what_pages_cannot_keep_is_refused_within_others_too() -> None:
    with pytest.raises(LocalProtocolError, match="month_day_nano"):
        RecordPacking([pa.list_(pa.month_day_nano_interval())])
