"""Kafka's records to tuples and back: what can be decoded, what cannot, and how it is told."""

import datetime
import decimal
import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.core.model.tuples import EARLIEST_US, LATEST_US
from holdfast.shell.kafka.client import KafkaCluster, KafkaError
from holdfast.shell.kafka.decoding import Decoder, Records, attributes_of
from holdfast.shell.kafka.encoding import Encoder, _plain

AT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", AT)])
GOOD = b'{"id": 1, "name": "a", "at": "2026-01-01T00:00:01Z"}'
GOOD_US = 1_767_225_601_000_000


def records(*values: bytes | None, keys: list[bytes | None] | None = None) -> Records:
    count = len(values)
    return Records(
        [n % 3 for n in range(count)],
        list(range(100, 100 + count)),
        [5_000_000 + n for n in range(count)],
        keys or [None] * count,
        list(values),
    )


def json_decoder(*, has_dead_letters: bool = False, time: str | None = "at") -> Decoder:
    return Decoder("json", attributes_of("json", SCHEMA), time, has_dead_letters)


def test_json_rows_carry_their_position_and_time() -> None:
    decoded = json_decoder().decode(records(GOOD, GOOD), 0)
    assert decoded.batch.column("id").to_pylist() == [1, 1]
    assert decoded.batch.column("kafka_partition").to_pylist() == [0, 1]
    assert decoded.batch.column("kafka_offset").to_pylist() == [100, 101]
    assert decoded.times_us.tolist() == [GOOD_US, GOOD_US]


