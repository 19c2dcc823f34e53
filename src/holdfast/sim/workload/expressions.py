"""Random expressions, each as Spark SQL text and as a Python function of the same meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.sim.draw import Draw
    from holdfast.sim.workload.oracle import Meaning, Values

INT, TEXT, FLAG, REAL, TIME = "bigint", "string", "boolean", "double", "timestamp"
"""The kinds of columns that workloads have."""

_WORDS: Final = ("ada", "bo", "", "cleo")


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL text, the kind of its result, and what it means."""

    sql: str
    kind: str
    of: Meaning


def column(name: str, kind: str) -> Expression:
    """The value of a column."""
    return Expression(name, kind, lambda row: row[name])


class Expressions:
    """Draws expressions over the columns of a stream."""

    def __init__(self, draw: Draw, columns: dict[str, str]) -> None:
        """`columns`: names to kinds."""
        self._draw = draw
        self._columns = columns

    def _column(self, kind: str) -> Expression | None:
        names = [name for name, other in self._columns.items() if other == kind]
        return column(self._draw.one_of(names), kind) if names else None

    def any(self) -> Expression:
        """Of any kind but double and timestamp, whose columns are only handed on."""
        kind = self._draw.one_of((INT, INT, TEXT, FLAG))
        return self.of_kind(kind)

    def of_kind(self, kind: str, depth: int = 2) -> Expression:
        """Of one kind."""
        if kind == INT:
            return self._int(depth)
        return self._text(depth) if kind == TEXT else self.condition(depth)

    def _int(self, depth: int) -> Expression:
        leaf = self._column(INT)
        constant = self._draw.number(-3, 9)
        if leaf is None:
            return Expression(f"CAST({constant} AS BIGINT)", INT, lambda _: constant)
        shape = self._draw.number(0, 7) if depth else 0
        if shape <= 1:
            return leaf
        if shape == 2:
            other = self._int(depth - 1)
            return _binary(leaf, "+", other, lambda a, b: a + b)
        if shape == 3:
            return _binary(leaf, "-", self._int(depth - 1), lambda a, b: a - b)
        if shape == 4:
            factor = self._draw.number(-2, 3)
            return _unary(f"({leaf.sql} * {factor})", INT, leaf, lambda a: a * factor)
        if shape == 5:
            divisor = self._draw.number(2, 7)

            def remainder(a: int) -> int:  # Of the sign of the dividend, as in SQL.
                return a % divisor if a >= 0 else -(-a % divisor)

            return _unary(f"({leaf.sql} % {divisor})", INT, leaf, remainder)
        if shape == 6:
            fallback = self._draw.number(0, 9)

            def coalesced(row: Values) -> Any:
                value = leaf.of(row)
                return fallback if value is None else value

            return Expression(f"coalesce({leaf.sql}, {fallback})", INT, coalesced)
        condition, other = self.condition(depth - 1), self._int(depth - 1)

        def chosen(row: Values) -> Any:
            return leaf.of(row) if condition.of(row) is True else other.of(row)

        sql = f"CASE WHEN {condition.sql} THEN {leaf.sql} ELSE {other.sql} END"
        return Expression(sql, INT, chosen)

    def _text(self, depth: int) -> Expression:
        leaf = self._column(TEXT)
        word = self._draw.one_of(_WORDS)
        if leaf is None:
            return Expression(f"'{word}'", TEXT, lambda _: word)
        shape = self._draw.number(0, 4) if depth else 0
        if shape == 1:
            return _unary(f"upper({leaf.sql})", TEXT, leaf, lambda t: t.upper())
        if shape == 2:
            return _unary(f"concat({leaf.sql}, '{word}')", TEXT, leaf, lambda t: t + word)
        if shape == 3:
            return _unary(f"substring({leaf.sql}, 1, 2)", TEXT, leaf, lambda t: t[:2])
        return leaf

    def condition(self, depth: int = 2) -> Expression:
        """A boolean."""
        shape = self._draw.number(0, 7) if depth else self._draw.number(0, 3)
        if shape == 0 and (flag := self._column(FLAG)) is not None:
            return flag
        if shape == 1 and (text := self._column(TEXT)) is not None:
            word = self._draw.one_of(_WORDS)
            return _unary(f"({text.sql} = '{word}')", FLAG, text, lambda t: t == word)
        if shape <= 3:
            left, bound = self._int(0), self._draw.number(-3, 9)
            if self._draw.percent(20):
                return Expression(f"({left.sql} IS NULL)", FLAG, lambda row: left.of(row) is None)
            if self._draw.percent(50):
                return _unary(f"({left.sql} > {bound})", FLAG, left, lambda a: a > bound)
            return _unary(f"({left.sql} <= {bound})", FLAG, left, lambda a: a <= bound)
        first, second = self.condition(depth - 1), self.condition(depth - 1)
        if shape == 4:
            return _unary(f"(NOT {first.sql})", FLAG, first, lambda a: not a)
        return _junction(first, "AND" if shape <= 5 else "OR", second)


def _unary(sql: str, kind: str, inner: Expression, function: Any) -> Expression:
    """Null in, null out."""

    def of(row: Values) -> Any:
        value = inner.of(row)
        return None if value is None else function(value)

    return Expression(sql, kind, of)


def _binary(left: Expression, operator: str, right: Expression, function: Any) -> Expression:
    def of(row: Values) -> Any:
        a, b = left.of(row), right.of(row)
        return None if a is None or b is None else function(a, b)

    return Expression(f"({left.sql} {operator} {right.sql})", INT, of)


def _junction(left: Expression, operator: str, right: Expression) -> Expression:
    """AND is decided by one false side, OR by one true one; else an unknown side decides."""
    decisive = operator == "OR"

    def of(row: Values) -> Any:
        a, b = left.of(row), right.of(row)
        if a is decisive or b is decisive:
            return decisive
        return None if a is None or b is None else not decisive

    return Expression(f"({left.sql} {operator} {right.sql})", FLAG, of)
