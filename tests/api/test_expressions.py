"""Expressions without Spark: what is refused and how, branches that are not taken, travelling."""

import datetime as dt
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from random_sql import edge_values

from holdfast.api.expressions import (
    SUPPORTED_FUNCTIONS,
    EvaluationError,
    compile_expression,
    compile_projection,
)
from holdfast.api.expressions.calendar import civil, days_at
from holdfast.api.expressions.parser import Call, Cast, Operation, Tree, parse
from holdfast.errors import DataflowError, UnsupportedError

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("Odd name", pa.int32()),
    ]
)


def batch(a: list[int | None], b: list[int | None]) -> pa.RecordBatch:
    rows = len(a)
    columns = [pa.array(a, pa.int64()), pa.array(b, pa.int64())]
    columns += [pa.nulls(rows, field.type) for field in list(SCHEMA)[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def evaluate(text: str, a: list[int | None], b: list[int | None]) -> list[object]:
    result: list[object] = compile_expression(text, SCHEMA).evaluate(batch(a, b)).to_pylist()
    return result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a +", "is no Spark SQL expression"),
        ("c + 1", "no column 'c'; there are a, b, name"),
        ("t.a", "write the column's name alone"),
        ("a = at", "BIGINT and TIMESTAMP have no common type"),
        ("name + name", "no arithmetic with STRING"),
        ("a = NOT b", "write parentheses before 'NOT b'"),
        ("a IN (1) = true", "something is left over before '= true'"),
        ("NOT a = 1 IS NULL IS NULL", "something is left over before 'IS NULL'"),
        ("a > 1 OR b IN (1) IS TRUE", "something is left over before 'IS TRUE'"),
        ("(a + 1", "\\) is missing at its end"),
        ("a + 'x", 'it breaks at "\'x"'),
        ("DATE '015'", "'015' is no DATE"),
        ("DATE '2023-02-29'", "is no DATE"),
        ("TIMESTAMP '4294967297'", "is no TIMESTAMP"),
        ("-DATE '1999-01-01'", "no arithmetic with DATE"),
        ("+TIMESTAMP '1999-01-01'", "no arithmetic with TIMESTAMP"),
        ("1E309", "out of the bounds of double"),
        ("-1e39F", "out of the bounds of float"),
        ("128Y", "out of the bounds of int8"),
        ("1e39BD", "more than 38 digits"),
        ("1e99999", "an exponent of more than 4 digits"),
        ("at + INTERVAL 9223372036854775807 WEEK", "does not fit INTERVAL"),
        ("INTERVAL 3 DAY * 2", "no arithmetic with INTERVAL"),
        ("CASE WHEN NULL THEN 1 END", "NULL is VOID, not BOOLEAN"),
        ("a + 1 / 0", "has a value for no row: division by zero"),
        ("NOT a", "a is BIGINT, not BOOLEAN"),
        ("upper(name, name)", "takes 1 arguments, not 2"),
        ("name LIKE 'a!b' ESCAPE '!'", "stands before what it cannot escape"),
        ("json_array_length(a)", "a is BIGINT, not STRING"),
        ("to_char(a, '9,,9')", "is no format of numbers"),
        ("to_char(a, 'S9S')", "has two signs"),
        ("from_utc_timestamp(at, 'Europe/Nowhere')", "there is no time zone"),
        ("hash(map('a', a))", "maps have no hash"),
        ("size(sequence(-1, 9223372036854775807))", "a sequence of 9223372036854775809 elem"),
        ("CASE WHEN a > 0 THEN 1 ELSE at END", "no common type"),
        ("NULL", "NULL without a type"),
        ("CAST('x' AS INT)", "'x' is no INT"),
        ("at > 'yesterday'", "'yesterday' is no TIMESTAMP"),
        ("CAST(a AS DECIMAL(50, 2))", "is no type"),
    ],
)
def test_a_mistake_is_named_when_the_dataflow_is_built(text: str, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xpath(name, 'a')", "function xpath is not supported"),
        ("rand()", "function rand is not supported"),
        ("name RLIKE name", "must be a literal"),
        *(
            (f"name RLIKE r'{pattern}'", "in a regular expression is not supported")
            for pattern in (
                *("\\bword", "\\p{L}", "[a-z&&[b]]", "[[a]b]", "(?m)^a", "a{,3}", "[]a]", "\\G"),
                *("(a)\\2", "(?i)\\p{Lower}", "(?<=a+)b", "(", "*a", "\\y", "[b-\\d]", "a\\"),
            )
        ),
        ("regexp_replace(name, 'a', '$1')", "in a replacement is not supported"),
        ("regexp_replace(name, 'a', 'b', 2)", "a position other than 1"),
        ("date_format(at, 'yyyy ww')", "ww in a pattern of time"),
        ("get_json_object(name, '$.a[*]')", "steps are .name"),
        ("from_json(name, 'a DATE')", "DATE from JSON"),
        ("to_json(array(1.5D))", "DOUBLE as JSON; cast it"),
        ("to_timestamp(name, 'yMMdd')", "numbers of any length next to each other"),
        ("to_timestamp(name, 'yyyy EEE')", "with E is not read"),
        ("TRY_CAST(name AS TIMESTAMP)", "TRY_CAST of a text column to TIMESTAMP"),
        ("round(CAST(a AS FLOAT), 1)", "rounding of FLOAT"),
        ("sum(a) OVER ()", "window"),
        ("a IN (SELECT 1)", "query"),
        ("name LIKE ANY ('a')", "LIKE ANY is not supported"),
        ("round(a / 2, `Odd name`)", "must be a literal"),
        ("f(x -> x + 1)", "function f "),
        ("array(a)[0] >> 1", ">> behind ARRAY"),
        ("CAST(a AS BINARY)", "BIGINT AS BINARY"),
        ("at + INTERVAL 1 MONTH", "intervals are whole numbers of"),
        ("name COLLATE UTF8_LCASE", "a collation"),
        ("hash(INTERVAL 2 DAY)", "is an interval; it has no hash here"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a + 9223372036854775807", "a \\+ 9223372036854775807: overflow"),
        ("a / 0", "a / 0: division by zero"),
        ("a % (a - 1)", "divide by zero"),
        ("CAST(a * 1000 AS TINYINT)", "CAST"),
    ],
)
def test_a_row_without_a_value_is_an_error_that_names_the_expression(
    text: str, message: str
) -> None:
    with pytest.raises(EvaluationError, match=message):
        evaluate(text, [1], [1])


