"""Random texts of expressions and a batch of edge values that they read."""

from __future__ import annotations

import decimal
import math
import random

import pyarrow as pa

from holdfast.api.expressions.functions import FUNCTIONS

_BINARY = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "DIV",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "<=>",
    "AND",
    "OR",
    "||",
)
_BINARY += ("==", "!=", "&", "|", "^", "<<", ">>", ">>>", "IS DISTINCT FROM", "LIKE", "NOT LIKE")
_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BOOLEAN", "DATE")
_TYPES += ("TIMESTAMP", "DECIMAL(5,2)", "DECIMAL(38,0)", "DECIMAL(38,38)", "DECIMAL", "BINARY")
_LITERALS = (
    *("0", "1", "-1", "7", "127Y", "-128Y", "32767S", "2147483647", "-2147483648", "2147483648"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "-0.05", ".5"),
    *("0.0D", "-0.0D", "1E308", "1e-320", "1.5F", "3.4e38F", "1e400", "99999999999999999999999"),
    *("12345678901234567890123456789012345678", "0.00000000000000000000000000000000000001"),
    *("''", "'a'", "'ab%_'", "' 12 '", "'1e3'", "'-0'", "'é😀'", "'2020-02-29'", "'t'", "'\\\\'"),
    *(
        "'12345678901234567890123'",
        "'inf'",
        "'NaN'",
        "'0'",
        "'2147483648'",
        "'1970-01-01 00:00:00'",
    ),
    *("NULL", "TRUE", "FALSE", "DATE '1582-10-04'", "DATE '+290000-12-31'", "DATE '-9999-01-01'"),
    *("TIMESTAMP '2020-01-01 12:34:56.789'", "TIMESTAMP '+294247-01-10 04:00:54.775807'"),
    *("TIMESTAMP '-290308-12-21 19:59:05.224192'", "INTERVAL 1 DAY", "INTERVAL -3 HOURS"),
    *("INTERVAL 9223372036854775807 MICROSECONDS", "INTERVAL '1' WEEK", "X'1F'"),
)
_SCRAPS = ("(", ")", ",", "AS", "x", "`", "'", "CASE", "END", "NOT", "IS", "NULL", "INTERVAL", ".")
_SCRAPS += (
    "1",
    "+",
    "-",
    "\\",
    "--",
    "/*",
    "é",
    "\0",
    "::",
    "[",
    "1e",
    "BETWEEN",
    "IN",
    "FROM",
    "''",
)
_LEAVES = {
    "number": ("k", "h", "i", "a", "x", "d", "e", "g", "n", "0", "-1", "3Y", "2147483647", "1.50"),
    "text": ("s", "'a'", "''", "' 12 '", "'2020-02-29'", "'é😀'", "NULL"),
    "flag": ("p", "TRUE", "FALSE", "NULL", "s IS NULL"),
    "day": ("dt", "DATE '2020-02-29'", "DATE '-0044-03-15'", "CAST(NULL AS DATE)"),
    "time": ("ts", "TIMESTAMP '1969-12-31 23:59:59.999999'", "CAST(dt AS TIMESTAMP)"),
}
_CHOICES = (
    "CASE WHEN {flag} THEN {same} WHEN {flag} THEN {same} ELSE {same} END",
    "if({flag}, {same}, {same})",
    "coalesce({same}, {same}, {same})",
    "nullif({same}, {same})",
    "nvl({same}, {same})",
    "nvl2({any}, {same}, {same})",
    "greatest({same}, {same})",
    "least({same}, {same})",
)
_SHAPES = {
    "number": (
        *(f"{{number}} {sign} {{number}}" for sign in ("+", "-", "*", "/", "%")),
        *("-{number}", "+{number}", "abs({number})", "ceil({number})", "floor({number})"),
        *(
            "round({number}, {small})",
            "sign({number})",
            "length({text})",
            "mod({number}, {number})",
        ),
        *("CAST({number} AS BIGINT)", "CAST({number} AS INT)", "CAST({number} AS DOUBLE)"),
        *("CAST({number} AS DECIMAL(20, 4))", "CAST({text} AS INT)", "CAST({text} AS DOUBLE)"),
        *(
            "CAST({flag} AS INT)",
            "TRY_CAST({text} AS DECIMAL(9, 3))",
            "year({day})",
            "hour({time})",
        ),
        *("datediff({day}, {day})", "unix_seconds({time})", "dayofweek({day})", "month({time})"),
        *("instr({text}, {text})", "{number} + {text}", "CAST({time} AS BIGINT)"),
    ),
    "text": (
        *("{text} || {text}", "{text} || {number} || {flag}", "concat({text}, {text})"),
        *("upper({text})", "substring({text}, {small}, {small})", "left({text}, {small})"),
        *("lpad({text}, {small}, {text})", "replace({text}, {text}, {text})", "trim({text})"),
        *("CAST({day} AS STRING)", "CAST({time} AS STRING)", "CAST({flag} AS STRING)"),
        *("repeat({text}, {small})", "reverse({text})", "CAST(i AS STRING)", "CAST(d AS STRING)"),
    ),
    "flag": (
        *(f"{{number}} {sign} {{number}}" for sign in ("=", "<", ">=", "<>", "<=>")),
        *(
            f"{{{kind}}} {sign} {{{kind}}}"
            for kind in ("text", "day")
            for sign in ("=", "<", "<=>")
        ),
        *("{time} < {time}", "{time} = {day}", "{flag} AND {flag}", "{flag} OR {flag}"),
        *("NOT {flag}", "{flag} AND {flag} OR NOT {flag}", "{any} IS NULL", "{flag} IS NOT TRUE"),
        *("{number} BETWEEN {number} AND {number}", "{number} IN ({number}, {number}, NULL)"),
        *("{text} NOT IN ({text}, 'a')", "{text} LIKE '%a_'", "contains({text}, {text})"),
        *("{number} = {text}", "CAST({number} AS BOOLEAN)", "{flag} IS DISTINCT FROM {flag}"),
    ),
    "day": (
        *("date_add({day}, {small})", "date_sub({day}, k)", "CAST({time} AS DATE)"),
        *("trunc({day}, 'month')", "to_date({time})", "TRY_CAST({text} AS DATE)"),
    ),
    "time": (
        *("{time} + INTERVAL 90 MINUTES", "{time} - INTERVAL '1' DAY", "CAST({day} AS TIMESTAMP)"),
        *("date_trunc('hour', {time})", "timestamp_seconds(i)", "timestamp_millis({small})"),
    ),
}