BAD = {
    "no json": b"{not json",
    "empty": b"",
    "null": b"null",
    "tombstone": None,
    "array": b"[1]",
    "wrong type": b'{"id": "one", "at": "2026-01-01T00:00:01Z"}',
    "fraction": b'{"id": 1.5, "at": "2026-01-01T00:00:01Z"}',
    "too large": b'{"id": 99999999999999999999, "at": "2026-01-01T00:00:01Z"}',
    "no time": b'{"id": 1}',
    "bad time": b'{"id": 1, "at": "yesterday"}',
    "two objects": GOOD + b" " + GOOD,
    "two lines": GOOD + b"\n" + GOOD,
    "no utf-8": b'{"id": 1, "name": "\xff\xfe", "at": "2026-01-01T00:00:01Z"}',
    "line in a string": b'{"id": 1, "name": "a\nb", "at": "2026-01-01T00:00:01Z"}',
    "deep": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_put_aside_and_changes_no_other(name: str) -> None:
    given = records(GOOD, BAD[name], GOOD)
    decoded = json_decoder(has_dead_letters=True).decode(given, 7)
    assert decoded.is_bad.tolist() == [False, True, False]
    assert decoded.batch.column("id").to_pylist() == [1, None, 1]
    assert decoded.batch.column("kafka_value").to_pylist() == [None, BAD[name], None]
    assert decoded.batch.column("kafka_error").to_pylist()[1]
    assert decoded.times_us.tolist() == [GOOD_US, 5_000_001, GOOD_US]
    with pytest.raises(KafkaError, match="partition 1, offset 101"):
        json_decoder().decode(given, 7)


def test_many_bad_records_are_all_found() -> None:
    values = [GOOD if n % 3 else b'{"id": "x"}' for n in range(50)]
    decoded = json_decoder(has_dead_letters=True).decode(records(*values), 0)
    assert decoded.is_bad.tolist() == [n % 3 == 0 for n in range(50)]


def test_json_may_have_more_fields_and_spread_over_lines() -> None:
    value = b'{\n"more": {"x": [1, 2]},\n"id": 3, "at": "2026-01-01T00:00:01Z"}\r\n'
    decoded = json_decoder().decode(records(value), 0)
    assert decoded.batch.column("id").to_pylist() == [3]
    assert decoded.batch.column("name").to_pylist() == [None]


def test_a_bad_record_is_never_older_than_the_boundary() -> None:
    decoded = json_decoder(has_dead_letters=True).decode(records(b"x"), 9_000_000)
    assert decoded.times_us.tolist() == [9_000_000]


@pytest.mark.parametrize("stamp_us", [10**18 * 1_000_000, 10**30, LATEST_US + 1000])
def test_a_timestamp_beyond_all_years_is_a_bad_record(stamp_us: int) -> None:
    """As of a producer that counts nanoseconds; C has no number for it."""
    given = records(b"a", b"b", b"c")
    given.timestamps_us[1] = stamp_us
    for kind, time in (("string", "timestamp"), ("bytes", "timestamp")):
        decoder = Decoder(kind, attributes_of(kind, None), time, True)
        decoded = decoder.decode(given, 7)
        assert decoded.is_bad.tolist() == [False, True, False]
        (error,) = [e for e in decoded.batch.column("kafka_error").to_pylist() if e]
        assert f"{stamp_us // 1000} ms since 1970" in error
        with pytest.raises(KafkaError, match="partition 1, offset 101: its timestamp"):
            Decoder(kind, attributes_of(kind, None), time).decode(given, 7)


def test_a_timestamp_that_nobody_asks_for_may_be_anything() -> None:
    given = records(GOOD, GOOD)
    given.timestamps_us[0] = 10**30
    assert json_decoder().decode(given, 0).times_us.tolist() == [GOOD_US, GOOD_US]
    with pytest.raises(KafkaError, match="partition 0, offset 100: its timestamp"):
        json_decoder(time=None).decode(given, 0)


@pytest.mark.parametrize("time_us", [2**63 - 1, -(2**63), LATEST_US + 1, EARLIEST_US - 1])
def test_a_time_beyond_all_years_is_a_bad_record(time_us: int) -> None:
    schema = pa.schema([("at", AT)])
    batches = [
        pa.RecordBatch.from_arrays([pa.array([us], pa.int64()).cast(AT)], schema=schema)
        for us in (5, time_us, 6)
    ]
    given = records(*(written(batch) for batch in batches))
    decoder = Decoder("arrow", attributes_of("arrow", schema), "at", True)
    decoded = decoder.decode(given, 4)
    assert decoded.is_bad.tolist() == [False, True, False]
    assert decoded.times_us.tolist() == [5, 5_000_001, 6]
    with pytest.raises(KafkaError, match="offset 101: its time column 'at' is outside of the"):
        Decoder("arrow", attributes_of("arrow", schema), "at").decode(given, 4)


def written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_strings_and_bytes_keep_keys_values_and_timestamps() -> None:
    given = records(b"a", None, keys=[b"k", None])
    for kind, key, value in (("string", "k", "a"), ("bytes", b"k", b"a")):
        decoded = Decoder(kind, attributes_of(kind, None)).decode(given, 0)
        assert decoded.batch.column("key").to_pylist() == [key, None]
        assert decoded.batch.column("value").to_pylist() == [value, None]
        assert decoded.times_us.tolist() == [5_000_000, 5_000_001]


def test_a_string_that_is_no_utf_8_is_a_bad_record() -> None:
    decoder = Decoder("string", attributes_of("string", None), None, True)
    decoded = decoder.decode(records(b"a", b"\xff", b"c"), 0)
    assert decoded.is_bad.tolist() == [False, True, False]
    assert decoded.batch.column("value").to_pylist() == ["a", None, "c"]


def arrow(*ids: int, schema: pa.Schema = SCHEMA) -> bytes:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows = {"id": list(ids), "name": ["a"] * len(ids), "at": [at] * len(ids)}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict(rows, schema=schema))
    return sink.getvalue().to_pybytes()


def test_an_arrow_record_may_hold_any_number_of_rows() -> None:
    decoder = Decoder("arrow", attributes_of("arrow", SCHEMA), "at")
    decoded = decoder.decode(records(arrow(1, 2), arrow(), arrow(3)), 0)
    assert decoded.batch.column("id").to_pylist() == [1, 2, 3]
    assert decoded.batch.column("kafka_offset").to_pylist() == [100, 100, 102]