@pytest.mark.parametrize(
    ("text", "as_if"),
    [
        ("'n' || a + 1 = b", "(('n' || a) + 1) = b"),
        ("a - b || 1", "(a - b) || 1"),
        ("-a * b + 2", "((-a) * b) + 2"),
        ("NOT a = b AND b IS NULL OR a > 1", "((NOT (a = b)) AND (b IS NULL)) OR (a > 1)"),
        ("a BETWEEN 1 AND b = 2 AND TRUE", "(a BETWEEN 1 AND (b = 2)) AND TRUE"),
        ("a + 1 IN (b) OR NOT b < 2", "((a + 1) IN (b)) OR (NOT (b < 2))"),
        ("a | b ^ 1 & 2 << 3 + 4 * 5", "a | (b ^ (1 & (2 << (3 + (4 * 5)))))"),
        ("a = b = c IS NOT NULL", "((a = b) = c) IS NOT NULL"),
        ("-1::string", "(-1)::string"),
        ("-(1)::string", "-((1)::string)"),
        ("a !> b", "a <= b"),
        ("position(a IS NULL, b)", "position((a IS NULL), b)"),
        ("overlay(a IS NULL, b, 1)", "overlay((a IS NULL), b, 1)"),
    ],
)
def test_operators_bind_as_they_do_in_spark(text: str, as_if: str) -> None:
    assert shape(parse(text)[0]) == shape(parse(as_if)[0])


