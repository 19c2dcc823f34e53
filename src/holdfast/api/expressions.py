"""Spark SQL expressions on Arrow batches: the part that is sure to mean what Spark means.

What is not listed here is refused when the dataflow is built, with its name.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as e

from holdfast.api.errors import DataflowError, UnsupportedError

_Evaluate = Callable[[pa.RecordBatch], Any]
_COMPARISONS: dict[type[e.Expression], str] = {
    e.EQ: "equal",
    e.NEQ: "not_equal",
    e.LT: "less",
    e.LTE: "less_equal",
    e.GT: "greater",
    e.GTE: "greater_equal",
}
_ARITHMETIC: dict[type[e.Expression], str] = {
    e.Add: "add_checked",
    e.Sub: "subtract_checked",
    e.Mul: "multiply_checked",
}


class EvaluationError(ArithmeticError):
    """An expression has no value for some row, which Spark in ANSI mode refuses too."""


class CompiledExpression:
    """One expression over the columns of a schema; it travels as its text."""

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        """Compile. Raises `DataflowError` or `UnsupportedError`."""
        try:
            tree = sqlglot.parse_one(sql, read="spark")
        except sqlglot.errors.ParseError as error:
            raise DataflowError(f"{sql!r} is no Spark SQL expression: {error}") from None
        name = sql
        if isinstance(tree, e.Alias):
            name, tree = tree.alias, tree.this
        elif isinstance(tree, e.Column):
            name = tree.name
        self._given = sql
        self._schema = schema
        self.sql = tree.sql(dialect="spark")
        self.name = name
        self.type, self._evaluate = _compile(tree, schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledExpression, (self._given, self._schema)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per row. Raises `EvaluationError` on overflow or division by zero."""
        try:
            value = self._evaluate(batch)
        except pa.ArrowInvalid as error:
            raise EvaluationError(f"{self.sql}: {error}") from None
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, batch.num_rows)
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def compile_expression(sql: str, schema: pa.Schema) -> CompiledExpression:
    """Compile one expression."""
    return CompiledExpression(sql, schema)


def compile_projection(expressions: Sequence[str], schema: pa.Schema) -> list[CompiledExpression]:
    """Compile a list of expressions; `*` stands for all columns."""
    texts = [t for sql in expressions for t in (schema.names if sql.strip() == "*" else [sql])]
    compiled = [CompiledExpression(text, schema) for text in texts]
    names = [expression.name for expression in compiled]
    if len(set(names)) != len(names):
        raise DataflowError(f"select gives a column twice: {names}")
    return compiled


def _compile(tree: e.Expression, schema: pa.Schema) -> tuple[pa.DataType, _Evaluate]:
    match tree:
        case e.Paren():
            return _compile(tree.this, schema)
        case e.Column():
            return _column(tree, schema)
        case e.Literal() | e.Boolean() | e.Null() | e.Neg():
            return _literal(tree)
        case e.Cast() if (
            isinstance(tree.this, e.Literal) and tree.to.this == e.DataType.Type.DOUBLE
        ):
            value = pa.scalar(float(tree.this.this), pa.float64())
            return pa.float64(), lambda _: value
        case e.And() | e.Or():
            kernel = "and_kleene" if isinstance(tree, e.And) else "or_kleene"
            return _binary(tree, schema, kernel, pa.bool_())
        case e.Not():
            _, inner = _compile(tree.this, schema)
            return pa.bool_(), lambda batch: pc.invert(inner(batch))
        case e.Is() if isinstance(tree.expression, e.Null):
            _, inner = _compile(tree.this, schema)
            return pa.bool_(), lambda batch: pc.is_null(inner(batch))
        case e.In():
            return _in(tree, schema)
        case e.Case():
            return _case(tree, schema)
    if type(tree) in _COMPARISONS:
        return _binary(tree, schema, _COMPARISONS[type(tree)], pa.bool_())
    if type(tree) in _ARITHMETIC:
        return _arithmetic(tree, schema)
    raise UnsupportedError(f"{tree.sql(dialect='spark')!r}: {tree.key} is not supported yet")


def _column(tree: e.Column, schema: pa.Schema) -> tuple[pa.DataType, _Evaluate]:
    names = [n for n in schema.names if n.lower() == tree.name.lower()]
    if not names:
        raise DataflowError(f"no column {tree.name!r}; there are {', '.join(schema.names)}")
    index = schema.get_field_index(names[0])
    return schema.field(index).type, lambda batch: batch.column(index)


def _literal(tree: e.Expression) -> tuple[pa.DataType, _Evaluate]:
    value = _scalar(tree)
    return value.type, lambda _: value


