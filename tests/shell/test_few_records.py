"""Few records of JSON become what Arrow's reader makes of them, or are left to it."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka")

from holdfast.shell.kafka import decoding
from holdfast.shell.kafka.few_records import FEW, read_few

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.float64()),
        ("name", pa.string()),
        ("is_new", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
    ]
)
NUMBERS = (
    "0",
    "-0",
    "7",
    "-7.5",
    "-0.0",
    "127",
    "128",
    "1e3",
    "1E-320",
    "1e-400",
    "1e400",
    "0.1",
    "01",
    "+1",
)
HUGE = (str(2**53 + 1), str(2**63 - 1), str(-(2**63)), str(2**63), "NaN", "-Infinity", "1" * 400)
TEXTS = (
    "a",
    "",
    "ä",
    "\U0001f600",
    "\\n",
    "\\u0041",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\u0000",
    "\x01",
)
MOMENTS = (
    *("2026-01-01T00:00:01Z", "2026-01-01 00:00:01Z", "2026-01-01T00:00:01", "2026-01-01"),
    *("2026-01-01T00:00:01.5Z", "2026-01-01T00:00:01.123456", "2026-01-01T00:00:01.1234567Z"),
    *("2026-13-01T00:00:01Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:01+01:00", "today", "9999"),
    *("0000-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-01-01T00:00:60Z"),
)
WORDS = ("null", "true", "false", "{}", "[1]", '{"id":1,"id":2}', "", "nul", "{", "]", '"')
VALUES = st.sampled_from(
    [*NUMBERS, *HUGE, *(f'"{text}"' for text in (*TEXTS, *MOMENTS)), *WORDS]
) | st.floats(allow_nan=False).map(repr)
FITTING = {
    "id": st.integers(-(2**63), 2**63 - 1).map(str),
    "small": st.integers(-128, 127).map(str),
    "price": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "name": st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    "is_new": st.sampled_from(["true", "false"]),
    "at": st.datetimes().map(lambda at: f'"{at.isoformat()}Z"'),
    "local": st.datetimes().map(lambda at: f'"{at.isoformat()}"'),
    "more": st.sampled_from(['"x"', "1", "null"]),
}


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line as the decoder gives it to its readers: an object, or nearly one."""
    names = draw(st.lists(st.sampled_from([*FITTING]), max_size=8, unique=True))
    odd = draw(st.sampled_from([*FITTING, *[None] * 16]))
    pairs = (f'"{n}":{draw(VALUES if n == odd else FITTING[n] | st.just("null"))}' for n in names)
    line = "{" + ",".join(pairs) + "}" + draw(st.sampled_from([*[""] * 20, "{}", " }"]))
    return line.encode(errors="surrogatepass")


def arrows(values: list[bytes], monkeypatch: pytest.MonkeyPatch) -> pa.RecordBatch:
    with monkeypatch.context() as patched:
        patched.setattr(decoding, "read_few", lambda *_: None)
        return decoding._read_json(values, SCHEMA)


@given(st.lists(lines(), min_size=1, max_size=4))
def test_what_is_read_is_what_arrow_reads(values: list[bytes]) -> None:
    few = read_few(values, SCHEMA)
    if few is not None:
        with pytest.MonkeyPatch.context() as patched:
            wanted = arrows(values, patched)
        assert few.equals(wanted)
        prices = [repr(rows.column("price").to_pylist()) for rows in (few, wanted)]
        assert prices[0] == prices[1], "not even a zero has another sign"


@pytest.mark.parametrize(
    "values",
    [
        [b'{"id":1,"small":-3,"price":0.5,"name":"a","is_new":true}'],
        [b'{"at":"2026-01-01T00:00:01.5Z","local":"2026-01-01T00:00:01"}', b'{"more":1}', b"{}"],
        [b'{"name":"a \\"quoted\\" word","more":"\\\\"}', b'{"name":"},{"}'],
    ],
)
def test_ordinary_records_are_read(values: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    few = read_few(values, SCHEMA)
    assert few is not None
    assert few.equals(arrows(values, monkeypatch))


@pytest.mark.parametrize(
    "values",
    [
        [b'{"id":1},{"id":2}'],
        [b'{"id":1},{"a":[{}', b"{}]}"],
        [b'{"id":1},{"id":2}', b'{"a":[{}', b"{}]}"],
        [b'{"name":"x}', b'{y"}', b'{"id":1},{"id":2}'],
        [b'{"id":1},{"id":2', b'"id":3}'],
        [b'{"id":1},\n{"id":2', b'"id":3}'],
        [b'{"name":"a\nb"}'],
        [None],
        [b""],
        [b"5"],
        [b'{"id":1,"id":1}'],
        [b'{"id":1}', b'{"more":"x","more":"y"}'],
        [b'{"more":"\\n","more":"\\n"}'],
        [b'{"id":1.0}'],
        [b'{"id":true}'],
        [b'{"price":1}'],
        [b'{"price":1e400}'],
        [b'{"name":"\\ud83d"}'],
        [b'{"more":"\\ud83d"}'],
        [b'{"Name":"x"}'],
        [b'{"more":{"x":1}}'],
        [b'{"id":NaN}'],
        [b'{"id":9223372036854775808}'],
        [b'{"name":"\xff"}'],
        [b'{"at":"2026-01-01T00:00:01"}'],
        [b'{"a":' * 100_000 + b"}" * 100_000],
        [b'{"id":1}'] * (FEW + 1),
    ],
)
def test_odd_or_many_records_are_left_to_arrow(values: list[bytes | None]) -> None:
    assert read_few(values, SCHEMA) is None


def test_other_types_are_left_to_arrow() -> None:
    assert read_few([b'{"d":"2026-01-01"}'], pa.schema([("d", pa.date32())])) is None
