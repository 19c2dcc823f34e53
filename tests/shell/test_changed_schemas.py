"""Files whose columns have changed while nobody read them: taken as they mean, or refused by name.

No value becomes another one, and no error is Arrow's own that names no file and no column.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from holdfast.shell.kafka.registry import rows_of
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import FilesFormat, read_rows

AT = datetime(2026, 1, 1, 5, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
OLD = pa.schema(
    [
        ("at", TIME),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("other", TIME),
    ]
)
ROW = [AT, 1, 0.5, Decimal("1.25"), "x", True, date(2026, 1, 1), AT]
FORMATS = ("parquet", "orc", "arrow", "csv", "json")
TYPED = ("parquet", "orc", "arrow")


def columns(**changed: pa.Array) -> dict[str, pa.Array]:
    """A row of the schema with some columns changed."""
    own = {f.name: pa.array([v], f.type) for f, v in zip(OLD, ROW, strict=True)}
    return {**own, **changed}


def read(
    place: Path, form: str, of: dict[str, pa.Array], schema: pa.Schema = OLD
) -> dict[str, Any]:
    """The row of a file with such columns, as a stream of the schema has it."""
    table, path = pa.table(of), place / f"a.{form}"
    options: tuple[tuple[str, str], ...] = ()
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "orc":
        orc.write_table(table, path)
    elif form == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif form == "csv":
        options = (("header", "true"),)
        texts = ["" if v is None else str(v) for v in table.to_pylist()[0].values()]
        path.write_text(f"{','.join(of)}\n{','.join(texts)}\n".replace("+00:00", "Z"))
    else:
        pairs = [f'"{k}": {_json(v)}' for k, v in table.to_pylist()[0].items()]
        path.write_text(f"{{{', '.join(pairs)}}}\n")
    (listed,) = list_files(str(place))
    (found,) = read_rows(listed.file, FilesFormat(form, options), schema, "at")
    (rows,) = found.parts
    assert isinstance(rows, pa.RecordBatch)
    return dict(zip(schema.names, rows.to_pylist()[0].values(), strict=False))


def _json(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    return f'"{str(value).replace("+00:00", "Z")}"'


@pytest.mark.parametrize("form", FORMATS)
def test_added_and_swapped_columns_change_nothing_and_one_that_is_gone_is_null(
    tmp_path: Path, form: str
) -> None:
    before = dict(zip(OLD.names, ROW, strict=True))
    swapped = dict(reversed(columns(more=pa.array([1])).items()))
    assert read(tmp_path, form, swapped) == before
    del swapped["n"]
    assert read(tmp_path, form, swapped) == {**before, "n": None}


@pytest.mark.parametrize("form", FORMATS)
def test_a_column_in_other_capitals_or_one_that_must_be_there_is_no_null(
    tmp_path: Path, form: str
) -> None:
    renamed = columns()
    renamed["N"] = renamed.pop("n")
    with pytest.raises(UserFileDamaged, match=r"a\..*column 'N', and none 'n'"):
        read(tmp_path, form, renamed)
    needed = OLD.set(1, pa.field("n", pa.int32(), nullable=False))
    said = "column 'n', which is NOT NULL|column 'n' is not int32 NOT NULL"
    with pytest.raises(UserFileDamaged, match=said):
        read(tmp_path, form, {k: v for k, v in renamed.items() if k != "N"}, needed)


@pytest.mark.parametrize("form", FORMATS)
def test_a_null_where_none_may_be_is_a_bad_row(tmp_path: Path, form: str) -> None:
    needed = OLD.set(1, pa.field("n", pa.int32(), nullable=False))
    assert read(tmp_path, form, columns(), needed)["n"] == 1
    null = columns(n=pa.array([None], pa.int32()))
    given = {name: v for name, v in null.items() if form != "json" or name != "n"}
    reason = r"NOT NULL: a value is null|a required field was absent"
    with pytest.raises(UserFileDamaged, match=reason):
        read(tmp_path, form, given, needed)


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("n", pa.array([7], pa.int8()), 7),
        ("n", pa.array([7], pa.int64()), 7),
        ("n", pa.array(["7"]), 7),
        ("f", pa.array([0.25], pa.float64()), 0.25),
        ("f", pa.array([float("-inf")], pa.float64()), float("-inf")),
        ("f", pa.array([3], pa.int32()), 3.0),
        ("d", pa.array([1.25], pa.float64()), Decimal("1.25")),
        ("d", pa.array([Decimal("1.5")], pa.decimal128(5, 1)), Decimal("1.50")),
        ("s", pa.array([5]), "5"),
        ("day", pa.array(["2026-01-02"]), date(2026, 1, 2)),
        ("other", pa.array(["2026-01-01 05:00:00"]), AT),
        ("other", pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")), AT),
    ],
)
def test_a_type_that_holds_the_same_value_is_taken(
    tmp_path: Path, form: str, name: str, given: pa.Array, value: Any
) -> None:
    assert read(tmp_path, form, columns(**{name: given}))[name] == value


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("n", pa.array([1 << 40])),
        ("n", pa.array([0.5])),
        ("n", pa.array([True])),
        ("n", pa.array([date(2026, 1, 1)])),
        ("f", pa.array([0.1])),
        ("f", pa.array([1e300])),
        ("d", pa.array([1.255])),
        ("d", pa.array([Decimal("1.255")])),
        ("s", pa.array([0.5])),
        ("s", pa.array([AT], TIME)),
        ("b", pa.array([2])),
        ("day", pa.array([5], pa.int32())),
        ("day", pa.array([AT], TIME)),
        ("other", pa.array([1_700_000_000_000])),
        ("other", pa.array([date(2026, 1, 1)])),
        ("other", pa.array([0.5])),
        ("at", pa.array([1_700_000_000_000])),
        ("n", pa.array([{"a": 1}])),
    ],
)
def test_a_type_that_means_something_else_is_refused_by_name(
    tmp_path: Path, form: str, name: str, given: pa.Array
) -> None:
    with pytest.raises(UserFileDamaged, match=rf"a\.{form}, row 1: column '{name}' is not "):
        read(tmp_path, form, columns(**{name: given}))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("n", pa.array([0.5])),
        ("n", pa.array(["x"])),
        ("b", pa.array([2])),
        ("day", pa.array([5])),
        ("other", pa.array([0.5])),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_text_that_means_something_else_is_refused_by_its_line(
    tmp_path: Path, form: str, name: str, given: pa.Array
) -> None:
    with pytest.raises(UserFileDamaged, match=rf"a\.{form}, line \d: "):
        read(tmp_path, form, columns(**{name: given}))


@pytest.mark.parametrize(
    ("name", "value", "of"),
    [
        ("n", 0.5, "int32"),
        ("n", 3.0, "int32"),
        ("n", 1 << 40, "int32"),
        ("n", "7", "int32"),
        ("f", 0.1, "float"),
        ("f", 1e300, "float"),
        ("s", 5, "string"),
        ("b", 2, "bool"),
        ("day", 5, "date32"),
        ("day", AT, "date32"),
        ("other", 5, "timestamp"),
        ("other", date(2026, 1, 1), "timestamp"),
        ("list", [1, 0.5], "list"),
        ("struct", {"a": 0.5}, "struct"),
    ],
)
def test_a_field_of_a_registered_record_of_another_kind_is_named(
    name: str, value: Any, of: str
) -> None:
    nested = [("list", pa.list_(pa.int32())), ("struct", pa.struct([("a", pa.int32())]))]
    with pytest.raises(TypeError, match=rf"field '{name}' is .*no {of}"):
        rows_of([{name: value}], pa.schema([*OLD, *nested]))


def test_a_field_of_a_registered_record_that_has_become_wider_is_taken() -> None:
    given = {"n": 7, "f": 0.25, "d": 5, "other": AT, "more": 1}
    row = rows_of([given, {"f": float("nan")}], OLD).to_pylist()[0]
    del given["more"]
    assert row == {**dict.fromkeys(OLD.names), **given}


def test_a_field_of_a_registered_record_in_other_capitals_is_named() -> None:
    of = pa.schema([("n", pa.int64()), ("s", pa.list_(pa.struct([("a", pa.int64())])))])
    assert rows_of([{"n": 1, "N": 2, "s": [{"a": 1}, None]}], of).to_pylist()[0]["n"] == 1
    with pytest.raises(ValueError, match="column 'N', and none 'n'"):
        rows_of([{"n": 1}, {"N": 1}], of)
    with pytest.raises(ValueError, match=r"field 's\[\]\.A', and none 's\[\]\.a'"):
        rows_of([{"s": [{"A": 1}]}], of)
