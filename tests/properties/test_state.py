"""Paged structures against plain Python ones. [SGuard §4]"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core.model.schema import RecordPacking
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.string_pages import StringPages
from holdfast.core.state.unordered_map import UnorderedMap

words = st.one_of(st.integers(-3, 40), st.integers(-(2**63), 2**63 - 1))


class MapAndListMachine(RuleBasedStateMachine):
    """A map and a list share one page manager; a dict and a list are the models."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = PageManager(page_bytes=512)
        self.map = UnorderedMap(self.manager, 2, 1)
        self.list = PagedList(self.manager, 3)
        self.dict_model: dict[tuple[int, int], int] = {}
        self.list_model: list[list[int]] = []

    @rule(keys=st.lists(st.tuples(words, words), min_size=1, max_size=80))
    def count(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            self.dict_model[key] = self.dict_model.get(key, 0) + 1
        values = np.array([[self.dict_model[key]] for key in keys], dtype=np.int64)
        self.map.write_values(self.map.upsert_slots(np.array(keys, dtype=np.int64)), values)

    @rule(keys=st.lists(st.tuples(words, words), min_size=1, max_size=10))
    def look_up(self, keys: list[tuple[int, int]]) -> None:
        slots = self.map.lookup_slots(np.array(keys, dtype=np.int64))
        for key, slot in zip(keys, slots.tolist(), strict=True):
            assert (slot >= 0) == (key in self.dict_model)
            if slot >= 0:
                found = self.map.read_values(np.array([slot], dtype=np.int64))
                assert found.tolist() == [[self.dict_model[key]]]

    @rule(rows=st.lists(st.tuples(words, words, words), min_size=1, max_size=60))
    def append(self, rows: list[tuple[int, int, int]]) -> None:
        self.list.append(np.array(rows, dtype=np.int64))
        self.list_model += [list(row) for row in rows]

    @rule(keep=st.integers(0, 30))
    def shorten(self, keep: int) -> None:
        self.list.replace_all(self.list.scan()[:keep])
        del self.list_model[keep:]

    @rule(expected=st.integers(0, 400))
    def start_again(self, expected: int) -> None:
        self.map.destroy()
        self.map = UnorderedMap(self.manager, 2, 1)
        self.map.reserve(expected)
        self.dict_model = {}

    @invariant()
    def same_as_the_models(self) -> None:
        entries = [(*key, value) for key, value in self.dict_model.items()]
        assert [tuple(row) for row in self.map.entries().tolist()] == entries
        assert self.list.scan().tolist() == self.list_model
        self.map.check_invariants()
        self.list.check_invariants()
        self.manager.check_invariants()


TestMapAndList = MapAndListMachine.TestCase
TestMapAndList.settings = settings(max_examples=25, stateful_step_count=20)


@given(entries=st.integers(1, 3_000))
@settings(max_examples=40)
def test_a_map_does_not_grow_before_it_has_what_was_reserved(entries: int) -> None:
    reserved = UnorderedMap(PageManager(page_bytes=512), 2, 1)
    reserved.reserve(entries)
    pages = reserved.page_count
    for part in np.array_split(np.arange(2 * entries, dtype=np.int64).reshape(entries, 2), 3):
        reserved.upsert_slots(part)
    assert len(reserved) == entries
    assert reserved.page_count == pages or entries <= 16
    reserved.check_invariants()


def test_what_cannot_be_had_is_not_reserved() -> None:
    manager = PageManager(page_bytes=512, state_bytes_max=20 * 512)
    for entries in (400, 1 << 40):
        whole = UnorderedMap(manager, 2, 1)
        before = whole.page_count
        whole.reserve(entries)
        assert whole.page_count == before


texts = st.one_of(st.none(), st.text(max_size=12), st.text(min_size=50).map(lambda s: s * 30))


@given(batches=st.lists(st.lists(texts, max_size=30), max_size=5), cut=st.integers(0, 10))
@settings(max_examples=40)
def test_strings_come_back_and_are_stored_once(batches: list[list[str | None]], cut: int) -> None:
    strings = StringPages(PageManager(page_bytes=512))
    seen: dict[str | None, int] = {}
    for batch in batches:
        column = pa.array(batch, type=pa.string()).slice(min(cut, len(batch)))
        references = strings.intern(column)
        assert strings.gather(references, pa.string()).equals(column)
        for text, reference in zip(column.to_pylist(), references.tolist(), strict=True):
            assert seen.setdefault(text, reference) == reference
            assert (reference == 0) == (text is None)
    assert len(strings) == len([text for text in seen if text is not None])


TYPES = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.integers(0, 2**50)),
    (pa.decimal128(38, 5), st.decimals(-(10**30), 10**30, places=5)),
    (pa.string(), st.text(max_size=20)),
    (pa.binary(), st.binary(max_size=20)),
    (pa.large_string(), st.text(max_size=20)),
]


@given(draw=st.data(), rows=st.integers(0, 20), cut=st.integers(0, 5))
@settings(max_examples=40)
def test_packing_loses_nothing(draw: st.DataObject, rows: int, cut: int) -> None:
    columns = [
        pa.array(
            draw.draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows)),
            type=kind,
        ).slice(min(cut, rows))
        for kind, values in TYPES
    ]
    packing = RecordPacking([kind for kind, _ in TYPES])
    strings = StringPages(PageManager())
    packed = packing.pack(columns, strings)
    assert packed.shape == (len(columns[0]), packing.width)
    for before, after in zip(columns, packing.unpack(packed, strings), strict=True):
        after.validate(full=True)
        assert after.equals(before)
