"""Functions of bits, bytes and their hashes."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.signatures import (
    Build,
    Function,
    bigint,
    fixed,
    integer,
    kernel,
    rows,
    string,
)
from holdfast.api.expressions.types import common_type, name_of
from holdfast.api.expressions.values import EvaluationError, Value, derived, per_row
from holdfast.errors import DataflowError, UnsupportedError

_DIGESTS = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}
_BUCKET_BITS = 8 * 4096
"""Of a bitmap of Spark's."""


def signed(number: int, bits: int) -> int:
    """The number that the lowest bits of another one are, in two's complement."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _whole(value: Value, text: str) -> Value:
    """A whole number as it is; NULL as INT."""
    if pa.types.is_null(value.type):
        return coerce(value, pa.int32())
    if not pa.types.is_integer(value.type):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, no whole number")
    return value


def bytes_of(value: Value, text: str) -> Value:
    """As BINARY; text by its UTF-8."""
    if pa.types.is_binary(value.type):
        return value
    text_value = string(value, text)
    return derived(pa.binary(), text, lambda column: column.cast(pa.binary()), text_value)


def combined(compute: Callable[[int, int], int]) -> Build:
    """`|`, `&` and `^` of whole numbers."""

    def build(args: Sequence[Value], text: str) -> Value:
        numbers = [_whole(arg, text) for arg in args]
        of = common_type(numbers, text)
        left, right = (coerce(number, of) for number in numbers)
        return derived(of, text, per_row(compute, of), left, right)

    return build


def inverted(args: Sequence[Value], text: str) -> Value:
    """`~` of a whole number."""
    value = _whole(args[0], text)
    return derived(value.type, text, per_row(lambda n: ~n, value.type), value)


def _shifted(compute: Callable[[int, int, int], int]) -> Build:
    """Of INT or BIGINT, by as many bits as the lowest ones of the count say, as in Java."""

    def build(args: Sequence[Value], text: str) -> Value:
        value, count = _whole(args[0], text), integer(args[1], text)
        of = pa.int64() if value.type == pa.int64() else pa.int32()
        bits: int = of.bit_width

        def shift(number: int, by: int) -> int:
            return signed(compute(number, by & (bits - 1), bits), bits)

        return derived(of, text, per_row(shift, of), coerce(value, of), count)

    return build


def _bit_count(args: Sequence[Value], text: str) -> Value:
    (value,) = args
    if not pa.types.is_boolean(value.type):
        value = _whole(value, text)

    def count(number: int) -> int:
        return (int(number) & (2**64 - 1)).bit_count()

    return derived(pa.int32(), text, per_row(count, pa.int32()), value)


def _bit_get(args: Sequence[Value], text: str) -> Value:
    value, place = _whole(args[0], text), integer(args[1], text)
    bits: int = value.type.bit_width

    def bit(number: int, at: int) -> int:
        if not 0 <= at < bits:
            raise EvaluationError(f"there is no bit {at} of {bits}")
        return number >> at & 1

    return derived(pa.int8(), text, per_row(bit, pa.int8()), value, place, is_total=False)


def _hex(args: Sequence[Value], text: str) -> Value:
    (value,) = args
    if pa.types.is_integer(value.type):
        number = bigint(value, text)
        return derived(
            pa.string(), text, per_row(lambda n: f"{n & (2**64 - 1):X}", pa.string()), number
        )
    if not (pa.types.is_binary(value.type) or pa.types.is_string(value.type)):
        raise UnsupportedError(f"{text}: hex of {name_of(value.type)}; cast it")
    as_bytes = bytes_of(value, text)
    return derived(pa.string(), text, per_row(lambda b: b.hex().upper(), pa.string()), as_bytes)


def _unhex(text: str) -> bytes | None:
    digits = text if len(text) % 2 == 0 else f"0{text}"
    return bytes.fromhex(digits) if re.fullmatch("[0-9a-fA-F]*", digits) else None


def _sha2(data: bytes, bits: int) -> str | None:
    name = _DIGESTS.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _charset(value: Value, text: str) -> None:
    given = fixed(string(value, text), text)
    if given is None or given.upper() not in ("UTF-8", "UTF8"):
        raise UnsupportedError(f"{text}: the character set is 'UTF-8' here")


def _encode(args: Sequence[Value], text: str) -> Value:
    _charset(args[1], text)
    return bytes_of(string(args[0], text), text)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{data!r} is no UTF-8") from error


def _decode(args: Sequence[Value], text: str) -> Value:
    _charset(args[1], text)
    decode = per_row(_decoded, pa.string())
    return derived(pa.string(), text, decode, bytes_of(args[0], text), is_total=False)


def _known_or_bigint(value: Value, text: str) -> Value:
    """As BIGINT; a known number may lose what stands behind its point."""
    is_cast = value.is_fixed and pa.types.is_decimal(value.type)
    return coerce(value, pa.int64()) if is_cast else bigint(value, text)


def _bit_position(number: int) -> int:
    return (number - 1 if number > 0 else -number) % _BUCKET_BITS


def _bucket_number(number: int) -> int:
    return 1 + (number - 1) // _BUCKET_BITS if number > 0 else -(-number // _BUCKET_BITS)


SHIFTS: dict[str, Build] = {
    "<<": _shifted(lambda n, by, _: n << by),
    ">>": _shifted(lambda n, by, _: n >> by),
    ">>>": _shifted(lambda n, by, bits: (n & ((1 << bits) - 1)) >> by),
}
_TEXT, _LONG = pa.string(), pa.int64()
_SHA = Function(rows(_TEXT, lambda b: hashlib.sha1(b).hexdigest(), bytes_of), 1, 1)

FUNCTIONS: dict[str, Function] = {
    "bin": Function(rows(_TEXT, lambda n: f"{n & (2**64 - 1):b}", _known_or_bigint), 1, 1),
    "bit_count": Function(_bit_count, 1, 1),
    "bit_get": Function(_bit_get, 2, 2),
    "bitmap_bit_position": Function(kernel(_LONG, per_row(_bit_position, _LONG), bigint), 1, 1),
    "bitmap_bucket_number": Function(kernel(_LONG, per_row(_bucket_number, _LONG), bigint), 1, 1),
    "crc32": Function(rows(_LONG, zlib.crc32, bytes_of), 1, 1),
    "decode": Function(_decode, 2, 2),
    "encode": Function(_encode, 2, 2),
    "getbit": Function(_bit_get, 2, 2),
    "hex": Function(_hex, 1, 1),
    "md5": Function(rows(_TEXT, lambda b: hashlib.md5(b).hexdigest(), bytes_of), 1, 1),
    "sha": _SHA,
    "sha1": _SHA,
    "sha2": Function(rows(_TEXT, _sha2, bytes_of, integer), 2, 2),
    "shiftleft": Function(SHIFTS["<<"], 2, 2),
    "shiftright": Function(SHIFTS[">>"], 2, 2),
    "shiftrightunsigned": Function(SHIFTS[">>>"], 2, 2),
    "unhex": Function(rows(pa.binary(), _unhex, string), 1, 1),
}
