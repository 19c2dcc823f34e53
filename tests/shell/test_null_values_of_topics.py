"""Columns of topics that are NOT NULL: a record with a null there is bad by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.driver.kafka import kafka_source
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.decoding import Decoded, Records

PLAIN = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
REASON = "column 'k' is not int64 NOT NULL: a value is null"


def decoded(
    schema: pa.Schema | str, *values: bytes, kind: str = "json", is_strict: bool = False
) -> Decoded:
    """What a source makes of records."""
    rest: dict[str, Any] = dict.fromkeys(("time", "delay", "ahead", "idle", "end", "options"))
    source = kafka_source(
        servers="localhost:1",
        topic="t",
        format=kind,
        schema=schema,
        begin="earliest",
        has_dead_letters=not is_strict,
        **rest,
    )
    count = len(values)
    given = Records([0] * count, [*range(count)], [1] * count, [None] * count, [*values])
    return source.decoder.decode(given, 0)


def stream_of(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    """Rows as a record in Arrow."""
    into = pa.BufferOutputStream()
    with pa.ipc.new_stream(into, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    return bytes(into.getvalue())


LOOSE = pa.schema([field.with_nullable(True) for field in PLAIN])
GOOD = {
    "json": b'{"k": 1, "s": null}',
    "debezium": b'{"op": "c", "before": null, "after": {"k": 1, "s": null}}',
    "arrow": stream_of([{"k": 1}, {"k": 2}], LOOSE),
}
BAD = {
    "json": b'{"s": "a"}',
    "debezium": b'{"op": "c", "before": null, "after": {"k": null, "s": "a"}}',
    "arrow": stream_of([{"k": 1}, {"k": None}], LOOSE),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_null_in_a_column_that_is_not_null_is_a_bad_record(kind: str) -> None:
    good, bad = GOOD[kind], BAD[kind]
    found = decoded(PLAIN, good, bad, good, kind=kind)
    per = 2 if kind == "arrow" else 1
    assert found.is_bad.tolist() == [False] * per + [True] + [False] * per
    assert found.batch.column("k").null_count == 1
    assert [e for e in found.batch.column("kafka_error").to_pylist() if e] == [REASON]
    with pytest.raises(KafkaError, match=f"offset 1: {REASON}; give the source dead_letters="):
        decoded(PLAIN, good, bad, good, kind=kind, is_strict=True)
    assert not decoded(LOOSE, good, bad, good, kind=kind).is_bad.any()


NESTED = pa.schema(
    [
        ("s", pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])),
        ("l", pa.list_(pa.field("item", pa.int64(), nullable=False))),
    ]
)
OF_NESTED = {
    b'{"s": {"b": "x"}, "l": [1]}': "s.a is not int64 NOT NULL: a value is null",
    b'{"s": {"a": 1}, "l": [1, null]}': "l[] is not int64 NOT NULL: a value is null",
    b'{"s": null}': None,
    b'{"s": {"a": 1}, "l": []}': None,
}


def test_a_null_within_a_column_that_is_not_null_is_a_bad_record() -> None:
    found = decoded(NESTED, *OF_NESTED)
    assert found.batch.column("kafka_error").to_pylist() == [*OF_NESTED.values()]
    assert found.batch.schema.field("s").type == pa.struct([("a", pa.int64()), ("b", pa.string())])
    with pytest.raises(KafkaError, match=r"offset 0: s\.a is not int64 NOT NULL"):
        decoded(NESTED, *OF_NESTED, is_strict=True)
