"""Pages, their bound, and the stable hash that places keys."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.stable_hash import partition_of, stable_hash
from holdfast.core.state.page_manager import PageManager, StateLimitExceeded


def test_the_bound_names_the_setting_and_allocates_nothing() -> None:
    manager = PageManager(page_bytes=512, state_bytes_max=2048)
    page_set = manager.create_page_set()
    manager.allocate(page_set, 3)
    with pytest.raises(StateLimitExceeded, match=r"spark\.holdfast\.stateBytesMax is 2048"):
        manager.allocate(page_set, 2)
    assert manager.statistics().pages_used == 3
    manager.check_invariants()


def test_a_released_page_is_zero_when_it_is_allocated_again() -> None:
    manager = PageManager(page_bytes=512)
    first = manager.create_page_set()
    manager.allocate(first)
    manager.writable(first, 0)[:] = 7
    manager.destroy_page_set(first)
    second = manager.create_page_set()
    manager.allocate(second)
    assert not manager.resolve(second, 0).any()
    with pytest.raises(LocalProtocolError, match="does not exist"):
        manager.allocate(first)


def test_stable_hash_ignores_width_unit_and_sign_of_zero() -> None:
    def one(value: object, kind: pa.DataType) -> int:
        return int(stable_hash([pa.array([value], type=kind)])[0])

    assert one(5, pa.int8()) == one(5, pa.int64())
    assert one(2, pa.timestamp("s")) == one(2_000_000, pa.timestamp("us"))
    assert one(0.0, pa.float64()) == one(-0.0, pa.float32())
    assert one("abc", pa.string()) == one("abc", pa.large_string())
    assert one(None, pa.int64()) == one(None, pa.string())


def test_partitions_are_even_and_in_range() -> None:
    counts = [0] * 7
    for part in partition_of([pa.array(range(70_000))], 7).tolist():
        counts[part] += 1
    assert min(counts) > 9_500
    assert max(counts) < 10_500


GOLDEN: list[tuple[object, pa.DataType, int]] = [
    (0, pa.int64(), 0xE220A8397B1DCDAF),
    (-1, pa.int32(), 0xE4D971771B652C20),
    (True, pa.bool_(), 0x910A2DEC89025CC1),
    (datetime.date(2026, 1, 1), pa.date32(), 0x89DB5515B8DE1F50),
    (1_700_000_000_000_000, pa.timestamp("us"), 0xB7B8B1FCBDA40E0F),
    (1.5, pa.float64(), 0xD6DAB18E1392608A),
    (Decimal("12.34"), pa.decimal128(10, 2), 0xEC5F7E6E4B6ED3B1),
    ("", pa.string(), 0xE220A8397B1DCDAF),
    ("holdfast", pa.string(), 0xDFDC29B79BFB8811),
    ("flüge nach JFK", pa.string(), 0xBD19CDA44A608EB2),
    (None, pa.int64(), 0x9E3779B97F4A7C15),
]


@pytest.mark.parametrize(("value", "kind", "expected"), GOLDEN)
def test_stable_hash_never_changes(value: object, kind: pa.DataType, expected: int) -> None:
    assert int(stable_hash([pa.array([value], type=kind)])[0]) == expected


def test_stable_hash_of_two_columns_never_changes() -> None:
    columns = [pa.array([1, None]), pa.array(["a", "a"])]
    assert int(stable_hash(columns)[0]) == 0xD82D11225AEE9683
