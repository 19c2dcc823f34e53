"""A driver in standby: it waits until it may lead a query, with its session and executors warm.

It decides nothing: core/coordinator/driver_watch.py does, by how the journal and the location's
lock look.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.driver_watch import (
    DriverWatch,
    EndWatch,
    JournalSeen,
    Lead,
    LeadLost,
    LockGot,
)
from holdfast.core.coordinator.journal_entries import Ending
from holdfast.errors import QueryEndedError
from holdfast.shell.spark.journal import JOURNAL_FOLDER, look
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.lock import LocationLock
from holdfast.shell.storage.places import is_remote
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from holdfast.core.machine import Stimulus

_LOG = logging.getLogger(__name__)


class StandbyDriver:
    """The shell around one `DriverWatch`."""

    def __init__(self, location: str, lease_ms: int) -> None:
        """Wait for the lock of the location from now on, if it has one.

        Args:
            location: The checkpoint location; a folder exists.
            lease_ms: So long the journal may stand still.
        """
        self._location = location
        self._journal = os.path.join(location, JOURNAL_FOLDER)
        self._watch = DriverWatch(lease_ms, has_lock=is_remote(location))
        self._locks: queue.SimpleQueue[LocationLock] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self.lock: LocationLock | None = None
        if not is_remote(location):
            threading.Thread(
                target=self._wait_for_lock, name="holdfast-standby-lock", daemon=True
            ).start()

    def _wait_for_lock(self) -> None:
        lock = LocationLock(self._location, waits=True)
        if self._is_over.is_set():
            lock.release()
        else:
            self._locks.put(lock)

    def wait(self) -> None:
        """Return when this driver is to begin; then `lock` is held if the location has one.

        Raises:
            QueryEndedError: There is nothing left to lead.
        """
        _LOG.warning("in standby at %s", self._location)
        interval_s = self._watch.look_interval_ms / 1000
        while not self.has_to_lead(interval_s):
            pass  # Each look waits for the next one.

    def has_to_lead(self, timeout_s: float) -> bool:
        """Look once, and wait so long for the lock; whether this driver is to begin.

        Raises:
            QueryEndedError: There is nothing left to lead.
        """
        with suppress(_NotSeen):
            if self._step(self._look()):
                return True
        with suppress(queue.Empty):
            self.lock = self._locks.get(timeout=timeout_s)
            self._step(LockGot(self.lock.epoch_before))
        return False

    def lost(self) -> None:
        """Another driver has begun first."""
        self._step(LeadLost())

    def close(self) -> None:
        """Wait for nothing any more, and let go of the lock."""
        self._is_over.set()
        while not self._locks.empty():
            self._locks.get().release()
        if self.lock is not None:
            self.lock.release()

    def _look(self) -> JournalSeen:
        try:
            return look(self._journal)
        except (StorageError, StoreUnavailable) as error:
            _LOG.warning("in standby, and %s cannot be read: %s", self._journal, error)
            raise _NotSeen from error

    def _step(self, stimulus: Stimulus) -> bool:
        """Whether this driver is to begin."""
        for effect in self._watch.step(stimulus, time.monotonic_ns() // 1_000_000):
            match effect:
                case Lead(reason):
                    _LOG.warning("takes over at %s: %s", self._location, reason)
                    return True
                case EndWatch(ending):
                    raise QueryEndedError(f"the query at {self._location} has {_OVER[ending]}")
        return False


class _NotSeen(Exception):
    """The journal could not be looked at."""


_OVER: Final = {Ending.FINISHED: "finished", Ending.STOPPED: "been stopped"}
