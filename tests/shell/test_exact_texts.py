"""Lines of CSV and JSON, and ORC files, of which Spark would make something else are bad."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from holdfast.shell.storage.exact_texts import COLUMNS
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import FilesFormat, read_rows

SCHEMA = pa.schema(
    [
        pa.field("s", pa.string()),
        pa.field("i", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
Row = dict[str, object]
AT = "2024-01-01T00:00:00Z"
NAMES = ["s", "unread", "i", "d", "at"]


def csv(header: str = "false", sep: str = ",") -> FilesFormat:
    options = ((COLUMNS, json.dumps(NAMES)), ("header", header), ("sep", sep))
    return FilesFormat("csv", options, is_exact=True)


def found(folder: Path, content: bytes, of: FilesFormat, name: str = "a") -> list[Row]:
    (folder / name).write_bytes(content)
    (file,) = list_files(str(folder))
    made = [part for each in read_rows(file.file, of, SCHEMA, "at") for part in each.parts]
    return [
        {key: row[key] for key in ("s", "i", "d")}
        for part in made
        if isinstance(part, pa.RecordBatch)
        for row in part.to_pylist()
    ]


def test_columns_of_csv_are_known_by_their_places(tmp_path: Path) -> None:
    """However a header names them; an unread one may hold anything, and blank lines are none."""
    lines = f'at,s,s,x,y\r\na b,0x1,5,1.5,{AT}\r\n \r\n"q,r",nan,-6,,{AT}'
    assert found(tmp_path, lines.encode(), csv("true")) == [
        {"s": "a b", "i": 5, "d": 1.5},
        {"s": "q,r", "i": -6, "d": None},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('"a""b",,1,1,{at}', "a quoted value"),
        ('"a\\\\",,1,1,{at}', "a quoted value"),
        ('"",,1,1,{at}', "a quoted value"),
        ('a"b,,1,1,{at}', "a quoted value"),
        ("a,, 1,1,{at}", "blanks around"),
        ("a,,1,1\t,{at}", "blanks around"),
        ("a,,0x1F,1,{at}", "hex"),
        ("a,,1,nan,{at}", "not finite"),
        ("a,,1,1e999,{at}", "not finite"),
        ("a,b\rc,1,1,{at}", "carriage return"),
        ("\ufeffa,,1,1,{at}", "mark of UTF-8"),
        ("a,,1,1,2024-01-02 03:04:05+19:00", "14 hours"),
        ("a,,1,1", "Expected 5 columns"),
    ],
)
def test_odd_lines_of_csv_are_bad(tmp_path: Path, line: str, reason: str) -> None:
    good = "".join(f"good 0x,,{n},{n}.5,{AT}\n" for n in range(40))
    odd = (line.format(at=AT) + "\n").encode()
    content = odd + good.encode() if "\ufeff" in line else good.encode() + odd
    with pytest.raises(UserFileDamaged, match=f"{reason}.*readFilesInNodes=false"):
        found(tmp_path, content, csv())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"s": "a"}{"s": "b"}', "2 records"),
        ('{"s": "a", "d": NaN, "at": "AT"}', "not finite"),
        ('{"s": "a",\r"d": 1, "at": "AT"}', "carriage return"),
        ('{"s": "a", "s": "b", "at": "AT"}', "twice"),
        ('{"s": "a", "i": "5", "at": "AT"}', "number to string"),
    ],
)
def test_odd_lines_of_json_are_bad(tmp_path: Path, line: str, reason: str) -> None:
    of = FilesFormat("json", is_exact=True)
    good = "".join(f'{{"s": "x", "i": {n}, "at": "{AT}", "more": [1]}}\n' for n in range(40))
    assert len(found(tmp_path, f"{good}\r\n{good}".encode(), of)) == 80
    content = (good + line.replace("AT", AT) + "\n").encode()
    with pytest.raises(UserFileDamaged, match=f"{reason}.*readFilesInNodes=false"):
        found(tmp_path, content, of)


def test_a_date_of_json_is_a_text_and_no_number(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f'{{"day": "2024-02-03", "at": "{AT}"}}\n')
    schema = pa.schema([pa.field("day", pa.date32()), SCHEMA.field("at")])
    (file,) = list_files(str(tmp_path))
    (only,) = read_rows(file.file, FilesFormat("json"), schema, "at")
    (made,) = only.parts
    assert isinstance(made, pa.RecordBatch)
    assert [str(day) for day in made.column(0).to_pylist()] == ["2024-02-03"]
    (tmp_path / "a").write_text(f'{{"day": 5, "at": "{AT}"}}\n')
    (file,) = list_files(str(tmp_path))
    with pytest.raises(UserFileDamaged, match="string to number"):
        list(read_rows(file.file, FilesFormat("json"), schema, "at"))


def test_packed_texts_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(UserFileDamaged, match="it is packed"):
        found(tmp_path, b"", csv(), name="a.csv.GZ")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"s": ["a"], "i": [1], "d": [1.5]}), ""),
        (pa.table({"s": ["a"], "I": [1], "d": [1.5]}), "'I'|'i' is written otherwise"),
        (pa.table({"s": ["a"], "i": pa.array([1], pa.int32()), "d": [1.5]}), "'i' is int32"),
        (pa.table({"_col0": ["a"], "_col1": [1]}), "have no names"),
    ],
)
def test_orc_files_that_spark_reads_otherwise_are_told(
    tmp_path: Path, table: pa.Table, reason: str
) -> None:
    times = pa.array([1_700_000_000_000_000_000], pa.timestamp("ns"))
    of = FilesFormat("orc", is_exact=True)
    name = "_col2" if "_col0" in table.column_names else "at"
    orc.write_table(table.append_column(name, times), tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    if reason:
        with pytest.raises(UserFileDamaged, match=f"({reason}).*readFilesInNodes=false"):
            found(tmp_path, content, of)
        return
    assert found(tmp_path, content, of) == [{"s": "a", "i": 1, "d": 1.5}]


def test_times_of_orc_before_the_calendar_are_bad(tmp_path: Path) -> None:
    old = pa.array([-12_219_300_000_000_000_000 // 1_000_000], pa.timestamp("ms"))
    new = pa.table({"s": ["a"], "at": pa.array([0], pa.timestamp("ns"))})
    orc.write_table(new, tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    assert len(found(tmp_path, content, FilesFormat("orc", is_exact=True))) == 1
    schema = pa.schema([pa.field("day", pa.date32()), SCHEMA.field("at")])
    day = old.cast(pa.date32())
    orc.write_table(new.set_column(0, "day", day), tmp_path / "a")
    (file,) = list_files(str(tmp_path))
    with pytest.raises(UserFileDamaged, match="before 15 October 1582"):
        list(read_rows(file.file, FilesFormat("orc", is_exact=True), schema, "at"))
