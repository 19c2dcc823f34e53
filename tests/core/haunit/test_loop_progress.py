"""How far event time has come in a loop, against brute force over random runs."""

from __future__ import annotations

import json
import random
from collections import deque

import pytest

from holdfast.core.haunit.loop_progress import Entrance, Laps, known_at
from holdfast.core.model.ids import BEGINNING_US, END_US, StreamId
from holdfast.core.model.notes import LoopMark
from holdfast.core.recovery.loop_state import EntranceState, LoopState
from holdfast.core.recovery.restart_point import RestartPoint

Tuple = tuple[int, int]
"""Its time, and how often it goes round yet."""


BEGINNING = RestartPoint()


def stream(sender: str, i: int, j: int) -> StreamId:
    return StreamId(f"{sender}{i}>{j}")


def point(
    laps: dict[str, int],
    known: LoopState,
    boundary_us: int = BEGINNING_US,
    *,
    is_older: bool = False,
) -> RestartPoint:
    """A restart point as it is read, of this version or an earlier one."""
    value = RestartPoint(1, boundary_us=boundary_us, laps=laps, loop=known).to_json()
    if is_older:
        del value["loop"]
    return RestartPoint.from_json(json.loads(json.dumps(value)))


class Model:
    """Some entrances, and as many bodies, each of which hears of all others."""

    def __init__(self, rng: random.Random, instances: int, *, laps_short: int = 0) -> None:
        self.rng, self.all = rng, range(instances)
        self.short = laps_short
        self.outside = [[rng.randint(0, 30) for _ in range(rng.randint(0, 8))] for _ in self.all]
        self.passed_us = [BEGINNING_US] * instances
        pairs = [(i, j) for i in self.all for j in self.all]
        self.out: dict[tuple[int, int], deque[Tuple | LoopMark]] = {p: deque() for p in pairs}
        self.back: dict[tuple[int, int], deque[Tuple | LoopMark]] = {p: deque() for p in pairs}
        self.entrances = [Entrance(EntranceState(BEGINNING_US)) for _ in self.all]
        self.marks = [self._laps("back", "out", i) for i in self.all]
        self.bodies = [self._laps("out", "back", i) for i in self.all]

    def _laps(self, into: str, out: str, i: int, begins: RestartPoint = BEGINNING) -> Laps:
        inputs = [stream(into, j, i) for j in self.all]
        outputs = [stream(out, i, j) for j in self.all]
        return Laps(inputs, outputs, begins.laps, (begins.loop or LoopState()).waiting)

    def step(self) -> None:
        i = self.rng.choice(self.all)
        [self._read, self._body, self._entrance][self.rng.choice((0, 1, 1, 2, 2))](i)
        self._begin(i)

    def _read(self, i: int) -> None:
        if not self.outside[i]:
            self.passed_us[i] = END_US
            return
        time_us = self.outside[i].pop()
        self.out[i, self.rng.choice(self.all)].append((time_us, self.rng.randint(0, 5)))
        self.passed_us[i] = min(self.outside[i], default=END_US)

    def _body(self, i: int) -> None:
        filled = [(a, b) for (a, b), queue in self.out.items() if b == i and queue]
        if not filled:
            return
        a, _ = self.rng.choice(filled)
        match self.out[a, i].popleft():
            case LoopMark() as mark:
                self.bodies[i].take(stream("out", a, i), mark)
                while self.bodies[i].has_all(lap := self.bodies[i].put + 1):
                    self.bodies[i].put = lap
                    said = self.bodies[i].least(lap)
                    for j in self.all:
                        self.back[i, j].append(said)
            case (time_us, hops):
                if hops:
                    for _ in range(self.rng.choice((1, 1, 2))):
                        self.back[i, self.rng.choice(self.all)].append((time_us, hops - 1))

    def _entrance(self, i: int) -> None:
        filled = [(a, b) for (a, b), queue in self.back.items() if b == i and queue]
        if not filled:
            return
        a, _ = self.rng.choice(filled)
        match self.back[a, i].popleft():
            case LoopMark() as mark:
                self.marks[i].take(stream("back", a, i), mark)
            case (time_us, hops):
                assert time_us >= self.entrances[i].promised_us, "older than was promised"
                self.entrances[i].came_back(time_us)
                self.out[i, self.rng.choice(self.all)].append((time_us, hops))

    def _begin(self, i: int) -> None:
        marks, entrance = self.marks[i], self.entrances[i]
        if not marks.has_all(marks.put):
            return
        said = entrance.back
        if said is None or said.lap < marks.put:
            said = marks.least(marks.put)
            early = LoopMark(said.lap, said.open_us, said.open_us) if self.short else said
            entrance.lap_is_back(early)
            entrance.back = said
        if entrance.may_gain(self.passed_us[i], marks.put):
            mark = entrance.next_mark(said, self.passed_us[i])
            marks.put = mark.lap
            for j in self.all:
                self.out[i, j].append(mark)

    def replace(self, i: int, *, is_older: bool = False) -> None:
        """Entrance and body begin where they stand, with what their restart points say.

        Args:
            i: Which.
            is_older: An earlier version has written the points.
        """
        known = self.entrances[i].known
        entrance = LoopState(self.marks[i].waiting, known)
        promised_us = min(known.promised_us, self.passed_us[i])
        begins = point(self.marks[i].point, entrance, promised_us, is_older=is_older)
        body = point(self.bodies[i].point, LoopState(self.bodies[i].waiting), is_older=is_older)
        self.entrances[i] = Entrance(known_at(begins))
        self.marks[i] = self._laps("back", "out", i, begins)
        self.bodies[i] = self._laps("out", "back", i, body)
        self.passed_us[i] = BEGINNING_US

    @property
    def is_over(self) -> bool:
        return all(entrance.promised_us == END_US for entrance in self.entrances)


