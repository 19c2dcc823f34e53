"""A node's checkpoints: what its IOService writes and loads, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator import reports
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.life_events import OpeningFailed, OpenStore, StoreOpened
from holdfast.core.haunit.restoration import LoadCheckpoint, ReportDamage, StoreAway
from holdfast.core.machine import Effect, Stimulus
from holdfast.shell.io_service import IOService
from holdfast.shell.spark.node_channels import output_schemas
from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.wire.checkpoint_files import ReadSpill
    from holdfast.shell.spark.bring_up import BringUp
    from holdfast.shell.spark.node_reports import NodeReports
    from holdfast.shell.spark.task_spec import TaskSpec
    from holdfast.shell.storage.encoded_records import EncodedRecords

_PREPARED_MAX: Final = 2
"""One may be reported in the step that prepares the next; nobody reports a refused one."""


class NodeCheckpoints:
    """Everything about the store. Without checkpoints in the plan nothing here is called."""

    def __init__(
        self,
        spec: TaskSpec,
        reporter: NodeReports,
        tell: Callable[[Stimulus], None],
        answer: Callable[[Stimulus | Exception], None],
        bring_up: BringUp,
        read_spill: ReadSpill,
        encoded: EncodedRecords,
    ) -> None:
        """The store is not open.

        Args:
            spec: Where it is.
            reporter: Speaks to the coordinator.
            tell: Takes answers, in the loop.
            answer: Takes answers of other threads.
            bring_up: Opens the store.
            read_spill: Reads what an output queue has spilled; called from other threads.
            encoded: Keeps records that sinks' logs will hold, too.
        """
        self._spec = spec
        self._reporter = reporter
        self._tell = tell
        self._answer = answer
        self._bring_up = bring_up
        self._read_spill = read_spill
        self._encoded = encoded
        self._opened: IOService | None = None
        self._prepared_us: dict[CheckpointId, int] = {}

    @property
    def _io(self) -> IOService:
        if self._opened is None:
            raise LocalProtocolError(f"{self._spec.plan.node} has no open store")
        return self._opened

    def open(self, effect: OpenStore) -> None:
        """Open the store and see what is there."""
        plan, store = self._spec.plan, self._spec.store
        if plan.checkpoints is None or store is None:
            raise LocalProtocolError(f"{plan.node} has no store for its checkpoints")
        workers = plan.checkpoints.workers

        def work() -> Callable[[], None]:
            try:
                io = IOService(
                    store.open(),
                    plan.node,
                    workers,
                    self._answer,
                    self._read_spill,
                    self._encoded.first,
                )
                found = io.found()
            except StorageError as error:
                away = OpeningFailed(effect.request_id, StoreAway(str(error)))
                return lambda: self._tell(away)
            return lambda: self._go_on(io, StoreOpened(effect.request_id, found))

        self._bring_up.run("its store of checkpoints is being opened", work)

    def _go_on(self, io: IOService, opened: StoreOpened) -> None:
        self._opened = io
        self._tell(opened)

    @property
    def trouble(self) -> str:
        """What the store waits for; empty: nothing."""
        return "" if self._opened is None else self._opened.trouble

    def load(self, effect: LoadCheckpoint) -> None:
        """Load a checkpoint in another thread."""
        self._io.load(effect.ref, output_schemas(self._spec), self._spec.plan.limits.state_bytes)

    def report_damage(self, effect: ReportDamage) -> None:
        """A checkpoint is passed over."""
        sequence = effect.checkpoint.sequence
        self._reporter.tell(reports.DamageReported, sequence, effect.reason)

    def write(self, effect: events.WriteCheckpoint) -> None:
        """Write a checkpoint in other threads."""
        self._io.write(effect.prepared)

    def cancel(self, effect: events.CancelCheckpoint) -> None:
        """Stop writing it."""
        self._io.cancel(effect.checkpoint)

    def forget(self, effect: events.ForgetCheckpoints) -> None:
        """Delete their files."""
        self._io.forget(effect.checkpoints)

    def note_standstill(self, effects: list[Effect], took_us: int) -> None:
        """How long the unit stood still for a checkpoint that was prepared in this step.

        Timers, the word of a round, markers, clocks, and the end of an earlier write prepare one.
        Where the step has also processed tuples, their time is part of it.
        """
        for effect in effects:
            if isinstance(effect, events.WriteCheckpoint):
                self._prepared_us[effect.prepared.checkpoint] = took_us
                while len(self._prepared_us) > _PREPARED_MAX:
                    del self._prepared_us[next(iter(self._prepared_us))]

    def report(self, effect: events.ReportCheckpoint) -> None:
        """It is written, or could not be."""
        self._reporter.tell(
            reports.CheckpointReported,
            checkpoint=effect.checkpoint.sequence,
            failure=effect.failure,
            prepared_us=self._prepared_us.pop(effect.checkpoint, 0),
            written_bytes=effect.written_bytes,
            state_bytes=effect.state_bytes,
            duration_ms=effect.duration_ms,
        )

    def close(self) -> None:
        """Stop what is being written."""
        if self._opened is not None:
            self._opened.close()
