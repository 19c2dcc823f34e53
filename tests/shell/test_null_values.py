"""Columns that are NOT NULL: a record with a null there is bad by name, in files and in topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from holdfast.api.expressions.types import carried_schema
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.driver.user_files import delta_source, files_source
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import SchemaMismatch
from holdfast.shell.storage.ingest_log import IngestLogReader
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileDamaged

AT = pa.timestamp("us", tz="UTC")
PLAIN = pa.schema([("at", AT), pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
LOOSE = pa.schema([field.with_nullable(True) for field in PLAIN])
ROWS: list[dict[str, Any]] = [
    {"at": 1, "k": 1, "s": None},
    {"at": 2, "k": None, "s": "b"},
    {"at": 3, "k": 3, "s": "c"},
]
NESTED = pa.schema(
    [
        ("at", AT),
        ("s", pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])),
        ("l", pa.list_(pa.field("item", pa.int64(), nullable=False))),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        (
            "deep",
            pa.list_(
                pa.struct(
                    [
                        (
                            "n",
                            pa.map_(
                                pa.string(),
                                pa.struct([pa.field("a", pa.int64(), nullable=False)]),
                            ),
                        )
                    ]
                )
            ),
        ),
    ]
)
LINES = {
    "csv": "1970-01-01T00:00:01Z,1,\n1970-01-01T00:00:02Z,,b\n1970-01-01T00:00:03Z,3,c\n",
    "json": """\
{"at": "1970-01-01T00:00:01Z", "k": 1}
{"at": "1970-01-01T00:00:02Z", "s": "b"}
{"at": "1970-01-01T00:00:03Z", "k": 3, "s": "c"}
""",
}


def put(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def recorded(place: Path, location: Path, schema: Any, **settings: Any) -> list[dict[str, Any]]:
    """All rows of the log of a source of files, once it has ended."""
    given: dict[str, Any] = {
        "time": "at",
        "delay": None,
        "ahead": None,
        "options": None,
        "trigger": None,
    }
    given |= {"ends": True, "format": "parquet", "has_dead_letters": True}
    source = files_source(str(place), schema=schema, **(given | settings))
    recorder = FileRecorder("files", source, str(location))
    recorder.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    recorder.wait()
    if (error := recorder.error) is not None:
        assert isinstance(error, BaseException)
        raise error
    reader = IngestLogReader(ingest_path(str(location), "files"), 0, 1)
    rows: list[dict[str, Any]] = []
    while found := reader.poll():
        for each in found:
            assert each.batch.schema.remove(len(each.batch.schema) - 1).equals(source.meta.schema)
            rows += each.batch.to_pylist()
    return rows


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_null_in_a_column_of_files_that_is_not_null_is_a_bad_row(
    tmp_path: Path, form: str
) -> None:
    path = tmp_path / "in" / f"a.{form}"
    path.parent.mkdir()
    if form == "parquet":
        put(path, ROWS, LOOSE)
    else:
        path.write_text(LINES[form])
    first, bad, last = recorded(path, tmp_path / "q", PLAIN, format=form)
    assert (first["k"], first["s"], first["file_error"]) == (1, None, None)
    assert (last["k"], last["s"], last["file_error"]) == (3, "c", None)
    assert (bad["k"], bad["s"], bad["file_row"]) == (None, None, 2)
    assert bad["file_error"] == "column 'k' is not int64 NOT NULL: a value is null"
    with pytest.raises(UserFileDamaged, match="'k' is not int64 NOT NULL: a value is null; give a"):
        recorded(path, tmp_path / "q2", PLAIN, format=form, has_dead_letters=False)


def test_a_file_without_a_column_that_is_not_null_is_a_dead_letter(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet", [{"at": 1}], pa.schema([("at", AT)]))
    (row,) = recorded(tmp_path / "in", tmp_path / "q", PLAIN)
    assert "it has no column 'k', which is NOT NULL" in row["file_error"]
    assert row[TIME_COLUMN] is not None


def test_a_log_that_let_nulls_pass_is_not_read_otherwise(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet", ROWS, LOOSE)
    assert len(recorded(tmp_path / "in", tmp_path / "q", LOOSE)) == 3
    with pytest.raises(SchemaMismatch, match="or leave NOT NULL out there"):
        recorded(tmp_path / "in", tmp_path / "q", PLAIN)
    root = str(tmp_path / "log")
    ingest_log.prepare(root, ingest_log.IngestMeta(LOOSE, "at", 0))
    with pytest.raises(SchemaMismatch, match="or leave NOT NULL out there"):
        ingest_log.prepare(root, ingest_log.IngestMeta(PLAIN, "at", 0))
    recorded(tmp_path / "in", tmp_path / "q2", PLAIN)
    assert recorded(tmp_path / "in", tmp_path / "q2", PLAIN)[1]["file_error"]
    meta = ingest_log.read_meta(ingest_path(str(tmp_path / "q2"), "files"))
    assert meta.declared == PLAIN


def test_a_null_in_a_name_of_a_folder_is_a_bad_row(tmp_path: Path) -> None:
    put(tmp_path / "in" / "k=1" / "a.parquet", [{"at": 1}], pa.schema([("at", AT)]))
    none = tmp_path / "in" / "k=__HIVE_DEFAULT_PARTITION__"
    put(none / "b.parquet", [{"at": 2}], pa.schema([("at", AT)]))
    schema = pa.schema([PLAIN.field("at"), PLAIN.field("k")])
    found = recorded(tmp_path / "in", tmp_path / "q", schema)
    assert sorted((row["k"] or 0, row["file_error"]) for row in found) == [
        (0, "column 'k' is not int64 NOT NULL: a value is null"),
        (1, None),
    ]


def test_a_null_within_a_column_of_files_that_is_not_null_is_a_bad_row(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"s": {"a": None, "b": "x"}},
        {"l": [1, None]},
        {"m": [("x", None)]},
        {"deep": [{"n": [("x", {"a": None})]}]},
    ]
    deep = [{"n": [("x", {"a": 1}), ("y", None)]}, None]
    good: dict[str, Any] = {"s": {"a": 1, "b": None}, "l": [], "m": [("x", 1)], "deep": deep}
    rows = [good, *(good | each for each in bad), dict.fromkeys(good)]
    loose = carried_schema(NESTED)
    put(tmp_path / "in" / "a.parquet", [{"at": 1, **row} for row in rows], loose)
    found = recorded(tmp_path / "in", tmp_path / "q", NESTED)
    assert [row["file_row"] for row in found] == [None, 2, 3, 4, 5, None]
    assert {name: found[0][name] for name in good} == good
    paths = "s.a", "l[]", "m{}", "deep[].n{}.a"
    for row, path in zip(found[1:-1], paths, strict=True):
        assert row["file_error"].endswith(f": {path} is not int64 NOT NULL: a value is null")
    with pytest.raises(UserFileDamaged, match=r"row 2: .* s\.a is not int64 NOT NULL"):
        recorded(tmp_path / "in", tmp_path / "q2", NESTED, has_dead_letters=False)
    assert len(recorded(tmp_path / "in", tmp_path / "q3", loose)) == len(rows)


def test_a_chosen_column_of_a_table_may_be_not_null(tmp_path: Path) -> None:
    rows = [{"at": 1, "s": {"a": None, "b": "x"}}]
    schema = carried_schema(pa.schema([NESTED.field("at"), NESTED.field("s")]))
    write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist(rows, schema))
    given: dict[str, Any] = dict.fromkeys(("start_version", "start_time", "delay", "ahead"))
    chosen = pa.schema([NESTED.field("at"), NESTED.field("s")])
    for each, declared in ((chosen, chosen), (schema, None)):
        source = delta_source(
            str(tmp_path / "t"), time="at", schema=each, trigger=None, ends=False, **given
        )
        assert source.meta.declared == declared
        assert source.meta.schema == schema