_NAMES = sorted(name for name in FUNCTIONS if " " not in name)


class RandomSql:
    """Draws expressions; most of them are syntactically right, few make sense."""

    def __init__(self, draw: random.Random, columns: list[str]) -> None:
        """`columns`: what may be read."""
        self._draw = draw
        self._columns = columns

    def expression(self, depth: int = 3) -> str:
        """Of any shape, with at most `depth` operators above each other."""
        draw = self._draw
        if depth == 0 or draw.random() < 0.15:
            return draw.choice((draw.choice(_LITERALS), draw.choice(self._columns)))
        shape = draw.randrange(11)
        if shape < 3:
            return f"{self.inner(depth)} {draw.choice(_BINARY)} {self.inner(depth)}"
        if shape < 6:
            return self._call(depth)
        if shape == 6:
            to = draw.choice(_TYPES)
            verb = draw.choice(("CAST", "CAST", "TRY_CAST"))
            return f"{verb}({self.expression(depth - 1)} AS {to})"
        if shape == 7:
            sign = draw.choice(("-", "+", "NOT ", "!", "~"))
            return f"{sign}{self.inner(depth)}"
        if shape == 8:
            return self._choice(depth)
        return self._predicate(depth)

    def inner(self, depth: int) -> str:
        """An operand, in parentheses or not."""
        text = self.expression(depth - 1)
        return f"({text})" if self._draw.random() < 0.5 else text

    def _call(self, depth: int) -> str:
        name = self._draw.choice(_NAMES)
        function = FUNCTIONS[name]
        high = min(function.high, function.low + 2)
        count = self._draw.randint(function.low, high)
        return f"{name}({', '.join(self.expression(depth - 1) for _ in range(count))})"

    def _choice(self, depth: int) -> str:
        subject = self.inner(depth) if self._draw.random() < 0.3 else ""
        parts = [self.expression(depth - 1) for _ in range(3)]
        return f"CASE {subject} WHEN {parts[0]} THEN {parts[1]} ELSE {parts[2]} END"

    def _predicate(self, depth: int) -> str:
        value, negation = self.inner(depth), self._draw.choice(("", "NOT "))
        kind = self._draw.randrange(4)
        if kind == 0:
            return f"{value} {negation}BETWEEN {self.inner(depth)} AND {self.inner(depth)}"
        if kind == 1:
            options = ", ".join(self.expression(depth - 1) for _ in range(self._draw.randint(1, 3)))
            return f"{value} {negation}IN ({options})"
        of = self._draw.choice(("NULL", "TRUE", "FALSE", "UNKNOWN"))
        return f"{value} IS {negation}{of}"

    def typed(self, kind: str, depth: int = 3) -> str:
        """Of one kind (`number`, `text`, `flag`, `day`, `time`), so that it makes sense."""
        draw = self._draw
        if depth == 0 or draw.random() < 0.1:
            return draw.choice(_LEAVES[kind])
        if draw.random() < 0.2:
            template = draw.choice(_CHOICES).replace("{same}", f"{{{kind}}}")
        else:
            template = draw.choice(_SHAPES[kind])
        while "{" in template:
            before, _, rest = template.partition("{")
            of, _, after = rest.partition("}")
            template = f"{before}{self._filled(of, depth - 1)}{after}"
        return template

    def _filled(self, of: str, depth: int) -> str:
        if of == "any":
            of = self._draw.choice(sorted(_LEAVES))
        if of == "small":
            return str(self._draw.randint(-3, 6))
        inner = self.typed(of, depth)
        return inner if inner.isidentifier() else f"({inner})"

    def scraps(self) -> str:
        """What no grammar made."""
        draw = self._draw
        parts = [
            draw.choice((draw.choice(_SCRAPS), draw.choice(_LITERALS), draw.choice(_BINARY)))
            for _ in range(draw.randint(1, 8))
        ]
        return draw.choice(("", " ")).join(parts)