def shape(tree: Tree) -> object:
    """A tree without its text and parentheses."""
    if isinstance(tree, Operation):
        inner = [shape(operand) for operand in tree.operands]
        return inner[0] if tree.symbol == "()" else [tree.symbol, *inner]
    if isinstance(tree, Call):
        return [tree.name, *(shape(argument) for argument in tree.arguments)]
    if isinstance(tree, Cast):
        return ["cast", shape(tree.operand), tree.to]
    return tree.text


def test_an_expression_may_be_long_but_not_deep() -> None:
    many = " AND ".join(["a > 0"] * 5_000)
    assert evaluate(many, [1], [1]) == [True]
    assert evaluate(f"a IN ({', '.join(str(n) for n in range(5_000))}, b)", [7], [1]) == [True]
    assert evaluate(f"{'(' * 40}a{')' * 40}", [1], [1]) == [1]
    for deep in (f"{'(' * 500}a{')' * 500}", " + ".join(["a"] * 500), "NOT " * 500 + "TRUE"):
        with pytest.raises(UnsupportedError, match="nesting more than 100 deep"):
            compile_expression(deep, SCHEMA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN b = 0 THEN -1 ELSE a DIV b END", [-1, 2, None]),
        ("if(b <> 0, a DIV b, 0)", [0, 2, 0]),
        ("b <> 0 AND a DIV b = 2", [False, True, None]),
        ("b = 0 OR a DIV b = 2", [True, True, None]),
        ("coalesce(CAST(b AS DOUBLE), a / 0)", [0.0, 3.0]),
        ("CASE WHEN 1 = 1 THEN a ELSE 1 DIV 0 END", [6, 6]),
        ("if(1 = 2, CAST('x' AS INT), 7)", [7]),
        ("nvl(a, 1 DIV 0)", [6]),
        ("b IN (0, 1 DIV b)", [True, False, None]),
        ("FALSE AND 1 / 0 > 1", [False]),
        ("CAST(NULL AS BIGINT) + a DIV b", [None]),
        ("nullif(b, 0) + a DIV b", [None, 5]),
    ],
)
def test_a_branch_that_is_not_taken_is_not_evaluated(text: str, expected: list[object]) -> None:
    rows = len(expected)
    assert evaluate(text, [6, 6, 6][:rows], [0, 3, None][:rows]) == expected


def test_years_beyond_those_of_python_and_arrow_are_right() -> None:
    edges = edge_values()
    expected = {
        "year(dt)": [None, 1970, 1969, 294247, -545612, 2020, 1, 9999],
        "weekofyear(dt)": [None, 1, 1, 1, 31, 9, 1, 52],
        "CAST(ts AS STRING)": [
            *(None, "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999"),
            *("+294247-01-10 04:00:54.775807", "-290308-12-21 19:59:05.224192"),
            *("2020-02-29 00:00:00.000001", "0001-01-01 00:00:00", "1970-01-01 00:00:00.000001"),
        ],
        "CAST(trunc(dt, 'month') AS STRING)": [
            *(None, "1970-01-01", "1969-12-01", "+294247-01-01", "-545612-08-01"),
            *("2020-02-01", "0001-01-01", "9999-12-01"),
        ],
    }
    for text, values in expected.items():
        assert compile_expression(text, edges.schema).evaluate(edges).to_pylist() == values
    with pytest.raises(EvaluationError, match="does not fit TIMESTAMP"):
        compile_expression("date_trunc('hour', ts)", edges.schema).evaluate(edges)


