"""Every supported operator and function means what it means in Spark SQL, errors included."""

import contextlib
import datetime as dt
import decimal
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expression_cases import JSON, MORE_CASES, MORE_OF_OLD, NEARLY
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from random_sql import RandomSql, edge_values

from holdfast.api.expressions import SUPPORTED_FUNCTIONS, CompiledExpression, compile_expression
from holdfast.api.expressions.types import name_of
from holdfast.core.operators.bad_rows import is_evaluable
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.spark.arrow_schemas import to_arrow_schema

pytestmark = pytest.mark.slow

ROWS = 160
_NUMBERS = ("a", "b", "i", "j", "k", "d", "e", "x", "y")
SAME_KIND = [("a", "b"), ("i", "j"), ("k", "a"), ("d", "e"), ("d", "i"), ("x", "y"), ("x", "a")]


def _per(template: str, *columns: str) -> list[str]:
    return [template.format(c=column) for column in columns]


def _pairs(template: str, pairs: list[tuple[str, str]] = SAME_KIND) -> list[str]:
    return [template.format(l=left, r=right) for left, right in pairs]


CASES: dict[str, list[str]] = {
    "+": [*_pairs("{l} + {r}"), "a + 1", "k + 1Y", "h + h", "ts + INTERVAL 90 MINUTES"],
    "-": [
        *_pairs("{l} - {r}"),
        "a - 9223372036854775807",
        "-a",
        "-i",
        "-d",
        "-x",
        "-(-k)",
        "1 - d",
    ],
    "*": [*_pairs("{l} * {r}"), "i * 0.908", "a * 0.908", "e * e", "a * 2.5D", "h * h"],
    "/": [*_pairs("{l} / {r}"), "a / 4", "x / 0.5D", "d / 3", "1 / a", "CAST(NULL AS INT) / 0"],
    "%": [
        *_pairs("{l} % {r}", [("a", "b"), ("i", "j"), ("x", "y"), ("a", "i")]),
        "a % 7",
        "a % -1",
    ],
    "DIV": [*_pairs("{l} DIV {r}", [("a", "b"), ("i", "j")]), "a DIV 10", "a DIV -1"],
    "=": [*_pairs("{l} = {r}"), "s = t", "p = q", "ts = ts2", "s = 'ab'", "a = NULL", "d = 1"],
    "<>": [*_pairs("{l} <> {r}"), "s <> t", "ts <> ts2"],
    "<": [
        *_pairs("{l} < {r}"),
        "s < t",
        "ts < TIMESTAMP '2013-05-01 12:00:00'",
        "x < 1.5",
        "p < q",
    ],
    "<=": [*_pairs("{l} <= {r}"), "s <= 'm'", "dt <= DATE '2013-05-01'", "dt <= ts"],
    ">": [*_pairs("{l} > {r}"), "s > t", "ts > '2013-05-01'", "a > 1.5", "d > 0.005"],
    ">=": [*_pairs("{l} >= {r}"), "s >= t", "x >= -1", "i >= 2147483647"],
    "<=>": [*_pairs("{l} <=> {r}"), "s <=> t", "a <=> NULL", "p <=> q"],
    "IS DISTINCT FROM": [*_pairs("{l} IS DISTINCT FROM {r}"), "s IS NOT DISTINCT FROM t"],
    "AND": [
        "p AND q",
        "p AND NULL",
        "b <> 0 AND a % b = 1",
        "p AND a > 0 AND q",
        "a % b = 1 AND p",
    ],
    "OR": ["p OR q", "p OR NULL", "b = 0 OR a / b > 1", "NOT p OR q", "a / b > 1 OR p"],
    "NOT": ["NOT p", "NOT (a > b)", "NOT p AND q", "NOT NULL"],
    "IS NULL": [*_per("{c} IS NULL", "a", "s", "ts"), "d IS NOT NULL", "a / b IS NULL"],
    "IS TRUE": ["p IS TRUE", "p IS NOT TRUE", "p IS FALSE", "(a > b) IS NOT FALSE"],
    "BETWEEN": [
        "a BETWEEN -5 AND 5",
        "s BETWEEN 'a' AND 'm'",
        "x NOT BETWEEN 0 AND 1",
        "i BETWEEN j AND k",
    ],
    "IN": [
        "a IN (0, 1, -1)",
        "s IN ('ab', '')",
        "a NOT IN (1, NULL)",
        "x IN (0, 1)",
        "i IN (j, k, 3)",
        "d IN (1, 2.50)",
    ],
    "LIKE": ["s LIKE 'a%'", "s LIKE '%b_'", "s NOT LIKE '%é%'", "s LIKE ''", "s LIKE '%\n%'"],
    "||": ["s || t", "s || '!' || t", "s || i", "s || NULL"],
    "CASE": [
        "CASE WHEN b = 0 THEN NULL ELSE a % b END",
        "CASE WHEN a > 0 THEN 1 WHEN a < 0 THEN -1L ELSE 0 END",
        "CASE i WHEN 0 THEN 'zero' WHEN 1 THEN 'one' END",
        "CASE WHEN p THEN d ELSE 1 END",
        "CASE WHEN a / b > 0 THEN 1 ELSE 2 END",
    ],
    "CAST": [
        *_per("CAST({c} AS BIGINT)", "i", "k", "x", "d", "p", "n"),
        *_per("CAST({c} AS INT)", "a", "x", "d", "n", "p"),
        *_per("CAST({c} AS TINYINT)", "a", "x", "k"),
        *_per("CAST({c} AS DOUBLE)", "a", "i", "h"),
        *_per("CAST({c} AS STRING)", "a", "i", "p", "s"),
        *_per("CAST({c} AS DECIMAL(12, 1))", "d", "e", "i", "n"),
        *_per("CAST({c} AS DECIMAL(5, 2))", "d", "a"),
        *_per("CAST({c} AS BOOLEAN)", "a", "x"),
        *("CAST(x AS FLOAT)", "CAST(ts AS DATE)", "CAST(dt AS TIMESTAMP)", "CAST(NULL AS STRING)"),
    ],
    "INTERVAL": [
        "ts - INTERVAL '1' DAY",
        "ts + INTERVAL 250 MILLISECONDS",
        "ts2 - INTERVAL -3 HOURS",
    ],
    "add_months": [
        "add_months(dt, i % 1000)",
        "add_months(ts, -1)",
        "add_months(DATE '2020-02-29', k)",
    ],
    "ascii": ["ascii(t)", "ascii('')"],
    "bigint": ["bigint(n)"],
    "bit_length": ["bit_length(t)"],
    "boolean": ["boolean(a)"],
    "btrim": [
        "btrim(s)",
        "btrim(s, 'ab ')",
        "btrim(t, '')",
        "trim(BOTH 'ab' FROM s)",
        "trim(LEADING FROM s)",
        "trim(TRAILING 'b ' FROM s)",
    ],
    "character_length": ["character_length(s)"],
    "concat_ws": [
        "concat_ws('-', s, t)",
        "concat_ws(s, t, i, NULL)",
        "concat_ws(',')",
        "concat_ws(NULL, s)",
    ],
    "date": ["date(ts)"],
    "date_diff": ["date_diff(dt, ts)"],
    "date_from_unix_date": ["date_from_unix_date(k)", "date_from_unix_date(i % 1000000)"],
    "dateadd": ["dateadd(dt, k)"],
    "dayname": ["dayname(dt)", "dayname(ts)"],
    "decimal": ["decimal(k)"],
    "double": ["double(i)"],
    "equal_null": ["equal_null(a, b)", "equal_null(s, NULL)"],
    "float": ["float(i)"],
    "int": ["int(a)"],
    "last_day": ["last_day(dt)", "last_day(ts)"],
    "lcase": ["lcase(t)"],
    "len": ["len(s)"],
    "make_date": ["make_date(i % 3000, k % 14, abs(k % 32))"],
    "monthname": ["monthname(dt)"],
    "negative": ["negative(a)", "negative(d)", "negative(x)"],
    "nullifzero": ["nullifzero(a)", "nullifzero(x)", "nullifzero(d)"],
    "octet_length": ["octet_length(t)"],
    "overlay": [
        "overlay(s, 'XY', 2)",
        "overlay(s, 'XY', 1, 0)",
        "overlay(s PLACING t FROM 2 FOR 1)",
        "overlay(s, t, k)",
    ],
    "position": ["position('b' IN s)", "position('b', s, 2)", "position(t, s)"],
    "positive": ["positive(a)"],
    "smallint": ["smallint(i)"],
    "split_part": [
        "split_part(s, 'b', 1)",
        "split_part(s, 'b', -1)",
        "split_part(s, '', 1)",
        "split_part(s, 'b', k)",
    ],
    "string": ["string(i)", "string(dt)"],
    "substring_index": [
        "substring_index(s, 'b', 1)",
        "substring_index(s, 'z', -1)",
        "substring_index(s, 'zz', 1)",
        "substring_index(s, 'zz', -1)",
        "substring_index(s, '', 1)",
    ],
    "timestamp": ["timestamp(dt)"],
    "tinyint": ["tinyint(i)"],
    "translate": ["translate(s, 'ab', 'x')", "translate(s, 'aab', 'xyz')", "translate(t, 'é', '')"],
    "ucase": ["ucase(t)"],
    "unix_date": ["unix_date(dt)"],
    "zeroifnull": ["zeroifnull(a)", "zeroifnull(d)", "zeroifnull(x)"],
    "abs": _per("abs({c})", *_NUMBERS),
    "ceil": _per("ceil({c})", "a", "i", "d", "e", "x"),
    "ceiling": ["ceiling(x)"],
    "char_length": ["char_length(s)"],
    "coalesce": [
        "coalesce(a, b, 0)",
        "coalesce(i, a)",
        "coalesce(a, a / b)",
        "coalesce(s, t, '')",
        "coalesce(NULL, x)",
    ],
    "concat": ["concat(s, t)", "concat(s, '-', i)", "concat(s)"],
    "contains": ["contains(s, 'b')", "contains(s, '')"],
    "date_add": ["date_add(dt, 40)", "date_add(ts, i % 1000)"],
    "date_sub": ["date_sub(dt, 40)", "date_sub(dt, k)"],
    "date_trunc": [
        f"date_trunc('{u}', ts)"
        for u in (
            "year",
            "quarter",
            "MONTH",
            "week",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
        )
    ],
    "datediff": ["datediff(dt, ts)", "datediff(ts2, ts)"],
    "day": _per("day({c})", "ts", "dt"),
    "dayofmonth": ["dayofmonth(ts)"],
    "dayofweek": _per("dayofweek({c})", "ts", "dt"),
    "dayofyear": ["dayofyear(ts)"],
    "endswith": ["endswith(s, 'b')"],
    "floor": _per("floor({c})", "a", "i", "d", "e", "x"),
    "greatest": [
        "greatest(a, b)",
        "greatest(x, y, 0)",
        "greatest(s, t)",
        "greatest(i, a, 5)",
        "greatest(ts, ts2)",
    ],
    "hour": ["hour(ts)"],
    "if": ["if(p, a, b)", "if(b = 0, 0, a DIV b)", "if(a > b, s, t)"],
    "ifnull": ["ifnull(a, 7)"],
    "instr": ["instr(s, 'b')", "instr(s, '')"],
    "isnan": ["isnan(x)"],
    "isnotnull": ["isnotnull(s)"],
    "isnull": ["isnull(s)"],
    "least": ["least(a, b)", "least(x, y, 0)", "least(s, t)", "least(d, e)"],
    "left": ["left(s, 2)", "left(s, 0)", "left(s, -1)"],
    "length": ["length(s)"],
    "locate": ["locate('b', s)"],
    "lower": ["lower(s)", "lower(t)"],
    "lpad": ["lpad(s, 5, 'xy')", "lpad(s, 2)", "lpad(s, 4, '')"],
    "ltrim": ["ltrim(s)"],
    "minute": ["minute(ts)"],
    "mod": ["mod(a, 5)", "mod(a, b)"],
    "month": _per("month({c})", "ts", "dt"),
    "nullif": ["nullif(a, 0)", "nullif(s, '')", "nullif(a, i)", "nullif(x, y)"],
    "nvl": ["nvl(s, 'none')"],
    "nvl2": ["nvl2(a, i, j)"],
    "quarter": ["quarter(ts)"],
    "repeat": ["repeat(s, 3)", "repeat(s, -1)"],
    "replace": ["replace(s, 'b', 'xyz')", "replace(s, 'b')", "replace(s, '', 'x')"],
    "reverse": ["reverse(s)"],
    "right": ["right(s, 2)", "right(s, 0)", "right(s, -1)"],
    "round": [
        "round(d)",
        "round(d, 1)",
        "round(e, 3)",
        "round(z, 2)",
        "round(z)",
        "round(a)",
        "round(d, 9)",
    ],
    "rpad": ["rpad(s, 5, 'xy')", "rpad(s, 2)"],
    "rtrim": ["rtrim(s)"],
    "second": ["second(ts)"],
    "sign": ["sign(x)", "sign(a)"],
    "signum": ["signum(i)"],
    "sqrt": ["sqrt(x)", "sqrt(i)"],
    "startswith": ["startswith(s, 'a')"],
    "substr": ["substr(s, 2)", "substr(s, -2, 1)"],
    "substring": [f"substring(s, {p}, {n})" for p in (-5, -2, 0, 1, 3) for n in (-1, 0, 2, 4)],
    "timestamp_micros": ["timestamp_micros(CAST(i AS BIGINT) * 1000000)"],
    "timestamp_millis": ["timestamp_millis(i)", "timestamp_millis(a % 100000000000)"],
    "timestamp_seconds": ["timestamp_seconds(i)"],
    "to_date": ["to_date(ts)", "to_date(dt)"],
    "trim": ["trim(s)"],
    "trunc": [f"trunc(dt, '{u}')" for u in ("year", "quarter", "MONTH", "week")],
    "unix_micros": ["unix_micros(ts)"],
    "unix_millis": ["unix_millis(ts)"],
    "unix_seconds": ["unix_seconds(ts)"],
    "upper": ["upper(s)", "upper(t)"],
    "weekday": _per("weekday({c})", "ts", "dt"),
    "weekofyear": ["weekofyear(ts)"],
    "year": _per("year({c})", "ts", "dt"),
}
CASES |= {
    "aggregate": [
        "aggregate(l, 0L, (total, x) -> total + coalesce(x, i % 5))",
        "aggregate(w, '', (a, x) -> a || x, a -> length(a))",
        "aggregate(l, 0, (total, x) -> total + x % 3)",
    ],
    "array": ["array(i, a, NULL)", "array(s, t)", "array(array(i), l)", "array(x, 1)"],
    "array_append": ["array_append(l, i)", "array_append(l, NULL)", "array_append(w, s)"],
    "array_compact": ["array_compact(l)", "array_compact(w)"],
    "array_contains": ["array_contains(l, 1)", "array_contains(l, k)", "array_contains(v, x)"],
    "array_distinct": ["array_distinct(l)", "array_distinct(w)", "array_distinct(v)"],
    "array_except": ["array_except(l, o)", "array_except(v, array(0D, x))"],
    "array_insert": [
        *(f"array_insert(l, {at}, 7)" for at in (1, 2, 9, -1, -2, -9)),
        "array_insert(l, k % 4, i)",
    ],
    "array_intersect": ["array_intersect(l, o)", "array_intersect(v, array(0D, x, y))"],
    "array_join": ["array_join(w, ', ')", "array_join(w, t, '?')", "array_join(l, '-')"],
    "array_max": ["array_max(l)", "array_max(w)", "array_max(v)"],
    "array_min": ["array_min(l)", "array_min(w)", "array_min(v)"],
    "array_position": ["array_position(l, 1)", "array_position(w, s)", "array_position(v, 0D)"],
    "array_prepend": ["array_prepend(l, i)", "array_prepend(l, NULL)"],
    "array_remove": ["array_remove(l, 1)", "array_remove(w, s)", "array_remove(v, 0D)"],
    "array_repeat": ["array_repeat(s, 2)", "array_repeat(i, k % 3)"],
    "array_size": ["array_size(l)"],
    "array_sort": ["array_sort(l)", "array_sort(w)", "array_sort(v)"],
    "array_union": [
        "array_union(l, o)",
        "array_union(l, array(a))",
        "array_union(v, array(0D, x))",
    ],
    "arrays_overlap": ["arrays_overlap(l, o)", "arrays_overlap(v, array(0D))"],
    "arrays_zip": ["arrays_zip(l, o)", "arrays_zip(l, w, array(i))"],
    "cardinality": ["cardinality(l)", "cardinality(m)"],
    "element_at": [
        "element_at(l, 1)",
        "element_at(w, -1)",
        "element_at(m, 'a')",
        "element_at(m, s)",
    ],
    "exists": ["exists(l, x -> x > 2)", "exists(w, x -> x = s)", "exists(l, x -> x IS NULL)"],
    "filter": [
        "filter(l, x -> x > 0)",
        "filter(l, (x, n) -> x = n)",
        "filter(w, x -> x <> s OR p)",
        "filter(l, l -> l = 1)",
    ],
    "flatten": ["flatten(array(l, o))", "flatten(array(l, NULL))"],
    "forall": ["forall(l, x -> x >= 0)", "forall(w, x -> length(x) < 3)"],
    "get": ["get(l, 0)", "get(l, k)", "get(array(s, t), 1)"],
    "map": ["map(s, i)", "map('a', i, 'b', a)", "map(s, i, t, j)"],
    "map_concat": ["map_concat(m, map('z', a))", "map_concat(m, map(s, 1L))"],
    "map_contains_key": ["map_contains_key(m, 'a')", "map_contains_key(m, s)"],
    "map_entries": ["map_entries(m)"],
    "map_filter": ["map_filter(m, (k, v) -> v > 1)", "map_filter(m, (key, v) -> key <> s)"],
    "map_from_arrays": ["map_from_arrays(array('x', 'y'), array(i, j))", "map_from_arrays(w, l)"],
    "map_from_entries": ["map_from_entries(array(struct(s, i)))", "map_from_entries(array(r))"],
    "map_keys": ["map_keys(m)"],
    "map_values": ["map_values(m)"],
    "map_zip_with": [
        "map_zip_with(m, map('a', i), (k, v, x) -> coalesce(v, 0) + x)",
        "map_zip_with(m, m, (k, v, x) -> k)",
    ],
    "named_struct": ["named_struct('x', i, 'y', s)", "named_struct('x', r).x.b"],
    "reduce": ["reduce(l, 0L, (total, x) -> total + x)"],
    "sequence": ["sequence(1, k % 5)", "sequence(k % 5, 3, 2)", "sequence(3, 1, -1)"],
    "size": ["size(l)", "size(m)"],
    "slice": ["slice(l, 1, 2)", "slice(l, -2, 5)", "slice(w, k, 2)", "slice(l, 2, k % 3)"],
    "sort_array": [
        "sort_array(l)",
        "sort_array(l, false)",
        "sort_array(w)",
        "sort_array(v)",
        "sort_array(v, false)",
    ],
    "struct": ["struct(i, s)", "struct(i, s).i", "struct(i + 1, r)", "r.a", "r.B", "array(r).b"],
    "transform": [
        "transform(l, x -> x * 2)",
        "transform(l, (x, n) -> x + n + i % 7)",
        "transform(w, x -> x || s)",
        "transform(array(l, o), y -> transform(y, x -> x + size(y)))",
        "transform(l, x -> 10 DIV x)",
    ],
    "transform_keys": ["transform_keys(m, (k, v) -> k || 'x')", "transform_keys(m, (k, v) -> v)"],
    "transform_values": ["transform_values(m, (k, v) -> v + length(k))"],
    "try_element_at": ["try_element_at(l, 2)", "try_element_at(m, 'b')", "try_element_at(l, -1)"],
    "zip_with": ["zip_with(l, o, (x, y) -> x + y)", "zip_with(l, w, (x, y) -> struct(x, y))"],
}
CASES |= {
    "ILIKE": ["s ILIKE 'A%'", "t ILIKE '%b'", "t ILIKE 'a_C'", "t ILIKE 'ασ'"],
    "|": ["a | b", "i | k", "k | a"],
    "&": ["a & b", "i & k", "k & a"],
    "^": ["a ^ b", "i ^ k", "k ^ a"],
    "~": ["~a", "~i", "~k"],
    "bin": ["bin(a)", "bin(k)"],
    "bit_count": ["bit_count(a)", "bit_count(i)", "bit_count(k)", "bit_count(p)"],
    "bit_get": ["bit_get(a, 63)", "bit_get(k, i % 10)", "bit_get(i, k)"],
    "getbit": ["getbit(a, k)"],
    "bitmap_bit_position": ["bitmap_bit_position(i)", "bitmap_bit_position(k)"],
    "bitmap_bucket_number": ["bitmap_bucket_number(i)", "bitmap_bucket_number(k)"],
    "char": ["char(a)", "char(i)"],
    "chr": ["chr(k)", "chr(65)"],
    "crc32": ["crc32(s)", "crc32(u)"],
    "date_part": [
        *(
            f"date_part('{part}', {of})"
            for part in ("YEAR", "yearofweek", "QTR", "mon", "w", "d", "dow", "dow_iso", "doy")
            for of in ("ts", "dt")
        ),
        *(f"date_part('{part}', {of})" for part in ("h", "min", "S") for of in ("ts", "nt", "dt")),
        "extract(SECONDS FROM ts)",
        "extract(yearofweek FROM dt)",
    ],
    "datepart": ["datepart('secs', ts2)"],
    "decode": ["decode(u, 'UTF-8')", "decode(encode(s, 'utf-8'), 'utf-8')"],
    "degrees": ["degrees(x)", "degrees(i)"],
    "e": ["e()"],
    "elt": ["elt(abs(k % 2) + 1, s, t)", "elt(i % 4, s, t, s)", "elt(2, s, t)"],
    "encode": ["hex(encode(s, 'utf-8'))"],
    "factorial": ["factorial(i % 25)", "factorial(k)"],
    "find_in_set": ["find_in_set(s, 'a,ab,,b')", "find_in_set(s, t)"],
    "hex": ["hex(a)", "hex(k)", "hex(s)", "hex(u)"],
    "levenshtein": ["levenshtein(s, t)", "levenshtein(t, 'abc', 2)", "levenshtein(s, t, -1)"],
    "luhn_check": ["luhn_check(n)", "luhn_check(CAST(a AS STRING))", "luhn_check('8112189876')"],
    "make_timestamp": [
        "make_timestamp(year(dt), month(dt), k, 23, 59, 59.999999)",
        "make_timestamp(2020, 2, 29, k, abs(k), 60)",
        "make_timestamp(2020, 2, 29, 1, 2, CAST(d AS DECIMAL(16, 6)))",
    ],
    "make_timestamp_ltz": ["make_timestamp_ltz(i % 3000, 1, 31, 0, 0, 0)"],
    "make_timestamp_ntz": ["make_timestamp_ntz(year(dt), 12, 31, 23, 59, 60)"],
    "mask": ["mask(t)", "mask(s, 'Q', NULL, 'd', 'o')", "mask(n, 'X', 'x', 'n', '-')"],
    "md5": ["md5(s)", "md5(u)"],
    "nanvl": ["nanvl(x, y)", "nanvl(h, x)", "nanvl(x, 1)", "nanvl(h, h)"],
    "next_day": ["next_day(dt, 'TU')", "next_day(dt, 'sunday')", "next_day(ts, 'Sat')"],
    "pi": ["pi()"],
    "quote": ["quote(s)", "quote('a\\'b')"],
    "radians": ["radians(x)", "radians(i)"],
    "rint": ["rint(x)", "rint(z)", "rint(i)"],
    "sha": ["sha(s)"],
    "sha1": ["sha1(u)"],
    "sha2": ["sha2(s, 256)", "sha2(u, 0)", "sha2(s, 224)", "sha2(s, 384)", "sha2(s, k)"],
    "shiftleft": ["shiftleft(a, k)", "shiftleft(i, k)", "shiftleft(k, 3)"],
    "shiftright": ["shiftright(a, k)", "shiftright(i, 33)", "shiftright(k, 1)"],
    "shiftrightunsigned": ["shiftrightunsigned(a, k)", "shiftrightunsigned(i, k)"],
    "space": ["length(space(k))", "concat(space(2), s)"],
    "try_add": ["try_add(a, b)", "try_add(i, j)", "try_add(d, e)", "try_add(x, a)"],
    "try_divide": ["try_divide(a, b)", "try_divide(d, e)", "try_divide(x, y)", "try_divide(1, k)"],
    "try_make_timestamp": ["try_make_timestamp(i, k, k, k, k, k)"],
    "try_make_timestamp_ltz": ["try_make_timestamp_ltz(2020, abs(k), 30, 1, 1, 1.5)"],
    "try_make_timestamp_ntz": ["try_make_timestamp_ntz(2020, 2, k, 1, 1, 1.5)"],
    "try_mod": ["try_mod(a, b)", "try_mod(i, k)", "try_mod(x, y)"],
    "try_multiply": ["try_multiply(a, b)", "try_multiply(i, j)", "try_multiply(e, e)"],
    "try_subtract": ["try_subtract(a, b)", "try_subtract(k, k)", "try_subtract(d, i)"],
    "try_url_decode": ["try_url_decode(s)", "try_url_decode('%41+b%')"],
    "unhex": ["unhex(n)", "unhex(hex(s))", "unhex(s)"],
    "url_decode": ["url_decode(url_encode(t))", "url_decode(s)"],
    "url_encode": ["url_encode(t)", "url_encode('a~b*c.d-e_f g/?')"],
    "width_bucket": ["width_bucket(x, y, z, 5)", "width_bucket(d, 0, 100, a)"],
}
CASES["substr"] += ["substr(u, 2)", "substring(u, -1, 1)"]
CASES["left"] += ["left(u, 1)", "left(u, k)"]
CASES["overlay"] += ["overlay(u PLACING u FROM 2)"]
CASES["length"] += ["length(u)"]
CASES["octet_length"] += ["octet_length(u)"]
CASES["bit_length"] += ["bit_length(u)"]
CASES["reverse"] += ["reverse(u)"]
CASES["="] += ["r = named_struct('a', 1, 'b', 'a')"]
CASES["IN"] += ["r IN (named_struct('a', 1, 'b', 'a'), r)"]
CASES["concat"] += ["concat(l, o)", "concat(l, array(a))"]
CASES["reverse"] += ["reverse(l)"]
CASES["CAST"] += [
    "CAST(l AS ARRAY<STRING>)",
    "CAST(w AS ARRAY<INT>)",
    "CAST(r AS STRUCT<x: BIGINT, y: STRING>)",
    "CAST(m AS MAP<STRING, STRING>)",
    "CAST(s AS BINARY)",
    "CAST(CAST(s AS BINARY) AS STRING)",
    "CAST(nt AS TIMESTAMP)",
    "CAST(ts AS TIMESTAMP_NTZ)",
    "CAST(dt AS TIMESTAMP_NTZ)",
    "CAST(nt AS DATE)",
    "CAST(nt AS STRING)",
]
CASES["<"] += ["nt < ts", "nt < dt", "u < X'6162'"]
CASES["day"] += ["day(nt)"]
CASES["hour"] += ["hour(nt)"]
CASES["date_trunc"] += ["date_trunc('hour', nt)"]
CASES |= MORE_CASES
for _name, _texts in MORE_OF_OLD.items():
    CASES[_name] = [*CASES[_name], *_texts]
