"""Spark's grammar of scalar expressions: how tightly each operator binds, in one table.

[Spark, SqlBaseParser: booleanExpression, predicate, valueExpression, primaryExpression]

An operator takes as its operands what binds tighter than itself; of equals, the left one comes
first. A predicate (IS, IN, LIKE, BETWEEN) may follow a value once and nothing but AND and OR may
follow it. Every tree keeps the text that it was read from. What Spark's grammar has beyond this
(subqueries, windows, lambdas, fields, collations) is refused by name.

Chains of AND, OR and || become one operation with many operands; everything else may nest
`DEPTH_MAX` deep.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa

from holdfast.api.expressions.lexer import Token, tokens_of
from holdfast.errors import DataflowError, UnsupportedError

DEPTH_MAX = 100

_OR, _AND, _NOT, _PREDICATE, _COMPARISON = 1, 2, 3, 4, 5
_UNARY = 12
_BINDING = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "==", "<>", "!=", "<", "<=", "!>", ">", ">=", "!<", "<=>"), _COMPARISON),
    "|": 6,
    "^": 7,
    "&": 8,
    **dict.fromkeys(("<<", ">>", ">>>"), 9),
    **dict.fromkeys(("+", "-", "||"), 10),
    **dict.fromkeys(("*", "/", "%", "DIV"), 11),
}
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
_CHAINS = ("AND", "OR", "||")
_PREDICATES = ("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS")
_NO_COLUMN = frozenset(
    (
        *("AND", "OR", "NOT", "DIV", *_PREDICATES, "CASE", "CAST", "TRY_CAST", "DISTINCT", "FROM"),
        *("AS", "ESCAPE", "EXISTS", "SELECT", "WITH", "NULL", "TRUE", "FALSE"),
    )
)
_NAMES_TOO = ("EXISTS", "LIKE", "ILIKE", "RLIKE", "REGEXP")
"""Of these, what may be a function's name."""
_OF_CASE = ("WHEN", "THEN", "ELSE", "END")
_TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TIME", "X")
_SHIFTS = (">>", ">>>")
_NESTED_TYPES = ("ARRAY", "MAP", "STRUCT")
_SUFFIXES = {"Y": pa.int8(), "S": pa.int16(), "L": pa.int64(), "F": pa.float32(), "D": pa.float64()}


@dataclass(frozen=True, slots=True)
class Tree:
    """A part of an expression.

    Attributes:
        text: What it was read from.
        depth: How many trees it nests.
    """

    text: str
    depth: int


@dataclass(frozen=True, slots=True)
class Column(Tree):
    """A column by its name, as written."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal(Tree):
    """A number, string, boolean or NULL."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Typed(Tree):
    """A literal that names its type, such as `DATE '2020-01-31'`."""

    of: str
    written: str


