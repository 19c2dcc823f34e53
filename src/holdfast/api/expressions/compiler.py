"""From Spark SQL text to a compiled expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa

from holdfast.api.columns import check_columns
from holdfast.api.expressions import (
    arithmetic,
    bit_functions,
    casts,
    logic,
    moments,
    regexp_functions,
    struct_functions,
)
from holdfast.api.expressions import parser as tree
from holdfast.api.expressions.functions import FUNCTIONS, call, ilike, known
from holdfast.api.expressions.higher_order import HIGHER_ORDER, higher_order
from holdfast.api.expressions.types import (
    CARRIED,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    holds_interval,
    is_carried,
    name_of,
    named,
)
from holdfast.api.expressions.user_functions import UserFunction
from holdfast.api.expressions.values import (
    EvaluationError,
    Value,
    as_array,
    constant,
)
from holdfast.core.model.column_names import quoted
from holdfast.errors import DataflowError, UnsupportedError

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_ARITHMETIC = ("+", "-", "*", "/", "%", "DIV")
OPERATORS = (
    *_ARITHMETIC,
    *_COMPARISONS,
    *("<=>", "IS DISTINCT FROM", "AND", "OR", "NOT", "IS NULL", "IS TRUE", "BETWEEN", "IN"),
    *("LIKE", "ILIKE", "RLIKE", "||", "CASE", "CAST", "INTERVAL", "|", "&", "^", "~"),
    *("<<", ">>", ">>>"),
)
SUPPORTED_FUNCTIONS = (
    *OPERATORS,
    *sorted(name for name in (*FUNCTIONS, *HIGHER_ORDER) if " " not in name),
)
"""Every operator and function that an expression may hold."""

_INTERVAL_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_WRITTEN = {
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class CompiledExpression:
    """One expression over the columns of a schema; it travels as its text.

    Attributes:
        sql: The expression without its alias, as Spark SQL.
        name: Its alias, or the column's name, or its text.
        type: Of its result.
        columns: The columns that it reads.
        is_total: It has a value, or null, for every row, and never fails.
        functions: The user's functions that it calls, by their names.
    """

    def __init__(
        self, sql: str, schema: pa.Schema, functions: Mapping[str, UserFunction] | None = None
    ) -> None:
        """Compile. Raises `DataflowError` or `UnsupportedError`."""
        parsed, alias = tree.parse(sql)
        self._given = sql
        self._schema = schema
        self.functions: dict[str, UserFunction] = {}
        self.sql: str = parsed.text
        self.name = sql.strip()
        if alias is not None:
            self.name = alias
        elif isinstance(parsed, tree.Column):
            self.name = _column(parsed, schema).text
        self._value = _compile(parsed, schema, _Called(functions or {}, self.functions))
        self.type = self._value.type
        self.is_total = self._value.is_total
        if self._value.failure is not None:
            raise DataflowError(f"{sql!r} has a value for no row: {self._value.failure}")
        if pa.types.is_null(self.type):
            raise DataflowError(f"{sql!r} is NULL without a type; write CAST(NULL AS type)")
        if holds_interval(self.type):
            raise UnsupportedError(f"{sql!r} is or holds an interval; add it to a timestamp")
        self.columns = tuple(
            dict.fromkeys(_column(c, schema).text for c in tree.columns_of(parsed))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledExpression, (self._given, self._schema, self.functions)

    def over(self, schema: pa.Schema) -> CompiledExpression:
        """The same expression over another schema that has its columns."""
        return CompiledExpression(self._given, schema, self.functions)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per row. Raises `EvaluationError` where there is none, e.g. on overflow."""
        try:
            value = self._value.evaluate(batch)
        except (pa.ArrowInvalid, EvaluationError) as error:
            raise EvaluationError(f"{self.sql}: {error}") from None
        return as_array(value, batch.num_rows)


def compile_expression(
    sql: str, schema: pa.Schema, functions: Mapping[str, UserFunction] | None = None
) -> CompiledExpression:
    """Compile one expression. Raises `DataflowError` or `UnsupportedError`."""
    return CompiledExpression(sql, schema, functions)


