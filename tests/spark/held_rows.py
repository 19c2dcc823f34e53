"""Rows that come when a test lets them: a query cannot end before, however slow the machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

_AT_US = 1_700_000_000_000_000
_TIME = pa.timestamp("us", tz="UTC")


class HeldRows:
    """An ingest log with a row a millisecond of event time, for `Dataflow.source_log`."""

    def __init__(self, folder: Path, delay_us: int = 0, **types: pa.DataType) -> None:
        """Empty.

        Args:
            folder: For the log.
            delay_us: How far rows may be out of order.
            types: Of the columns behind the time `at`.
        """
        self.path = str(folder)
        schema = pa.schema([("at", _TIME), *types.items()])
        self._meta = IngestMeta(schema, "at", delay_us)
        ingest_log.prepare(self.path, self._meta)

    def put(self, ids: np.ndarray, *columns: Any, early_us: Any = 0, ends: bool = False) -> None:
        """Rows with these ids, by which their times go, and with these columns."""
        at = pa.array(_AT_US + ids * 1_000 - early_us).cast(_TIME)
        arrays = [at, *map(pa.array, columns)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._meta.schema)
        file = ingest_log.write_file(self.path, self._meta, iter([rows]))
        assert file is not None
        ingest_log.append_batch(self.path, [file], ends=ends)
