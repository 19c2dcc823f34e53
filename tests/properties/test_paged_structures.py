"""Linked pages against plain Python structures, while checkpoints of them are written. [SGuard §4]

The machines keep a store, as whoever writes checkpoints does: a page is in it as the last finished
checkpoint has it, and only what has changed since is read from the arena.
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.state import (
    deque_kernels,
    kernels,
    tree_balance_kernels,
    tree_kernels,
    tree_search_kernels,
)
from holdfast.core.state.kernels import FROZEN
from holdfast.core.state.ordered_map import OrderedMap
from holdfast.core.state.page_layout import FRESH
from holdfast.core.state.page_manager import PageManager, PageSetId, Snapshot
from holdfast.core.state.paged_deque import PagedDeque

PAGE_BYTES = 512
KEY_WORDS = 2
WIDE = 12
"""Value words that leave room for four entries in a node: trees get high."""

PageSets = list[tuple[PageSetId, ...]]
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 120)
counts = st.one_of(sizes, st.just(10_000))
spans = st.sampled_from([4, 12, 60, 2**62])


def draw_rows(seed: int, count: int, width: int, span: int) -> np.ndarray:
    """Words from [-span, span), int64 (count, width)."""
    return np.random.default_rng(seed).integers(-span, span, (count, width))


class CheckpointedMachine(RuleBasedStateMachine):
    """Takes checkpoints of the structures while they are written, and goes back to them."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = PageManager(page_bytes=PAGE_BYTES)
        self.structures: list[Any] = self.open(self.manager, None)
        self.model: Any = self.new_model()
        self.store: dict[tuple[int, int], np.ndarray] = {}
        self.stored: tuple[Snapshot, PageSets, Any] | None = None
        self.snapshot: Snapshot | None = None
        self.copied: dict[int, np.ndarray] = {}
        self.sets_then: PageSets = []
        self.model_then: Any = None

    def open(self, manager: PageManager, page_sets: PageSets | None) -> list[Any]:
        raise NotImplementedError

    def new_model(self) -> Any:
        raise NotImplementedError

    def check(self, structures: list[Any], model: Any) -> None:
        raise NotImplementedError

    def replace(self, index: int) -> None:
        """Destroy a structure and create another in its place."""
        self.structures[index].destroy()
        self.structures[index] = self.open(self.manager, None)[index]

    @rule()
    @precondition(lambda self: self.snapshot is None)
    def take_a_checkpoint(self) -> None:
        self.snapshot = self.manager.checkpoint()
        self.copied = {}
        self.sets_then = [structure.page_sets for structure in self.structures]
        self.model_then = deepcopy(self.model)

    @rule(seed=seeds, share=st.floats(0, 1))
    @precondition(lambda self: self.snapshot is not None)
    def write_some_pages(self, seed: int, share: float) -> None:
        assert self.snapshot is not None
        left = [p for p in self.snapshot.changed.tolist() if p not in self.copied]
        positions = random.Random(seed).sample(left, round(share * len(left)))
        self.copy_out(positions)
        self.manager.thaw(self.snapshot, np.array(positions, dtype=np.int64))

    @rule()
    @precondition(lambda self: self.snapshot is not None)
    def finish_the_checkpoint(self) -> None:
        assert self.snapshot is not None
        self.copy_out([p for p in self.snapshot.changed.tolist() if p not in self.copied])
        names = names_of(self.snapshot)
        held = {names[position]: words for position, words in self.copied.items()}
        self.store = {name: held.get(name, self.store.get(name)) for name in names}  # type: ignore[misc]
        self.stored = self.snapshot, self.sets_then, self.model_then
        self.manager.finish(self.snapshot)
        self.snapshot = None
        self.check(self.recover(), self.model_then)

    @rule()
    @precondition(lambda self: self.snapshot is not None)
    def cancel_the_checkpoint(self) -> None:
        assert self.snapshot is not None
        self.manager.cancel(self.snapshot)
        self.snapshot = None

    @rule()
    @precondition(lambda self: self.stored is not None)
    def crash_and_recover(self) -> None:
        self.structures = self.recover()
        self.manager = self.recovered_manager
        assert self.stored is not None
        self.model = deepcopy(self.stored[2])
        self.snapshot = None

    def copy_out(self, positions: Sequence[int]) -> None:
        assert self.snapshot is not None
        pages = self.manager.arena.reshape(-1, self.manager.page_words)
        for position in positions:
            self.copied[position] = pages[self.snapshot.pages[position]].copy()

    def recover(self) -> list[Any]:
        """The structures of the stored checkpoint, over a manager of their own."""
        assert self.stored is not None
        snapshot, page_sets, _ = self.stored
        manager = PageManager(page_bytes=PAGE_BYTES)
        names = names_of(snapshot)
        order = np.random.default_rng(len(names)).permutation(len(names))
        physical = manager.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
        manager.recovered()
        pages = manager.arena.reshape(-1, manager.page_words)
        for name, page in zip(names, physical.tolist(), strict=True):
            pages[page] = self.store[name]
        self.recovered_manager = manager
        return self.open(manager, page_sets)

    @invariant()
    def same_as_the_model(self) -> None:
        self.manager.check_invariants()
        self.check(self.structures, self.model)


