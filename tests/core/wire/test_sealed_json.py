"""Small files tell whether they are what was written."""

from typing import Any

import pytest

from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.sealed_json import decode_sealed, encode_sealed

VALUES: tuple[dict[str, Any], ...] = ({}, {"id": "x"}, {"a": [1, 2], "b": {"c": 1.5}})


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("indent", [None, 1])
def test_no_byte_can_change_and_no_end_be_missing_unnoticed(
    value: dict[str, Any], indent: int | None
) -> None:
    whole = encode_sealed(value, indent=indent)
    assert decode_sealed(whole) == value
    assert decode_sealed(whole + b"  ") == value
    for at in range(len(whole)):
        assert isinstance(decode_sealed(whole[:at]), CorruptRecord)
        for bits in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(whole)
            changed[at] ^= bits
            found = decode_sealed(bytes(changed))
            assert isinstance(found, CorruptRecord) or found == value, bytes(changed)


def test_files_of_earlier_versions_have_no_checksum() -> None:
    assert decode_sealed(b'{"by": "batch", "files": []}   ') == {"by": "batch", "files": []}


@pytest.mark.parametrize("bad", [b"", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"a": 1}x'])
def test_other_bytes_are_named(bad: bytes) -> None:
    assert isinstance(decode_sealed(bad), CorruptRecord)
