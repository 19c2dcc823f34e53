"""JSON of Kafka and of files: a value becomes that of its column, or its record is bad by name."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.shell.kafka.decoding import Decoded, Decoder, Records, attributes_of
from holdfast.shell.kafka.encoding import Encoder
from holdfast.shell.storage.user_files import list_files
from holdfast.shell.storage.user_rows import BadRow, FilesFormat, read_rows

MOMENT = pa.timestamp("us", tz="UTC")


def decoded(schema: pa.Schema, *values: bytes, kind: str = "json") -> Decoded:
    """What a source with dead letters makes of records."""
    count = len(values)
    given = Records(
        [0] * count, list(range(count)), [1] * count, [None] * count, [*map(bytes, values)]
    )
    return Decoder(kind, attributes_of(kind, schema), None, True).decode(given, 0)


def error_of(schema: pa.Schema, value: bytes) -> str:
    """Why a record is bad; empty: it is good."""
    (error,) = decoded(schema, value).batch.column("kafka_error").to_pylist()
    return error or ""


DAY = pa.schema([("day", pa.date32())])
DAYS = pa.schema(
    [("s", pa.struct([("day", pa.date32()), ("n", pa.int8())])), ("l", pa.list_(pa.date32()))]
)


def test_a_date_is_a_text() -> None:
    good = decoded(DAY, b'{"day": "2026-01-02"}', b'{"day": null}', b"{}")
    assert good.batch.column("day").to_pylist() == [dt.date(2026, 1, 2), None, None]
    (nested,) = decoded(
        DAYS, b'{"s": {"n": 1, "day": "2026-01-02"}, "l": ["2026-01-03", null]}'
    ).batch.to_pylist()
    assert nested["s"] == {"day": dt.date(2026, 1, 2), "n": 1}
    assert nested["l"] == [dt.date(2026, 1, 3), None]


READ = {
    "2026-1-2": (2026, 1, 2),
    "2026": (2026, 1, 1),
    "2026-3": (2026, 3, 1),
    " +2026-01-2\\t": (2026, 1, 2),
    "2026-01-02T05:00:00": (2026, 1, 2),
    "2026-1-2 at noon": (2026, 1, 2),
    "2026-01-02GMT": (2026, 1, 2),
}


@pytest.mark.parametrize("text", READ)
def test_a_date_may_be_written_as_spark_reads_it(text: str) -> None:
    day = dt.date(*READ[text])
    given = f'{{"s": {{"day": "{text}"}}, "l": [null, "{text}"]}}'.encode()
    assert decoded(DAY, f'{{"day": "{text}"}}'.encode()).batch.column("day")[0].as_py() == day
    (_, _, found) = decoded(DAYS, b'{"s": null, "l": null}', b"{}", given).batch.to_pylist()
    assert (found["s"]["day"], found["l"]) == (day, [None, day])


def test_a_date_that_the_sink_has_written_is_read() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([dt.date(1969, 7, 20)]), pa.array([0])], names=["day", "time"]
    )
    ((_, value),) = Encoder("json").records(batch)
    assert value is not None
    assert decoded(DAY, value).batch.column("day").to_pylist() == [dt.date(1969, 7, 20)]


@pytest.mark.parametrize(
    "text",
    [
        '"2026-02-30"',
        '"2026-1-2x"',
        '"02.01.2026"',
        '"today"',
        '"5"',
        '""',
        '" "',
        "5",
        "0.5",
        '"26-1-2"',
        '"0000-01-01"',
    ],
)
def test_what_is_no_date_is_a_bad_record_by_name(text: str) -> None:
    assert "day" in error_of(DAY, f'{{"day": {text}}}'.encode())
    assert error_of(DAYS, f'{{"s": {{"day": {text}}}}}'.encode())


def test_a_date_of_a_database_is_a_number_of_days() -> None:
    change = b'{"op": "c", "before": null, "after": {"day": 5}}'
    found = decoded(DAY, change, kind="debezium").batch.column("day").to_pylist()
    assert found == [dt.date(1970, 1, 6)]


FLOATS = pa.schema(
    [
        ("f", pa.float32()),
        ("s", pa.struct([("l", pa.list_(pa.float32()))])),
    ]
)
NEAREST = [(b"0.1", 0.1), (b"-3.4028234e38", -3.4028234e38), (b"1e-60", 0.0), (b"16777217", 2**24)]


@pytest.mark.parametrize(("text", "value"), NEAREST)
def test_a_float_is_the_nearest_one(text: bytes, value: float) -> None:
    found = decoded(FLOATS, b'{"f": ' + text + b"}").batch.column("f")
    assert found.equals(pa.array([value], pa.float32()))


def test_a_number_beyond_all_floats_is_a_bad_record_by_name() -> None:
    given = [b'{"f": 1.5}', b'{"f": 1e300}', b'{"f": Infinity}', b'{"f": null}']
    found = decoded(FLOATS, *given)
    assert found.is_bad.tolist() == [False, True, False, False]
    assert found.batch.column("f").to_pylist() == [1.5, None, float("inf"), None]
    assert "column 'f' is not float: 1e+300 is too large" in error_of(FLOATS, given[1])
    nested = b'{"s": {"l": [1, -1e39]}}'
    assert "column 's.l[]' is not float: -1e+39 is too large" in error_of(FLOATS, nested)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_number_beyond_all_floats_is_a_bad_line(tmp_path: Path, form: str) -> None:
    at, schema = "2026-01-01T05:00:00Z", pa.schema([("at", MOMENT), ("f", pa.float32())])
    infinite = "Infinity" if form == "json" else "inf"
    lines = {
        "json": [f'{{"at": "{at}", "f": {f}}}' for f in (0.5, infinite, "1e300", -0.5)],
        "csv": [f"{at},{f}" for f in (0.5, infinite, "1e300", -0.5)],
    }
    found = parts(tmp_path, form, lines[form], schema)
    (bad,) = [part for part in found if isinstance(part, BadRow)]
    good = [part for part in found if not isinstance(part, BadRow)]
    values = [row["f"] for part in good for row in part.to_pylist()]
    assert values == [0.5, float("inf"), -0.5]
    assert bad.number == 3
    assert "column 'f' is not float: 1e+300 is too large" in bad.reason.replace("1e300", "1e+300")


NAMED = pa.schema(
    [
        ("at", MOMENT),
        ("n", pa.int64()),
        ("größe", pa.int64()),
        ("s", pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("b", pa.int64())])))])),
    ]
)
RENAMED = {
    '"N": 1': "column 'N', and none 'n'",
    '"\\u004e": 1': "column 'N', and none 'n'",
    '"GRÖSSE": 1, "GRÖßE": 1': "column 'GRÖßE', and none 'größe'",
    '"s": {"A": 1, "l": null}': "field 's.A', and none 's.a'",
    '"s": {"a": 1, "l": [{"b": 1}, {"B": 1}]}': "field 's.l[].B', and none 's.l[].b'",
}
NOT_RENAMED = (
    '"more": "N", "s": null',
    '"n": null, "N": 2',
    '"n": 1, "N": 2, "s": {"a": 1, "A": 2}',
    '"more": {"N": 1}',
    '"more": "a \\"N\\": 1"',
    '"more": "\\u004e"',
)


@pytest.mark.parametrize("fields", RENAMED)
def test_a_field_in_other_capitals_is_bad_by_name(tmp_path: Path, fields: str) -> None:
    at = '"at": "2026-01-01T05:00:00Z"'
    record = f"{{{at}, {fields}}}"
    assert RENAMED[fields] in error_of(NAMED, record.encode())
    only = pa.schema([NAMED.field("n")])  # Such records are read without Arrow, if there are few.
    assert ("and none 'n'" in error_of(only, record.encode())) is ("'n'" in RENAMED[fields])
    good, bad = parts(tmp_path, "json", [f'{{{at}, "n": 1}}', record], NAMED)
    assert isinstance(good, pa.RecordBatch)
    assert isinstance(bad, BadRow)
    assert RENAMED[fields] in bad.reason


@pytest.mark.parametrize("fields", NOT_RENAMED)
def test_another_field_or_a_value_is_no_renamed_column(tmp_path: Path, fields: str) -> None:
    record = f'{{"at": "2026-01-01T05:00:00Z", {fields}}}'
    assert not error_of(NAMED, record.encode())
    (good,) = parts(tmp_path, "json", [record], NAMED)
    assert isinstance(good, pa.RecordBatch)


def test_columns_that_differ_in_capitals_alone_are_two() -> None:
    schema = pa.schema([("n", pa.int64()), ("N", pa.int64())])
    assert not error_of(schema, b'{"N": 1}')


def parts(
    place: Path, form: str, lines: list[str], schema: pa.Schema
) -> list[pa.RecordBatch | BadRow]:
    """What a source of files with dead letters makes of lines."""
    (place / f"a.{form}").write_text("".join(f"{line}\n" for line in lines))
    (listed,) = list_files(str(place))
    of = FilesFormat(form, has_dead_letters=True)
    return [part for found in read_rows(listed.file, of, schema, "at") for part in found.parts]
