"""What a filter says of groups of rows, beside the filter itself on every row."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.api.expressions import compile_expression
from holdfast.api.expressions.pruning import Pruning, parts_of

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(8, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("Odd name", pa.int64()),
    ]
)


def value(name: str, chance: random.Random) -> Any:
    """Of a column, from few values, so that filters often meet them."""
    number = chance.randint(-3, 3)
    match name:
        case "x":
            return chance.choice([float(number), number + 0.5, float("nan"), -0.0])
        case "m":
            return decimal.Decimal(number) / 4
        case "s":
            return chance.choice(["", "a", "b", "ab", "é", "\U0001f600", "~"])
        case "d":
            return datetime.date(2026, 1, 10 + number)
        case "at":
            return datetime.datetime(2026, 1, 10 + number, chance.choice([0, 12]), tzinfo=UTC)
        case _:
            return number


def literal(name: str, chance: random.Random) -> str:
    day = f"2026-01-{chance.randint(7, 13):02}"
    match name:
        case "s":
            return chance.choice(["'a'", "'ab'", "''", "'z'", "'é'"])
        case "d":
            return chance.choice([f"DATE '{day}'", f"'{day}'", f"TIMESTAMP '{day} 06:00:00'"])
        case "at":
            return chance.choice([f"TIMESTAMP '{day} 12:00:00'", f"'{day}'", f"DATE '{day}'"])
        case _:
            return chance.choice(["-2", "(1)", "0", "2", "1.5", "-0.25", "2.5D", "-4", "1e0"])


def comparison(chance: random.Random) -> str:
    name = chance.choice(SCHEMA.names)
    column = f"`{name}`"
    given = [literal(name, chance) for _ in range(3)]
    if name in ("d", "at"):  # Texts and several other types do not go together.
        given = [given[0], *(each for each in given[1:] if each[0] == given[0][0])] + given[:1] * 2
    if name == "s" and chance.random() < 0.1:
        return f"({column} LIKE 'a%')"
    match chance.randrange(4):
        case 0:
            return f"({column} {chance.choice(['<', '<=', '=', '>', '>=', '<>'])} {given[0]})"
        case 1:
            return f"({given[0]} {chance.choice(['<', '<=', '=', '==', '>', '!>'])} {column})"
        case 2:
            return f"({column} {chance.choice(['', 'NOT'])} BETWEEN {given[0]} AND {given[1]})"
        case _:
            return f"({column} IN ({', '.join(given)}))"


def ends_of(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """As the statistics of Parquet say them: without NaN."""
    found = {}
    for field, column in zip(SCHEMA, rows.columns, strict=True):
        own = column.filter(pc.invert(pc.is_nan(column))) if field.name == "x" else column
        known = pc.min_max(own)
        found[field.name] = pa.array([known["min"].as_py(), known["max"].as_py()], field.type)
    return found


def test_no_row_of_a_group_that_is_left_out_is_kept_by_the_filter() -> None:
    chance = random.Random(20261127)
    left_out = 0
    for _ in range(1_000):
        parts = [comparison(chance) for _ in range(chance.randint(1, 3))]
        text = parts[0] if chance.random() < 0.7 else f"{' OR '.join(parts)}"
        text = " AND ".join(parts) if len(parts) > 1 and chance.random() < 0.7 else text
        filtered = compile_expression(text, SCHEMA)
        rows = pa.RecordBatch.from_pylist(
            [
                {n: value(n, chance) if chance.random() < 0.8 else None for n in SCHEMA.names}
                for _ in range(chance.randint(1, 4))
            ],
            SCHEMA,
        )
        pruning = Pruning((parts_of(filtered, SCHEMA),))
        if pruning.keeps_none(ends_of(rows)):
            left_out += 1
            assert not pc.any(filtered.evaluate(rows)).as_py(), (text, rows.to_pylist())
            unread = pa.RecordBatch.from_pylist([{"at": r["at"]} for r in rows.to_pylist()], SCHEMA)
            assert not pc.any(filtered.evaluate(unread)).as_py(), text
    assert left_out > 100


@pytest.mark.parametrize(
    ("text", "column", "outside", "within"),
    [
        ("n > 3", "n", (1, 3), (1, 4)),
        ("3 <= n", "n", (1, 2), (1, 3)),
        ("(`Odd name` > CAST(8000 AS BIGINT))", "Odd name", (1, 8_000), (1, 8_001)),
        ("n = 5 AND s LIKE 'a%'", "n", (6, 9), (4, 6)),
        ("n BETWEEN 3 AND 5", "n", (6, 9), (1, 9)),
        ("n IN (1, 7)", "n", (2, 6), (2, 7)),
        ("x < -1.5", "x", (-1.5, 3.0), (-2.0, 3.0)),
        ("m >= 1.5", "m", ("0.10", "1.49"), ("0.10", "1.50")),
        ("s = 'b'", "s", ("c", "d"), ("a", "c")),
        ("(at >= '2026-01-02')", "at", (0, 86_400), (0, 4e9)),
        ("d < DATE '2026-01-02'", "d", (30_000, 30_001), (0, 1)),
        ("`odd NAME` > 2", "Odd name", (0, 2), (0, 3)),
    ],
)
def test_a_comparison_with_a_literal_leaves_out_what_is_outside_of_it(
    text: str, column: str, outside: tuple[Any, Any], within: tuple[Any, Any]
) -> None:
    pruning = Pruning((parts_of(compile_expression(text, SCHEMA), SCHEMA),))
    assert pruning.columns == (column,)

    def keeps_none(ends: tuple[Any, Any]) -> bool:
        of = SCHEMA.field(column).type
        if pa.types.is_timestamp(of) or pa.types.is_date(of):
            unit = 1_000_000 if pa.types.is_timestamp(of) else 1
            whole = pa.int64() if pa.types.is_timestamp(of) else pa.int32()
            return pruning.keeps_none(
                {column: pa.array([int(e * unit) for e in ends], whole).cast(of)}
            )
        made = [decimal.Decimal(e) for e in ends] if pa.types.is_decimal(of) else list(ends)
        return pruning.keeps_none({column: pa.array(made, of)})

    assert keeps_none(outside)
    assert not keeps_none(within)
    assert pruning.keeps_none({column: pa.nulls(2, SCHEMA.field(column).type)})
    assert not pruning.keeps_none({}), "of a column of which nothing is known, all may be"


@pytest.mark.parametrize(
    "text",
    [
        "n + 1 > 3",
        "n > x",
        "n > 3 OR s = 'a'",
        "NOT n > 3",
        "n IS NULL",
        "n <> 3",
        "n IN (1, NULL)",
        "`Odd name` IN (9007199254740993, 1e0)",
        "n > 3 AND 1 / n > 0",
        "x > 3",
        "s > 3",
        "n > '3'",
        "n > CAST(NULL AS INT)",
        "upper(s) = 'A'",
    ],
)
def test_what_the_ends_of_a_column_do_not_decide_leaves_out_nothing(text: str) -> None:
    assert not parts_of(compile_expression(text, SCHEMA), SCHEMA)


def test_a_group_is_left_out_only_if_no_reader_keeps_any_of_it() -> None:
    low, high = (parts_of(compile_expression(each, SCHEMA), SCHEMA) for each in ("n < 3", "n > 5"))
    pruning = Pruning((low, high))
    ends = {n: pa.array(of, pa.int32()) for n, of in (("n", [3, 5]),)}
    assert pruning.keeps_none(ends)
    assert not pruning.keeps_none({"n": pa.array([3, 6], pa.int32())})
    assert not pruning.keeps_none({"n": pa.array([2, 5], pa.int32())})