def _scalar(tree: e.Expression) -> pa.Scalar:
    if isinstance(tree, e.Null):
        return pa.scalar(None, pa.bool_())
    if isinstance(tree, e.Boolean):
        return pa.scalar(bool(tree.this))
    if isinstance(tree, e.Neg):
        return pc.negate_checked(_scalar(tree.this))
    if tree.is_string:
        return pa.scalar(str(tree.this))
    if not isinstance(tree, e.Literal):
        raise UnsupportedError(f"{tree.sql(dialect='spark')!r} is no literal")
    text = str(tree.this)
    if text.isdigit():
        return pa.scalar(int(text), pa.int32() if int(text) < 2**31 else pa.int64())
    number = decimal.Decimal(text)
    scale = max(0, -int(number.as_tuple().exponent))
    precision = max(len(number.as_tuple().digits), scale)
    return pa.scalar(number, pa.decimal128(precision, scale))


def _binary(
    tree: e.Expression, schema: pa.Schema, kernel: str, result: pa.DataType
) -> tuple[pa.DataType, _Evaluate]:
    left_type, left = _compile(tree.this, schema)
    right_type, right = _compile(tree.expression, schema)
    if pa.types.is_string(left_type) != pa.types.is_string(right_type):
        raise DataflowError(f"{tree.sql(dialect='spark')!r}: {left_type} against {right_type}")
    function = getattr(pc, kernel)
    return result, lambda batch: function(left(batch), right(batch))


def _arithmetic(tree: e.Expression, schema: pa.Schema) -> tuple[pa.DataType, _Evaluate]:
    left_type, left = _compile(tree.this, schema)
    right_type, right = _compile(tree.expression, schema)
    function = getattr(pc, _ARITHMETIC[type(tree)])
    text = tree.sql(dialect="spark")
    types = (left_type, right_type)
    if all(pa.types.is_integer(t) for t in types):
        result = max(types, key=lambda t: t.bit_width)
    elif all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in types):
        result = pa.float64()
    elif isinstance(tree, e.Mul) and all(
        pa.types.is_integer(t) or pa.types.is_decimal(t) for t in types
    ):
        a, b = (_as_decimal(t) for t in types)
        precision = a.precision + b.precision + 1
        if precision > 38:
            raise UnsupportedError(f"{text!r}: more than 38 decimal digits")
        result = pa.decimal128(precision, a.scale + b.scale)
        return result, lambda batch: function(left(batch).cast(a), right(batch).cast(b))
    else:
        raise UnsupportedError(f"{text!r} on {left_type} and {right_type}")
    return result, lambda batch: function(left(batch).cast(result), right(batch).cast(result))


def _as_decimal(of: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(of):
        return of
    return pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[of.bit_width], 0)


def _in(tree: e.In, schema: pa.Schema) -> tuple[pa.DataType, _Evaluate]:
    of, inner = _compile(tree.this, schema)
    values = [_scalar(value) for value in tree.expressions]
    if any(not value.is_valid for value in values):
        raise UnsupportedError(f"{tree.sql(dialect='spark')!r}: IN with NULL")
    options = pa.array([value.as_py() for value in values]).cast(of)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        column = inner(batch)
        found = pc.is_in(column, value_set=options)
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    return pa.bool_(), evaluate


def _case(tree: e.Case, schema: pa.Schema) -> tuple[pa.DataType, _Evaluate]:
    if tree.this is not None or tree.args.get("default") is None or len(tree.args["ifs"]) != 1:
        raise UnsupportedError(f"{tree.sql(dialect='spark')!r}: only CASE WHEN .. THEN .. ELSE ..")
    branch = tree.args["ifs"][0]
    _, condition = _compile(branch.this, schema)
    then_type, then = _compile(branch.args["true"], schema)
    else_type, otherwise = _compile(tree.args["default"], schema)
    if then_type != else_type or not _is_total(branch.args["true"], tree.args["default"]):
        raise UnsupportedError(
            f"{tree.sql(dialect='spark')!r}: branches must be columns or literals of one type"
        )

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        is_true = pc.fill_null(condition(batch), False)
        return pc.if_else(is_true, then(batch), otherwise(batch))

    return then_type, evaluate


def _is_total(*branches: e.Expression) -> bool:
    """Whether the branches have a value for every row, so that evaluating both is safe."""
    return all(isinstance(b, (e.Column, e.Literal, e.Boolean, e.Cast)) for b in branches)


__all__ = [
    "CompiledExpression",
    "EvaluationError",
    "compile_expression",
    "compile_projection",
]