def test_damaged_arrow_is_a_bad_record() -> None:
    good = arrow(1)
    other = arrow(1, schema=pa.schema([("id", pa.int32()), ("name", pa.string()), ("at", AT)]))
    decoder = Decoder("arrow", attributes_of("arrow", SCHEMA), "at", True)
    given = records(good, b"", good[: len(good) // 2], other, None, b"\xff" * 100)
    decoded = decoder.decode(given, 0)
    assert decoded.is_bad.tolist() == [False, True, True, True, True, True]


def test_any_byte_of_an_arrow_record_may_be_wrong() -> None:
    good = arrow(1, 2, 3)
    decoder = Decoder("arrow", attributes_of("arrow", SCHEMA), "at", True)
    chance = np.random.default_rng(1)
    for place in chance.integers(0, len(good), 300):
        broken = bytearray(good)
        broken[place] ^= int(chance.integers(1, 256))
        decoded = decoder.decode(records(bytes(broken), good), 0)
        assert decoded.batch.column("id").to_pylist()[-3:] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        ("xml", None, "one of bytes, string, json, arrow, debezium, avro"),
        ("json", None, "needs a schema"),
        ("string", SCHEMA, "its own columns"),
        ("json", pa.schema([("kafka_offset", pa.int64())]), "Holdfast's own"),
    ],
)
def test_a_format_that_cannot_be_is_refused(
    kind: str, schema: pa.Schema | None, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason):
        attributes_of(kind, schema)


def test_options_that_are_holdfasts_own_are_refused() -> None:
    with pytest.raises(KafkaError, match=r"transactional\.id"):
        KafkaCluster("localhost:9092", {"transactional.id": "mine"})
    with pytest.raises(KafkaError, match="host:port"):
        KafkaCluster(" ")
    with pytest.raises(KafkaError, match=r"no\.such"):
        KafkaCluster("localhost:9092", {"no.such": "x"}).client("Consumer", {"group.id": "g"})


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(KafkaCluster("localhost:9092", {"sasl.password": "hush"}))


