"""What sinks hold behind units with weaker guarantees. [HA §3.1]

I-ROLLBACK   nothing is lost: each row of a run without failures is there at least once. What else
             is there is such a row once more, or what is made of a part of its input.
I-GAP        what is there is right and comes once; what is lost came before the last failure.

Which of this can be said of a sink is its `Promise`. Where nothing failed whose failure may be
seen, it holds what it would with precise recovery.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.core.haunit import events
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.output import check_exact, difference, tuples_of
from holdfast.sim.workload.promises import Extra, Held, Promise

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import NodeId
    from holdfast.sim.process import Process
    from holdfast.sim.workload.oracle import Adding, Expected, TimedValues
    from holdfast.sim.world import RunResult, World

_SHOWN = 3
_RECOVERS = (
    events.SendSubscribe,
    events.ReportGap,
    events.ReportCaughtUp,
    events.ReportPromoted,
    events.ReportFirstOutput,
)
"""As long as a node does these it has not recovered."""
Row = tuple[Any, ...]


class PromisedOutput(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "stepping": (events.SubscribeReceived,),
            "performing": (*_RECOVERS,),
        }
    )

    def __init__(self, expected: Expected, promises: dict[str, Promise]) -> None:
        """What a run without failures puts out, and what of it is promised."""
        self._expected = expected
        self._promises = promises
        self._world: World | None = None
        self._failed: set[NodeId] = set()
        self._recovered_us: dict[NodeId, int] = {}

    def begin(self, world: World) -> None:
        """Remember the clock."""
        self._world = world

    def assigned(self, process: Process, assignment: Assignment) -> None:
        """Another primary than the first is there because the first has failed."""
        if not assignment.is_secondary:
            if assignment.incarnation > 1:
                self._failed.add(process.node)
            self._recovers(process.node)

    def promoted(self, process: Process, incarnation: int) -> None:
        """So is a secondary that takes over."""
        del incarnation
        self._failed.add(process.node)
        self._recovers(process.node)

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """Whom a receiver asks for tuples has not sent it the newest ones."""
        if isinstance(stimulus, events.SubscribeReceived):
            self._recovers(process.node)

    def performing(self, process: Process, effect: Effect) -> None:
        """Note until when a node recovers."""
        if isinstance(effect, _RECOVERS):
            self._recovers(process.node)

    def _recovers(self, node: NodeId) -> None:
        if self._world is not None:
            self._recovered_us[node] = self._world.scheduler.now_us

    def end(self, result: RunResult) -> None:
        """Compare each sink with its promise."""
        for sink, promise in self._promises.items():
            if not promise.touched & self._failed:
                check_exact(sink, self._expected, result)
                continue
            tuples = tuples_of(sink, result)
            self._count_repeated(sink, promise, tuples)
            if sink in self._expected.adding:
                may_repeat = self._may_repeat(promise)
                check_part_sum(sink, self._expected.adding[sink], promise, tuples, may_repeat)
            if sink in self._expected.rows:
                self._check(sink, promise, [values for _, values in tuples])

    def _count_repeated(self, sink: str, promise: Promise, tuples: list[TimedValues]) -> None:
        """Whether there is more than without failures, where every state stands for each once."""
        is_of_region = promise.touched and promise.level.extra is Extra.COPIES
        if self._world is None or not is_of_region or sink not in self._expected.rows:
            return
        if Counter(values for _, values in tuples) - self._expected.rows[sink]:
            self._world.count("result repeated")

    def _may_repeat(self, promise: Promise) -> bool:
        return promise.may_repeat and len(promise.nodes & self._failed) > 1

    def _check(self, sink: str, promise: Promise, found: list[Row]) -> None:
        recovered_us = max(self._recovered_us.get(node, 0) for node in promise.nodes)
        rows = [(since_us > recovered_us, row) for since_us, row in self._expected.since[sink]]
        if self._world is not None:
            self._world.count("settled row", sum(is_settled for is_settled, _ in rows))
        check_held(sink, promise, rows, Counter(found))
        check_extra(sink, promise, rows, Counter(found), may_repeat=self._may_repeat(promise))


class AtLeastOnce(Checker):
    """I-ROLLBACK where nobody knows when the last failure was: whole results, none of them lost."""

    def __init__(self, expected: Expected, promises: dict[str, Promise]) -> None:
        """What a run without failures puts out, and what of it is promised."""
        self._expected = expected
        self._promises = promises

    def end(self, result: RunResult) -> None:
        """Look at each sink that has a promise, and known rows."""
        for sink, promise in self._promises.items():
            if sink in self._expected.rows:
                rows = [(False, row) for row in self._expected.rows[sink].elements()]
                found = Counter(values for _, values in tuples_of(sink, result))
                check_held(sink, promise, rows, found)
                check_extra(sink, promise, rows, found, may_repeat=False)


def check_held(
    sink: str, promise: Promise, rows: list[tuple[bool, Row]], found: Counter[Row]
) -> None:
    """What must be there is there.

    Args:
        sink: Its name.
        promise: What is promised of it.
        rows: Those of a run without failures, and whether they are settled.
        found: What is there.
    """
    held = promise.level.held
    wanted = Counter(row for is_settled, row in rows if is_settled or held is Held.ALL)
    lost = wanted - found
    if lost and held is not Held.UNKNOWN:
        raise Violation(_name(promise), f"{sink}: {difference(wanted, lost, Counter())}")


def check_extra(
    sink: str,
    promise: Promise,
    rows: list[tuple[bool, Row]],
    found: Counter[Row],
    *,
    may_repeat: bool,
) -> None:
    """What is there may be there: as `check_held`, and with `may_repeat` copies are no surprise."""
    expected = Counter(row for _, row in rows)
    allowed, extra = promise.level.extra, found - expected
    if may_repeat and allowed is not Extra.ANYTHING:
        allowed = Extra.ANYTHING if allowed is Extra.PARTS else Extra.COPIES
    if allowed is Extra.ANYTHING or not extra:
        return
    wrong = extra
    if allowed is Extra.COPIES:
        settled = Counter(row for is_settled, row in rows if is_settled)
        wrong = Counter(
            {row: n for row, n in extra.items() if settled[row] == expected[row]}
        )  # None of them, or none that may come again.
    elif allowed is Extra.PARTS:
        wrong = _no_parts(promise, expected, extra)
        if Guarantee.ROLLBACK not in promise.guarantees:
            wrong += _again(promise, found)
    if wrong:
        raise Violation(_name(promise), f"{sink}: {difference(expected, Counter(), wrong)}")


def _no_parts(promise: Promise, expected: Counter[Row], extra: Counter[Row]) -> Counter[Row]:
    """Of the extra rows those that are no result of a part of a window that there should be."""
    wholes = {_picked(row, promise.groups): row for row in expected}

    def is_part(row: Row) -> bool:
        whole = wholes.get(_picked(row, promise.groups))
        return whole is not None and all(row[i] <= whole[i] for i in promise.counts)

    return Counter({row: n for row, n in extra.items() if not is_part(row)})


def _again(promise: Promise, found: Counter[Row]) -> Counter[Row]:
    """The rows of windows that have more than one."""
    groups = Counter(_picked(row, promise.groups) for row in found.elements())
    return Counter({r: n for r, n in found.items() if groups[_picked(r, promise.groups)] > 1})


def _picked(row: Row, positions: tuple[int, ...]) -> Row:
    return tuple(row[i] for i in positions)


def check_part_sum(
    sink: str, adding: Adding, promise: Promise, tuples: list[TimedValues], may_repeat: bool
) -> None:
    """What chance or the clock decides stands for all its input at least, or at most."""
    given, found = adding.given, adding.found(tuples)
    lost, extra = given - found, found - given
    level, weaker = promise.given, promise.guarantees
    if Guarantee.GAP in weaker or not adding.conserved.is_whole or level.held is not Held.ALL:
        lost = Counter()
    if Guarantee.ROLLBACK in weaker or may_repeat or level.extra is not Extra.NOTHING:
        extra = Counter()
    if lost or extra:
        raise Violation(_name(promise), f"{sink}: {difference(given, lost, extra)}")


def _name(promise: Promise) -> str:
    return "I-ROLLBACK" if Guarantee.ROLLBACK in promise.guarantees else "I-GAP"
