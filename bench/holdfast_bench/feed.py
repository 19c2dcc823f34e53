"""An input that goes on for as long as an experiment lasts."""

from __future__ import annotations

import threading
from typing import Final

from holdfast.nexmark.generator import NexmarkConfig, generate, schema_of
from holdfast.shell.storage import ingest_log

RATE: Final = 2_000
CONFIG: Final = NexmarkConfig(events_per_second=1_000)
_COMMIT_S: Final = 0.25


class Feed:
    """NexMark's bids, about `RATE` a second, into an ingest log in a folder."""

    def __init__(self, path: str) -> None:
        """Begin."""
        self.path = path
        self.events = 0  # written so far; all there is once `end` has returned
        self._meta = ingest_log.IngestMeta(schema_of("bid"), "date_time", 0)
        ingest_log.prepare(path, self._meta)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        count = int(RATE * _COMMIT_S)
        while not self._is_over.wait(_COMMIT_S):
            bids = generate("bid", self.events, count, CONFIG)
            file = ingest_log.write_file(self.path, self._meta, [bids])
            if file is not None:
                ingest_log.append_batch(self.path, [file])
                self.events += count
        ingest_log.end(self.path)

    def end(self) -> None:
        """Nothing more comes; may be said again."""
        self._is_over.set()
        self._thread.join()
