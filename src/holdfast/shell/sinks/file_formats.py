"""From tuples to files in the formats that others read, and to the folders of partitions.

Partitions' folders are named as Spark names them, `key=value`, so that any reader of Spark's finds
the columns again.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.nested_types import is_nested

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


_SAMPLE_ROWS: Final = 4_096


def _parquet(table: pa.Table, file: Any) -> None:
    """Integers and times as differences, which takes half the time and room of dictionaries.

    Others get a dictionary if their first values repeat.
    """
    from pyarrow import parquet

    packed = {f.name: "DELTA_BINARY_PACKED" for f in table.schema if _is_packed(f.type)}
    first = table.slice(0, _SAMPLE_ROWS)
    repeating = [
        name
        for name in table.column_names
        if name not in packed
        and not is_nested(table.schema.field(name).type)
        and 2 * pc.count_distinct(first.column(name)).as_py() <= len(first)
    ]
    parquet.write_table(table, file, use_dictionary=repeating, column_encoding=packed)


def _is_packed(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_timestamp(of) or pa.types.is_date32(of))


def _orc(table: pa.Table, file: Any) -> None:
    from pyarrow import orc

    orc.write_table(table, file)


def _arrow(table: pa.Table, file: Any) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _csv(table: pa.Table, file: Any) -> None:
    from pyarrow import csv

    csv.write_csv(table, file)


FORMATS: Final[dict[str, Callable[[pa.Table, Any], None]]] = {
    "parquet": _parquet,
    "orc": _orc,
    "arrow": _arrow,
    "csv": _csv,
}
"""How a table becomes a file; a CSV has a header."""


def is_partition_type(of: pa.DataType) -> bool:
    """Whether a folder's name can say a value so that Spark reads the same one."""
    is_plain = pa.types.is_integer(of) or pa.types.is_boolean(of)
    return bool(is_plain or pa.types.is_string(of) or pa.types.is_date(of))


def partitioned(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The folder of each partition (empty: there are none), and its rows in their order.

    Cost: O(n log n) for n rows.
    """
    if not by:
        yield "", table
        return
    codes = np.zeros(table.num_rows, np.int64)
    for name in by:
        column = table.column(name).combine_chunks().dictionary_encode("encode")
        values = np.asarray(column.indices.to_numpy(zero_copy_only=False), np.int64)
        codes = np.unique(codes * len(column.dictionary) + values, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    others = [name for name in table.column_names if name not in by]
    rows = table.take(pa.array(order))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        part = rows.slice(start, stop - start)
        pairs = ((name, part.column(name)[0].as_py()) for name in by)
        folder = "/".join(f"{_escaped(name)}={_text(value)}" for name, value in pairs)
        yield folder, part.select(others)


def _text(value: Any) -> str:
    """A value in a folder's name; Spark too takes an empty text for null there."""
    if value is None or value == "":
        return NULL_PARTITION
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else _escaped(str(value))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