def check_carried(expression: CompiledExpression) -> None:
    """Raises `UnsupportedError` for a result that no stream can carry."""
    if not is_carried(expression.type):
        raise UnsupportedError(
            f"{expression.sql!r} is {name_of(expression.type)}; streams carry {CARRIED}: take "
            "a part of it, or make it a string"
        )


def compile_projection(
    expressions: Sequence[str],
    schema: pa.Schema,
    functions: Mapping[str, UserFunction] | None = None,
) -> list[CompiledExpression]:
    """Compile a list of expressions; `*` stands for all columns."""
    every = [quoted(name) for name in schema.names]
    texts = [text for sql in expressions for text in (every if sql.strip() == "*" else [sql])]
    compiled = [CompiledExpression(text, schema, functions) for text in texts]
    check_columns([expression.name for expression in compiled], "select")
    for expression in compiled:
        check_carried(expression)
    if not compiled:
        raise DataflowError("select needs at least one expression")
    return compiled


@dataclass(frozen=True, slots=True)
class _Called:
    """The user's functions that may be called, and those that are, by their names."""

    known: Mapping[str, UserFunction]
    called: dict[str, UserFunction]

    def find(self, name: str) -> UserFunction | None:
        found = self.known.get(name)
        if found is not None:
            self.called[name] = found
        return found


_NONE = _Called({}, {})


def _compile(part: tree.Tree, schema: pa.Schema, called: _Called = _NONE) -> Value:
    match part:
        case tree.Column():
            return _column(part, schema)
        case tree.Literal(value=value):
            return constant(value, part.text, is_literal=True)
        case tree.Typed():
            return _typed(part)
        case tree.Interval():
            return _interval(part)
        case tree.Cast():
            convert = casts.tried if part.is_try else casts.cast
            # What is cast is no literal any more, even to its own type.
            operand = replace(_compile(part.operand, schema, called), is_literal=False)
            return convert(operand, named(part.to, part.text), part.text)
        case tree.Case():
            return _case(part, schema, called)
        case tree.Field():
            return _field(part, schema, called)
        case tree.Lambda():
            raise DataflowError(f"{part.text}: a lambda stands where a value is needed")
        case tree.Call(name=name) if name in HIGHER_ORDER:
            return higher_order(part, schema, _compile)
        case tree.Call():
            own = called.find(part.name)
            if own is None:
                known(part.name)  # Before its arguments, which may be of a form of their own.
            arguments = [_compile(a, schema, called) for a in part.arguments]
            return own.build(arguments, part.text) if own else call(part.name, arguments, part.text)
        case tree.Operation(symbol=symbol):
            build = _BUILDERS.get(symbol)
            if build is None:
                raise UnsupportedError(f"{part.text!r}: operator {symbol} is not supported")
            return build([_compile(each, schema, called) for each in part.operands], part.text)
    raise AssertionError(part)


def _field(part: tree.Field, schema: pa.Schema, called: _Called) -> Value:
    inner = part.operand
    if isinstance(inner, tree.Column) and not _is_there(inner.name, schema):
        raise DataflowError(f"{part.text!r}: write the column's name alone")
    return struct_functions.field_of(_compile(inner, schema, called), part.name, part.text)


def _is_there(name: str, schema: pa.Schema) -> bool:
    return name.lower() in (each.lower() for each in schema.names)


def _column(part: tree.Column, schema: pa.Schema) -> Value:
    names = [name for name in schema.names if name == part.name]
    names = names or [name for name in schema.names if name.lower() == part.name.lower()]
    if len(names) != 1:
        problem = "no column" if not names else "several columns named"
        raise DataflowError(f"{problem} {part.name!r}; there are {', '.join(schema.names)}")
    index = schema.get_field_index(names[0])
    return Value(
        schema.field(index).type,
        lambda batch: batch.column(index),
        is_total=True,
        text=names[0],
        is_column=True,
    )


def _bytes(part: tree.Typed) -> bytes:
    digits = part.written if len(part.written) % 2 == 0 else f"0{part.written}"
    if not re.fullmatch("[0-9a-fA-F]*", digits):
        raise DataflowError(f"{part.text} is no BINARY")
    return bytes.fromhex(digits)


