"""Columns that cannot be told apart later are refused while the dataflow is built, by name."""

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.core.model.column_names import quoted, unquoted
from holdfast.errors import DataflowError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

TIME = pa.timestamp("us", tz="UTC")


def source(root: str, *names: str) -> Stream:
    schema = pa.schema([("at", TIME), *((name, pa.int64()) for name in names)])
    ingest_log.prepare(root, IngestMeta(schema, "at", 0))
    return Dataflow("odd").source_log(root, name="rows")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("k", "K"), r"source rows gives a column twice: 'k' and 'K'.*rename"),
        (("k", "k"), r"source rows gives a column twice: 'k' and 'k'"),
        (("AT",), r"'at' and 'AT'"),
        (("",), r"cannot be named ''.*rename"),
        (("a\nb",), r"cannot be named 'a\\nb'"),
        (("a\x00",), r"cannot be named"),
        (("_tuple_id",), r"'_tuple_id' has a name that is reserved.*rename"),
        (("_Time",), r"'_Time' has a name that is reserved"),
        (("_partition",), r"reserved"),
        (("_type",), r"reserved"),
        (("__time_us",), r"reserved"),
        (("__start",), r"reserved"),
    ],
)
def test_a_source_with_columns_that_cannot_be_told_apart_is_refused(
    tmp_path: object, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DataflowError, match=message):
        source(str(tmp_path), *names)


def test_what_operators_give_is_looked_at_too(tmp_path: object) -> None:
    rows = source(str(tmp_path), "k", "error", "Window_Start")
    windows = rows.key_by("k").window(hf.tumbling("1 second"))
    for build, message in (
        (lambda: rows.select("k", "at AS K"), r"select gives a column twice: 'k' and 'K'"),
        (lambda: rows.select("k AS _time"), r"'_time' has a name that is reserved"),
        (lambda: rows.select("k AS `a\tb`"), r"cannot be named"),
        (lambda: windows.aggregate("count(*) AS K"), r"'k' and 'K'"),
        (
            lambda: rows.key_by("Window_Start").window(hf.tumbling("1 second")).aggregate("sum(k)"),
            r"'window_start' and 'Window_Start'",
        ),
        (
            lambda: rows.join(rows, on="k", select=["left.k", "right.k AS K"]),
            r"join gives a column twice",
        ),
        (
            lambda: rows.resample("k AS K", within="1 second", at=rows, on="k"),
            r"resample gives a column twice",
        ),
        (lambda: rows.filter("1 / k > 0", dead_letters="bad"), r"dead letters have a column"),
    ):
        with pytest.raises(DataflowError, match=message):
            build()


@pytest.mark.parametrize("name", ["a.b", "x y", "q`t", "`", "sum(v * 1.5)", "Ünï", "1", "select"])
def test_any_other_name_is_written_and_read(tmp_path: object, name: str) -> None:
    assert unquoted(quoted(name)) == name
    rows = source(str(tmp_path), name)
    assert rows.select("*").schema.names == ["at", name]
    assert rows.select(f"{quoted(name)} + 1 AS {quoted(name)}").schema.names == [name]
    joined = rows.join(rows, on=name, select=[f"left.{name}", "right.at"])
    assert joined.schema.names == [name, "at"]
    other = rows.join(rows, on=name, select=[f"left.{quoted(name)} AS {quoted(name + '2')}"])
    assert other.schema.names == [name + "2"]