_STRINGS = [
    "",
    "a",
    "ab",
    "abc",
    " b ",
    "ab%",
    "é",
    "straße",
    "ÀB",
    "日本語",
    "a\nb",
    "zzzz",
    "\t x",
    "😀b",
]
_NUMERALS = [
    "0",
    "12",
    "-7",
    " 42 ",
    "+5",
    "2147483648",
    "x",
    "",
    "1.5",
    "-129",
    "12345678901234567890",
]


def _table(seed: int) -> pa.Table:
    """Random rows: nulls, extremes, NaN, infinities, days before 1970 and far ahead."""
    draw = random.Random(seed)

    def column(make: Any, of: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < 0.1 else make() for _ in range(ROWS)], of)

    def whole(bits: int) -> Any:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        special = [low, low + 1, -1, 0, 0, 1, 2, high - 1, high]
        return lambda: draw.choice([*special, draw.randint(-10, 10), draw.randint(low, high)])

    def number(digits: int, scale: int) -> Any:
        most = 10**digits - 1
        choices = lambda: draw.choice([0, 1, -1, most, -most, 5, -5, draw.randint(-most, most)])  # noqa: E731
        return lambda: decimal.Decimal(choices()).scaleb(-scale)

    def real() -> float:
        special = [0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.1, 2.5]
        return draw.choice([*special, draw.gauss(0, 100), draw.uniform(-1e19, 1e19)])

    def moment() -> int:
        return draw.choice(
            [
                0,
                -1,
                1,
                -86_400_000_000,
                1_367_409_600_000_000,
                draw.randint(-6 * 10**16, 2 * 10**17),
            ]
        )

    stamp = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "a": column(whole(64), pa.int64()),
            "b": column(whole(64), pa.int64()),
            "i": column(whole(32), pa.int32()),
            "j": column(whole(32), pa.int32()),
            "k": column(whole(8), pa.int8()),
            "x": column(real, pa.float64()),
            "y": column(real, pa.float64()),
            "z": column(
                lambda: draw.choice([0.5, 1.5, -2.5, 2.675, 1e15 + 0.5, draw.uniform(-1e6, 1e6)]),
                pa.float64(),
            ),
            "h": column(lambda: float(np.float32(draw.gauss(0, 10))), pa.float32()),
            "d": column(number(10, 2), pa.decimal128(10, 2)),
            "e": column(number(20, 6), pa.decimal128(20, 6)),
            "s": column(lambda: draw.choice(_STRINGS), pa.string()),
            "t": column(lambda: draw.choice([*_STRINGS, "AbC", "ΑΣ", "İ"]), pa.string()),
            "n": column(lambda: draw.choice(_NUMERALS), pa.string()),
            "p": column(lambda: draw.random() < 0.5, pa.bool_()),
            "l": column(lambda: _some(draw, [0, 1, 2, 3, -1, None]), pa.list_(pa.int32())),
            "o": column(lambda: _some(draw, [0, 1, 5, None]), pa.list_(pa.int32())),
            "w": column(lambda: _some(draw, [*_STRINGS[:5], None]), pa.list_(pa.string())),
            "v": column(
                lambda: _some(draw, [0.0, -0.0, math.nan, 1.5, -math.inf, None]),
                pa.list_(pa.float64()),
            ),
            "m": column(
                lambda: [
                    (key, draw.choice([None, 1, 2])) for key in set(_some(draw, ["a", "b", ""]))
                ],
                pa.map_(pa.string(), pa.int64()),
            ),
            "r": column(
                lambda: {"a": draw.choice([None, 1, 2]), "b": draw.choice(_STRINGS[:3])},
                pa.struct([("a", pa.int32()), ("b", pa.string())]),
            ),
            "u": column(lambda: draw.choice([b"", b"ab", b"\xff\x00", b"abc"]), pa.binary()),
            "nt": column(moment, pa.int64()).cast(pa.timestamp("us")),
            "q": column(lambda: draw.random() < 0.5, pa.bool_()),
            "ts": column(moment, pa.int64()).cast(pa.timestamp("us")).cast(stamp),
            "ts2": column(moment, pa.int64()).cast(pa.timestamp("us")).cast(stamp),
            "dt": column(
                lambda: dt.date(draw.randint(1600, 3000), draw.randint(1, 12), draw.randint(1, 28)),
                pa.date32(),
            ),
            "js": column(lambda: draw.choice(JSON), pa.string()),
        }
    )


