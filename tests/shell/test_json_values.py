"""JSON of Kafka and of files: a value becomes that of its column, or its record is bad by name."""

import datetime as dt

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.shell.kafka.decoding import Decoded, Decoder, Records, attributes_of
from holdfast.shell.kafka.encoding import Encoder


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


def test_a_date_that_the_sink_has_written_is_read() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([dt.date(1969, 7, 20)]), pa.array([0])], names=["day", "time"]
    )
    ((_, value),) = Encoder("json").records(batch)
    assert value is not None
    assert decoded(DAY, value).batch.column("day").to_pylist() == [dt.date(1969, 7, 20)]


@pytest.mark.parametrize(
    "text",
    ['"2026-02-30"', '"2026-01-02T05:00:00"', '"02.01.2026"', '"today"', '"5"', '""', "5", "0.5"],
)
def test_what_is_no_date_is_a_bad_record_by_name(text: str) -> None:
    assert "day" in error_of(DAY, f'{{"day": {text}}}'.encode())
    assert error_of(DAYS, f'{{"s": {{"day": {text}}}}}'.encode())


def test_a_date_of_a_database_is_a_number_of_days() -> None:
    change = b'{"op": "c", "before": null, "after": {"day": 5}}'
    found = decoded(DAY, change, kind="debezium").batch.column("day").to_pylist()
    assert found == [dt.date(1970, 1, 6)]
