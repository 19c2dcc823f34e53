"""Files in which parts of arrays, maps and structs have changed: none is silently another one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from holdfast.shell.storage.column_values import as_type
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import BadRow, FilesFormat, read_rows

AT = datetime(2026, 1, 1, 5, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
NS = pa.timestamp("ns", tz="UTC")


def struct(**parts: pa.DataType) -> pa.DataType:
    return pa.struct([*parts.items()])


def held(of: pa.DataType) -> pa.DataType:
    """A part as deep as it may lie: `c.b[]{}`."""
    return struct(b=pa.list_(pa.map_(pa.string(), of)))


def holding(*values: Any) -> Any:
    return {"b": [[("k", value) for value in values], None, []]}


def read(
    place: Path, given: pa.Array, to: pa.DataType, form: str = "parquet", *, aside: bool = False
) -> list[Any]:
    """The values of a column `c` as a stream has them, or why a row is bad."""
    path, table = place / f"a.{form}", pa.table({"at": pa.array([AT] * len(given)), "c": given})
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "orc":
        orc.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    (listed,) = list_files(str(place))
    schema = pa.schema([("at", TIME), ("c", to)])
    values: list[Any] = []
    for found in read_rows(listed.file, FilesFormat(form, (), aside), schema, "at"):
        for part in found.parts:
            if isinstance(part, BadRow):
                values.append(part.reason)
            else:
                values += part.column("c").to_pylist()
    return values


TAKEN = [
    (pa.float64(), pa.float32(), 0.25, 0.25),
    (pa.int8(), pa.int64(), 7, 7),
    (pa.string(), pa.int32(), "7", 7),
    (pa.int64(), pa.string(), 5, "5"),
    (pa.string(), pa.date32(), "2026-01-02", date(2026, 1, 2)),
    (pa.timestamp("us"), TIME, AT.replace(tzinfo=None), AT),
    (NS, TIME, AT, AT),
]
REFUSED = [
    (pa.float64(), pa.float32(), 0.1),
    (pa.float64(), pa.float32(), 1e300),
    (pa.float64(), pa.int32(), 0.5),
    (pa.int64(), pa.int32(), 1 << 40),
    (pa.int32(), pa.date32(), 5),
    (TIME, pa.date32(), AT),
    (pa.date32(), TIME, date(2026, 1, 1)),
    (pa.int64(), TIME, 1_700_000_000),
    (pa.float64(), pa.string(), 0.5),
    (pa.string(), pa.float32(), "1e300"),
    (pa.bool_(), pa.int32(), True),
]


@pytest.mark.parametrize(("of", "to", "value", "wanted"), TAKEN)
def test_a_part_of_a_type_that_holds_the_same_is_taken(
    of: pa.DataType, to: pa.DataType, value: Any, wanted: Any
) -> None:
    given = pa.array([None, holding(value, None), {"b": None}, holding()], held(of))
    made = as_type(given, held(to), "c")
    made.validate(full=True)
    assert made.type == held(to)
    assert made.to_pylist() == [None, holding(wanted, None), {"b": None}, holding()]
    assert as_type(given.slice(1, 1), held(to), "c").to_pylist() == [holding(wanted, None)]
    assert as_type(given.slice(0, 0), held(to), "c").to_pylist() == []


@pytest.mark.parametrize(("of", "to", "value"), REFUSED)
def test_a_part_of_a_type_that_means_something_else_is_refused_by_its_path(
    of: pa.DataType, to: pa.DataType, value: Any
) -> None:
    given = pa.array([holding(None), holding(value)], held(of))
    with pytest.raises(ValueError, match=r"^c\.b\[\]\{\} is not "):
        as_type(given, held(to), "c")


def test_a_time_finer_than_a_microsecond_is_refused_by_its_path() -> None:
    given = pa.array([1_001], pa.int64()).cast(NS)
    with pytest.raises(ValueError, match=r"^c\.t is not timestamp.*would lose data"):
        as_type(pa.StructArray.from_arrays([given], ["t"]), struct(t=TIME), "c")


@pytest.mark.parametrize("given", [[1], {"a": 1}, 1, "x"])
def test_another_kind_of_a_whole_is_refused(given: Any) -> None:
    values = pa.array([given])
    others = [struct(x=pa.int64()), pa.map_(pa.string(), pa.int64()), pa.list_(pa.string())]
    for to in (to for to in others if to.id != values.type.id):
        with pytest.raises(ValueError, match=r"^c is not .*: the file has "):
            as_type(values, to, "c")


def test_fields_are_found_by_their_names_and_one_that_is_gone_is_null() -> None:
    given = pa.array([{"b": 1, "more": 2, "a": 3}, None])
    to = struct(a=pa.int64(), b=pa.int64(), gone=struct(x=pa.int8()))
    assert as_type(given, to, "c").to_pylist() == [{"a": 3, "b": 1, "gone": None}, None]


@pytest.mark.parametrize("form", ["parquet", "orc", "arrow"])
def test_a_field_in_other_capitals_is_refused_of_the_whole_file(tmp_path: Path, form: str) -> None:
    given = pa.array([{"l": [{"A": 1}]}] * 3)
    to = struct(l=pa.list_(struct(a=pa.int64())))
    said = r"it has a field 'c\.l\[\]\.A', and none 'c\.l\[\]\.a'"
    with pytest.raises(UserFileDamaged, match=said):
        read(tmp_path, given, to, form)
    (bad,) = read(tmp_path, given, to, form, aside=True)
    assert "and none 'c.l[].a'" in bad
    with pytest.raises(ValueError, match=said):
        as_type(given, to, "c")


def test_a_null_where_none_may_be_is_refused_by_its_path() -> None:
    needed = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    given = pa.array([None, {"a": 1}, {"a": None}], struct(a=pa.int64()))
    assert as_type(given.slice(0, 2), needed, "c").to_pylist() == [None, {"a": 1}]
    with pytest.raises(ValueError, match=r"^c\.a is not int64 NOT NULL: a value is null"):
        as_type(given, needed, "c")
    elements = pa.list_(pa.field("item", pa.int64(), nullable=False))
    with pytest.raises(ValueError, match=r"^c\[\] is not int64 NOT NULL"):
        as_type(pa.array([[1, None]]), elements, "c")
    with pytest.raises(ValueError, match=r"no field 'c\.a', which is NOT NULL"):
        as_type(pa.array([{"b": 1}]), needed, "c")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_only_the_row_with_a_changed_part_is_bad(tmp_path: Path, form: str) -> None:
    given = pa.array([{"x": [0.5]}, {"x": [0.1]}, {"x": None}], struct(x=pa.list_(pa.float64())))
    good, bad, other = read(tmp_path, given, struct(x=pa.list_(pa.float32())), form, aside=True)
    assert (good, other) == ({"x": [0.5]}, {"x": None})
    assert bad.startswith("column 'c' is not struct<x: list<item: float>>: c.x[] is not float: ")
