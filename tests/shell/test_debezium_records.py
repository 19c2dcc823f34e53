"""Debezium's records as changes of rows: what each gives, and which are bad."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.debezium import CHANGE
from holdfast.shell.kafka.decoding import ERROR, Decoder, Records, attributes_of

AT = pa.timestamp("us", tz="UTC")
TABLE = pa.schema([("id", pa.int64()), ("name", pa.string())])


def records(*given: Any, stamps: list[int] | None = None) -> Records:
    values = [None if each is None else json.dumps(each).encode() for each in given]
    count = len(values)
    at = stamps or [1_000 * n for n in range(count)]
    return Records([0] * count, list(range(count)), at, [None] * count, list(values))


def decoder(schema: pa.Schema = TABLE, *, is_lenient: bool = False) -> Decoder:
    return Decoder("debezium", attributes_of("debezium", schema), has_dead_letters=is_lenient)


def row(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "more": "passed over"}


def change(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": 5, **more}


ANN, ANNA, BOB = row(1, "Ann"), row(1, "Anna"), row(2, None)


def test_each_record_tells_what_came_and_what_went() -> None:
    given = records(
        change("r", after=BOB),
        {"schema": None, "payload": change("c", after=ANN)},
        change("u", ANN, ANNA),
        change("m"),
        change("d", ANNA),
        None,
    )
    decoded = decoder().decode(given, 0)
    rows = decoded.batch.select(["id", "name", CHANGE, "kafka_offset"]).to_pylist()
    assert [tuple(each.values()) for each in rows] == [
        (2, None, "insert", 0),
        (1, "Ann", "insert", 1),
        (1, "Ann", "update_before", 2),
        (1, "Anna", "update_after", 2),
        (1, "Anna", "delete", 4),
    ]
    assert decoded.times_us.tolist() == [0, 1_000, 2_000, 2_000, 4_000]
    assert not decoded.is_bad.any()


def test_no_change_is_late_nor_overtakes_another() -> None:
    given = records(change("c", after=ANN), change("d", ANN), change("c", after=BOB),
                    stamps=[7_000, 2_000, 8_000])  # fmt: skip
    assert decoder().decode(given, 5_000).times_us.tolist() == [7_000, 7_000, 8_000]
    assert decoder().decode(given, 7_500).times_us.tolist() == [7_500, 7_500, 8_000]


def test_an_update_of_the_key_is_of_two_rows() -> None:
    """Whoever keeps the table by its key must delete the row that was."""
    columns = attributes_of("debezium", TABLE)
    given = records(change("u", ANN, row(7, "Ann")), change("u", ANN, ANNA))
    decoded = Decoder("debezium", columns, keys=("id",)).decode(given, 0)
    kinds = ["delete", "insert", "update_before", "update_after"]
    assert decoded.batch.column(CHANGE).to_pylist() == kinds
    assert decoded.batch.column("id").to_pylist() == [1, 7, 1, 1]


UNIT = "org.apache.kafka.connect.data"
TYPED = [
    ("io.debezium.time.Date", 19_000, pa.date32(), "2022-01-08"),
    ("io.debezium.time.Timestamp", 1_500, AT, "1970-01-01 00:00:01.500000+00:00"),
    ("io.debezium.time.MicroTimestamp", -1, pa.timestamp("us"), "1969-12-31 23:59:59.999999"),
    ("io.debezium.time.NanoTimestamp", 2_000, pa.timestamp("us"), "1970-01-01 00:00:00.000002"),
    ("io.debezium.time.ZonedTimestamp", "2024-05-06T07:08:09Z", AT, "2024-05-06 07:08:09+00:00"),
    (f"{UNIT}.Timestamp", 1, pa.timestamp("us"), "1970-01-01 00:00:00.001000"),
]


@pytest.mark.parametrize(("name", "value", "kind", "wanted"), TYPED)
def test_a_schema_says_what_a_number_stands_for(
    name: str, value: Any, kind: pa.DataType, wanted: str
) -> None:
    table = pa.schema([("v", kind)])
    fields = [{"field": "after", "fields": [{"field": "v", "name": name}]}]
    given = records({"schema": {"fields": fields}, "payload": change("c", after={"v": value})})
    (found,) = decoder(table).decode(given, 0).batch.column("v").to_pylist()
    assert str(found) == wanted


def test_decimals_are_what_the_database_has() -> None:
    table = pa.schema([("v", pa.decimal128(12, 2))])
    field = {"field": "v", "name": f"{UNIT}.Decimal", "parameters": {"scale": "2"}}
    fields = [{"field": side, "fields": [field]} for side in ("before", "after")]
    stored = base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode()
    given = records({"schema": {"fields": fields}, "payload": change("c", after={"v": stored})})
    assert str(decoder(table).decode(given, 0).batch.column("v")[0]) == "-123.45"


def test_numbers_within_arrays_and_structs_stay_numbers() -> None:
    table = pa.schema([("a", pa.list_(pa.float64())), ("s", pa.struct([("x", pa.float64())]))])
    found = {"a": [1.5, 2, None], "s": {"x": 0.25}}
    decoded = decoder(table).decode(records(change("c", after=found)), 0)
    assert decoded.batch.select(["a", "s"]).to_pylist() == [found]


BAD = {
    "no change": ({"id": 1}, "op is None"),
    "nothing": (17, "op is"),
    "truncates": (change("t"), "op is 't'"),
    "no former row": (change("u", None, ANN), "lacks the row 'before'.*REPLICA IDENTITY FULL"),
    "a key alone": (change("d", {"id": 1}), "lacks name.*REPLICA IDENTITY FULL"),
    "a large value left out": (
        change("u", row(1, "__debezium_unavailable_value"), ANN),
        "row 'before' lacks name",
    ),
    "another type": (change("u", ANN, row(1, 17)), "name|number"),
}  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", BAD)
def test_a_record_that_does_not_tell_all_is_a_bad_one_as_a_whole(kind: str) -> None:
    record, message = BAD[kind]
    given = records(change("c", after=ANN), record, change("c", after=BOB))
    with pytest.raises(KafkaError, match=rf"offset 1: .*({message})"):
        decoder().decode(given, 0)
    decoded = decoder(is_lenient=True).decode(given, 0)
    assert decoded.is_bad.tolist() == [False, True, False]
    assert decoded.batch.column("id").to_pylist() == [1, None, 2]
    assert decoded.batch.column(ERROR)[1].is_valid


def test_a_number_without_a_unit_is_no_time() -> None:
    given = records(change("c", after={"v": 1_500}))
    with pytest.raises(KafkaError, match="offset 0"):
        decoder(pa.schema([("v", AT)])).decode(given, 0)