@dataclass(frozen=True, slots=True)
class Interval(Tree):
    """`INTERVAL 1 DAY 2 HOURS`: counts as written, and their units without a plural's S."""

    counts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type's name in capitals, and what stands behind it.

    Attributes:
        name: Such as `DECIMAL` or `STRUCT`.
        numbers: In parentheses.
        parts: In angle brackets: types, with their fields' names in a STRUCT, else "".
    """

    name: str
    numbers: tuple[int, ...] = ()
    parts: tuple[tuple[str, TypeName], ...] = ()


@dataclass(frozen=True, slots=True)
class Cast(Tree):
    """`CAST(operand AS to)`; a failing TRY_CAST is null."""

    operand: Tree
    to: TypeName
    is_try: bool


@dataclass(frozen=True, slots=True)
class Case(Tree):
    """`CASE`, with or without a subject, which each condition is then compared with."""

    subject: Tree | None
    branches: tuple[tuple[Tree, Tree], ...]
    default: Tree | None


@dataclass(frozen=True, slots=True)
class Operation(Tree):
    """An operator or predicate by its symbol, and what it is applied to."""

    symbol: str
    operands: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Call(Tree):
    """A function by its name in small letters, and its arguments."""

    name: str
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Lambda(Tree):
    """`(x, y) -> body`: a function of its own, given to another one."""

    names: tuple[str, ...]
    body: Tree


@dataclass(frozen=True, slots=True)
class Field(Tree):
    """`operand.name`: a field of a struct."""

    operand: Tree
    name: str


def columns_of(part: Tree) -> Iterator[Column]:
    """The columns in a tree, from left to right."""
    match part:
        case Column():
            yield part
        case Operation(operands=parts) | Call(arguments=parts):
            for each in parts:
                yield from columns_of(each)
        case Cast(operand=operand) | Field(operand=operand):
            yield from columns_of(operand)
        case Lambda(names=names, body=body):
            own = {name.lower() for name in names}
            yield from (c for c in columns_of(body) if c.name.lower() not in own)
        case Case(subject=subject, branches=branches, default=default):
            for inner in (subject, *(p for branch in branches for p in branch), default):
                if inner is not None:
                    yield from columns_of(inner)


def parse(sql: str) -> tuple[Tree, str | None]:
    """The tree of an expression, and its alias.

    Raises:
        DataflowError: It is no expression in Spark's grammar.
        UnsupportedError: Spark's grammar has it, this one does not.
    """
    return _Parser(sql).whole()


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tokens_of(sql)
        self._at = 0
        self._cases = 0
        self._nested = 0

    # -- tokens -------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take_token(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _is(self, *texts: str, ahead: int = 0) -> bool:
        token = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return token.kind in ("word", "symbol") and token.text in texts

    def _took(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if not self._took(text):
                self._fail(f"{text} is missing")

    def _fail(self, why: str) -> NoReturn:
        rest = self._sql[self._next.start : self._next.start + 20]
        where = f"before {rest!r}" if rest else "at its end"
        raise DataflowError(f"{self._sql!r} is no Spark SQL expression: {why} {where}")

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(f"{self._sql!r}: {what} is not supported")

    def _text(self, start: int) -> str:
        return self._sql[start : self._tokens[self._at - 1].stop]

    def _depth(self, *trees: Tree | None) -> int:
        depth = 1 + max((tree.depth for tree in trees if tree is not None), default=0)
        if depth > DEPTH_MAX:
            self._refuse(f"nesting more than {DEPTH_MAX} deep")
        return depth

    # -- from loose to tight ------------------------------------------------------------------

    def whole(self) -> tuple[Tree, str | None]:
        """Everything, with the alias."""
        tree = self._expression()
        has_as = self._took("AS")
        alias = None
        is_name = self._next.kind in ("word", "quoted") and not self._is(*_NO_COLUMN)
        if has_as or is_name:
            alias = self._name()
        if self._is("OVER"):
            self._refuse("a window")
        if self._next.kind != "end":
            self._fail("something is left over")
        return tree, alias

    def _name(self) -> str:
        token = self._take_token()
        if token.kind == "quoted":
            return token.text
        if token.kind != "word":
            self._at -= token.kind != "end"
            self._fail("a name is missing")
        return self._sql[token.start : token.stop]

    def _expression(self, minimum: int = _OR) -> Tree:
        """What binds at least as tightly as `minimum`."""
        self._nested += 1
        if self._nested > DEPTH_MAX:
            self._refuse(f"nesting more than {DEPTH_MAX} deep")
        start = self._next.start
        tightest = _NOT if self._is("NOT", "!") else _UNARY  # What may still take all this.
        left = self._operand(minimum)
        while True:
            is_predicate = self._at_predicate()
            binding = _PREDICATE if is_predicate else self._binding()
            if binding is None or not minimum <= binding <= tightest:
                break
            if is_predicate:
                left = self._predicate(left, start)
                tightest = _NOT
                continue
            symbol = self._take_token().text
            if symbol in _SHIFTS and _names_a_nested_type(self._tokens[: self._at]):
                self._refuse(f"{symbol} behind ARRAY, MAP or STRUCT")
            tightest = binding
            right = self._expression(binding + 1)
            left = self._binary(_SAME.get(symbol, symbol), left, right, start)
        self._nested -= 1
        return left

    def _binding(self) -> int | None:
        token = self._next
        return _BINDING.get(token.text) if token.kind in ("word", "symbol") else None

    def _at_predicate(self) -> bool:
        return self._is(*_PREDICATES) or (
            self._is("NOT", "!") and self._is(*_PREDICATES[:-1], ahead=1)
        )

    def _binary(self, symbol: str, left: Tree, right: Tree, start: int) -> Tree:
        text = self._text(start)
        if symbol in _CHAINS and isinstance(left, Operation) and left.symbol == symbol:
            parts = (*left.operands, right)  # In parentheses it would be another operation.
            return Operation(text, max(left.depth, self._depth(right)), symbol, parts)
        return Operation(text, self._depth(left, right), symbol, (left, right))

    def _predicate(self, left: Tree, start: int) -> Tree:
        is_negated = self._took("NOT") or self._took("!")
        kind = self._take_token().text
        operands: tuple[Tree, ...]
        if kind == "IS":
            return self._is_predicate(left, start)
        if kind == "BETWEEN":
            low = self._expression(_COMPARISON)
            self._expect("AND")
            operands = (left, low, self._expression(_COMPARISON))
        elif kind == "IN":
            self._expect("(")
            if self._is("SELECT", "WITH"):
                self._refuse("a subquery")
            operands = (left, *self._list())
            self._expect(")")
        else:
            if self._is("ANY", "SOME", "ALL"):
                self._refuse(f"{kind} {self._next.text}")
            operands = (left, self._expression(_COMPARISON))
            if kind == "REGEXP":
                kind = "RLIKE"
            if self._is("ESCAPE") and kind in ("LIKE", "ILIKE"):
                self._take_token()
                escape = self._take_token()
                if escape.kind != "string" or len(escape.text) != 1:
                    self._fail("ESCAPE takes one character in quotes")
                value = pa.scalar(escape.text)
                operands = (*operands, Literal(escape.text, 1, value))
        return self._maybe_not(kind, operands, start, is_negated=is_negated)

    def _maybe_not(
        self, kind: str, operands: tuple[Tree, ...], start: int, *, is_negated: bool
    ) -> Tree:
        text = self._text(start)
        tree: Tree = Operation(text, self._depth(*operands), kind, operands)
        return Operation(text, self._depth(tree), "NOT", (tree,)) if is_negated else tree

    def _is_predicate(self, left: Tree, start: int) -> Tree:
        is_negated = self._took("NOT") or self._took("!")
        operands: tuple[Tree, ...] = (left,)
        kind = self._take_token().text
        if kind == "DISTINCT":
            self._expect("FROM")
            operands = (left, self._expression(_COMPARISON))
        elif kind not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            self._at -= 1
            self._fail("IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return self._maybe_not(f"IS {kind}", operands, start, is_negated=is_negated)

    def _operand(self, minimum: int) -> Tree:
        """What stands before the first infix operator."""
        start = self._next.start
        if self._is("NOT", "!"):
            if minimum > _NOT:
                self._fail("NOT binds looser than what is left of it; write parentheses")
            self._take_token()
            inner = self._expression(_NOT)
            return Operation(self._text(start), self._depth(inner), "NOT", (inner,))
        if self._is("-", "+", "~"):
            if self._is("-") and self._tokens[self._at + 1].kind == "number":
                self._take_token()
                return self._postfix(self._number(start), start)
            symbol = self._take_token().text
            inner = self._expression(_UNARY)
            return Operation(self._text(start), self._depth(inner), f"unary {symbol}", (inner,))
        return self._postfix(self._primary(start), start)

    def _postfix(self, tree: Tree, start: int) -> Tree:
        while True:
            if self._took("::"):
                to = self._type()
                tree = Cast(self._text(start), self._depth(tree), tree, to, False)
            elif self._took("."):
                name = self._name()
                tree = Field(self._text(start), self._depth(tree), tree, name)
            elif self._took("["):
                index = self._expression()
                self._expect("]")
                tree = self._made("get []", [tree, index], start)
            elif self._is(":"):
                self._refuse("a part of a VARIANT")
            elif self._is("=>"):
                self._refuse("a named argument")
            elif self._is("COLLATE"):
                self._refuse("a collation")
            elif self._is("OVER", "FILTER", "WITHIN") and self._is("(", ahead=1):
                self._refuse("a window")
            else:
                return tree

    # -- what is one by itself ----------------------------------------------------------------

    def _primary(self, start: int) -> Tree:
        token = self._next
        if token.kind == "string":
            return self._string(start)
        if token.kind == "number":
            return self._number(start)
        if token.kind == "quoted":
            self._take_token()
            return Column(self._text(start), 1, token.text)
        if token.kind == "symbol":
            return self._in_parentheses(start)
        if token.kind == "end":
            self._fail("an operand is missing")
        return self._word(start)

    def _in_parentheses(self, start: int) -> Tree:
        if not self._took("("):
            if self._is("?", ":"):
                self._refuse("a parameter")
            self._fail("an operand is missing")
        if self._is("SELECT", "WITH", "VALUES"):
            self._refuse("a subquery")
        inner = self._expression()
        if self._took(","):
            row = [inner, *self._list()]
            self._expect(")")
            return self._made("struct", row, start)
        if self._is("AS") or self._next.kind in ("word", "quoted"):
            self._refuse("a row of several values")
        self._expect(")")
        return Operation(self._text(start), self._depth(inner), "()", (inner,))

    def _word(self, start: int) -> Tree:
        token = self._next
        word = token.text
        following = self._tokens[self._at + 1]
        if word in ("NULL", "TRUE", "FALSE"):
            self._take_token()
            value = pa.scalar(None, pa.null()) if word == "NULL" else pa.scalar(word == "TRUE")
            return Literal(self._text(start), 1, value)
        if word == "CASE":
            return self._case(start)
        if word in _TYPED and following.kind == "string":
            self._take_token()
            written = self._take_token().text
            return Typed(self._text(start), 1, word, written)
        if word == "INTERVAL" and self._begins_interval():
            return self._interval(start)
        if following.kind == "symbol" and following.text == "(":
            special = _SPECIAL.get(word)
            if special is not None:
                return special(self, start)
            if word == "EXISTS" and self._is("SELECT", "WITH", ahead=2):
                self._refuse("a subquery")
            if word not in _NO_COLUMN or word in _NAMES_TOO:
                return self._call(start)
        if word == "SELECT":
            self._refuse("a query")
        if word in _NO_COLUMN or (self._cases and word in _OF_CASE):
            self._fail("an operand is missing")
        self._take_token()
        return Column(self._text(start), 1, self._text(start))

    def _string(self, start: int) -> Tree:
        parts = []
        while self._next.kind == "string":
            parts.append(self._take_token().text)
        return Literal(self._text(start), 1, pa.scalar("".join(parts)))

    def _number(self, start: int) -> Tree:
        """A number, with the sign before it."""
        sign = "-" if self._tokens[self._at - 1].text == "-" and start < self._next.start else ""
        written = sign + self._take_token().text
        return Literal(self._text(start), 1, _number(written))

    def _case(self, start: int) -> Tree:
        self._take_token()
        self._cases += 1
        subject = None if self._is("WHEN") else self._expression()
        branches = []
        while self._took("WHEN"):
            condition = self._expression()
            self._expect("THEN")
            branches.append((condition, self._expression()))
        if not branches:
            self._fail("WHEN is missing")
        default = self._expression() if self._took("ELSE") else None
        self._expect("END")
        self._cases -= 1
        trees = [tree for branch in branches for tree in branch]
        depth = self._depth(subject, default, *trees)
        return Case(self._text(start), depth, subject, tuple(branches), default)

    def _begins_interval(self) -> bool:
        at = self._at + 1
        at += self._tokens[at].text in ("+", "-")
        return self._tokens[at].kind in ("number", "string")

    def _interval(self, start: int) -> Tree:
        self._take_token()
        counts: list[tuple[str, str]] = []
        while self._next.kind in ("number", "string") or (self._is("+", "-") and not counts):
            sign = self._take_token().text if self._is("+", "-") else ""
            if self._next.kind not in ("number", "string"):
                self._fail("an interval's number is missing")
            count = self._take_token()
            unit = self._take_token()
            if unit.kind != "word":
                self._refuse("an interval without a unit behind its number")
            counts.append((f"{sign}{count.text.strip()}", unit.text.removesuffix("S")))
        if self._is("TO"):
            self._refuse("an interval from unit to unit")
        return Interval(self._text(start), 1, tuple(counts))

    def _list(self) -> list[Tree]:
        trees = [self._expression()]
        while self._took(","):
            trees.append(self._expression())
        return trees

    def _arguments(self) -> list[Tree]:
        """What stands between the parentheses of a call: expressions and lambdas."""
        trees: list[Tree] = []
        while not trees or self._took(","):
            trees.append(self._lambda() or self._expression())
        return trees

    def _lambda(self) -> Tree | None:
        """A lambda, if one begins here."""
        start, at = self._next.start, self._at
        names = []
        if self._next.kind in ("word", "quoted") and self._is("->", ahead=1):
            names.append(self._name())
        elif self._is("("):
            names = self._names_in_parentheses()
        if not names or not self._took("->"):
            self._at = at
            return None
        body = self._expression()
        return Lambda(self._text(start), self._depth(body), tuple(names), body)

    def _names_in_parentheses(self) -> list[str]:
        """`(x, y)` before an arrow; none if something else stands there."""
        names: list[str] = []
        while self._took(",") if names else self._took("("):
            if self._next.kind not in ("word", "quoted"):
                return []
            names.append(self._name())
        return names if self._took(")") and self._is("->") else []

    def _call(self, start: int) -> Tree:
        name = self._take_token().text.lower()
        self._expect("(")
        if self._is("DISTINCT", "ALL") and not self._is(",", ")", ahead=1):
            self._refuse(self._next.text)
        if self._is("*"):
            self._refuse(f"{name}(*)")
        arguments = [] if self._is(")") else self._arguments()
        self._expect(")")
        return self._made(name, arguments, start)

    def _made(self, name: str, arguments: list[Tree], start: int) -> Tree:
        return Call(self._text(start), self._depth(*arguments), name, tuple(arguments))

    # -- calls with words between their arguments ---------------------------------------------

    def _cast(self, start: int) -> Tree:
        is_try = self._take_token().text == "TRY_CAST"
        self._expect("(")
        operand = self._expression()
        self._expect("AS")
        to = self._type()
        self._expect(")")
        return Cast(self._text(start), self._depth(operand), operand, to, is_try)

    def _type(self) -> TypeName:
        token = self._take_token()
        if token.kind != "word":
            self._at -= token.kind != "end"
            self._fail("a type is missing")
        numbers: list[int] = []
        if token.text in _NESTED_TYPES and self._is("<", "<>"):
            return self._nested_type(token.text)
        if self._took("("):
            while True:
                number = self._take_token()
                if number.kind != "number" or not number.text.isdecimal():
                    self._at -= number.kind != "end"
                    self._fail("a type's number is missing")
                numbers.append(int(number.text[:9]))
                if not self._took(","):
                    break
            self._expect(")")
        if token.text == "INTERVAL":
            self._refuse("type INTERVAL")
        return TypeName(token.text, tuple(numbers))

    def _nested_type(self, name: str) -> TypeName:
        """`ARRAY<of>`, `MAP<of, of>`, `STRUCT<name: of, ...>`; the lexer may join two brackets."""
        parts: list[tuple[str, TypeName]] = []
        if self._took("<>"):
            return TypeName(name, (), ())
        while self._took(",") if parts else self._took("<"):
            field = self._name() if name == "STRUCT" else ""
            if name == "STRUCT":
                self._took(":")
            parts.append((field, self._type()))
        if self._is(">>", ">>>"):
            # One bracket of the token is taken, the others are left for the types around.
            token = self._next
            rest = replace(token, text=token.text[1:], start=token.start + 1)
            self._tokens[self._at] = rest
        else:
            self._expect(">")
        return TypeName(name, (), tuple(parts))


def _names_a_nested_type(tokens: Sequence[Token]) -> bool:
    """Behind such a word Spark's lexer takes `>>` for the ends of two types."""
    return any(token.kind == "word" and token.text in _NESTED_TYPES for token in tokens)