def edge_values() -> pa.RecordBatch:
    """A column of each type with nulls and the ends of its range."""

    def whole(bits: int) -> list[int | None]:
        return [None, -(2 ** (bits - 1)), -1, 0, 1, 2, 2 ** (bits - 1) - 1, 7]

    def fraction(precision: int, scale: int) -> list[decimal.Decimal | None]:
        most = 10**precision - 1
        digits = [most, -most, 0, 1, -1, most // 3, 5]
        return [None, *(decimal.Decimal(f"{each}e-{scale}") for each in digits)]

    reals = [None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1]
    days = [None, 0, -1, 106_751_991, -200_000_000, 18_321, -719_162, 2_932_896]
    micros = [None, 0, -1, 2**63 - 1, -(2**63), 1_582_934_400_000_001, -62_135_596_800_000_000, 1]
    texts = [None, "", "a", "12", " -7 ", "2020-02-29", "é😀\n", "1e3"]
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array(whole(8), pa.int8()),
            "h": pa.array(whole(16), pa.int16()),
            "i": pa.array(whole(32), pa.int32()),
            "a": pa.array(whole(64), pa.int64()),
            "f": pa.array([None if v is None else v for v in [*reals[:6], 1.5, 0.1]], pa.float32()),
            "x": pa.array(reals, pa.float64()),
            "d": pa.array(fraction(10, 2), pa.decimal128(10, 2)),
            "e": pa.array(fraction(38, 0), pa.decimal128(38, 0)),
            "g": pa.array(fraction(38, 37), pa.decimal128(38, 37)),
            "s": pa.array(texts, pa.string()),
            "p": pa.array([None, True, False, True, False, True, False, True], pa.bool_()),
            "dt": pa.array(days, pa.int32()).cast(pa.date32()),
            "ts": pa.array(micros, pa.int64())
            .cast(pa.timestamp("us"))
            .cast(pa.timestamp("us", "UTC")),
            "n": pa.nulls(8, pa.int32()),
        }
    )
