"""The operators of a node over their pages: all of a node that can go back. [HA §5.2; SGuard §3]

Theory of operation. A network runs its operators in topological order on what one pass takes: rows
per port, the oldest tuples among them, and a boundary that all input has passed. It gives back what
each output of the plan is to be told, and knows nothing of queues: these number, keep and send. So
a node may drop its network and build another one over other pages, while its queues live.

Two facts make a network repeatable. Operators are functions of the ordered input, however it is cut
into passes; what they depend on beside it they are told before each pass (`decide`). And the state
that lasts lies in pages: over the pages of a cut, a network is what it was at the cut.

In a *silent* pass no rows are put out. Then only those operators run that state depends on: what
others would be given may never have been, such as results of windows whose first tuples are not
replayed. For the same reason operators that stand behind state are left out at first (`leave_out`,
taking_part.py). What a silent pass promises holds: promises never move back, so that those of the
cut, before which nothing is put out, are no older.

Of a network that goes back by running input again (`go_back`), some operators may *stay* where they
are: those that nothing missing has reached. They take part in no pass up to there, and what they
promise stands; no pass goes beyond that in one (`bound_us`). [DPC §4.2]

Invariants: what the network has acted on never moves back but in `go_back`; nor do an operator's
promises.

Departure from [HA §5.2]: cause() is kept per pass, not per tuple: the low watermarks of the whole
node at one moment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.taking_part import TakingPart
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.operators.base import NOTHING, ArbitraryOperator, Output
from holdfast.core.operators.footprinted import Footprinted
from holdfast.core.state.change_sample import ChangeSample
from holdfast.core.state.owned_sets import built_anew

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.core.haunit.plan import NodePlan, OperatorSpec, OutputSpec
    from holdfast.core.operators.base import Operator, Rows
    from holdfast.core.state.page_manager import PageManager


class Produced(NamedTuple):
    """What one output of the plan is told after a pass.

    Attributes:
        spec: The output.
        pieces: New rows, one piece after the other.
        boundary_us: Nothing older follows.
    """

    spec: OutputSpec
    pieces: tuple[Rows, ...]
    boundary_us: int


class OperatorNetwork:
    """The operators of one node. Durable: what is in pages. Volatile: all else."""

    def __init__(self, plan: NodePlan, pages: PageManager) -> None:
        """Build the operators over the state that `pages` hold."""
        self._plan = plan
        self.pages = pages
        self._first_sets: list[int] = []  # per operator the first page set that it has built
        self._operators = [self._built(number) for number in range(len(plan.operators))]
        self._feeds_state = _feeding_state(plan, self._operators)  # of another operator
        self._everybody = (True,) * len(self._operators)
        self._holding = tuple(
            operator.keeps_state or feeds_state
            for operator, feeds_state in zip(self._operators, self._feeds_state, strict=True)
        )
        self.taking_part: TakingPart | None = None
        """From where on operators behind state take part in a replay; None: all do at once, or
        nothing is replayed, or what goes on now will be gone back behind."""
        account = TakingPart(plan.operators, self._operators)
        self._is_chained = account.chained
        self.has_chain = account.has_chain
        """Whether an operator with state stands behind another one."""
        if account.has_chain and plan.is_rebuilt_by_replay:
            self.taking_part = account
        self._left_out: tuple[bool, ...] = ()  # per operator; empty: none is
        self._staying: tuple[bool, ...] = ()  # the same of those that have not gone back
        self._stay_to_us = BEGINNING_US  # where these are
        self._staying_promised: list[int] = []  # per operator, by those
        self._arbitrary = [o for o in self._operators if isinstance(o, ArbitraryOperator)]
        pages.recovered()
        self.boundary_us = BEGINNING_US  # acted on; never moves back
        self.is_woken = False  # a pass is wanted though nothing has come

    def _built(self, number: int) -> Operator:
        self._first_sets.append(self.pages.next_set)
        self.pages.owned.owner = number
        return self._plan.operators[number].build(self.pages)

    # -- passes -----------------------------------------------------------------------------

    def decide(self, clock_us: int, seed: int) -> None:
        """What the coming pass depends on beside its input; it is run, whatever it holds."""
        for operator in self._arbitrary:
            operator.decide(clock_us, seed)
        self.is_woken = True

    def has_news(self, boundary_us: int) -> bool:
        """Whether a pass without rows would change anything."""
        return boundary_us > self.boundary_us or self.is_woken

    def process(
        self,
        ports: Sequence[Rows | None],
        low: np.ndarray,
        boundary_us: int,
        *,
        is_silent: bool,
        taking_part: Sequence[bool] | None = None,
    ) -> list[Produced]:
        """Run one pass; without rows, and without `has_news`, it would change nothing.

        Args:
            ports: Rows per port, None where there are none.
            low: int64 per input stream, the oldest id among the rows, NO_ID if there is none.
            boundary_us: After these rows nothing older follows on any port.
            is_silent: Whether no rows are to be put out.
            taking_part: Of a silent pass which operators are run; None: all that state depends on.

        Returns:
            One entry per output of the plan; without rows if silent.

        Raises:
            InvariantViolation: It goes beyond where operators stay.
        """
        if boundary_us > self.bound_us(boundary_us):
            raise InvariantViolation(f"a pass to {boundary_us} where operators stay before that")
        self.is_woken = False
        self.boundary_us = max(self.boundary_us, boundary_us)
        arrived = [NOTHING if rows is None else Output((rows,), low) for rows in ports]
        results, promised = self._run(arrived, self._taking_part(is_silent, taking_part))
        if self.boundary_us == self._stay_to_us:
            self._staying = ()
        return [
            Produced(
                spec,
                () if is_silent else _source_of(spec, arrived, results).pieces,
                self._promised_by(spec, promised),
            )
            for spec in self._plan.outputs
        ]

    def _taking_part(self, is_silent: bool, chosen: Sequence[bool] | None) -> Sequence[bool]:
        wanted: Sequence[bool] = self._everybody
        if is_silent:
            wanted = self._holding if chosen is None else chosen
        if self._staying:
            wanted = [run and not stays for run, stays in zip(wanted, self._staying, strict=True)]
        if not self._left_out:
            return wanted
        return [is_run and not out for is_run, out in zip(wanted, self._left_out, strict=True)]

    def leave_out(self, names: Iterable[str]) -> None:
        """From now on these operators take no part, until others are named; they were given
        nothing yet, and what others give them is partial.
        """
        without = set(names)
        flags = tuple(spec.name in without for spec in self._plan.operators)
        self._left_out = flags if any(flags) else ()

    def _run(
        self, arrived: list[Output], taking_part: Sequence[bool]
    ) -> tuple[list[Output], list[int]]:
        """What each operator puts out, and what it promises after that."""
        nothing = np.full(len(self._plan.inputs), NO_ID, dtype=np.int64)
        results: list[Output] = []
        promised: list[int] = []
        account = self.taking_part
        causes = None if account is None else account.causes()
        for number, (spec, operator, is_run) in enumerate(
            zip(self._plan.operators, self._operators, taking_part, strict=True)
        ):
            inputs: list[Rows | None] = []
            low = nothing
            for kind, source in spec.inputs:
                given = (arrived if kind == "port" else results)[source]
                inputs.append(given.rows)
                if given.low is not None:
                    low = np.minimum(low, given.low)
            cause = None if causes is None else causes[number]
            if account is not None and cause is not None and is_run:
                low = cause
                account.given(number, inputs, low)
            before_us = self._promised_to(spec, promised)
            self.pages.owned.owner = number
            results.append(operator.process(inputs, low, before_us) if is_run else NOTHING)
            promised.append(self._promise_of(number, before_us))
        return results, promised

    def go_back(self, staying: Sequence[bool]) -> None:
        """Empty the operators: the input that their state goes back to is to be run again.

        Args:
            staying: Per operator whether it stays where it is. Nothing that it feeds goes back.
        """
        self._staying_promised = self._promises()
        self._staying = tuple(staying) if any(staying) else ()
        self._stay_to_us = self.boundary_us
        for number, (spec, stays) in enumerate(zip(self._plan.operators, staying, strict=True)):
            if not stays:
                build = partial(spec.build, self.pages)
                first_set = self._first_sets[number]
                self._operators[number] = built_anew(self.pages, number, first_set, build)
        self.boundary_us = BEGINNING_US

    @property
    def are_apart(self) -> bool:
        """Whether some operators are further than the others, as they have not gone back."""
        return bool(self._staying)

    def bound_us(self, boundary_us: int) -> int:
        """How far a pass may go that is to go to a boundary."""
        return min(boundary_us, self._stay_to_us) if self._staying else boundary_us

    def resume(self, boundary_us: int) -> None:
        """The pages are those of a cut, or have become it: this boundary has been acted on."""
        self.boundary_us = max(self.boundary_us, boundary_us)

    def pass_over(self, closed_us: int, fed_us: int | None = None) -> None:
        """Leave out windows that had closed at this boundary, for a replay in silence.

        Not of those that stand behind state: what they are promised may be older.

        Args:
            closed_us: Of operators that feed no other one's state.
            fed_us: Of those that do: that state is made of what they give behind this boundary;
                None: it is made of all that they give.
        """
        flags = zip(self._operators, self._feeds_state, self._is_chained, strict=True)
        for operator, feeds_state, is_chained in flags:
            over_us = fed_us if feeds_state else closed_us
            if over_us is not None and not is_chained:
                operator.pass_over(over_us)

    # -- promises ---------------------------------------------------------------------------

    def promises(self) -> list[Produced]:
        """What each output of the plan may be promised now, without a pass."""
        promised = self._promises()
        return [
            Produced(spec, (), self._promised_by(spec, promised)) for spec in self._plan.outputs
        ]

    def _promises(self) -> list[int]:
        """What each operator promises now."""
        promised: list[int] = []
        for number, spec in enumerate(self._plan.operators):
            promised.append(self._promise_of(number, self._promised_to(spec, promised)))
        return promised

    def _promise_of(self, number: int, before_us: int) -> int:
        """What an operator promises whose inputs have passed a boundary."""
        if self._staying and self._staying[number]:
            return self._staying_promised[number]
        return self._operators[number].promises_us(before_us)

    def _promised_to(self, spec: OperatorSpec, promised: list[int]) -> int:
        """The boundary that all inputs of an operator have passed."""
        return min(
            self.boundary_us if kind == "port" else promised[number] for kind, number in spec.inputs
        )

    def _promised_by(self, spec: OutputSpec, promised: list[int]) -> int:
        """The boundary that what an output is made of has passed."""
        kind, number = spec.source
        return self.boundary_us if kind == "port" else promised[number]

    # -- what it depends on -------------------------------------------------------------------

    def oldest_needed(self) -> np.ndarray:
        """Per input stream the oldest tuple that the state goes back to, NO_ID: to none. int64."""
        low = np.full(len(self._plan.inputs), NO_ID, dtype=np.int64)
        account = self.taking_part
        for number, operator in enumerate(self._operators):
            needed = operator.oldest_needed()
            if account is not None and needed is not None and account.chained[number]:
                needed = account.oldest_needed(number)
            if needed is not None:
                low = np.minimum(low, needed)
        return low

    def closes_us(self, streams: Sequence[int], boundary_us: int) -> int:
        """The newest boundary, at most this, that would put out something made of these streams.

        Args:
            streams: Numbers of input streams.
            boundary_us: A boundary.

        Returns:
            It is newer than what was acted on; `BEGINNING_US`: there is none.
        """
        found_us = BEGINNING_US
        for operator in self._operators:
            closes_us = operator.closes_us(boundary_us)
            if closes_us > max(found_us, self.boundary_us):
                needed = operator.oldest_needed()
                if needed is not None and any(needed[stream] != NO_ID for stream in streams):
                    found_us = closes_us
        return found_us

    def markers(self) -> np.ndarray:
        """The stream markers of each operator: from where on it takes part in making states again.

        It does as far back as its own state goes, or that of an operator behind it: what it gives
        that one has to be made, too. [DPC §4.2]

        Returns:
            int64 (operators, input streams): the oldest tuple, NO_ID: none.
        """
        found = np.full((len(self._operators), len(self._plan.inputs)), NO_ID, dtype=np.int64)
        for number in reversed(range(len(self._operators))):
            needed = self._operators[number].oldest_needed()
            if needed is not None:
                np.minimum(found[number], needed, out=found[number])
            for kind, source in self._plan.operators[number].inputs:
                if kind == "operator":
                    np.minimum(found[source], found[number], out=found[source])
        return found

    def roots(self) -> dict[tuple[str, int], tuple[str, int]]:
        """Per port and operator where its rows come from, but for operators without state.

        All ports count as one: their rows are in one order. Rows of the same root are put out, by
        whatever output, in the order of what they are made of.
        """
        found = {("port", port): ("port", 0) for port in range(self._plan.port_count)}
        for number, (spec, operator) in enumerate(
            zip(self._plan.operators, self._operators, strict=True)
        ):
            before = {found[source] for source in spec.inputs}
            passes_on = len(before) == 1 and not operator.keeps_state
            found[("operator", number)] = before.pop() if passes_on else ("operator", number)
        return found

    @property
    def is_arbitrary(self) -> bool:
        """Whether an operator depends on more than its input."""
        return bool(self._arbitrary)

    @property
    def has_own_time(self) -> bool:
        """Whether the times of what is put out are those of processing."""
        return any(operator.sets_time for operator in self._arbitrary)

    def wake_us(self) -> int | None:
        """The processing time at which an operator wants a pass without input; None: never."""
        if self.boundary_us == END_US:
            return None
        wanted = (operator.wake_us() for operator in self._arbitrary)
        return min((at_us for at_us in wanted if at_us is not None), default=None)

    @property
    def footprinted(self) -> list[Footprinted]:
        """The operators whose windows leave footprints."""
        return [operator for operator in self._operators if isinstance(operator, Footprinted)]

    # -- looking ----------------------------------------------------------------------------

    def sample_changes(self, number: int) -> ChangeSample:
        """A sample of the state, to see a little later how much of it has changed."""
        return ChangeSample(self.pages, number)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when pages or operators make no sense."""
        self.pages.check_invariants()
        for operator in self._operators:
            operator.check_invariants()


def _source_of(spec: OutputSpec, arrived: list[Output], results: list[Output]) -> Output:
    kind, number = spec.source
    return (arrived if kind == "port" else results)[number]


def _feeding_state(plan: NodePlan, operators: Sequence[Operator]) -> tuple[bool, ...]:
    """Per operator whether the state of another one depends on what it puts out."""
    feeds = [False] * len(operators)
    for number in reversed(range(len(feeds))):
        for kind, source in plan.operators[number].inputs:
            if kind == "operator" and (feeds[number] or operators[number].keeps_state):
                feeds[source] = True
    return tuple(feeds)
