"""Deliberate bugs in how state and positions are divided for another parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mutants import Mutant

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.stable_hash import partition_of
from holdfast.planning import division
from holdfast.planning.division import Division
from holdfast.sim import rescaling


def _divide_by_the_former_number(original: Any) -> Any:
    """New instances own what the former ones did."""
    del original

    def owns_of(self: Division, plan: Any) -> Any:
        count = sum(one.unit == plan.unit for one in self.former)

        def owns(columns: Sequence[Any]) -> np.ndarray:
            return np.asarray(partition_of(columns, count) == plan.index % count)

        return owns

    return owns_of


def _leave_an_instance_out(original: Any) -> Any:
    """What the last one of several has goes to nobody."""

    def adopt(plan: Any, others: list[Any], owns: Any) -> Any:
        return original(plan, others[:-1] if len(others) > 1 else others, owns)

    return adopt


def _keep_all_edges(original: Any) -> Any:
    """Streams go on under their ids, though others put them out."""
    del original
    return lambda self, stream: False


def _have_nobody_send_again(original: Any) -> Any:
    """What is held is taken for processed."""
    del original
    return lambda self, found: set()


def _count_held_as_state(original: Any) -> Any:
    """A merging unit that has acted on more since its checkpoint is taken for one at the cut."""

    def of_state(self: Any, plan: Any) -> Any:
        point = original(self, plan)
        stored = self.stored[plan.node]
        if isinstance(point, str) and stored is not None and stored.checkpoint is not None:
            processed = dict(self.stands[plan.node].processed)
            return replace(stored, processed_before=processed, older=())
        return point

    return of_state


def _begin_everything_anew(original: Any) -> Any:
    """Nodes whose edges stay the same lose their points."""

    def divide(self: Division, points: Any, newest: Any, home: Any) -> Any:
        return original(self, points, dict.fromkeys(newest, 0), home)

    return divide


def _forget_promises(original: Any) -> Any:
    """Receivers that recover with others have acted on boundaries that nobody gave."""

    def begun_anew(*args: Any) -> Any:
        return replace(original(*args), promised={})

    return begun_anew


def _leave_results_in_gates(original: Any) -> Any:
    """The line is there, and results that it has passed have not left: nobody has them then."""
    del original
    return lambda *_: None


def _take_all_windows_for_written(original: Any) -> Any:
    """What footprints do not hold is not replayed: no instance is there that could have it."""
    del original
    return lambda extent: True


def _write_windows_as_of_the_beginning(original: Any) -> Any:
    """Rows that several streams send again count again."""

    def mark_of(*args: Any) -> Any:
        return replace(original(*args), cut=BEGINNING_US)

    return mark_of


def _mutant(owner: Any, method: str, bug: Any) -> Mutant:
    return Mutant(owner, method, bug, dataflow="rescaling")


RESCALING_MUTANTS = {
    "divides by the former number": _mutant(Division, "_owns", _divide_by_the_former_number),
    "leaves an instance out": _mutant(division, "_adopt", _leave_an_instance_out),
    "keeps all edges": _mutant(Division, "is_affected", _keep_all_edges),
    "has nobody send again": _mutant(division._Cut, "_senders_of_held", _have_nobody_send_again),
    "counts as stored what is not": _mutant(division._Cut, "_of_state", _count_held_as_state),
    "forgets what members had promised": _mutant(division, "begun_anew", _forget_promises),
    "leaves results in gates": _mutant(Division, "lacking", _leave_results_in_gates),
    "takes all windows for written": _mutant(
        rescaling, "is_of_one_cut", _take_all_windows_for_written
    ),
    "writes windows as of the beginning": _mutant(
        rescaling, "mark_of", _write_windows_as_of_the_beginning
    ),
    "divides under old incarnations": _mutant(Division, "divide", _begin_everything_anew),
}