def _extract(parser: _Parser, start: int) -> Tree:
    parser._take_token()
    parser._expect("(")
    field = parser._take_token()
    if field.kind not in ("word", "string"):
        parser._fail("EXTRACT takes a field")
    parser._expect("FROM")
    source = parser._expression(_COMPARISON)
    parser._expect(")")
    return parser._made(f"extract {field.text.lower()}", [source], start)


def _substring(parser: _Parser, start: int) -> Tree:
    name = parser._take_token().text.lower()
    parser._expect("(")
    arguments = [parser._expression()]
    for word in ("FROM", "FOR"):
        if not parser._took(word) and not parser._took(","):
            break
        arguments.append(parser._expression())
    parser._expect(")")
    return parser._made(name, arguments, start)


def _trim(parser: _Parser, start: int) -> Tree:
    parser._take_token()
    parser._expect("(")
    name = "trim"
    for word, of in (("BOTH", "trim"), ("LEADING", "ltrim"), ("TRAILING", "rtrim")):
        if parser._is(word) and not parser._is(",", ")", ahead=1):
            parser._take_token()
            name = of
            break
    characters = None if parser._is("FROM") else parser._expression()
    if parser._took("FROM"):
        string = parser._expression()
        arguments = [string] if characters is None else [string, characters]
        name = f"{name} from"
    elif characters is not None:
        arguments = [characters]
        while parser._took(","):
            arguments.append(parser._expression())
    parser._expect(")")
    return parser._made(name, arguments, start)


