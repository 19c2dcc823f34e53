"""Which groups of rows a filter keeps none of, as their smallest and largest values show.

A part of a filter that compares a column with a literal rises or falls with the column. So it holds
for no row of a group if it does not hold for the one end of the group's values where it would hold
first. The filter's own expressions decide that, with all their conversions. A value that is null,
or not read, never makes such a part true; so the rows of such a group may come without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from holdfast.api.expressions import parser as tree
from holdfast.api.expressions.compiler import CompiledExpression, compile_expression
from holdfast.api.expressions.values import EvaluationError
from holdfast.core.model.column_names import quoted
from holdfast.errors import DataflowError, UnsupportedError

_AT_LOW: Final = {"<": "<", "<=": "<=", "=": "<="}
_AT_HIGH: Final = {">": ">", ">=": ">=", "=": ">="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Range:
    """A comparison of a column, at the ends of its values.

    Attributes:
        column: Its name.
        at_low: What the smallest value must make true, or no row does; None: nothing.
        at_high: The same of the largest one.
    """

    column: str
    at_low: CompiledExpression | None
    at_high: CompiledExpression | None

    def may_hold(self, ends: pa.Array) -> bool:
        """Whether it may be true of a row, given its column's smallest and largest value."""
        batch = pa.RecordBatch.from_arrays([ends], names=[self.column])
        try:
            low = self.at_low is None or self.at_low.evaluate(batch)[0].as_py()
            return bool(low and (self.at_high is None or self.at_high.evaluate(batch)[1].as_py()))
        except EvaluationError:
            return True


Part = tuple[Range, ...]
"""A part of a filter that is true only if one of these ranges is."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The filters that a source's rows go through, of which one at least must keep a row.

    Attributes:
        filters: Of each filter the parts that must all be true.
    """

    filters: tuple[tuple[Part, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of which the smallest and the largest value are of use."""
        ranges = (each for parts in self.filters for part in parts for each in part)
        return tuple(dict.fromkeys(each.column for each in ranges))

    def keeps_none(self, ends: Mapping[str, pa.Array]) -> bool:
        """Whether every filter leaves out all rows of a group.

        Args:
            ends: Of columns, the smallest and the largest value, null in a group without any.
        """
        return all(any(_fails(part, ends) for part in parts) for parts in self.filters)


def _fails(part: Part, ends: Mapping[str, pa.Array]) -> bool:
    return all(each.column in ends and not each.may_hold(ends[each.column]) for each in part)


def parts_of(expression: CompiledExpression, schema: pa.Schema) -> tuple[Part, ...]:
    """The parts of a filter that the ends of a column's values can decide.

    Args:
        expression: The filter. One that can fail has none: it must see the rows as they are.
        schema: The columns.
    """
    if not expression.is_total:
        return ()
    parsed, _ = tree.parse(expression.sql)
    parts = (_ranges_in(each, schema) for each in _conjuncts(parsed))
    return tuple(part for part in parts if part)


def _conjuncts(part: tree.Tree) -> Iterator[tree.Tree]:
    part = _bare(part)
    if isinstance(part, tree.Operation) and part.symbol == "AND":
        for each in part.operands:
            yield from _conjuncts(each)
    else:
        yield part


def _ranges_in(part: tree.Tree, schema: pa.Schema) -> Part:
    """Ranges of which one must be true; none: nobody knows."""
    if not isinstance(part, tree.Operation):
        return ()
    first, *others = map(_bare, part.operands)
    if part.symbol == "BETWEEN" and isinstance(first, tree.Column):
        return _ranges(first, [[("<=", others[1]), (">=", others[0])]], schema)
    if part.symbol == "IN" and isinstance(first, tree.Column) and _are_alike(others):
        return _ranges(first, [[("=", each)] for each in others], schema)
    if part.symbol in _TURNED and isinstance(first, tree.Column):
        return _ranges(first, [[(part.symbol, others[0])]], schema)
    if part.symbol in _TURNED and isinstance(others[0], tree.Column):
        return _ranges(others[0], [[(_TURNED[part.symbol], first)]], schema)
    return ()


def _ranges(
    column: tree.Column, wanted: Sequence[Sequence[tuple[str, tree.Tree]]], schema: pa.Schema
) -> Part:
    """A range for each list of comparisons that must all be true; none if one is not decided."""
    (name,) = compile_expression(column.text, schema).columns
    field = schema.field(name)
    found = [_range(field, compared) for compared in wanted]
    return tuple(each for each in found if each is not None) if all(found) else ()


def _range(field: pa.Field, compared: Sequence[tuple[str, tree.Tree]]) -> Range | None:
    if not all(_rises(field.type, literal) for _, literal in compared):
        return None
    low = [f"{_AT_LOW[symbol]} {to.text}" for symbol, to in compared if symbol in _AT_LOW]
    high = [f"{_AT_HIGH[symbol]} {to.text}" for symbol, to in compared if symbol in _AT_HIGH]
    if pa.types.is_floating(field.type):
        high = []  # NaN is larger than any number, and no largest value says that there is one.
    return Range(field.name, _all_of(low, field), _all_of(high, field)) if low or high else None


def _all_of(compared: list[str], field: pa.Field) -> CompiledExpression | None:
    texts = [f"{quoted(field.name)} {each}" for each in compared]
    return compile_expression(" AND ".join(texts), pa.schema([field])) if texts else None


def _rises(of: pa.DataType, literal: tree.Tree) -> bool:
    """Whether a comparison with a literal has a column's own order, whatever is converted."""
    given = _type_of(literal)
    if given is None:
        return False
    is_text: bool = pa.types.is_string(given)
    if pa.types.is_string(of):
        return is_text
    if _is_time(of):
        return is_text or _is_time(given)
    return _is_number(of) and _is_number(given)


def _are_alike(literals: Sequence[tree.Tree]) -> bool:
    """Whether each is compared as it is: none is converted to what another one is."""
    kinds = {None if (of := _type_of(each)) is None else of.id for each in literals}
    return len(kinds) == 1 and None not in kinds


def _type_of(part: tree.Tree) -> pa.DataType | None:
    """The type of a literal; None: it is none, or NULL."""
    if not _is_literal(part):
        return None
    try:
        return compile_expression(part.text, pa.schema([])).type
    except (DataflowError, UnsupportedError):
        return None


def _is_time(of: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(of) or pa.types.is_date(of))


def _is_number(of: pa.DataType) -> bool:
    kinds = pa.types.is_integer(of), pa.types.is_floating(of), pa.types.is_decimal(of)
    return any(kinds)


def _is_literal(part: tree.Tree) -> bool:
    match part:
        case tree.Literal() | tree.Typed():
            return True
        case tree.Operation(symbol="unary -" | "unary +", operands=(operand,)):
            return isinstance(_bare(operand), tree.Literal)
        case tree.Cast(operand=operand, is_try=False):  # As Spark writes its literals.
            return _type_of(_bare(operand)) is not None
        case _:
            return False


def _bare(part: tree.Tree) -> tree.Tree:
    """Without parentheses around it."""
    while isinstance(part, tree.Operation) and part.symbol == "()":
        (part,) = part.operands
    return part
