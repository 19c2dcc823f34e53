"""Filters that Spark pushes down: what is taken, what they leave, what need not be read."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from holdfast.shell.spark.pushed_filters import PushedFilters

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("amount", pa.decimal128(6, 2)),
        ("_partition", pa.int32()),
        ("_tuple_id", pa.int64()),
    ]
)
DAY = datetime.date(2023, 11, 15)


def batch(numbers: list[int | None]) -> pa.RecordBatch:
    rows = [
        {
            "n": n,
            "text": None if n is None else "abc"[n % 3],
            "real": n,
            "day": DAY,
            "at": datetime.datetime(2023, 11, 15, tzinfo=UTC),
            "amount": None if n is None else Decimal(n),
            "_partition": 0,
            "_tuple_id": i,
        }
        for i, n in enumerate(numbers)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (EqualTo(("n",), 2), [2]),
        (Not(EqualTo(("n",), 2)), [0, 1]),
        (In(("n",), (0, 2)), [0, 2]),
        (Not(In(("n",), (0, 2))), [1]),
        (EqualNullSafe(("n",), None), [None]),
        (Not(EqualNullSafe(("n",), 1)), [0, 2, None]),
        (IsNull(("n",)), [None]),
        (IsNotNull(("n",)), [0, 1, 2]),
        (StringStartsWith(("text",), "b"), [1]),
        (GreaterThan(("amount",), Decimal("0.50")), [1, 2]),
        (LessThanOrEqual(("day",), DAY), [0, 1, 2, None]),
        (LessThan(("at",), datetime.datetime(2023, 11, 15, tzinfo=UTC)), []),
    ],
)
def test_a_filter_keeps_the_rows_for_which_it_is_true(one: Filter, kept: list[int | None]) -> None:
    taken, left = PushedFilters.take([one], SCHEMA)
    assert left == []
    assert taken.keep(batch([0, 1, 2, None])).column(0).to_pylist() == kept


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("real",), 1.0),
        EqualTo(("missing",), 1),
        EqualTo(("outer", "inner"), 1),
        EqualTo(("n",), 2**40),
        EqualTo(("n",), True),
        EqualTo(("n",), None),
        In(("n",), (1, None)),
        In(("n",), ()),
        EqualTo(("amount",), Decimal("0.001")),
        EqualTo(("day",), datetime.datetime(2023, 11, 15, tzinfo=UTC)),
        EqualTo(("at",), datetime.datetime(2023, 11, 15)),
        StringStartsWith(("n",), "1"),
        Not(Not(EqualTo(("n",), 1))),
        Not(EqualTo(("real",), 1.0)),
    ],
)
def test_what_might_mean_something_else_here_is_left_to_spark(one: Filter) -> None:
    taken, left = PushedFilters.take([one], SCHEMA)
    assert left == [one]
    assert taken.filters == ()


def test_partitions_that_cannot_hold_such_rows_are_left_out() -> None:
    filters = [GreaterThan(("_partition",), 0), Not(EqualTo(("_partition",), 2))]
    taken, _ = PushedFilters.take(filters, SCHEMA)
    assert taken.keep_partitions((0, 1, 2, 3)) == [1, 3]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([], (0, None)),
        ([GreaterThan(("_tuple_id",), 4)], (5, None)),
        ([GreaterThanOrEqual(("_tuple_id",), 4), LessThan(("_tuple_id",), 9)], (4, 9)),
        ([LessThanOrEqual(("_tuple_id",), 9)], (0, 10)),
        ([EqualTo(("_tuple_id",), 7)], (7, 8)),
        ([EqualTo(("_tuple_id",), -1)], (0, 0)),
        ([GreaterThan(("_tuple_id",), 9), LessThan(("_tuple_id",), 5)], (10, 10)),
        ([Not(EqualTo(("_tuple_id",), 7)), EqualTo(("n",), 3)], (0, None)),
    ],
)
def test_ids_that_are_ruled_out_need_not_be_read(
    filters: list[Filter], ids: tuple[int, int | None]
) -> None:
    taken, _ = PushedFilters.take(filters, SCHEMA)
    assert taken.ids() == ids