def _position(parser: _Parser, start: int) -> Tree:
    parser._take_token()
    parser._expect("(")
    begin = parser._at
    arguments = [parser._expression(_COMPARISON)]
    if not parser._is("IN", ",", ")"):
        parser._at = begin  # It is an ordinary call, whose arguments may be predicates.
        arguments = [parser._expression()]
    if parser._took("IN"):
        arguments.append(parser._expression(_COMPARISON))
    while parser._took(","):
        arguments.append(parser._expression())
    parser._expect(")")
    return parser._made("position", arguments, start)


def _overlay(parser: _Parser, start: int) -> Tree:
    parser._take_token()
    parser._expect("(")
    arguments = [parser._expression()]
    for word in ("PLACING", "FROM", "FOR"):
        if not parser._took(word) and not parser._took(","):
            break
        arguments.append(parser._expression())
    parser._expect(")")
    return parser._made("overlay", arguments, start)


_SPECIAL: dict[str, Callable[[_Parser, int], Tree]] = {
    "CAST": _Parser._cast,
    "TRY_CAST": _Parser._cast,
    "EXTRACT": _extract,
    "SUBSTR": _substring,
    "SUBSTRING": _substring,
    "TRIM": _trim,
    "POSITION": _position,
    "OVERLAY": _overlay,
}


