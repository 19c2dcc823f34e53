"""What is compared with Spark of functions that came later; `CASES` of the test goes on here."""

NEARLY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "cot", "csc"),
    *("expm1", "hypot", "log1p", "pow", "power", "sec", "sin", "sinh", "tan", "tanh"),
)
"""Java promises these to one or two units in the last place, and so do we."""

JSON = (
    *(
        '{"a":1,"b":"x"}',
        '{"a": 2147483648, "b": {"c": true}}',
        '{"a":[1, 2,null],"b":1.50}',
        "",
        " ",
    ),
    *(
        "{'a': '1', 'b': null}",
        '[{"a":1},[2, "\\u00e9\\n"]]',
        '{"a":1,"b":',
        '{"a":1} tail',
        "12",
        "null",
    ),
    *(
        '"text"',
        '{"a":[],"b":{"c":1, "c":false}}',
        '{"a":1.0,"a":null}',
        '{"a":"\\ud83d\\ude00/\\/"}',
    ),
    *(
        "[1,",
        '{"a":01}',
        '{"a":-0}',
        '{"a":1e3,"b":-1.25e-7}',
        '{"a":true,"b":[{"c":1}]}',
        "[]",
        "{}",
    ),
    *(
        '{"a":[{"c":1},{"c":"x"},{}],"b":"NaN"}',
        '{"a":["1"],"b":NaN}',
        "{a:1}",
        '{"b":"q\\"\\t\\u0001"}',
    ),
    *(
        '{"a":{"c":1.0E25}, "b":[1.5 ,[]]}',
        '{"a":123456789012345678901234567890}',
        '{"a":1,}',
        "[null,1]",
    ),
)
"""Texts that are JSON, nearly, and not at all."""

_PATTERNS = ("yyyy-MM-dd HH:mm:ss.SSSSSS", "M/d/y h:mm a", "EEEE, dd MMMM yy", "D 'day' QQ XXX")

