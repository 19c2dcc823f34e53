"""Which volume counts, over all interleavings of two drivers and one that takes over."""

import itertools

import pytest

from holdfast.core.wire.journal_volumes import (
    ClaimVolume,
    DeleteVolumes,
    FillVolume,
    ReadVolumes,
    TakeoverStep,
    is_newest,
    takeover,
)


class Volumes:
    """Volumes as lists of entries, and drivers that do one step at a time."""

    def __init__(self, entries: list[str]) -> None:
        self.there: dict[int, list[str]] = {1: entries}
        self.files = dict(self.there)  # deleted ones are still written to

    def claim(self, number: int) -> bool:
        if number in self.there:
            return False
        self.there[number] = self.files[number] = []
        return True

    def read(self, claimed: int) -> list[str]:
        return [e for number in sorted(self.there) if number != claimed for e in self.there[number]]

    def write(self, number: int, entries: list[str]) -> None:
        self.files[number] += entries


class Driver:
    """Takes over, then writes one entry; each call of `step` is one moment."""

    def __init__(self, volumes: Volumes, name: str, number: int = 0) -> None:
        self._volumes, self._name, self._number = volumes, name, number
        self._steps: list[TakeoverStep] | None = [] if number else None
        self._found: list[str] = []
        self._is_written = False
        self.is_over = False
        self.counted: list[str] = []

    def step(self) -> None:
        volumes = self._volumes
        if self._steps is None:
            self._steps = list(takeover(sorted(volumes.there)))
        elif self._steps:
            self._take_step(self._steps.pop(0))
        elif not self._is_written:
            volumes.write(self._number, [self._name])
            self._is_written = True
        else:
            self.is_over = True
            if is_newest(self._number, volumes.there):
                self.counted.append(self._name)

    def _take_step(self, step: TakeoverStep) -> None:
        volumes = self._volumes
        match step:
            case ClaimVolume():
                self.is_over = not volumes.claim(step.number)
                self._number = step.number
            case ReadVolumes():
                self._found = volumes.read(self._number)
            case FillVolume():
                volumes.write(step.number, self._found)
                self.is_over = not is_newest(step.number, volumes.there)
            case DeleteVolumes():
                for number in step.numbers:
                    volumes.there.pop(number, None)


@pytest.mark.parametrize("steps_of_the_first", range(3))
def test_what_counted_is_read_by_whoever_takes_over_last(steps_of_the_first: int) -> None:
    """All ways in which the steps of two drivers that take over fall among those of a third."""
    for order in itertools.combinations(range(14), 7):
        volumes = Volumes(["old"])
        first = Driver(volumes, "first", number=1)
        drivers = [Driver(volumes, "second"), Driver(volumes, "third")]
        for moment in range(14):
            if moment == 2 * steps_of_the_first + 3:
                first.step()  # It writes.
            driver = drivers[moment in order]
            if not driver.is_over:
                driver.step()
            if moment == 2 * steps_of_the_first + 6:
                first.step()  # It looks whether that counts.
        for driver in drivers:
            while not driver.is_over:
                driver.step()
        counted = [*first.counted, *drivers[0].counted, *drivers[1].counted]
        last = Driver(volumes, "last")
        while not last.is_over:
            last.step()
        assert {"old", *counted} <= {*volumes.read(0)}
        assert last.counted