def run(seed: int, instances: int, *, laps_short: int = 0) -> Model:
    model = Model(random.Random(seed), instances, laps_short=laps_short)
    for _ in range(20_000):
        if model.is_over:
            break
        model.step()
    return model


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_nothing_older_than_what_is_promised_comes_back_and_the_end_is_promised(instances: int):
    for seed in range(100):
        model = run(seed, instances)
        assert model.is_over, seed
        assert not any(model.out.values()) or all(
            isinstance(note, LoopMark) for queue in model.out.values() for note in queue
        )


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_whoever_is_replaced_knows_of_laps_what_its_predecessor_did(instances: int):
    for seed in range(100):
        model = Model(random.Random(seed), instances)
        for _ in range(20_000):
            if model.is_over:
                break
            model.step()
            if model.rng.random() < 0.05:
                model.replace(model.rng.choice(model.all))
        assert model.is_over, seed


def test_a_loop_ends_that_begins_with_points_of_an_earlier_version_whenever_it_stopped():
    for seed in range(200):
        model = Model(random.Random(seed), 3)
        for _ in range(seed * 5):
            model.step()
        for i in model.all:
            model.replace(i, is_older=True)
        for _ in range(20_000):
            if model.is_over:
                break
            model.step()
        assert model.is_over, seed


def test_one_lap_less_is_not_safe_with_several_instances():
    unsafe = 0
    for seed in range(100):
        try:
            run(seed, 3, laps_short=1)
        except AssertionError:
            unsafe += 1
    assert unsafe > 5


def test_an_idle_loop_is_silent():
    model = run(1, 2)
    laps = [marks.put for marks in model.marks]
    for _ in range(200):
        model.step()
    assert [marks.put for marks in model.marks] == laps


def test_of_points_of_an_earlier_version_what_was_taken_of_a_lap_says_nothing():
    one, other = stream("back", 0, 0), stream("back", 1, 0)
    laps = Laps([one, other], [stream("out", 0, 0)], {one: 3, other: 2, stream("out", 0, 0): 3}, {})
    assert laps.put == 3
    laps.take(one, LoopMark(3, 9, 9))
    laps.take(other, LoopMark(3, 7, 8))
    assert laps.has_all(3)
    assert laps.least(3) == LoopMark(3, BEGINNING_US, BEGINNING_US)


def test_a_lap_that_a_later_mark_has_replaced_says_nothing():
    one = stream("back", 0, 0)
    laps = Laps([one], [stream("out", 0, 0)], {}, {})
    laps.take(one, LoopMark(2, 5, 5))
    assert laps.has_all(1)
    assert laps.least(1) == LoopMark(1, BEGINNING_US, BEGINNING_US)
    assert laps.least(2) == LoopMark(2, 5, 5)


def test_what_is_known_of_laps_is_read_as_it_was_written():
    one, mark = stream("back", 0, 0), LoopMark(4, END_US, BEGINNING_US)
    for known in (
        LoopState(),
        LoopState({one: (LoopMark(3, 1, 2), mark)}),
        LoopState({one: (mark,)}, EntranceState(5, 6, END_US, LoopMark(2, 7, 8), 9)),
        LoopState({}, EntranceState(BEGINNING_US)),
    ):
        assert point({one: 4}, known).loop == known


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"waiting": []},
        {"waiting": {"a": [[1, 2]]}},
        {"waiting": {"a": [[2, 0, 0], [2, 0, 0]]}},
        {"entrance": None},
        {"entrance": [0, 0, 0]},
        {"entrance": [0, 0, 0, True]},
        {"entrance": [0, 0, 0, 2**63]},
        {"entrance": [0, 0, 0, 0], "back": 1},
    ],
)
def test_what_says_nothing_of_laps_is_refused(value: object):
    with pytest.raises(ValueError, match=r"laps|marks"):
        RestartPoint.from_json(RestartPoint().to_json() | {"loop": value})
