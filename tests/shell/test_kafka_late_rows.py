"""Late tuples of a Kafka source are in no log, and are counted once whoever goes on."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.kafka.decoding import POSITION
from holdfast.shell.kafka.positions import Positions, late_rows_of
from holdfast.shell.storage.logs import LogWriter, open_writer

SCHEMA = with_time(POSITION)


def begun(place: Path, incarnation: int) -> tuple[LogWriter, Positions]:
    writer = open_writer(str(place), SCHEMA, "rows[0]", Incarnation(incarnation))
    positions = Positions(str(place), incarnation)
    positions.find(writer.next_id)
    return writer, positions


def take(positions: Positions, offsets: range, late: int) -> None:
    """Records of partition 0, so many of which are late, as the thread takes them."""
    positions.advance(0, offsets.stop)
    positions.put_aside(np.zeros(late, np.int32))


def append(writer: LogWriter, offsets: list[int]) -> None:
    columns = [
        pa.array([0] * len(offsets), pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array(offsets, pa.int64()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    writer.append(TupleType.STABLE, writer.next_id, batch, BEGINNING_US, 0)
    writer.sync()


@pytest.mark.parametrize("is_appended", [True, False])
def test_late_tuples_count_once_with_the_rows_they_came_with(
    tmp_path: Path, is_appended: bool
) -> None:
    writer, positions = begun(tmp_path, 1)
    take(positions, range(4), late=2)
    positions.save(2, is_ahead=True)
    append(writer, [1, 2])
    take(positions, range(4, 10), late=3)
    positions.save(5, is_ahead=True)
    if is_appended:
        append(writer, [5, 6, 8])
    writer.close()
    heir, again = begun(tmp_path, 2)
    expected = (5, 10) if is_appended else (2, 4)
    assert (again.late_rows, again.of[0].next_offset) == expected
    if not is_appended:
        take(again, range(4, 10), late=3)
        again.save(heir.next_id + 3, is_ahead=True)
        append(heir, [5, 6, 8])
    assert late_rows_of(str(tmp_path)) == 5
    heir.close()


def test_records_that_were_all_late_are_read_and_counted_again(tmp_path: Path) -> None:
    writer, positions = begun(tmp_path, 1)
    take(positions, range(4), late=4)
    positions.save(0)
    assert positions.late_rows == 4
    writer.close()
    _, again = begun(tmp_path, 2)
    assert (again.late_rows, again.of) == (0, {})
