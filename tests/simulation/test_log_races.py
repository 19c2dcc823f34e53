"""Races at a log of parts, by seed; and whether the simulator would notice.

Run as a program, this looks for the seeds at which bugs are found, of all or those named.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import pytest
from finding import KeptSeeds, first_found_at

from holdfast.core.wire import log_parts, part_marks, part_reading, part_writing
from holdfast.core.wire.log_owners import by_incarnation
from holdfast.core.wire.part_reading import PartReading
from holdfast.core.wire.store_steps import PutObject
from holdfast.sim.log_races import RaceOutcome, race

SEEDS = 80
MUTANT_SEEDS = range(200)
FOUND_AT = KeptSeeds("log_races_found_at.json")
STUCK = "a torn part of merged ones is the end"


@pytest.fixture(scope="module")
def outcomes() -> list[RaceOutcome]:
    return [race(seed) for seed in range(SEEDS)]


def test_whoever_opens_merges_and_reads_at_the_same_time_nothing_is_lost(
    outcomes: list[RaceOutcome],
) -> None:
    shown = [f"seed {o.seed}: {o.violation}" for o in outcomes if o.invariant is not None]
    assert not shown, "\n".join(shown)
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
    for situation in (
        "parts merged",
        "part of a zombie",
        "mark of a slow opener",
        "listing of what was never there at once",
        "writer died while it put an object",
    ):
        assert reached[situation], situation


def test_the_same_seed_gives_the_same_race(outcomes: list[RaceOutcome]) -> None:
    assert [race(seed) for seed in range(5)] == outcomes[:5]


def _later_incarnations_hold_from_their_first_ids(_: Any) -> Any:
    return lambda places, said: by_incarnation(p for p in places if said(p) is not None)


def _look_at_the_marks_before_reading_alone(original: Any) -> Any:
    def read(self: PartReading, name: Any, owner: Any, next_id: int) -> Any:
        look, self._look_at_marks = self._look_at_marks, _nothing  # type: ignore[method-assign]
        found = yield from original(self, name, owner, next_id)
        self._look_at_marks = look  # type: ignore[method-assign]
        return found

    return read


def _nothing() -> Any:
    yield from ()


def _look_surely_never(original: Any) -> Any:
    return lambda self, next_id, is_sure: original(self, next_id, is_sure=False)


def _take_the_newest_name_for_the_last_part(_: Any) -> Any:
    return lambda parts: max(parts, key=lambda part: part.first_id)


def _delete_before_what_was_merged_is_there(original: Any) -> Any:
    def merge(*arguments: Any) -> Any:
        steps = original(*arguments)
        put, answer = None, None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                if put is not None:
                    yield put
                return end.value
            if isinstance(request, PutObject):
                put, answer = request, None
            else:
                answer = yield request

    return merge


def _take_what_was_merged_for_whole(original: Any) -> Any:
    return lambda name, data, owner, schema, is_merged=False: original(name, data, owner, schema)


MUTANTS: dict[str, tuple[Any, str, Callable[[Any], Any], set[str]]] = {
    "a later incarnation holds from its first id on": (
        *(part_marks, "owners_of", _later_incarnations_hold_from_their_first_ids),
        {"L-READ", "L-GAP"},
    ),
    "marks are looked at before a part is read": (
        *(PartReading, "_read", _look_at_the_marks_before_reading_alone),
        {"L-ZOMBIE", "L-READ"},
    ),
    "a reader never looks surely": (PartReading, "find", _look_surely_never, {"L-READ"}),
    "the newest name is the last part": (
        *(log_parts, "last_of", _take_the_newest_name_for_the_last_part),
        {"L-END", "L-READ"},
    ),
    "parts are deleted before what they became is there": (
        *(part_writing, "merge_parts", _delete_before_what_was_merged_is_there),
        {"L-END", "L-READ", "L-GAP"},
    ),
    "what was merged is whole": (
        *(part_writing, "_end_in", _take_what_was_merged_for_whole),
        {"L-END", "L-READ"},
    ),
}
"""Each is in nothing that a run of a whole dataflow does step by step."""


def _take_a_torn_part_for_the_end(original: Any) -> Any:
    def whole(name: str, data: memoryview) -> Any:
        part = original(name, data)
        if part is None or part.end is not None or "-" not in name:
            return part
        end = part.records[-1] if part.records else None
        return None if end is None else part.__class__(part.header, part.records, end)

    return whole


@pytest.mark.parametrize("name", MUTANTS)
def test_a_deliberate_bug_of_logs_is_found(name: str) -> None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    assert found is not None, f"nobody noticed in {len(MUTANT_SEEDS)} runs"
    assert found[1] in MUTANTS[name][3]


def test_a_reader_that_takes_a_torn_part_of_merged_ones_is_stuck() -> None:
    """The reader's side of it: what it is made of is still there."""
    assert _found_at(STUCK, FOUND_AT.first(STUCK, MUTANT_SEEDS)) is not None


def _found_at(name: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    owner, method, bug = part_reading, "sound", _take_a_torn_part_for_the_end
    if name != STUCK:
        owner, method, bug, _ = MUTANTS[name]
    with patch.object(owner, method, bug(getattr(owner, method))):
        return first_found_at(race, seeds)


def _first_seed(name: str) -> int | None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    return found and found[0]


if __name__ == "__main__":
    FOUND_AT.look_again(sys.argv[1:] or [*MUTANTS, STUCK], _first_seed)