def _number(written: str) -> pa.Scalar:
    """The value of a number, in capitals with its sign. Raises `DataflowError` beyond its type."""
    digits = written.lstrip("-")
    if len(written) > 500:
        raise DataflowError(f"{written[:50]}... has more than 500 characters")
    if (exponent := re.search(r"E[+-]?(\d+)", digits)) and len(exponent[1].lstrip("0")) > 4:
        raise DataflowError(f"{written} has an exponent of more than 4 digits")
    if digits.isdecimal():
        return _integer(written)
    suffix = "BD" if digits.endswith("BD") else digits[-1]
    if suffix in ("L", "S", "Y"):
        return _within(written, int(written[:-1]), _SUFFIXES[suffix])
    if suffix in ("D", "F"):
        return _real(written, written[:-1], _SUFFIXES[suffix])
    if "E" in digits and suffix != "BD":
        return _real(written, written, pa.float64())
    return _decimal(written, written.removesuffix("BD"))


def _integer(written: str) -> pa.Scalar:
    value = int(written)
    for of in (pa.int32(), pa.int64()):
        if -(2 ** (of.bit_width - 1)) <= value < 2 ** (of.bit_width - 1):
            return pa.scalar(value, of)
    return _decimal(written, written)


def _within(written: str, value: int, of: pa.DataType) -> pa.Scalar:
    if not -(2 ** (of.bit_width - 1)) <= value < 2 ** (of.bit_width - 1):
        raise DataflowError(f"{written} is out of the bounds of {of}")
    return pa.scalar(value, of)


def _real(written: str, plain: str, of: pa.DataType) -> pa.Scalar:
    most = 1.7976931348623157e308 if of == pa.float64() else 3.4028234663852886e38
    exact = decimal.Decimal(plain)
    if abs(exact) > decimal.Decimal(most):
        raise DataflowError(f"{written} is out of the bounds of {of}")
    return pa.scalar(float(plain), of)


def _decimal(written: str, plain: str) -> pa.Scalar:
    sign, digits, exponent = decimal.Decimal(plain).as_tuple()
    assert isinstance(exponent, int)
    length = len(digits) if any(digits) else 1
    precision, scale = length + max(0, exponent), max(0, -exponent)
    precision = max(precision, scale)
    if precision > 38:
        raise DataflowError(f"{written} has more than 38 digits")
    value = decimal.Decimal((sign, (*digits, *(0,) * max(0, exponent)), min(0, exponent)))
    return pa.scalar(value, pa.decimal128(precision, scale))
