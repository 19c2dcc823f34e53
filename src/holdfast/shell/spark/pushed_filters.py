"""Filters that Spark pushes down to a read: which are taken, and what they leave of a batch.

Taken are comparisons with a literal, on columns whose order Arrow and Spark agree on: integers,
booleans, strings, dates, timestamps and decimals. Floating point is left to Spark, for which NaN is
equal to itself and greater than everything else. As in SQL, a row counts only where the filter is
true, not where it is null.

On `_partition` and `_tuple_id` they also say what need not be read at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
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
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

PARTITION: Final = "_partition"
TUPLE_ID: Final = "_tuple_id"

_COMPARISONS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT: Final[dict[type, Callable[[Any, str], Any]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}


@dataclass(frozen=True)
class PushedFilters:
    """Filters that were taken, all of which must hold; can be pickled."""

    filters: tuple[Filter, ...] = ()

    @staticmethod
    def take(offered: Iterable[Filter], schema: pa.Schema) -> tuple[PushedFilters, list[Filter]]:
        """Those that can be evaluated on the columns, and those that are left to Spark."""
        taken: list[Filter] = []
        left: list[Filter] = []
        for one in offered:
            (taken if _is_known(one, schema) else left).append(one)
        return PushedFilters(tuple(taken)), left

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which all filters are true."""
        for one in self.filters:
            batch = batch.filter(_evaluate(one, batch))
        return batch

    def keep_partitions(self, partitions: Sequence[int]) -> list[int]:
        """The partitions that can hold such rows."""
        mine = [one for one in self.filters if _column(one) == PARTITION]
        numbers = pa.record_batch({PARTITION: pa.array(partitions, pa.int32())})
        kept: list[int] = PushedFilters(tuple(mine)).keep(numbers).column(0).to_pylist()
        return kept

    def ids(self) -> tuple[int, int | None]:
        """Tuple ids [first, end) outside of which no such rows lie; end None: there is no bound."""
        first, end = 0, 2**63 - 1
        for one in self.filters:
            if _column(one) != TUPLE_ID or not isinstance(getattr(one, "value", None), int):
                continue
            value: int = one.value
            if isinstance(one, EqualTo | EqualNullSafe | GreaterThanOrEqual):
                first = max(first, value)
            if isinstance(one, GreaterThan):
                first = max(first, value + 1)
            if isinstance(one, EqualTo | EqualNullSafe | LessThanOrEqual):
                end = min(end, value + 1)
            if isinstance(one, LessThan):
                end = min(end, value)
        return first, None if end == 2**63 - 1 else max(end, first)


def _column(one: Filter) -> str:
    """The column of a filter; empty when it is part of another one."""
    if isinstance(one, Not):
        return _column(one.child)
    path: Sequence[str] = getattr(one, "attribute", ())
    return str(path[0]) if len(path) == 1 else ""


def _is_known(one: Filter, schema: pa.Schema) -> bool:
    """Whether the filter can be evaluated as Spark would."""
    if isinstance(one, Not):
        return not isinstance(one.child, Not) and _is_known(one.child, schema)
    column = _column(one)
    if column not in schema.names:
        return False
    of = schema.field(column).type
    if isinstance(one, IsNull | IsNotNull):
        return True
    if type(one) in _TEXT:
        return bool(pa.types.is_string(of))
    if isinstance(one, In):
        return bool(one.value) and all(_is_comparable(value, of) for value in one.value)
    if isinstance(one, EqualNullSafe) and one.value is None:
        return True
    return type(one) in (*_COMPARISONS, EqualNullSafe) and _is_comparable(
        getattr(one, "value", None), of
    )


def _is_comparable(value: Any, of: pa.DataType) -> bool:
    """Whether the literal is exactly a value of the column's type."""
    is_ordered = pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_string(of)
    is_ordered = is_ordered or pa.types.is_date(of) or pa.types.is_decimal(of)
    if value is None or not (is_ordered or pa.types.is_timestamp(of)):
        return False
    if pa.types.is_timestamp(of) and not _is_in_zone(value, of):
        return False
    if pa.types.is_boolean(of) != isinstance(value, bool):
        return False
    if pa.types.is_date(of) and isinstance(value, datetime.datetime):
        return False
    try:
        return bool(pa.scalar(value, of).is_valid)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _is_in_zone(value: Any, of: pa.DataType) -> bool:
    return isinstance(value, datetime.datetime) and (value.tzinfo is None) == (of.tz is None)


def _evaluate(one: Filter, batch: pa.RecordBatch) -> pa.Array:
    """Per row true, false or null."""
    if isinstance(one, Not):
        return pc.invert(_evaluate(one.child, batch))
    column = batch.column(batch.schema.get_field_index(_column(one)))
    if isinstance(one, IsNull):
        return pc.is_null(column)
    if isinstance(one, IsNotNull):
        return pc.is_valid(column)
    if type(one) in _TEXT:
        return _TEXT[type(one)](column, one.value)
    if isinstance(one, In):
        found = pc.is_in(column, value_set=pa.array(one.value, column.type))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    if isinstance(one, EqualNullSafe):
        if one.value is None:
            return pc.is_null(column)
        return pc.fill_null(pc.equal(column, pa.scalar(one.value, column.type)), False)
    value = pa.scalar(one.value, column.type)
    return _COMPARISONS[type(one)](column, value)
