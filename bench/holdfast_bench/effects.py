"""What it would cost if every part of a node returned its effects, on the passes of NexMark Q1.

The parts of a node append to the list of effects that the node returns. Were each to return a list
of its own, as the node does, its caller would join them. This measures the difference on the real
node: each function of `core/haunit` that takes `effects` is called through a wrapper that gives it
a list of its own and joins it, and through one that does nothing else but call. The difference
between the two is the price of the lists. It is CPU time of this thread: of each pass the least of
several runs, then the median of all passes.

    python -m holdfast_bench.effects
"""

from __future__ import annotations

import inspect
import pkgutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np

from holdfast.core import haunit
from holdfast.core.haunit.plan import NodePlan
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.shell.sources.base import SourceRows
from holdfast_bench.inputs import record
from holdfast_bench.steps import passes_over, plans_of, reads_of

_PASS_TUPLES: Final = (16, 256, 65_536)
Wrap = Callable[[FunctionType, int], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class ListCost:
    """Of passes of one size.

    Attributes:
        pass_tuples: Tuples of a pass.
        pass_us: CPU time of a pass as it is.
        calls: How many functions are called with `effects` in a pass.
        lists_us: What lists of their own add to that.
    """

    pass_tuples: int
    pass_us: float
    calls: float
    lists_us: float

    @property
    def percent(self) -> float:
        """The addition, of a pass."""
        return 100 * self.lists_us / self.pass_us


def measure(tuples: int, repeats: int, pass_tuples: int) -> ListCost:
    """Passes of one size over so many bids, so many times each way, in turn."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        log = record("bid", tuples, NexmarkConfig(), Path(folder)).log
        plan = plans_of("q1", log)[0]
        reads = list(reads_of(log, tuples, pass_tuples))
        least = dict.fromkeys(("as it is", "called", "joined"), np.full(len(reads), np.inf))
        for _ in range(repeats):
            for way, wrap in (("as it is", None), ("called", _called), ("joined", _joined)):
                with _wrapped(wrap):
                    least[way] = np.minimum(least[way], _passes_us(plan, reads))
        return ListCost(
            pass_tuples,
            round(float(np.median(least["as it is"])), 2),
            round(_calls(plan, reads) / len(reads), 1),
            round(float(np.median(least["joined"] - least["called"])), 2),
        )


def _passes_us(plan: NodePlan, reads: Sequence[SourceRows]) -> list[float]:
    """The CPU time of each pass, with the read before it and the acknowledgement behind."""
    times: list[float] = []
    for steps in passes_over(plan, reads):
        began_ns = time.thread_time_ns()
        steps()
        times.append((time.thread_time_ns() - began_ns) / 1e3)
    return times


def _calls(plan: NodePlan, reads: Sequence[SourceRows]) -> int:
    count = 0

    def counted(function: FunctionType, place: int) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            return function(*args, **named)

        return call

    with _wrapped(counted):
        _passes_us(plan, reads)
    return count


def _joined(function: FunctionType, place: int) -> Callable[..., Any]:
    """The function with a list of its own, which its caller joins."""

    def call(*args: Any, **named: Any) -> Any:
        own: list[Any] = []
        if "effects" in named:
            outer, named["effects"] = named["effects"], own
        else:
            outer, args = args[place], (*args[:place], own, *args[place + 1 :])
        answer = function(*args, **named)
        outer += own
        return answer

    return call


def _called(function: FunctionType, place: int) -> Callable[..., Any]:
    """The function, called as `_joined` calls it, with its caller's list."""

    def call(*args: Any, **named: Any) -> Any:
        if "effects" in named:
            outer, named["effects"] = named["effects"], named["effects"]
        else:
            outer, args = args[place], (*args[:place], args[place], *args[place + 1 :])
        answer = function(*args, **named)
        del outer
        return answer

    return call


@contextmanager
def _wrapped(wrap: Wrap | None) -> Iterator[None]:
    """All methods of a node's parts that take `effects` are wrapped meanwhile."""
    former: list[tuple[type, str, FunctionType]] = []
    if wrap is not None:
        for owner, name, function, place in _with_effects():
            former.append((owner, name, function))
            setattr(owner, name, wrap(function, place))
    try:
        yield
    finally:
        for owner, name, function in former:
            setattr(owner, name, function)


def _with_effects() -> Iterator[tuple[type, str, FunctionType, int]]:
    """Class, name, function and place of `effects` of each such method below `core/haunit`."""
    for found in pkgutil.walk_packages(haunit.__path__, f"{haunit.__name__}."):
        module = import_module(found.name)
        for owner in vars(module).values():
            if not isinstance(owner, type) or owner.__module__ != module.__name__:
                continue
            for name, function in list(vars(owner).items()):
                if isinstance(function, FunctionType):
                    names = list(inspect.signature(function).parameters)
                    if "effects" in names:
                        yield owner, name, function, names.index("effects")


def main() -> None:
    """Measure, and say it."""
    for pass_tuples in _PASS_TUPLES:
        tuples = min(4_000_000, max(40_000, 32 * pass_tuples))
        cost = measure(tuples, 15, pass_tuples)
        print(
            f"passes of {cost.pass_tuples:,} tuples: {cost.pass_us:,.1f} us each, with "
            f"{cost.calls:.0f} calls; lists of their own add {cost.lists_us:.2f} us: "
            f"{cost.percent:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