def timed(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict({**columns, "__time_us": pa.array([0] * count)})


def test_json_keeps_every_digit() -> None:
    moment = datetime.datetime(2026, 1, 1, 0, 0, 1, 5, datetime.UTC)
    batch = timed(
        {
            "i": pa.array([2**62]),
            "f": pa.array([0.1]),
            "d": pa.array([decimal.Decimal("12345678901234567890.12")]),
            "t": pa.array([moment], AT),
            "day": pa.array([datetime.date(2026, 1, 1)]),
            "s": pa.array(["ü\n"]),
            "b": pa.array([True]),
            "n": pa.array([None], pa.int64()),
            "nan": pa.array([float("nan")]),
            "inf": pa.array([float("-inf")]),
            "bin": pa.array([b"\x00"]),
        }
    )
    ((key, value),) = Encoder("json").records(batch)
    assert key is None
    assert value is not None
    assert json.loads(value) == {
        "i": 2**62,
        "f": 0.1,
        "d": "12345678901234567890.12",
        "t": "2026-01-01T00:00:01.000005Z",
        "day": "2026-01-01",
        "s": "ü\n",
        "b": True,
        "n": None,
        "nan": "NaN",
        "inf": "-Infinity",
        "bin": "AA==",
    }


def test_whole_columns_are_written_as_their_values_would_be() -> None:
    columns = {
        "i": pa.array([1, -(2**63), None]),
        "u": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "f": pa.array([1.0, -0.0, 5e-324]),
        "g": pa.array([0.1, 1e22, None]),
        "h": pa.array([math.nan, math.inf, 1e16]),
        "single": pa.array([0.1, 3e38, None], pa.float32()),
        "b": pa.array([True, None, False]),
        "plain": pa.array(["a", "ü€😀", None]),
        "odd": pa.array(['"', "\\", "\x00\x1f\x7f"]),
        "at": pa.array([0, -1, None], pa.timestamp("us", tz="Europe/Berlin")),
        "local": pa.array([-62135596800000000, 253402300799999999, None], pa.timestamp("us")),
        "milli": pa.array([0, -1, None], pa.timestamp("ms")),
        "none": pa.array([None] * 3, pa.null()),
        'a "name"': pa.array([1, 2, 3]),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    found = [json.loads(value or b"") for _, value in Encoder("json").records(timed(columns))]
    for row, wanted in zip(found, rows.to_pylist(), strict=True):
        for name, value in wanted.items():
            expected = json.loads(json.dumps(_plain(value)))
            assert (row[name], type(row[name])) == (expected, type(expected)), name
    assert math.copysign(1, found[1]["f"]) == -1


def test_arrays_structs_and_maps_are_arrays_and_objects() -> None:
    at = pa.timestamp("us", tz="UTC")
    columns = {
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "box": pa.array([{"d": decimal.Decimal("1.50"), "at": 5}, None],
                        pa.struct([("d", pa.decimal128(5, 2)), ("at", at)])),
        "map": pa.array([[(1, b"\x00"), (2, None)], []], pa.map_(pa.int64(), pa.binary())),
    }  # fmt: skip
    batch = timed(columns)
    found = [json.loads(value or b"") for _, value in Encoder("json").records(batch)]
    assert found == [
        {
            "list": [1, None],
            "box": {"d": "1.50", "at": "1970-01-01T00:00:00.000005Z"},
            "map": {"1": "AA==", "2": None},
        },
        {"list": None, "box": None, "map": {}},
    ]
    with pytest.raises(KafkaError, match="key column 'box' is an array, a map or a struct"):
        Encoder("json", ("box",)).check(batch.schema)


def test_arrays_and_structs_are_read_from_json_and_maps_are_not() -> None:
    schema = pa.schema([("a", pa.list_(pa.int64())), ("s", pa.struct([("x", pa.string())]))])
    given = records(b'{"a": [1, null], "s": {"x": "y", "other": 1}}', b'{"a": null}')
    decoder = Decoder("json", attributes_of("json", schema))
    batch = decoder.decode(given, 0).batch
    assert batch.column("a").to_pylist() == [[1, None], None]
    assert batch.column("s").to_pylist() == [{"x": "y"}, None]
    for kind in (pa.map_(pa.string(), pa.int64()), pa.list_(pa.binary())):
        with pytest.raises(KafkaError, match="not read from JSON"):
            attributes_of("json", pa.schema([("m", kind)]))


def test_keys_are_text_or_a_list() -> None:
    batch = timed({"a": pa.array([7, None]), "b": pa.array(["x", "y"])})
    assert [k for k, _ in Encoder("json", ("a",)).records(batch)] == [b"7", None]
    assert [k for k, _ in Encoder("json", ("b",)).records(batch)] == [b"x", b"y"]
    assert [k for k, _ in Encoder("json", ("a", "b")).records(batch)] == [b'[7,"x"]', b'[null,"y"]']


def test_plain_values_need_their_column() -> None:
    batch = timed({"value": pa.array(["x", None])})
    assert [v for _, v in Encoder("string").records(batch)] == [b"x", None]
    with pytest.raises(KafkaError, match="'value' of type binary"):
        Encoder("bytes").check(batch.schema)
    with pytest.raises(KafkaError, match="no key column 'k'"):
        Encoder("string", ("k",)).check(batch.schema)
    with pytest.raises(KafkaError, match="one of bytes, string, json"):
        Encoder("arrow").check(batch.schema)


@pytest.mark.parametrize("kind", [pa.decimal128, pa.decimal256])
@pytest.mark.parametrize("scale", [-2, 0, 3, 6, 7, 12])
def test_decimals_are_plain_text(kind: Callable[[int, int], pa.DataType], scale: int) -> None:
    unit = decimal.Decimal(1).scaleb(-scale)
    values = [None, *(n * unit for n in (0, 1, -1, 907, -120, 10**17))]
    rows = Encoder("json").records(timed({"d": pa.array(values, kind(38, scale))}))
    found = [json.loads(value)["d"] for _, value in rows if value is not None]
    assert found == [None if value is None else f"{value:f}" for value in values]