MORE_CASES: dict[str, list[str]] = {
    **{
        name: [f"{name}(x)", f"{name}(z / 1000000)", f"{name}(i)", f"{name}(d)"]
        for name in (
            *(
                "acos",
                "acosh",
                "asin",
                "asinh",
                "atan",
                "atanh",
                "cbrt",
                "cos",
                "cosh",
                "cot",
                "csc",
            ),
            *("exp", "expm1", "ln", "log10", "log1p", "log2", "sec", "sin", "sinh", "tan", "tanh"),
        )
    },
    "atan2": ["atan2(x, y)", "atan2(0, -0.0D)", "atan2(i, j)"],
    "hypot": ["hypot(x, y)", "hypot(i, k)"],
    "log": ["log(x)", "log(abs(z), abs(x))", "log(10, x)", "log(1, i)", "log(d)"],
    "pow": ["pow(x, y)", "pow(z, 2)", "pow(x, 0)", "pow(1, x)", "pow(-1, x)", "pow(0.0D, x)"],
    "power": ["power(k, 3)"],
    "bround": ["bround(d)", "bround(e, 3)", "bround(z, 2)", "bround(z, -2)", "bround(k, -1)"],
    "pmod": [
        "pmod(a, b)",
        "pmod(i, k)",
        "pmod(k, 7)",
        "pmod(x, y)",
        "pmod(k, CAST(-3 AS TINYINT))",
    ],
    "conv": ["conv(n, 10, 16)", "conv(s, 36, 10)", "conv(n, 10, -2)", "conv(n, 16, 37)"],
    "RLIKE": ["s RLIKE 'a.'", "t RLIKE '^[a-z]+$'", "n RLIKE r'^\\s*[+-]?\\d+\\s*$'"],
    "rlike": ["rlike(s, '(?i)AB')"],
    "regexp": ["regexp(s, 'b|z{2,}')"],
    "regexp_like": ["regexp_like(s, '$')", "regexp_like(s, '')"],
    "regexp_count": ["regexp_count(s, 'z')", "regexp_count(n, '')", "regexp_count(n, '[0-9]')"],
    "regexp_extract": [
        *("regexp_extract(s, '(a)(b)?', 2)", "regexp_extract(n, r'(\\d)(\\d*)')"),
        *("regexp_extract(s, 'b', 0)", "regexp_extract(s, 'a', 1)"),
    ],
    "regexp_extract_all": ["regexp_extract_all(n, r'(\\d)', 1)", "regexp_extract_all(n, '1*', 0)"],
    "regexp_instr": ["regexp_instr(s, 'b')", "regexp_instr(t, '[^a-z]')"],
    "regexp_replace": [
        *("regexp_replace(n, '[0-4]*', '-')", "regexp_replace(n, r'(\\d)(\\d)', '$2$1')"),
        "regexp_replace(t, '.', r'\\$')",
    ],
    "regexp_substr": ["regexp_substr(s, 'z*')", "regexp_substr(n, '[1-9]+')"],
    "split": [
        *("split(s, 'b')", "split(s, '')", "split(t, 'b', 1)", "split(s, 'z', 2)"),
        *("split(s, '', 2)", "split(n, '[^0-9]', 0)", "split(s, 'a|$')"),
    ],
    "like": [
        "like(s, 'a%')",
        "s LIKE r'ab\\%'",
        "s LIKE '!_b' ESCAPE '!'",
        "s NOT LIKE '%!%' ESCAPE '!'",
    ],
    "ilike": ["ilike(t, 'A_%')", "t ILIKE 'AB/%' ESCAPE '/'"],
    "<<": ["a << k", "i << 33", "k << 3"],
    ">>": ["a >> k", "i >> 33"],
    ">>>": ["a >>> k", "i >>> 1"],
    "base64": ["base64(u)", "base64(s)", "base64(repeat(s, 40))"],
    "unbase64": ["unbase64(base64(s))", "unbase64('YQ==')"],
    "to_base32": ["to_base32(u)", "to_base32(s)"],
    "to_binary": ["to_binary(s, 'utf-8')", "to_binary(n)", "to_binary(s, 'base64')"],
    "try_to_binary": ["try_to_binary(n, 'hex')", "try_to_binary(s, 'BASE64')"],
    "hmac": ["hex(hmac('k', s))", "hex(hmac(CAST(n AS BINARY), u, 'SHA-512'))"],
    "bitmap_count": ["bitmap_count(u)"],
    "is_valid_utf8": ["is_valid_utf8(u)", "is_valid_utf8(s)"],
    "make_valid_utf8": ["make_valid_utf8(u)", "make_valid_utf8(X'E282F09F98')"],
    "try_validate_utf8": ["try_validate_utf8(u)"],
    "validate_utf8": ["validate_utf8(u)", "validate_utf8(s)"],
    "hash": [
        "hash(s)",
        "hash(a, i, k, p)",
        "hash(x, h)",
        "hash(d, e)",
        "hash(l, w, r)",
        "hash(ts, dt, u)",
    ],
    "xxhash64": [
        "xxhash64(t, u)",
        "xxhash64(a, i, k, p, x, h)",
        "xxhash64(d, e, l, w, r, ts, dt, nt)",
    ],
    "to_char": [
        *("to_char(d, '$99,999,999.99S')", "to_char(e, 'MI00000.9')", "to_char(i, '9,999PR')"),
        *("to_char(k, 'S000')", "to_char(d, '.99')", "to_char(ts, 'yyyy')", "to_char(u, 'hex')"),
    ],
    "to_varchar": ["to_varchar(k, '999')", "to_varchar(s::BINARY, 'base64')"],
    "to_number": ["to_number(n, '999')", "to_number(n, 'S99.9')", "to_number('<1,2>', '9,9PR')"],
    "try_to_number": ["try_to_number(n, 'S000000000.0')", "try_to_number(s, '9')"],
    "format_number": ["format_number(d, 1)", "format_number(a, 0)", "format_number(e, 8)"],
    "date_format": [f'date_format({of}, "{p}")' for p in _PATTERNS for of in ("ts", "dt", "nt")],
    "from_unixtime": ["from_unixtime(i)", "from_unixtime(i, 'yyyy/MM/dd EEE a hh')"],
    "to_timestamp": [
        *("to_timestamp(date_format(ts, 'yyyyMMddHHmmss'), 'yyyyMMddHHmmss')", "to_timestamp(dt)"),
        *("to_timestamp(s, 'yyyy')", "to_timestamp(CAST(ts AS STRING))"),
        "to_timestamp(date_format(dt, 'd MMM y'), 'd MMM y')",
    ],
    "to_timestamp_ltz": ["to_timestamp_ltz('12:30 2020', 'HH:mm yyyy')"],
    "to_timestamp_ntz": ["to_timestamp_ntz(n, 'MM')", "to_timestamp_ntz(ts)"],
    "to_date": ["to_date(date_format(dt, 'MM/dd/yyyy'), 'MM/dd/yyyy')", "to_date(ts)"],
    "try_to_date": [
        "try_to_date(n, 'd')",
        "try_to_date(s, 'yy')",
        "try_to_date('2020-1', 'yyyy-M')",
    ],
    "try_to_timestamp": ["try_to_timestamp(n, 's')", "try_to_timestamp('2020-01-01 24:00')"],
    "unix_timestamp": ["unix_timestamp(ts)", "unix_timestamp(dt)", "unix_timestamp(n, 'yyyy')"],
    "to_unix_timestamp": ["to_unix_timestamp(CAST(dt AS STRING), 'yyyy-MM-dd')"],
    "months_between": ["months_between(ts, ts2)", "months_between(dt, ts, false)"],
    "from_utc_timestamp": [
        *("from_utc_timestamp(ts, 'Europe/Berlin')", "from_utc_timestamp(ts, '+5:30')"),
        "from_utc_timestamp(ts, 'PST')",
    ],
    "to_utc_timestamp": [
        "to_utc_timestamp(ts, 'America/New_York')",
        "to_utc_timestamp(dt, 'UTC+1')",
    ],
    "convert_timezone": [
        *(
            "convert_timezone('Asia/Tokyo', 'Australia/Sydney', nt)",
            "convert_timezone('-03:30', nt)",
        ),
    ],
    "current_timezone": ["current_timezone()"],
    "parse_url": [
        f"parse_url('http://u:p@h.io:80/a/b?k=1&l={{}}#f', '{p}')".replace("{}", "%20")
        for p in (
            *("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "host"),
        )
    ]
    + ["parse_url(concat('http://', s, '/x'), 'HOST')", "parse_url('mailto:a@b.c', 'HOST')"],
    "try_parse_url": ["try_parse_url(concat('a://', t), 'AUTHORITY')", "try_parse_url(n, 'PATH')"],
    "initcap": ["initcap(s)", "initcap(concat(t, ' ', s, ' xY zÉ'))"],
    "soundex": ["soundex(s)", "soundex(concat('Tymczak', s))", "soundex('Ashcraft')"],
    "str_to_map": ["str_to_map(s, 'b', 'a')", "str_to_map('x=1&y&z=', '&', '=')", "str_to_map(n)"],
    "get_json_object": [
        *("get_json_object(js, '$.a')", "get_json_object(js, '$')", "get_json_object(js, '$[1]')"),
        *("get_json_object(js, \"$['b'].c\")", "get_json_object(js, '$.a[0]')"),
        "get_json_object(js, 'a')",
    ],
    "json_array_length": ["json_array_length(js)"],
    "json_object_keys": ["json_object_keys(js)"],
    "from_json": [
        *("from_json(js, 'a INT, b STRING')", "from_json(js, 'a BIGINT, b STRUCT<c: BOOLEAN>')"),
        *("from_json(js, 'STRUCT<a: ARRAY<INT>, b: DOUBLE>')", "from_json(js, 'a STRING').a"),
        *(
            "from_json(js, 'a DOUBLE')",
            "from_json(js, 'a ARRAY<STRUCT<c: INT>>')",
            "from_json(s, 'a INT')",
            "from_json(js, 'A INT')",
        ),
        *(
            "from_json(js, 'b STRING')",
            "from_json(js, 'b DOUBLE').b",
            "from_json(js, 'b ARRAY<STRING>')",
        ),
        *("from_json(js, 'b ARRAY<DOUBLE>')", "from_json(js, 'a STRUCT<c: STRING>, b STRING')"),
    ],
    "to_json": [
        *(
            "to_json(r)",
            "to_json(l)",
            "to_json(m)",
            "to_json(w)",
            "to_json(struct(d, e, p, u IS NULL))",
        ),
        *(
            "to_json(struct(ts, nt, dt))",
            "to_json(array(r, r))",
            "to_json(from_json(js, 'a STRING'))",
        ),
        "to_json(map(k, r))",
    ],
    "typeof": ["typeof(r)", "typeof(d + 1)", "typeof(m)", "typeof(NULL)"],
}
"""By the names of operators and functions."""

MORE_OF_OLD: dict[str, list[str]] = {
    "array_sort": [
        "array_sort(l, (x, y) -> ifnull(y, 0) - ifnull(x, 0))",
        "array_sort(w, (x, y) -> if(x < y, 1, -1))",
    ],
    "ceil": ["ceil(d, 1)", "ceil(e, -2)", "ceil(i, -3)"],
    "floor": ["floor(d, 1)", "floor(e, -2)", "floor(k, 2)"],
    "round": ["round(d, -1)", "round(a, -3)", "round(z, -1)", "round(k, -2)", "round(i, 2)"],
    "decode": ["decode(k, 1, 'one', NULL, 'none', 'more')", "decode(s, t, 1, 2)"],
    "lpad": ["lpad(u, 5)", "lpad(u, 4, X'0102')"],
    "rpad": ["rpad(u, 5)", "rpad(u, 1, X'0102')"],
    "timestamp_seconds": ["timestamp_seconds(d)", "timestamp_seconds(z)", "timestamp_seconds(h)"],
    "make_timestamp": [
        *("make_timestamp(2020, 3, k, 2, 30, 0, 'Europe/Paris')", "make_timestamp(dt)"),
        "make_timestamp(2020, 10, 25, 2, k, 0, 'Europe/Paris')",
    ],
    "zip_with": ["zip_with(l, w, (x, y) -> (y, x))"],
    "CAST": [
        *(
            "CAST(CAST(ts AS STRING) AS TIMESTAMP)",
            "CAST(n AS TIMESTAMP)",
            "CAST(s AS TIMESTAMP_NTZ)",
        ),
        *(
            f"CAST('{given}' AS TIMESTAMP)"
            for given in (
                *("2020-01-01 10:20:30 Europe/Paris", "2020-1-1T1", "2020-01-01 10:20:30.5+0130"),
                *("2020-01-01 10:20:30-1:5", "2020-03-29 02:30:00 Europe/Paris", "20201-05"),
            )
        ),
        "CAST('2020-01-01 10:20:30+05:00' AS TIMESTAMP_NTZ)",
    ],
}
"""Cases of functions that had some already."""
