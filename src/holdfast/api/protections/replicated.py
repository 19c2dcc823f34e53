"""Replicated units: no result waits for missing input for longer than a bound. [DPC]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.api.protections.base import Protection, require_guarantee
from holdfast.api.windows import duration_us
from holdfast.core.haunit.plan import DelayPlan, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    from holdfast.api.graph import Graph

_UNDO_TUPLES: Final = {"checkpoint/redo": 0, "undo/redo": 1_000_000}
"""How many tuples a node keeps to make its state again, by the way of reconciliation."""

_DROP: Final = "drop"
_BUFFERS: Final = ("block", _DROP)
_EACH: Final = "each"
_CHAINS: Final = ("once", _EACH)


@dataclass(frozen=True, slots=True)
class Replicated(Protection):
    """No result waits for missing input for longer than a bound; later it is corrected. [DPC]

    A unit that merges several streams goes on without those that are missing, once something has
    waited for `alpha` times `delay`. What it puts out from there on is *tentative*: it goes to the
    sink's feed (`option("types", "all")`), not to the sink. When the input is there after all, the
    unit goes back to where it was and puts out the right results. Sinks, `verify` and units that
    are not `Replicated` see these alone. Beneath it lies upstream backup.

    With `replicas` of 2 or 3 each instance runs that often side by side, on different machines if
    there are as many. Readers choose one of them; when that one is lost, or lacks input, they read
    another one, and nothing tentative is put out as long as one has all input. While one corrects,
    another one goes on. Units that read sources have one node: their log is the copy.

    Attributes:
        replicas: How many of each instance there are: 1 to 3.
        delay: The bound X, as `tumbling` takes it, from 1 millisecond on.
        alpha: Which part of it input waits, above 0 and up to 1; the rest is for processing.
        during_failure: `process`: new input is processed as it comes; `delay`: it waits for the
            bound, too, so that less has to be corrected; `suspend`: it waits for what is missing,
            and nothing is tentative.
        during_stabilization: The same while a unit corrects. With replicas these correct one after
            the other, and those whose turn has not come go on so; None: as during the failure.
            With `suspend` all correct at once, and new input waits. One replica can do that alone.
        reconcile: `checkpoint/redo`: back to a copy of the state, and from there again.
            `undo/redo`: the state is made again from the input that it goes back to. Nothing
            stands still when input fails, and no page is there twice; the correction takes longer.
            Beyond a million tuples of such input in a node, it copies the state after all.
        buffer: What is done when the input that is kept for the correction has reached the bound
            of the input queue (`spark.holdfast.inputQueueTuples`), for each stream that is there.
            `block`: no more of it is read until the correction. `drop`: it goes on. What comes from
            there on is processed as tentative alone, and the correction goes without it: for good.
            `lastProgress["gaps"]` says which tuples that were, by stream and id. Of one replica.
        chain: What a unit does with tentative results of units before it. `once`: it goes on with
            them at once, and goes back with them; one that merges waits a little longer than those
            before it, so that a chain waits once. `each`: the paper's scheme, to compare with. It
            waits alpha times `delay` by itself first, and goes back when its input is corrected.
    """

    replicas: int = 1
    delay: str = "3 seconds"
    alpha: float = 0.9
    during_failure: str = DuringFailure.PROCESS.value
    during_stabilization: str | None = None
    reconcile: str = "checkpoint/redo"
    buffer: str = "block"
    chain: str = "once"

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `OptionError` and `UnsupportedError`."""
        require_guarantee(self, Guarantee.PRECISE)
        if not 1 <= self.replicas <= 3:
            raise OptionError(f"Replicated(replicas={self.replicas}); there are 1 to 3")
        if not 0 < self.alpha <= 1:
            raise OptionError(f"Replicated(alpha={self.alpha}); it lies above 0 and up to 1")
        modes = [mode.value for mode in DuringFailure]
        for name, mode in (
            ("during_failure", self.during_failure),
            ("during_stabilization", self.during_stabilization or DuringFailure.PROCESS.value),
        ):
            if mode not in modes:
                raise OptionError(f"Replicated({name}={mode!r}); one of {', '.join(modes)}")
        is_alone = self.replicas == 1
        if is_alone and self.during_stabilization not in (None, DuringFailure.SUSPEND.value):
            raise UnsupportedError(
                f"Replicated(during_stabilization={self.during_stabilization!r}) with one replica, "
                "which cannot process new input while it corrects; 'suspend', or replicas=2"
            )
        if self.reconcile not in _UNDO_TUPLES:
            ways = ", ".join(_UNDO_TUPLES)
            raise OptionError(f"Replicated(reconcile={self.reconcile!r}); one of {ways}")
        if self.buffer not in _BUFFERS:
            ways = ", ".join(_BUFFERS)
            raise OptionError(f"Replicated(buffer={self.buffer!r}); one of {ways}")
        if self.chain not in _CHAINS:
            ways = ", ".join(_CHAINS)
            raise OptionError(f"Replicated(chain={self.chain!r}); one of {ways}")
        if not is_alone and self.buffer == _DROP:
            raise UnsupportedError(
                f"Replicated(replicas={self.replicas}, buffer='drop'); replicas would drop "
                "different tuples and no longer agree: buffer='block', or replicas=1"
            )
        self.of_unit()

    def describe(self) -> str:
        """What is on disk is upstream backup's, of so many nodes, and feeds."""
        return type(self).__name__ + ("" if self.replicas == 1 else f" x {self.replicas}")

    def of_unit(self) -> UnitProtection:
        """Replayed; and it does not wait for longer than that."""
        delay_ms = duration_us(self.delay) // 1000
        bound_ms = int(duration_us(self.delay) * self.alpha) // 1000
        if bound_ms < 1:
            raise OptionError(
                f"Replicated(delay={self.delay!r}, alpha={self.alpha}); alpha times delay is at "
                "least 1 millisecond"
            )
        during = DuringFailure(self.during_failure)
        waits = bound_ms, during, delay_ms - bound_ms
        mode = self.during_stabilization
        then = None if mode is None else DuringFailure(mode)
        undo_tuples = _UNDO_TUPLES[self.reconcile]
        drops = self.buffer == _DROP
        waits_alone = self.chain == _EACH
        modes = then, undo_tuples, drops
        return UnitProtection(
            delays=DelayPlan(*waits, self.replicas, *modes, waits_alone=waits_alone)
        )
