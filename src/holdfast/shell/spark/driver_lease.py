"""Keeps a driver's lease: its journal never stands still for long, until the driver's last word."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from holdfast.core.coordinator.driver_watch import LOOKS_PER_LEASE
from holdfast.core.coordinator.journal_entries import Ending, JournalEntry, LeaseRenewed, LifeEnded
from holdfast.shell.spark.journal import Journal
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import is_remote
from holdfast.shell.stores.base import StoreUnavailable

_LOG = logging.getLogger(__name__)
_REMOTE_LEASE_MS = 10_000
"""A store takes money for each object, and may not answer for a while."""


def lease_ms_at(location: str, wanted_ms: int) -> int:
    """How long a journal may stand still there, by the setting for folders."""
    return max(wanted_ms, _REMOTE_LEASE_MS) if is_remote(location) else wanted_ms


class DriverLease:
    """A thread that renews the lease as long as the journal is open."""

    def __init__(self, journal: Journal[JournalEntry], lease_ms: int) -> None:
        """Begin at once.

        Args:
            journal: The driver's.
            lease_ms: So long it may stand still, for those in standby.
        """
        self._journal = journal
        self._interval_s = 2 * lease_ms / LOOKS_PER_LEASE / 1000
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s / 2):
            try:
                self._journal.renew(LeaseRenewed(), self._interval_s)
            except (StorageError, StoreUnavailable) as error:
                # The coordinator meets it at its next write. Until then nothing depends on it.
                _LOG.debug("the lease was not renewed: %s", error)

    def end(self, ending: Ending) -> None:
        """Say the last word; whoever is in standby acts on it."""
        self.stop()
        with suppress(StorageError, StoreUnavailable):  # Then the lease runs out.
            self._journal.write([LifeEnded(ending)])

    def stop(self) -> None:
        """Renew it no more."""
        self._is_over.set()
        self._thread.join()
