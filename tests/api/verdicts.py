"""What an expression is worth beside Spark: right, refused, wrong, or an exception not ours."""

from __future__ import annotations

import decimal
import enum
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import EvaluationError, compile_expression
from holdfast.api.expressions.types import name_of
from holdfast.core.model.nested_types import is_nested
from holdfast.errors import DataflowError, UnsupportedError


class Verdict(enum.Enum):
    """Right: the same type and values, or an error on both sides."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    FOREIGN = "foreign"


def judged(
    text: str,
    rows: pa.RecordBatch,
    of: str | None,
    values: Sequence[str] | None,
    beside: Sequence[str] = (),
) -> tuple[Verdict, str]:
    """Compile and evaluate, and compare with Spark's type and printed values.

    Args:
        text: The expression.
        rows: What it reads.
        of: Spark's type, None if Spark has no value either.
        values: As Spark prints them, sorted; None if Spark has no value either.
        beside: What may have failed in its stead.
    """
    try:
        expression = compile_expression(text, rows.schema)
        result = expression.evaluate(rows)
    except UnsupportedError as error:
        return Verdict.REFUSED, str(error)
    except DataflowError as error:
        return (Verdict.RIGHT if values is None else Verdict.REFUSED), str(error)
    except EvaluationError as error:
        if values is None:
            return Verdict.RIGHT, str(error)
        return Verdict.WRONG, f"{text}: {error}, Spark {values}"
    except Exception as error:  # Whatever else escapes is what this is to find.
        return Verdict.FOREIGN, f"{text}: {type(error).__name__}: {error}"
    if values is None:
        if beside:
            return judged(beside[0], rows, of, values, beside[1:])
        return Verdict.WRONG, f"{text}: {printed(result)}, Spark fails"
    if of is not None and name_of(expression.type).lower() != of.lower():
        return Verdict.WRONG, f"{text}: {name_of(expression.type)}, Spark {of.upper()}"
    ours = sorted(printed(result))
    order = float if pa.types.is_floating(expression.type) and "NULL" not in ours else str
    if not any(
        all(
            same(a, b, expression.type)
            for a, b in zip(sorted(each, key=order), sorted(values, key=order), strict=True)
        )
        for each in (ours, printed(_elsewhere(result)))
    ):
        return Verdict.WRONG, f"{text}: {ours}, Spark {list(values)}"
    return Verdict.RIGHT, ""


def printed(column: pa.Array) -> list[str]:
    """Each value as Spark's command line prints it."""
    return [_printed(value, column.type) for value in column]


def _elsewhere(column: pa.Array) -> pa.Array:
    """Timestamps by the clocks of the zone in which Spark's golden files were made."""
    if not pa.types.is_timestamp(column.type):
        return column
    there = pa.timestamp("us", tz="America/Los_Angeles")
    return pc.local_timestamp(column.cast(there)).cast(column.type)


def _printed(scalar: pa.Scalar, of: pa.DataType) -> str:
    if not scalar.is_valid:
        return "NULL"
    if is_nested(of):
        return _nested(scalar, of)
    if pa.types.is_binary(of):
        return str(scalar.as_py().decode(errors="replace"))
    if pa.types.is_timestamp(of) or pa.types.is_date(of):
        return _moment(scalar, of)
    value: Any = scalar.as_py()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return real(value, is_small=pa.types.is_float32(of))
    return str(value)


def _nested(scalar: pa.Scalar, of: pa.DataType) -> str:
    if pa.types.is_struct(of):
        parts = [f'"{field.name}":{_part(scalar[n], field.type)}' for n, field in enumerate(of)]
        return f"{{{','.join(parts)}}}"
    if pa.types.is_map(of):
        entries = [(entry["key"], entry["value"]) for entry in scalar.values or ()]
        parts = [f"{_part(k, of.key_type)}:{_part(v, of.item_type)}" for k, v in entries]
        return f"{{{','.join(sorted(parts))}}}"
    return f"[{','.join(_part(each, of.value_type) for each in scalar.values)}]"


def _part(scalar: pa.Scalar, of: pa.DataType) -> str:
    """What is nested: texts in quotes."""
    if not scalar.is_valid:
        return "null"
    text = _printed(scalar, of)
    return f'"{text}"' if pa.types.is_string(of) or pa.types.is_binary(of) else text


def _moment(scalar: pa.Scalar, of: pa.DataType) -> str:
    if pa.types.is_date(of):
        number, unit = scalar.cast(pa.int32()).as_py(), "D"
    else:
        number, unit = scalar.cast(pa.int64()).as_py(), "us"
    digits = str(np.datetime64(number, unit)).replace("T", " ")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    sign, year, rest = re.fullmatch(r"(-?)(\d+)(.*)", digits).groups()  # type: ignore[union-attr]
    sign = sign or ("+" if len(year) > 4 else "")
    return f"{sign}{year.zfill(4)}{rest}"


def real(value: float, *, is_small: bool = False) -> str:
    """A float as Java prints it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = str(np.float32(value)) if is_small else repr(value)
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e7:
        return f"{decimal.Decimal(text):f}" if "." in text or "e" in text else f"{text}.0"
    return text


def same(ours: str, theirs: str, of: pa.DataType) -> bool:
    """Equal, where floats may be printed with other digits of the same number."""
    if ours.rstrip() == theirs.rstrip():  # The files hold no spaces at the ends of lines.
        return True
    if not pa.types.is_floating(of) or "NULL" in (ours, theirs):
        return False
    kind = np.float32 if pa.types.is_float32(of) else np.float64
    with np.errstate(over="ignore"):
        a, b = kind(ours), kind(theirs)
    return bool(a == b and math.copysign(1, a) == math.copysign(1, b)) or bool(a != a and b != b)
