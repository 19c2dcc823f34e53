"""The checkpoints that a simulated process writes to the store, and loads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.haunit.life_events import OpenStore, StoreOpened
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointUnreadable,
    LoadCheckpoint,
    ReportDamage,
)
from holdfast.core.model.tuples import with_time
from holdfast.sim.disk import Damage
from holdfast.sim.store import PLACES, CheckpointWriting, Unreadable, load_checkpoint

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.model.ids import CheckpointId, StreamId
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_STORE_RETRY_US = 50_000
_TURN_US_MAX = 300_000


class ProcessCheckpoints:
    """Writes and loads them for one process."""

    def __init__(self, process: Process, world: World) -> None:
        """None is being written."""
        self._process = process
        self._world = world
        self._scheduler = world.scheduler
        self._writing: CheckpointId | None = None  # the checkpoint being written
        self._schemas: dict[StreamId, pa.Schema] = {
            stream: with_time(o.schema) for o in process.plan.outputs for stream in o.streams
        }

    def open(self, effect: OpenStore) -> None:
        """Look which checkpoints the store has."""
        found = self._world.store.found(self._process.node)
        self._process.at_once.append(StoreOpened(effect.request_id, found))

    def load(self, effect: LoadCheckpoint) -> None:
        """Load one; tried again as long as the store is away."""

        def loaded() -> None:
            if self._process.waits(loaded):
                return
            if self._world.strikes.ailments.is_store_away():
                self._scheduler.after(_STORE_RETRY_US, loaded)
                return
            limits = self._process.plan.limits
            try:
                found = load_checkpoint(
                    self._world.store,
                    self._process.node,
                    effect.ref,
                    self._schemas,
                    limits.state_bytes,
                )
            except Unreadable as reason:
                self._process.take(CheckpointUnreadable(str(reason)))
            else:
                self._world.count("checkpoint loaded")
                self._process.take(CheckpointLoaded(found))

        self._scheduler.after(self._process.store_us(), loaded)

    def write(self, effect: events.WriteCheckpoint) -> None:
        """Write one, run by run, until it is there, failed or cancelled."""
        writing = CheckpointWriting(
            self._world.store, effect.prepared, self._process.spills.between
        )
        checkpoint = effect.prepared.checkpoint
        self._writing = checkpoint
        if effect.prepared.gives_way and self._world.is_store_taken():
            self._refuse(checkpoint)
            return

        def step() -> None:
            if self._process.is_dead or self._writing != checkpoint:
                return
            ailments, machine = self._world.strikes.ailments, self._process.endpoint.machine
            if ailments.is_store_away() or ailments.is_disk_full(machine):
                self._world.count("checkpoint failed")
                self._process.take(events.CheckpointFailed(checkpoint, "the store takes nothing"))
                return
            try:
                answer = writing.step()
            except Damage as damage:
                answer = events.CheckpointFailed(checkpoint, str(damage))
            self._process.take(answer)
            if isinstance(answer, events.PagesCopied):
                self._scheduler.after(self._process.store_us(), step)

        self._scheduler.after(self._process.store_us(), step)

    def _refuse(self, checkpoint: CheckpointId) -> None:
        """Others write first; later its turn comes, unless its node has ended."""
        wait_us = self._scheduler.uniform(PLACES, 1, _TURN_US_MAX)
        self._world.count("checkpoint refused")
        for delay_us, said in (
            (self._process.store_us(), events.CheckpointRefused(checkpoint)),
            (self._process.store_us() + wait_us, events.WriteAdmitted()),
        ):
            self._scheduler.after(delay_us, partial(self._process.take, said))

    def cancel(self, effect: events.CancelCheckpoint) -> None:
        """Stop writing one."""
        if self._writing == effect.checkpoint:
            self._writing = None
        self._world.count("checkpoint cancelled")

    def forget(self, effect: events.ForgetCheckpoints) -> None:
        """They are needed no more."""
        for checkpoint in effect.checkpoints:
            self._world.store.forget(self._process.node, checkpoint)

    def damaged(self, effect: ReportDamage) -> None:
        """One was passed over."""
        self._scheduler.note(f"{effect.checkpoint} is damaged: {effect.reason}")
        self._world.count("damaged checkpoint passed over")