def _typed(part: tree.Typed) -> Value:
    if part.of == "X":
        return constant(pa.scalar(_bytes(part), pa.binary()), part.text)
    of = _WRITTEN.get(part.of)
    if of is None:
        raise UnsupportedError(f"{part.text}: literals of {part.of} are not supported")
    try:
        if pa.types.is_date(of):
            days = moments.date_from(part.written)
            return constant(pa.scalar(days, pa.int32()).cast(of), part.text)
        micros = moments.timestamp_from(part.written, is_local=of != TIMESTAMP)
        return constant(casts.timestamps(pa.scalar(micros, pa.int64()), of), part.text)
    except EvaluationError as error:
        raise DataflowError(f"{part.text}: {error}") from None


def _interval(part: tree.Interval) -> Value:
    micros = 0
    for count, unit in part.counts:
        if unit not in _INTERVAL_US or not _WHOLE.fullmatch(count):
            raise UnsupportedError(
                f"{part.text!r}: intervals are whole numbers of {', '.join(_INTERVAL_US)}"
            )
        micros += int(count) * _INTERVAL_US[unit]
    if not -(2**63) <= micros < 2**63:
        raise DataflowError(f"{part.text!r} does not fit INTERVAL")
    return constant(pa.scalar(micros, pa.duration("us")), part.text)


def _case(part: tree.Case, schema: pa.Schema, called: _Called) -> Value:
    subject = None if part.subject is None else _compile(part.subject, schema, called)
    branches = []
    for when, then in part.branches:
        condition = _compile(when, schema, called)
        if subject is None and pa.types.is_null(condition.type):
            raise DataflowError(f"{part.text}: {when.text} is VOID, not BOOLEAN")
        if subject is not None:
            condition = logic.compared("=", subject, condition, part.text)
        branches.append((condition, _compile(then, schema, called)))
    default = None if part.default is None else _compile(part.default, schema, called)
    return logic.chosen(branches, default, part.text)


def _is(expected: bool) -> Callable[[Sequence[Value], str], Value]:
    def build(operands: Sequence[Value], text: str) -> Value:
        flag = constant(pa.scalar(expected), str(expected).upper())
        return logic.null_safe_equal(logic.boolean(operands[0], text), flag, text)

    return build


def _comparison(symbol: str) -> Callable[[Sequence[Value], str], Value]:
    return lambda operands, text: logic.compared(symbol, operands[0], operands[1], text)


def _operation(symbol: str) -> Callable[[Sequence[Value], str], Value]:
    return lambda operands, text: arithmetic.binary(symbol, operands[0], operands[1], text)


def _sign(symbol: str) -> Callable[[Sequence[Value], str], Value]:
    return lambda operands, text: arithmetic.signed(symbol, operands[0], text)


def _distinct(operands: Sequence[Value], text: str) -> Value:
    return logic.inverted(logic.null_safe_equal(operands[0], operands[1], text), text)


_BUILDERS: dict[str, Callable[[Sequence[Value], str], Value]] = {
    "()": lambda operands, _: operands[0],
    "NOT": lambda operands, text: logic.inverted(operands[0], text),
    "AND": lambda operands, text: logic.combined("AND", operands, text),
    "OR": lambda operands, text: logic.combined("OR", operands, text),
    "unary -": _sign("-"),
    "unary +": _sign("+"),
    "<=>": lambda operands, text: logic.null_safe_equal(operands[0], operands[1], text),
    "IS DISTINCT": _distinct,
    "IS NULL": lambda operands, text: logic.is_null(operands[0], text),
    "IS UNKNOWN": lambda operands, text: logic.is_null(logic.boolean(operands[0], text), text),
    "IS TRUE": _is(True),
    "IS FALSE": _is(False),
    "BETWEEN": lambda operands, text: logic.between(operands[0], operands[1], operands[2], text),
    "IN": lambda operands, text: logic.contained(operands[0], operands[1:], text),
    "LIKE": regexp_functions.like,
    "ILIKE": ilike,
    "RLIKE": regexp_functions.RLIKE,
    **bit_functions.SHIFTS,
    "||": lambda operands, text: call("concat", operands, text),
    **{symbol: _comparison(symbol) for symbol in _COMPARISONS},
    **{symbol: _operation(symbol) for symbol in _ARITHMETIC},
    "|": bit_functions.combined(or_),
    "&": bit_functions.combined(and_),
    "^": bit_functions.combined(xor),
    "unary ~": bit_functions.inverted,
}
