"""Users' files as the simulator finds them: the oracle says the same as the core."""

from __future__ import annotations

import pyarrow as pa

from holdfast.sim.workload.files import FilesRecording, FoundFile, Look, _Discovering
from holdfast.sim.workload.oracle import TimedRow


def test_another_life_looks_once_more_at_files_without_rows() -> None:
    row = TimedRow(5, {"n": 1})
    recording = FilesRecording(
        pa.schema([("n", pa.int64())]),
        0,
        (),
        1,
        files=(
            FoundFile("a", 1, 1, ()),
            FoundFile("b", 2, 2, ()),
            FoundFile("c", 3, 3, ((row,),)),
        ),
        looks=(Look(10, True), Look(20, True), Look(30, False)),
        files_max=2,
    )
    (found,) = recording.by_listings(_Discovering(2).choose)
    assert found.at_us == 30, "each life has looked at the empty ones first"
    assert recording.by_listings(recording.plainly()) == (found,)
