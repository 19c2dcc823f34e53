"""A run as a timeline that people can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from holdfast.sim.seeds import Run

_ROUTINE: Final = (
    "TimerFired",
    "KeepAliveReceived",
    "SourceRead",
    "Proceed",
    "AckReceived",
    "BatchReceived",
    "NotesReceived",
    "BoundaryReceived",
    "JournalWritten",
    "SinkSynced",
    "RestartPointReceived",
    "RestartPointStored",
    "PeerIncarnationLearned",
)
"""What happens all the time."""


class Timeline:
    """Writes events as lines: virtual ms, or the step, then what happened."""

    def __init__(self, out: TextIO, *, is_full: bool, is_in_steps: bool = False) -> None:
        """Without `is_full`, routine steps are counted and left out."""
        self._out = out
        self._is_full = is_full
        self._is_in_steps = is_in_steps
        self._left_out = 0

    def describe(self, run: Run) -> None:
        """What will run: the dataflow, the cluster and the plan of faults."""
        from holdfast.sim.seeds import conditions

        workload = run.workload()
        self._line("dataflow")
        for step in workload.flow.steps:
            inputs = ", ".join(source.name for source in step.inputs)
            self._line(f"  {step.name}: {step.operation.WORD} of ({inputs}) in unit {step.unit}")
        self._line(f"nodes: {', '.join(plan.node for plan in workload.plans)}")
        self._line(f"limits: {workload.plans[0].limits}")
        self._line(f"cluster: {conditions(run.seed, workload.plans[0].limits)}")
        self._line("planned faults")
        for number, fault in run.faults().items():
            self._line(f"  {number}: {fault}")
        self._line("")

    def show(self, now: int, text: str) -> None:
        """One event; `now`: virtual microseconds, or a step's number."""
        if not self._is_full and text.rpartition(" ")[2] in _ROUTINE:
            self._left_out += 1
            return
        if self._left_out:
            self._line(f"{'':>12}     ({self._left_out} routine steps)")
            self._left_out = 0
        at = f"step {now:>7}   " if self._is_in_steps else f"{now / 1_000:>12.3f} ms"
        self._line(f"{at}  {text}")

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
