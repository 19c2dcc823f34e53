"""From where on each operator takes part in a replay: partial results get into no state. [HA §5.2]

Theory of operation. A replay begins in the middle of the input, with empty operators. There the
results of an operator with state are *partial*: windows lack their first tuples, rows lack their
matches. Nobody may put them out; nor may they get into the state of an operator behind it, in whose
windows they would stay.

So an operator that has others with state before it is *chained*, and takes part from a later place
on: a cut of the input, between two passes. From there on all that it is given is as it was. The
place, and the tuple at which the replay has to begin for that, come from an account of what the
operator was given:

1. Before a pass, each operator before it says which tuple its state goes back to. A replay from the
   oldest of these makes it put out, from this pass on, what it put out then.
2. So whatever the chained operator is given in the pass *goes back to* that tuple, and it is told
   so, as its cause. An entry of the account says from which place on which tuple counted.
3. At a restart point the operator says which tuple its own state goes back to. The newest entry
   that is no newer than that says where it takes part.
4. What stands before it must take part early enough to be right there. An entry names their places,
   as they were before the pass: in it they may let go of what they put out.

An operator without state that is chained is given nothing partial either: an expression could fail
on what has never been.

Invariants: places follow one another; the tuples of an account never move back; the state of an
operator goes back to no tuple before the first entry of its account.

The account is volatile. Who replays makes it anew on the way; who takes over a copy of the state
begins with what its cut says (`begin_with`).

Departure from [HA §5.2]: there cause() leads from each output tuple to the oldest input tuple that
it was made from, and a node is replayed from the least of these. Partial results that never were
among its output tuples have no cause; nobody could tell them from others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.operators.base import has_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.haunit.plan import OperatorSpec
    from holdfast.core.operators.base import Operator, Rows

_ENTRIES_MAX: Final = 64
"""So many entries has the account of an operator; beyond that every other one is forgotten."""


class InputCut(NamedTuple):
    """A cut of the input between two passes.

    Attributes:
        taken_before: Per input stream, in the order of the plan, the first id not taken.
        boundary_us: The boundary that has been acted on.
        passes_before: The number of the next pass, where passes have numbers.
        untaken_from: Per input stream the oldest id that no pass has processed.
    """

    taken_before: tuple[int, ...]
    boundary_us: int
    passes_before: int
    untaken_from: tuple[int, ...]

    @property
    def position(self) -> tuple[int, int, int]:
        """Orders the places of one node."""
        return self.boundary_us, self.passes_before, sum(self.taken_before)


class _Entry(NamedTuple):
    """From a place on an operator was given what goes back to these tuples.

    Attributes:
        low: int64 per input stream.
        place: Where it was.
        others: Per chained operator before it, by number, from where on it has to take part.
    """

    low: np.ndarray
    place: InputCut
    others: Mapping[int, InputCut]


class TakingPart:
    """The account of one network's chained operators. Volatile: all fields."""

    def __init__(self, specs: Sequence[OperatorSpec], operators: Sequence[Operator]) -> None:
        """Nothing has been given.

        Args:
            specs: Of the operators, each behind those that it reads.
            operators: Themselves, empty or over their pages.
        """
        self._operators = operators
        self._names = tuple(spec.name for spec in specs)
        self._before: list[tuple[int, ...]] = []  # per operator all before it
        for spec in specs:
            direct = {number for kind, number in spec.inputs if kind == "operator"}
            self._before.append(tuple(sorted(direct.union(*(self._before[n] for n in direct)))))
        self._with_state = tuple(operator.keeps_state for operator in operators)
        self.chained = tuple(any(self._with_state[n] for n in before) for before in self._before)
        """Per operator whether one with state stands before it."""
        self._entries: dict[int, deque[_Entry]] = {
            number: deque()
            for number, is_chained in enumerate(self.chained)
            if is_chained and self._with_state[number]
        }
        self._chained_before: dict[int, list[int]] = {
            number: [n for n in self._before[number] if self.chained[n]] for number in self._entries
        }
        self._here = InputCut((), BEGINNING_US, 0, ())
        self._places_of: dict[int, dict[int, InputCut]] = {}
        """Per chained operator from where on those before it have to take part; see `causes`."""

    @property
    def has_chain(self) -> bool:
        """Whether an operator with state stands behind another one."""
        return bool(self._entries)

    # -- passes -----------------------------------------------------------------------------

    def stand_at(self, place: InputCut) -> None:
        """The next pass begins here."""
        self._here = place

    def causes(self) -> list[np.ndarray | None]:
        """Per operator to which tuples goes back what the coming pass gives it; None: it is not
        chained, and its rows tell. int64 per input stream.

        To be called before each pass, as what stands before an operator is as it was only then.
        """
        self._places_of = {
            number: self._places(before) for number, before in self._chained_before.items()
        }
        untaken = np.array(self._here.untaken_from, dtype=np.int64)
        needed = [
            operator.oldest_needed() if is_with_state else None
            for operator, is_with_state in zip(self._operators, self._with_state, strict=True)
        ]
        return [
            self._oldest_of(untaken, [needed[n] for n in before]) if is_chained else None
            for before, is_chained in zip(self._before, self.chained, strict=True)
        ]

    @staticmethod
    def _oldest_of(untaken: np.ndarray, needed: Sequence[np.ndarray | None]) -> np.ndarray:
        low = untaken
        for each in needed:
            if each is not None:
                low = np.minimum(low, each)
        return low

    def given(self, number: int, inputs: Sequence[Rows | None], low: np.ndarray) -> None:
        """An operator is given rows in this pass, which go back to `low` (`causes`).

        Raises:
            InvariantViolation: Rows given before go back to later tuples.
        """
        entries = self._entries.get(number)
        if entries is None or not any(map(has_rows, inputs)):
            return
        if entries:
            newest = entries[-1].low
            if bool((low < newest).any()):
                raise InvariantViolation(
                    f"{self._names[number]} is given what goes back to {low.tolist()}, after "
                    f"{newest.tolist()}"
                )
            if bool((low == newest).all()):
                return
        found = self._places_of[number]
        others = {n: found.get(n, self._here) for n in self._chained_before[number]}
        entries.append(_Entry(low, self._here, others))
        if len(entries) > _ENTRIES_MAX:
            self._entries[number] = deque(list(entries)[::2])

    # -- cuts -------------------------------------------------------------------------------

    def oldest_needed(self, number: int) -> np.ndarray | None:
        """The tuple from which a replay makes the state of a chained operator; None: it has none.

        int64 per input stream.
        """
        entry = self._entry_of(number)
        return None if entry is None else entry.low

    def places(self) -> dict[str, InputCut]:
        """From where on each chained operator has to take part, so that a replay makes the present
        state. Those whose state is empty, and of whom nobody needs more, take part from here on.
        """
        found = self._places(range(len(self._names)))
        chained = (number for number, is_chained in enumerate(self.chained) if is_chained)
        return {self._names[number]: found.get(number, self._here) for number in chained}

    def _places(self, numbers: Sequence[int]) -> dict[int, InputCut]:
        """The same by number, for the state of some operators alone."""
        found: dict[int, InputCut] = {}
        for number in numbers:
            entry = self._entry_of(number)
            if entry is None:
                continue
            for other, place in (*entry.others.items(), (number, entry.place)):
                known = found.get(other, place)
                found[other] = min(known, place, key=lambda each: each.position)
        return found

    def _entry_of(self, number: int) -> _Entry | None:
        """Which entry the state of an operator goes back to; earlier ones are forgotten.

        Raises:
            InvariantViolation: It goes back to tuples before all entries.
        """
        entries = self._entries.get(number)
        needed = None if entries is None else self._operators[number].oldest_needed()
        if entries is None or needed is None:
            return None
        while len(entries) > 1 and bool((entries[1].low <= needed).all()):
            entries.popleft()
        if not entries or bool((entries[0].low > needed).any()):
            raise InvariantViolation(
                f"{self._names[number]} goes back to {needed.tolist()}, before all it was given"
            )
        return entries[0]

    def take_over(self, other: TakingPart) -> None:
        """The operators are over the state of those of another account, which is given up."""
        self._entries, self._here = other._entries, other._here

    def begin_with(self, places: Mapping[str, InputCut], low: np.ndarray) -> None:
        """The operators are over a copy of the state: their accounts begin with what its cut says.

        Args:
            places: As of `places`.
            low: int64 per input stream, where a replay of that state begins.
        """
        for number, entries in self._entries.items():
            place = places.get(self._names[number])
            if place is None:
                continue
            others = {
                n: places[self._names[n]]
                for n in self._before[number]
                if self._names[n] in places and self.chained[n]
            }
            entries.append(_Entry(low, place, others))
