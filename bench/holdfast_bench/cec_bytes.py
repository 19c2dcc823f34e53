"""How much a footprint log holds for the state that has changed, read from the log afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.footprints import FootprintKind, FootprintRecord, record_of
from holdfast.core.model.tuples import TupleBatch
from holdfast.shell.storage.logs import open_reader

_WORD_BYTES = 8


def written_per_changed(folder: str) -> float | None:
    """Bytes of the log's files for each byte of groups that had changed; None: none was written.

    A group counts each time that a footprint shows it other than the one before, with all words of
    its key and its state. Whatever else is in the log counts as written: groups that a segment has
    written again unchanged, names, openings, checksums.

    Args:
        folder: The log of an aggregate in segments, from its first record on.
    """
    former: dict[tuple[int, int], np.ndarray] = {}
    changed, reader = 0, open_reader(folder, is_finished=True)
    try:
        while batches := reader.poll():
            for logged in batches:
                batch = TupleBatch(logged.first_id, logged.batch, 0)
                changed += _changed_bytes(record_of(batch, 1), former)
    finally:
        reader.close()
    written = sum(file.stat().st_size for file in Path(folder).glob("*.seg"))
    return round(written / changed, 3) if changed else None


def _changed_bytes(record: FootprintRecord, former: dict[tuple[int, int], np.ndarray]) -> int:
    rows = np.flatnonzero(record.kinds == FootprintKind.G_CHECK)
    bodies, changed = record.bodies.take(pa.array(rows)), 0
    bodies = bodies.filter(pc.equal(bodies.column("key.part"), 0))  # Others rest.
    starts, segments = (bodies.column(name).to_numpy() for name in ("window", "key.segment"))
    groups = bodies.column("groups")
    columns = groups.flatten().flatten()
    ends = np.cumsum(np.diff(groups.offsets.to_numpy()))
    words = np.stack([column.to_numpy() for column in columns], axis=1)
    for row, end in enumerate(ends.tolist()):
        name = (int(starts[row]), int(segments[row]))
        now = words[0 if row == 0 else int(ends[row - 1]) : end]
        before = former.get(name, now[:0])
        same = (now[: len(before)] == before).all(axis=1).sum()
        changed += (len(now) - int(same)) * now.shape[1] * _WORD_BYTES
        former[name] = now
    return changed