def _some(draw: random.Random, values: list[Any]) -> list[Any]:
    return [draw.choice(values) for _ in range(draw.randint(0, 4))]


def _plain(values: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values that compare exactly: NaN equals NaN, timestamps as numbers."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return [_exact(value) for value in values.to_pylist()]


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    return {n: _exact(v) for n, v in value.items()} if isinstance(value, dict) else value


def test_every_supported_operator_and_function_has_a_case() -> None:
    assert sorted(CASES) == sorted(SUPPORTED_FUNCTIONS)


def _random_expression(draw: random.Random, depth: int) -> str:
    """A boolean over everything: what is nested must mean the same as well."""
    if depth == 0:
        atoms = ["a > 0", "p", "q", "s = t", "x < y", "ts < ts2", "i IN (0, 1)", "d IS NULL"]
        return draw.choice(atoms)
    left, right = (_random_expression(draw, depth - 1) for _ in range(2))
    return draw.choice(
        [
            f"({left} AND {right})",
            f"({left} OR {right})",
            f"NOT ({left})",
            f"coalesce({left}, {right})",
            f"CASE WHEN {left} THEN {right} ELSE a > b END",
            f"if({left}, i % 3, j % 5) = 1",
            f"(if({left}, 1, 0) + if({right}, 1, 0)) * 2 > 1",
            f"({left}) <=> ({right})",
        ]
    )


@pytest.mark.parametrize("seed", [1])
def test_results_types_and_errors_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    table = _table(seed)
    draw = random.Random(seed)
    texts = [text for cases in CASES.values() for text in cases]
    texts += [_random_expression(draw, 3) for _ in range(25)]
    (batch,) = table.combine_chunks().to_batches()
    compiled = [compile_expression(text, table.schema) for text in texts]
    spark.createDataFrame(table).createOrReplaceTempView("rows")
    differences: list[str] = []
    for start in range(0, len(texts), 60):
        differences += _differences(spark, compiled[start : start + 60], batch, texts[start:])
    assert not differences, "\n".join(differences)


def test_random_expressions_over_edge_values_are_those_of_spark(spark: SparkSession) -> None:
    edges = edge_values()
    batch = edges.append_column("id", pa.array(range(edges.num_rows), pa.int64()))
    texts = RandomSql(random.Random(11), edges.schema.names)
    compiled = []
    while len(compiled) < 240:
        kind = ("number", "text", "flag", "day", "time")[len(compiled) % 5]
        with contextlib.suppress(DataflowError, UnsupportedError):
            compiled.append(compile_expression(texts.typed(kind, 3), batch.schema))
    rows = spark.createDataFrame(pa.Table.from_batches([batch]))
    rows.createOrReplaceTempView("rows")
    differences: list[str] = []
    for start in range(0, len(compiled), 60):
        some = compiled[start : start + 60]
        differences += _differences(spark, some, batch, [each.sql for each in some])
    assert not differences, "\n".join(differences)


def _differences(
    spark: SparkSession, compiled: list[CompiledExpression], batch: pa.RecordBatch, texts: list[str]
) -> list[str]:
    """What Spark sees differently; rows without a value are left out of one query for all."""
    found: list[str] = []
    masks = [is_evaluable([expression], batch) for expression in compiled]
    columns = []
    for number, (text, mask) in enumerate(zip(texts, masks, strict=False)):
        bad = ", ".join(str(row) for row in np.flatnonzero(~mask))
        guarded = f"CASE WHEN id NOT IN ({bad}) THEN {text} END" if bad else text
        columns.append(f"{guarded} AS c{number}")
    frame = spark.sql(f"SELECT {', '.join(columns)} FROM rows ORDER BY id")
    expected = frame.toArrow()
    types = to_arrow_schema(frame.schema)
    for number, (expression, mask) in enumerate(zip(compiled, masks, strict=True)):
        text = texts[number]
        if name_of(types.field(number).type) != name_of(expression.type):
            found.append(f"{text}: {expression.type}, Spark {types.field(number).type}")
            continue
        good = np.flatnonzero(mask)
        ours = _plain(expression.evaluate(batch.take(pa.array(good))))
        theirs = [_plain(expected.column(number))[row] for row in good]
        is_near = text.partition("(")[0] in NEARLY
        rows = [
            r
            for r, o, t in zip(good, ours, theirs, strict=True)
            if o != t and not (is_near and _near(o, t))
        ]
        if rows:
            row = int(rows[0])
            values = {c: _plain(batch.column(c))[row] for c in expression.columns}
            at = list(good).index(row)
            found.append(f"{text}: {ours[at]!r}, Spark {theirs[at]!r}, at {values}")
        for row in np.flatnonzero(~mask)[:1]:
            if not _raises(spark, text, int(row)):
                values = {c: _plain(batch.column(c))[int(row)] for c in expression.columns}
                found.append(f"{text}: an error, Spark has a value at {values}")
    return found


def _near(ours: str | None, theirs: str | None) -> bool:
    """Whether two numbers, as written, differ in the last digits alone."""
    return None not in (ours, theirs) and math.isclose(
        float(str(ours)), float(str(theirs)), rel_tol=1e-15
    )


def _raises(spark: SparkSession, text: str, row: int) -> bool:
    try:
        spark.sql(f"SELECT {text} AS c FROM rows WHERE id = {row}").toArrow()
    except PySparkException:
        return True
    return False
