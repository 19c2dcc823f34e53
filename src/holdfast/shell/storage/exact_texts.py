"""Whether pyarrow gives of a CSV or JSON file exactly what Spark gives with `mode=FAILFAST`.

Of most lines both make the same. Where they do not, or where nobody is sure, the line is bad here:
an error that says how to have Spark read it, never another value.

- Quotes: Spark takes a backslash in a quoted value for an escape and keeps doubled quotes. So a
  quoted value may hold neither a quote nor a backslash.
- Numbers: pyarrow passes over blanks around them, and reads `0x10`, `nan` and `inf`.
- Times: no zone is more than 14 hours away; pyarrow also knows those that Spark does not.
- Lines: to Spark a carriage return alone ends one. Blank ones are no rows to either.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.nested_types import is_nested

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Parse = Callable[[bytes, int], pa.RecordBatch]
"""The rows of a block of so many whole lines; raises what there is against one of them."""
COLUMNS: Final = "columns"
"""An option of exact CSV: the names of its columns, which Spark knows by their places."""
_PACKED: Final = (".gz", ".gzip", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".xz")
"""How names of files end that Spark unpacks."""
_ODD_NUMBER: Final = r"^\s|\s$|^[+-]?0[xX]"
_BLANK: Final = re.compile(rb"^[\x00-\x20]+$", re.MULTILINE)
_FAR: Final = re.compile(rb"[T ]\d\d[:.\d]*[+-](?:1[5-9]|2\d)")
_MARK: Final = b"\xef\xbb\xbf"


def why_not_of_text(path: str, name: str, fields: Iterable[pa.Field]) -> str:
    """Why the rows of a text may be others to Spark; empty: they are the same, or an error.

    Args:
        path: Of the file.
        name: `csv` or `json`.
        fields: The columns that are read of it.
    """
    if os.path.splitext(path)[1].lower() in _PACKED:
        return "it is packed"
    for field in fields:
        is_odd = pa.types.is_timestamp(field.type) and field.type.tz is None
        is_odd = is_odd or is_nested(field.type) or pa.types.is_binary(field.type)
        if name == "json":  # Spark reads these by way of other numbers.
            is_odd = is_odd or pa.types.is_decimal(field.type) or field.type == pa.float32()
        if is_odd:
            return f"column {field.name!r} is {field.type} in {name}"
    return ""


def columns_of(option: str) -> list[str]:
    """What the option `COLUMNS` says."""
    return [str(name) for name in json.loads(option)]


def csv_exactly(parse: Parse, sep: str, names: Sequence[str], read: Sequence[pa.Field]) -> Parse:
    """A parser that raises where Spark would have other rows.

    Args:
        parse: Gives the rows.
        sep: Between values.
        names: Of all columns.
        read: Those that are read.
    """
    from pyarrow import csv

    parsing = csv.ParseOptions(delimiter=sep, newlines_in_values=False)
    numbers = [field.name for field in read if not pa.types.is_string(field.type)]
    texts = csv.ConvertOptions(
        column_types=dict.fromkeys(numbers, pa.string()), include_columns=numbers
    )

    def parse_exactly(block: bytes, lines: int) -> pa.RecordBatch:
        require_plain_values(block, sep, len(names))
        _require_near(block, read)
        rows = parse(block, lines)
        _require_sure(rows)
        if numbers and _odd(sep).search(block):
            reading = csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=names
            )
            _require_plain_numbers(csv.read_csv(pa.BufferReader(block), reading, parsing, texts))
        return rows

    return parse_exactly


def json_exactly(parse: Parse, read: Sequence[pa.Field]) -> Parse:
    """A parser that raises where Spark would have other rows."""

    def parse_exactly(block: bytes, lines: int) -> pa.RecordBatch:
        _require_plain_lines(block)
        _require_near(block, read)
        rows = parse(block, lines)
        _require_sure(rows)
        return rows

    return parse_exactly


def require_plain_values(block: bytes, sep: str, columns: int) -> None:
    """Raise `ValueError` if Spark divides lines of a CSV into other values.

    Args:
        block: Whole lines.
        sep: Between values.
        columns: How many a line has.
    """
    _require_plain_lines(block)
    if b'"' in block and b'"' in _quoted(sep).sub(b"", block):
        raise ValueError("a quoted value holds a quote or a backslash, or is empty")
    if (columns == 1 or sep.isspace()) and _BLANK.search(block):
        raise ValueError("a line is blank")


def _require_plain_lines(block: bytes) -> None:
    if block.startswith(_MARK):
        raise ValueError("it begins with a mark of UTF-8")
    if block.count(b"\r") != block.count(b"\r\n"):
        raise ValueError("a carriage return stands alone")


def _require_near(block: bytes, read: Sequence[pa.Field]) -> None:
    if any(pa.types.is_timestamp(field.type) for field in read) and _FAR.search(block):
        raise ValueError("a time zone is more than 14 hours away")


@cache
def _quoted(sep: str) -> re.Pattern[bytes]:
    """A whole value in quotes of which nobody doubts where it ends."""
    between = re.escape(sep.encode())
    return re.compile(rb'(?<![^%b\n])"[^"\\\r\n]+"(?![^%b\r\n])' % (between, between))


@cache
def _odd(sep: str) -> re.Pattern[bytes]:
    """Where a number may have blanks around it, or be one that pyarrow alone reads."""
    border = b'["\r\n%b]' % re.escape(sep.encode())
    return re.compile(rb"(?:^|%b)[ \t]|[ \t](?:%b|$)|0[xX]" % (border, border))


def _require_plain_numbers(texts: pa.Table) -> None:
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        if pc.any(pc.match_substring_regex(column, _ODD_NUMBER)).as_py():
            raise ValueError(f"column {name!r} has blanks around a value, or a number in hex")


def _require_sure(rows: pa.RecordBatch) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_floating(field.type) and pc.all(pc.is_finite(column)).as_py() is False:
            raise ValueError(f"column {field.name!r} has a number that is not finite")
        if pa.types.is_string(field.type):
            column.validate(full=True)
