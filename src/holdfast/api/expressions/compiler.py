"""From Spark SQL text to a compiled expression."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as e
from sqlglot.dialects.spark import Spark

from holdfast.api.errors import DataflowError, UnsupportedError
from holdfast.api.expressions import arithmetic, logic
from holdfast.api.expressions.casts import cast, type_of
from holdfast.api.expressions.functions import FUNCTIONS, call, known
from holdfast.api.expressions.values import (
    EvaluationError,
    Value,
    as_array,
    constant,
    derived,
)

_COMPARISONS = {e.EQ: "=", e.NEQ: "<>", e.LT: "<", e.LTE: "<=", e.GT: ">", e.GTE: ">="}
_ARITHMETIC = {e.Add: "+", e.Sub: "-", e.Mul: "*", e.Div: "/", e.Mod: "%", e.IntDiv: "DIV"}
OPERATORS = (
    *_ARITHMETIC.values(),
    *_COMPARISONS.values(),
    *("<=>", "IS DISTINCT FROM", "AND", "OR", "NOT", "IS NULL", "IS TRUE", "BETWEEN", "IN"),
    *("LIKE", "||", "CASE", "CAST", "INTERVAL"),
)
SUPPORTED_FUNCTIONS = (*OPERATORS, *sorted(FUNCTIONS))
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


_KNOWN_PARTS = frozenset(
    (
        *("this", "expression", "expressions", "low", "high", "ifs", "true", "false", "default"),
        *("to", "unit", "negate", "table", "is_string", "quoted", "typed", "safe", "coalesce"),
        "_type",
    )
)


class _Plain(Spark):
    """Spark's syntax with every function call left as it is written."""

    class Parser(Spark.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": Spark.Parser.FUNCTION_PARSERS["CAST"]}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


class CompiledExpression:
    """One expression over the columns of a schema; it travels as its text.

    Attributes:
        sql: The expression without its alias, as Spark SQL.
        name: Its alias, or the column's name, or its text.
        type: Of its result.
        columns: The columns that it reads.
    """

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        """Compile. Raises `DataflowError` or `UnsupportedError`."""
        tree = _parse(sql)
        name = sql.strip()
        if isinstance(tree, e.Alias):
            name, tree = tree.alias, tree.this
        elif isinstance(tree, e.Column):
            name = _column(tree, schema).text
        self._given = sql
        self._schema = schema
        self.sql: str = tree.sql(dialect=_Plain)
        self.name = name
        self._value = _compile(tree, schema)
        self.type = self._value.type
        if pa.types.is_null(self.type):
            raise DataflowError(f"{sql!r} is NULL without a type; write CAST(NULL AS type)")
        if pa.types.is_duration(self.type):
            raise UnsupportedError(f"{sql!r} is an interval; add it to a timestamp")
        self.columns = tuple(
            dict.fromkeys(_column(column, schema).text for column in tree.find_all(e.Column))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledExpression, (self._given, self._schema)

    def over(self, schema: pa.Schema) -> CompiledExpression:
        """The same expression over another schema that has its columns."""
        return CompiledExpression(self._given, schema)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per row. Raises `EvaluationError` where there is none, e.g. on overflow."""
        try:
            value = self._value.evaluate(batch)
        except (pa.ArrowInvalid, EvaluationError) as error:
            raise EvaluationError(f"{self.sql}: {error}") from None
        return as_array(value, batch.num_rows)


def compile_expression(sql: str, schema: pa.Schema) -> CompiledExpression:
    """Compile one expression. Raises `DataflowError` or `UnsupportedError`."""
    return CompiledExpression(sql, schema)


def compile_projection(expressions: Sequence[str], schema: pa.Schema) -> list[CompiledExpression]:
    """Compile a list of expressions; `*` stands for all columns."""
    every = [f"`{name}`" for name in schema.names]
    texts = [text for sql in expressions for text in (every if sql.strip() == "*" else [sql])]
    compiled = [CompiledExpression(text, schema) for text in texts]
    names = [expression.name.lower() for expression in compiled]
    if len(set(names)) != len(names):
        raise DataflowError(f"select gives a column twice: {[c.name for c in compiled]}")
    if not compiled:
        raise DataflowError("select needs at least one expression")
    return compiled


def _parse(sql: str) -> e.Expression:
    try:
        tree = sqlglot.parse_one(sql, dialect=_Plain)
    except sqlglot.errors.SqlglotError as error:
        first = str(error).splitlines()[0]
        raise DataflowError(f"{sql!r} is no Spark SQL expression: {first}") from None
    return tree


def _compile(tree: e.Expression, schema: pa.Schema) -> Value:
    build = _BUILDERS.get(type(tree))
    text = tree.sql(dialect=_Plain)
    # What a part of the tree says beyond this would be lost without a word.
    unknown = [name for name, value in tree.args.items() if value and name not in _KNOWN_PARTS]
    if build is None or unknown:
        raise UnsupportedError(f"{text!r}: {' '.join([tree.key, *unknown])} is not supported")
    return build(tree, schema, text)


def _column(tree: e.Expression, schema: pa.Schema) -> Value:
    if tree.args.get("table") is not None:
        raise DataflowError(f"{tree.sql(dialect=_Plain)!r}: write the column's name alone")
    names = [name for name in schema.names if name == tree.name]
    names = names or [name for name in schema.names if name.lower() == tree.name.lower()]
    if len(names) != 1:
        problem = "no column" if not names else "several columns named"
        raise DataflowError(f"{problem} {tree.name!r}; there are {', '.join(schema.names)}")
    index = schema.get_field_index(names[0])
    return Value(
        schema.field(index).type, lambda batch: batch.column(index), is_total=True, text=names[0]
    )


def _literal(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    return constant(pa.scalar(str(tree.this)) if tree.is_string else _number(str(tree.this)), text)


def _number(text: str) -> pa.Scalar:
    if text.isdigit():
        value = int(text)
        if value < 2**63:
            return pa.scalar(value, pa.int32() if value < 2**31 else pa.int64())
    if "e" in text.lower():
        return pa.scalar(float(text), pa.float64())
    number = decimal.Decimal(text)
    scale = max(0, -int(number.as_tuple().exponent))
    precision = max(len(number.as_tuple().digits), scale)
    if precision > 38:
        raise DataflowError(f"{text} has more than 38 digits")
    return pa.scalar(number, pa.decimal128(precision, scale))


def _negated(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    inner = tree.this
    if isinstance(inner, e.Literal) and not inner.is_string:
        number = decimal.Decimal(str(inner.this)) if "e" not in str(inner.this).lower() else None
        if number is not None and number in (2**31, 2**63):
            of = pa.int64() if number == 2**63 else pa.int32()
            if number == 2**63 or text == "-2147483648":
                return constant(pa.scalar(-int(number), of), text)
    value = _compile(inner, schema)
    if value.literal is not None and value.literal.is_valid and value.literal.type != pa.bool_():
        return constant(pa.scalar(-value.literal.as_py(), value.type), text)
    return arithmetic.negated(value, text)


def _cast(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    if tree.args.get("safe"):
        raise UnsupportedError(f"{text!r}: TRY_CAST is not supported")
    inner = tree.this
    to = type_of(tree.args["to"])
    if isinstance(inner, e.Literal) and not inner.is_string and pa.types.is_floating(to):
        return constant(pa.scalar(float(str(inner.this)), to), text)  # The literal 1.5D.
    return cast(_compile(inner, schema), to, text)


def _is(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    value = _compile(tree.this, schema)
    if isinstance(tree.expression, e.Null):
        return logic.is_null(value, text)
    if isinstance(tree.expression, e.Boolean):
        return logic.null_safe_equal(
            logic.boolean(value, text), _compile(tree.expression, schema), text
        )
    raise UnsupportedError(f"{text!r}: only IS [NOT] NULL, TRUE and FALSE")


def _like(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    value, pattern = _compile(tree.this, schema), _compile(tree.expression, schema)
    if pattern.literal is None or not pa.types.is_string(pattern.type):
        raise UnsupportedError(f"{text!r}: the pattern must be a literal")
    if not pa.types.is_string(value.type):
        raise DataflowError(f"{text!r}: LIKE takes a STRING")
    like: str = pattern.literal.as_py()
    if "\\" in like:
        raise UnsupportedError(f"{text!r}: escapes in patterns are not supported")
    result = derived(pa.bool_(), text, lambda c: pc.match_like(c, pattern=like), value)
    return logic.inverted(result, text) if tree.args.get("negate") else result


def _case(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    subject = None if tree.this is None else _compile(tree.this, schema)
    branches = []
    for branch in tree.args["ifs"]:
        condition = _compile(branch.this, schema)
        if subject is not None:
            condition = logic.compared("=", subject, condition, text)
        branches.append((condition, _compile(branch.args["true"], schema)))
    default = tree.args.get("default")
    return logic.chosen(branches, None if default is None else _compile(default, schema), text)


def _if(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    parts = [tree.this, tree.args.get("true"), tree.args.get("false")]
    return call("if", [_compile(part, schema) for part in parts if part is not None], text)


def _in(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    if not tree.expressions:
        raise UnsupportedError(f"{text!r}: IN takes a list of values")
    options = [_compile(option, schema) for option in tree.expressions]
    return logic.contained(_compile(tree.this, schema), options, text)


def _between(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    parts = [_compile(tree.args[name], schema) for name in ("this", "low", "high")]
    return logic.between(parts[0], parts[1], parts[2], text)


def _interval(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    unit = str(tree.args.get("unit") or "").upper().removesuffix("S")
    try:
        count = int(tree.this.name)
        micros = count * _INTERVAL_US[unit]
        return constant(pa.scalar(micros, pa.duration("us")), text)
    except (KeyError, ValueError, AttributeError):
        raise UnsupportedError(
            f"{text!r}: intervals are whole numbers of {', '.join(_INTERVAL_US)}"
        ) from None


def _function(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
    known(str(tree.this))  # Before its arguments, which may be of a form of their own.
    return call(str(tree.this), [_compile(part, schema) for part in tree.expressions], text)


def _on_two(combine: Callable[[Value, Value, str], Value]) -> Any:
    def build(tree: e.Expression, schema: pa.Schema, text: str) -> Value:
        return combine(_compile(tree.this, schema), _compile(tree.expression, schema), text)

    return build


def _comparison(symbol: str) -> Any:
    return _on_two(lambda left, right, text: logic.compared(symbol, left, right, text))


def _operation(symbol: str) -> Any:
    return _on_two(lambda left, right, text: arithmetic.binary(symbol, left, right, text))


def _distinct(left: Value, right: Value, text: str) -> Value:
    return logic.inverted(logic.null_safe_equal(left, right, text), text)


_BUILDERS: dict[type[e.Expression], Callable[[Any, pa.Schema, str], Value]] = {
    e.Paren: lambda tree, schema, _: _compile(tree.this, schema),
    e.Column: lambda tree, schema, _: _column(tree, schema),
    e.Literal: _literal,
    e.Boolean: lambda tree, _, text: constant(pa.scalar(bool(tree.this)), text),
    e.Null: lambda _, __, text: constant(pa.scalar(None, pa.null()), text),
    e.Neg: _negated,
    e.TryCast: _cast,
    e.Cast: _cast,
    e.Is: _is,
    e.Like: _like,
    e.Case: _case,
    e.If: _if,
    e.In: _in,
    e.Between: _between,
    e.Interval: _interval,
    e.Anonymous: _function,
    e.Not: lambda tree, schema, text: logic.inverted(_compile(tree.this, schema), text),
    e.And: _on_two(lambda left, right, text: logic.combined("AND", left, right, text)),
    e.Or: _on_two(lambda left, right, text: logic.combined("OR", left, right, text)),
    e.NullSafeEQ: _on_two(logic.null_safe_equal),
    e.NullSafeNEQ: _on_two(_distinct),
    e.DPipe: _on_two(lambda left, right, text: call("concat", [left, right], text)),
    **{kind: _comparison(symbol) for kind, symbol in _COMPARISONS.items()},
    **{kind: _operation(symbol) for kind, symbol in _ARITHMETIC.items()},
}