def test_days_and_the_calendar_are_each_others_inverse() -> None:
    days = np.concatenate([np.arange(-719_162, 2_932_897, 97), [-(2**31), 2**31 - 1]])
    assert (days_at(*civil(days)) == days).all()
    for number in days[:-2:50]:
        date = dt.date.fromordinal(int(number) + 719_163)
        assert tuple(int(part[0]) for part in civil(np.array([number]))) == (
            *(date.year, date.month, date.day),
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-CAST('12345678901234567890123456789012345678' AS DECIMAL(38, 0))", "-{}2350000"),
        ("abs(CAST('-12345678901234567890123456789012345678' AS DECIMAL(38, 0)))", "{}2350000"),
        ("abs(CAST('12345678901234567890123456789012345678' AS DECIMAL(38, 0)))", "{}2345678"),
    ],
)
def test_long_decimals_lose_what_spark_loses_when_it_negates_them(text: str, expected: str) -> None:
    [value] = compile_expression(text, SCHEMA).evaluate(batch([1], [1])).to_pylist()
    assert str(value) == expected.format("1234567890123456789012345678901")


def test_a_text_is_read_as_a_time_in_any_zone() -> None:
    texts = [
        *("2020-01-01 10:20:30Europe/Paris", "2020-07-01T10:20:30 Europe/Paris", "2020-1-1 1"),
        *("2020-01-01 10:20:30.1234567+0130", "2020-03-29 02:30:00 Europe/Paris", "2020"),
    ]
    rows = pa.RecordBatch.from_pydict({"t": texts})
    found = compile_expression("CAST(CAST(t AS TIMESTAMP) AS STRING)", rows.schema).evaluate(rows)
    assert found.to_pylist() == [
        *("2020-01-01 09:20:30", "2020-07-01 08:20:30", "2020-01-01 01:00:00"),
        *("2020-01-01 08:50:30.123456", "2020-03-29 01:30:00", "2020-01-01 00:00:00"),
    ]
    for bad in ("10:20:30", "2020-01-01T", "2020-01-01 10:20Z", "2020-01-01 10:20:30 Mars/Base"):
        odd = pa.RecordBatch.from_pydict({"t": [bad]})
        with pytest.raises(EvaluationError, match="is no TIMESTAMP"):
            compile_expression("CAST(t AS TIMESTAMP)", odd.schema).evaluate(odd)


def test_json_is_read_as_jackson_reads_it() -> None:
    texts = ['{\'a\': 1, "b": {"c": "x"}} rest', '{"a": 1.5, "b": {"c": 1.50}}', '{"a":', "", "[1]"]
    rows = pa.RecordBatch.from_pydict({"j": texts})
    for text, expected in {
        "from_json(j, 'a INT, b STRUCT<c: STRING>').a": [1, None, None, None, None],
        "from_json(j, 'a INT, b STRUCT<c: STRING>').b.c": ["x", "1.5", None, None, None],
        "from_json(j, 'a INT') IS NULL": [False, False, False, True, False],
        "get_json_object(j, '$.b')": ['{"c":"x"}', '{"c":1.5}', None, None, None],
        "get_json_object(j, '$.b.c')": ["x", "1.5", None, None, None],
        "json_array_length(j)": [None, None, None, None, 1],
        "to_json(struct(j))": [f'{{"j":{json.dumps(text)}}}' for text in texts],
    }.items():
        found = compile_expression(text, rows.schema).evaluate(rows)
        assert found.to_pylist() == expected, text


def test_exp_and_logarithms_are_those_of_java_to_the_last_bit() -> None:
    expected = {
        "exp(x)": "2.7182818284590455",
        "ln(x + 1)": "0.6931471805599453",
        "log10(x * 3.471821567435537D)": "0.5405573967263889",
        "cbrt(x * 27)": "3.0",
        "cosh(x)": "1.543080634815244",
    }
    rows = pa.RecordBatch.from_pydict({"x": [1.0]})
    for text, number in expected.items():
        [found] = compile_expression(text, rows.schema).evaluate(rows).to_pylist()
        assert repr(found) == number, text


def test_columns_are_found_whatever_their_case_and_backticks_quote_any_name() -> None:
    expression = compile_expression("A + `Odd name`", SCHEMA)
    assert expression.columns == ("a", "Odd name")
    assert compile_expression("A", SCHEMA).name == "a"