def names_of(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Page set and sequence of every position."""
    return [
        (page_set, sequence)
        for page_set, count in zip(snapshot.page_sets, snapshot.counts.tolist(), strict=True)
        for sequence in range(count)
    ]


class OrderedMapMachine(CheckpointedMachine):
    """An ordered map; a dict, sorted when it is compared, is the model."""

    value_words = 1

    def open(self, manager: PageManager, page_sets: PageSets | None) -> list[Any]:
        return [OrderedMap(manager, KEY_WORDS, self.value_words, page_sets and page_sets[0])]

    def new_model(self) -> dict[tuple[int, ...], list[int]]:
        return {}

    def check(self, structures: list[Any], model: Any) -> None:
        structures[0].check_invariants()
        assert len(structures[0]) == len(model)
        assert structures[0].entries().tolist() == [[*key, *model[key]] for key in sorted(model)]

    @rule(seed=seeds, count=sizes, span=spans)
    def put(self, seed: int, count: int, span: int) -> None:
        rows = draw_rows(seed, count, KEY_WORDS + self.value_words, span)
        self.structures[0].put(rows[:, :KEY_WORDS], rows[:, KEY_WORDS:])
        self.model.update({tuple(row[:KEY_WORDS]): row[KEY_WORDS:] for row in rows.tolist()})

    @rule(start=st.integers(-100, 100), step=st.sampled_from([-1, 1]), count=sizes)
    def put_in_a_row(self, start: int, step: int, count: int) -> None:
        for first in range(start, start + step * count, step):
            self.model[first, 0] = [start] * self.value_words
        keys = np.zeros((count, KEY_WORDS), dtype=np.int64)
        keys[:, 0] = np.arange(start, start + step * count, step)
        self.structures[0].put(keys, np.full((count, self.value_words), start))

    @rule(seed=seeds, count=sizes, span=spans)
    def get(self, seed: int, count: int, span: int) -> None:
        keys = draw_rows(seed, count, KEY_WORDS, span)
        found, values = self.structures[0].get(keys)
        wanted = [self.model.get(tuple(key)) for key in keys.tolist()]
        assert found.tolist() == [value is not None for value in wanted]
        assert values.tolist() == [value or [0] * self.value_words for value in wanted]

    @rule(seed=seeds, count=sizes, span=spans)
    def remove_any(self, seed: int, count: int, span: int) -> None:
        self.remove(draw_rows(seed, count, KEY_WORDS, span))

    @rule(seed=seeds, share=st.floats(0, 1))
    def remove_present(self, seed: int, share: float) -> None:
        chosen = random.Random(seed).sample(sorted(self.model), round(share * len(self.model)))
        self.remove(np.array(chosen, dtype=np.int64).reshape(-1, KEY_WORDS))

    def remove(self, keys: np.ndarray) -> None:
        removed = self.structures[0].remove(keys)
        wanted = [self.model.pop(tuple(key), None) is not None for key in keys.tolist()]
        assert removed.tolist() == wanted

    @rule(count=counts)
    def pop_first(self, count: int) -> None:
        first = self.structures[0].first()
        expected = [[*key, *self.model.pop(key)] for key in sorted(self.model)[:count]]
        assert self.structures[0].pop_first(count).tolist() == expected
        if expected:
            assert first is not None
            assert first.tolist() == expected[0]

    @rule(seed=seeds, span=spans, open_ends=st.sampled_from([(0, 0), (0, 1), (1, 0)]))
    def read_a_range(self, seed: int, span: int, open_ends: tuple[int, int]) -> None:
        low, high = draw_rows(seed, 2, KEY_WORDS, span)
        expected = [
            [*key, *self.model[key]]
            for key in sorted(self.model)
            if (open_ends[0] or key >= tuple(low)) and (open_ends[1] or key < tuple(high))
        ]
        found = self.structures[0].range(
            None if open_ends[0] else low, None if open_ends[1] else high
        )
        assert found.tolist() == expected

    @rule()
    def start_again(self) -> None:
        self.replace(0)
        self.model = {}


class WideOrderedMapMachine(OrderedMapMachine):
    """The same with few entries in a node."""

    value_words = WIDE


class RingsMachine(CheckpointedMachine):
    """A deque, and one that is used as a queue; two of Python's deques are the models."""

    def open(self, manager: PageManager, page_sets: PageSets | None) -> list[Any]:
        if page_sets is None:
            return [PagedDeque(manager, 3), PagedDeque(manager, 2)]
        return [PagedDeque(manager, 3, page_sets[0]), PagedDeque(manager, 2, page_sets[1])]

    def new_model(self) -> list[deque[list[int]]]:
        return [deque(), deque()]

    def check(self, structures: list[Any], model: Any) -> None:
        for structure, records in zip(structures, model, strict=True):
            structure.check_invariants()
            assert len(structure) == len(records)
            assert structure.scan().tolist() == list(records)

    @rule(seed=seeds, count=sizes)
    def push_back(self, seed: int, count: int) -> None:
        rows = draw_rows(seed, count, 3, 2**62)
        self.structures[0].push_back(rows)
        self.model[0].extend(rows.tolist())

    @rule(seed=seeds, count=sizes)
    def push_front(self, seed: int, count: int) -> None:
        rows = draw_rows(seed, count, 3, 2**62)
        self.structures[0].push_front(rows)
        self.model[0].extendleft(rows.tolist())

    @rule(count=counts)
    def pop_front(self, count: int) -> None:
        ahead = self.structures[0].peek_front(count).tolist()
        expected = [self.model[0].popleft() for _ in range(min(count, len(self.model[0])))]
        assert ahead == expected
        assert self.structures[0].pop_front(count).tolist() == expected

    @rule(count=counts)
    def pop_back(self, count: int) -> None:
        ahead = self.structures[0].peek_back(count).tolist()
        expected = [self.model[0].pop() for _ in range(min(count, len(self.model[0])))]
        assert ahead == expected
        assert self.structures[0].pop_back(count).tolist() == expected

    @rule(seed=seeds, count=sizes)
    def push(self, seed: int, count: int) -> None:
        rows = draw_rows(seed, count, 2, 2**62)
        self.structures[1].push_back(rows)
        self.model[1].extend(rows.tolist())

    @rule(count=counts)
    def pop(self, count: int) -> None:
        ahead = self.structures[1].peek_front(count).tolist()
        expected = [self.model[1].popleft() for _ in range(min(count, len(self.model[1])))]
        assert ahead == expected
        assert self.structures[1].pop_front(count).tolist() == expected

    @rule()
    def start_the_deque_again(self) -> None:
        self.structures[0].destroy()
        self.structures[0] = PagedDeque(self.manager, 3)
        self.model[0] = deque()


TestOrderedMap = OrderedMapMachine.TestCase
TestOrderedMap.settings = settings(max_examples=80, stateful_step_count=40)
TestWideOrderedMap = WideOrderedMapMachine.TestCase
TestWideOrderedMap.settings = settings(max_examples=80, stateful_step_count=40)
TestRings = RingsMachine.TestCase
TestRings.settings = settings(max_examples=80, stateful_step_count=40)


def plain(module: types.ModuleType) -> types.SimpleNamespace:
    """The module with all its kernels as the plain functions that they were compiled from."""
    below = (kernels, tree_search_kernels, tree_balance_kernels)
    names = {name: value for part in (*below, module) for name, value in vars(part).items()}
    for name, value in list(names.items()):
        if hasattr(value, "py_func"):
            names[name] = types.FunctionType(value.py_func.__code__, names, name)
    return types.SimpleNamespace(**names)


class Memory:
    """One page set outside of any manager: `spare` free pages, and all of its own frozen."""

    def __init__(self, pages: int, spare: int) -> None:
        self.words = PAGE_BYTES // 8
        self.arena = np.zeros((pages + spare) * self.words, dtype=np.int64)
        self.marks = np.zeros(pages + spare, dtype=np.uint8)
        self.free = np.zeros(pages + spare + 1, dtype=np.int64)
        self.table = np.arange(pages, dtype=np.int64)
        self.arena[FRESH] = 1
        self.freeze(spare)

    def freeze(self, spare: int) -> None:
        """As a checkpoint does; afterwards exactly `spare` pages are free."""
        unused = np.setdiff1d(np.arange(len(self.marks)), self.table)[:spare]
        self.marks[self.table] = FROZEN
        self.free[0] = len(unused)
        self.free[1 : 1 + len(unused)] = unused
        self.frozen = self.table.copy()
        self.then = self.content()

    @property
    def pages(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray]:
        """What a kernel takes."""
        return self.arena, self.marks, self.free, self.words.bit_length() - 1, self.table

    def content(self) -> np.ndarray:
        """All pages, in the order of the table."""
        return self.arena.reshape(-1, self.words)[self.table].copy()

    def held(self) -> np.ndarray:
        """What the checkpoint reads, in the order of the table at that time."""
        return self.arena.reshape(-1, self.words)[self.frozen]


def random_tree_calls(seed: int, count: int, v: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Calls of one row each, with places for what they return: growth first, then shrinkage."""
    chance = random.Random(seed)
    span = chance.choice([60, 400, 2**62])
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for number in range(count):
        key = draw_rows(chance.getrandbits(32), 1, KEY_WORDS, span)
        if chance.random() < 0.5:
            key[:, 0] = key[:, 0] // 30
        if chance.random() < (0.9 if number < count // 2 else 0.15):
            calls.append(("tree_put", (key, np.full((1, v), number), 0)))
        elif chance.random() < 0.2:
            calls.append(("tree_pop_first", (0, np.zeros((1, KEY_WORDS + v), dtype=np.int64))))
        else:
            if chance.random() < 0.8:  # One that was put.
                key = next(rest[0] for name, rest in chance.choices(calls, k=99) if len(rest) == 3)
            calls.append(("tree_remove", (key, v, 0, np.zeros(1, dtype=np.bool_))))
    return calls


def run_tree_call(module: Any, memory: Memory, name: str, rest: tuple[Any, ...]) -> int:
    if name == "tree_pop_first" and memory.content()[0, kernels.ENTRIES] == 0:
        return 1
    return int(getattr(module, name)(memory.pages, *rest))


@pytest.mark.parametrize("v", [1, WIDE])
def test_plain_and_compiled_tree_do_the_same(v: int) -> None:
    compiled, interpreted = Memory(200, 300), Memory(200, 300)
    reference = plain(tree_kernels)
    for number, (name, rest) in enumerate(random_tree_calls(v, 600, v)):
        again = deepcopy(rest)
        done = run_tree_call(tree_kernels, compiled, name, rest)
        assert done == run_tree_call(reference, interpreted, name, again)
        for left, right in zip(compiled.pages + rest, interpreted.pages + again, strict=True):
            assert np.array_equal(left, right)
        if number % 100 == 99:
            compiled.freeze(300)
            interpreted.freeze(300)
    keys = draw_rows(v, 100, KEY_WORDS, 60)
    gotten = [(np.zeros(100, dtype=np.bool_), np.zeros((100, v), np.int64)) for _ in range(2)]
    tree_kernels.tree_get(compiled.pages, keys, *gotten[0])
    reference.tree_get(interpreted.pages, keys, *gotten[1])
    assert np.array_equal(gotten[0][0], gotten[1][0])
    assert np.array_equal(gotten[0][1], gotten[1][1])
    entries = int(compiled.content()[0, kernels.ENTRIES])
    low, high = draw_rows(v, 2, KEY_WORDS, 2**62)
    for bounds in ((low, high), (low[:0], low[:0])):
        outs = [np.zeros((entries, KEY_WORDS + v), dtype=np.int64) for _ in range(2)]
        counts = [
            module.tree_range(compiled.pages, KEY_WORDS, v, *bounds, entries, out)
            for module, out in zip((tree_kernels, reference), outs, strict=True)
        ]
        assert counts[0] == counts[1]
        assert np.array_equal(*outs)


@pytest.mark.parametrize("v", [1, WIDE])
@pytest.mark.parametrize("seed", range(6))
def test_a_row_without_enough_pages_changes_nothing(seed: int, v: int) -> None:
    memory = Memory(200, 60)
    for name, rest in random_tree_calls(seed, 600, v):
        for spare in range(60):
            memory.freeze(spare)
            done = run_tree_call(tree_kernels, memory, name, rest)
            assert np.array_equal(memory.held(), memory.then)
            if done:
                break
            assert np.array_equal(memory.content(), memory.then)
        assert done == 1


@pytest.mark.parametrize("seed", range(3))
def test_plain_and_compiled_deque_do_the_same(seed: int) -> None:
    chance = random.Random(seed)
    compiled, interpreted = Memory(40, 100), Memory(40, 100)
    reference = plain(deque_kernels)
    for _ in range(100):
        spare = chance.choice([0, 1, 2, 5, 100])
        rows = draw_rows(chance.getrandbits(32), chance.randrange(60), 3, 2**62)
        is_front = chance.random() < 0.5
        taken = chance.randrange(40)
        results = []
        for module, memory in ((deque_kernels, compiled), (reference, interpreted)):
            memory.freeze(spare)
            done = module.deque_push(memory.pages, rows, 0, is_front)
            assert np.array_equal(memory.held(), memory.then)
            entries = int(memory.content()[0, kernels.ENTRIES])
            out = np.zeros((entries, 3), dtype=np.int64)
            module.deque_read(memory.pages, is_front, out)
            assert np.array_equal(out[:done][::-1], rows[:done])
            if entries > taken:
                take_out(module, memory, taken, is_front=not is_front)
            results.append((done, *memory.pages, out))
        for left, right in zip(*results, strict=True):
            assert np.array_equal(left, right)


def take_out(module: Any, memory: Memory, count: int, *, is_front: bool) -> None:
    """Remove records, but not all, as `PagedDeque` does."""
    out = np.zeros((count, 3), dtype=np.int64)
    end = module.deque_read(memory.pages, is_front, out)
    head = memory.table[0] * memory.words
    kernels.touch(*memory.pages, 0)
    memory.arena[head + kernels.ENTRIES] -= count
    at = head + (deque_kernels.HEAD if is_front else deque_kernels.TAIL)
    memory.arena[at : at + 2] = end
