"""Which run of tentative tuples counts, for who reads them. [DPC §3.1]

I-RUN    a run that was void for a reader never counts for it again, nor does one before it, as long
         as it reads the same replica of the producer: old frames bring nothing back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.sim.checkers.base import Checker, Violation

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import Run, StreamId
    from holdfast.sim.process import Process
    from holdfast.sim.world import World


@dataclass(slots=True)
class _Known:
    """Of one stream: who sends what is tentative, its newest run, and whether that is void."""

    main: StreamId
    newest: Run | None = None
    is_void: bool = False


class Runs(Checker):
    """See the module."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._known: dict[tuple[str, StreamId], _Known] = {}  # by process and stream
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Look whether somebody goes on without missing input."""
        has_runs = any(plan.delays is not None for plan in world.plans.values())
        self._world = world
        self.idle = () if has_runs else ("stepped",)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-RUN."""
        del stimulus, effects
        if self._world is None or process.plan.delays is None or process.machine is None:
            return
        for stream, (main, run) in process.machine.suffixes().items():
            key = (process.endpoint.name, stream)
            known = self._known.get(key)
            if known is None or known.main != main:
                known = self._known[key] = _Known(main)
            if run is None:
                known.is_void = known.newest is not None
                continue
            newest = known.newest
            if newest is not None and (run < newest or (run == newest and known.is_void)):
                raise Violation("I-RUN", f"{key[0]}: {run} of {stream} counts again")
            if known.is_void:
                self._world.count("tentative tuples anew after an undo")
            known.newest, known.is_void = run, False