def test_a_name_that_fits_several_columns_is_refused() -> None:
    schema = pa.schema([("x", pa.int64()), ("X", pa.int64())])
    assert compile_expression("X", schema).columns == ("X",)
    two = pa.schema([("xA", pa.int64()), ("Xa", pa.int64())])
    with pytest.raises(DataflowError, match="several columns named 'xa'"):
        compile_expression("xa", two)


def test_an_expression_travels_as_its_text() -> None:
    expression = compile_expression("a * 2 AS twice", SCHEMA)
    copy = pickle.loads(pickle.dumps(expression))
    assert (copy.name, copy.type, copy.sql) == ("twice", pa.int64(), "a * 2")
    assert compile_expression("DATE '2020-01-01' AS day", SCHEMA).sql == "DATE '2020-01-01'"
    assert copy.evaluate(batch([4], [0])).to_pylist() == [8]


def test_a_star_stands_for_all_columns() -> None:
    names = [e.name for e in compile_projection(["*", "a + b AS total"], SCHEMA)]
    assert names == [*SCHEMA.names, "total"]


def test_a_column_that_no_stream_can_carry_is_refused_by_its_type() -> None:
    schema = SCHEMA.append(pa.field("raw", pa.binary()))
    for text, kind in (
        ("raw", pa.binary()),
        ("array(a)", pa.list_(pa.int64())),
        ("struct(a)", pa.struct([("a", pa.int64())])),
        ("map(a, raw)", pa.map_(pa.int64(), pa.binary())),
    ):
        assert compile_projection([text], schema)[0].type == kind
    with pytest.raises(UnsupportedError, match=r"STRUCT<a:INT,A:INT>; streams carry"):
        compile_projection(["named_struct('a', 1, 'A', 2)"], schema)


def test_only_nested_types_have_brackets() -> None:
    assert evaluate("a::INT < b", [1, 5], [2, 2]) == [True, False]
    assert evaluate("CAST(array(a) AS ARRAY<INT>)[0] > b", [1, 5], [2, 2]) == [False, True]


def test_a_literal_alone_fills_every_row() -> None:
    assert evaluate("7", [1, 2], [1, 2]) == [7, 7]


def test_the_document_lists_what_is_supported() -> None:
    text = (Path(__file__).parents[2] / "docs" / "expressions.md").read_text()
    listed = re.findall(r"`([^`]+)`", text.split("Types:")[0].split("**Operators.**")[1])
    assert sorted(" ".join(name.split()) for name in listed) == sorted(SUPPORTED_FUNCTIONS)


def test_seconds_of_far_times_are_exact() -> None:
    micros = [253402300799_999999, -62135596800_000000, 59_999999, -1, 60_000000]
    times = pa.array(micros, pa.timestamp("us", tz="UTC"))
    rows = pa.RecordBatch.from_arrays([times], names=["t"])
    found = compile_expression("date_part('SECOND', t)", rows.schema).evaluate(rows)
    assert [str(each) for each in found.to_pylist()] == [
        *("59.999999", "0.000000", "59.999999", "59.999999", "0.000000")
    ]
    assert found.type == pa.decimal128(8, 6)


def test_bytes_are_counted_where_text_would_be() -> None:
    rows = pa.RecordBatch.from_pydict({"b": [b"\xc3\xa9a", b"", None]})
    for text, expected in {
        "substr(b, 2)": [b"\xa9a", b"", None],
        "left(b, 1)": [b"\xc3", b"", None],
        "length(b)": [3, 0, None],
        "overlay(b PLACING X'00' FROM 1)": [b"\x00\xa9a", b"\x00", None],
        "reverse(b)": [b"a\xa9\xc3", b"", None],
        "hex(b)": ["C3A961", "", None],
    }.items():
        assert compile_expression(text, rows.schema).evaluate(rows).to_pylist() == expected, text
    padded = compile_expression("lpad(b, 4)", rows.schema).evaluate(rows)
    assert padded.to_pylist() == [b"\0\xc3\xa9a", b"\0\0\0\0", None]
