"""The process of a query that is struck, without Spark: driver and nodes are threads of it."""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "shell"))

from without_spark import without_spark

from holdfast.driver.query import Query
from holdfast.shell.storage.logs import open_reader
from holdfast_chaos.disk_runs import UNITS, arguments, drive
from holdfast_chaos.eventual_kills import flow_of


def rows_of(location: str, sink: str) -> Counter[str]:
    """What a sink holds."""
    reader = open_reader(f"{location}/streams/{sink}/0")
    rows: Counter[str] = Counter()
    while batches := reader.poll():
        for batch in batches:
            rows.update(map(str, batch.batch.to_pylist()))
    reader.close()
    return rows


def main() -> None:
    """Compare in the end with a query over the same rows that nothing strikes."""
    given = arguments()
    with without_spark() as session, tempfile.TemporaryDirectory() as sound:

        def verify(_: Query, sink: str) -> Any:
            if not any(Path(sound).iterdir()):
                flow = flow_of(str(Path(given.drive) / "rows"), UNITS)
                assert flow.start(session, checkpointLocation=sound).awaitTermination(400)
            found, wanted = rows_of(given.at, sink), rows_of(sound, sink)
            lost, doubled = wanted - found, found - wanted
            return SimpleNamespace(
                is_identical=bool(wanted) and found == wanted,
                lost=lost.total(),
                doubled=doubled.total(),
                gaps=0,
                sample=[*lost, *doubled][:3],
            )

        Query.verify = verify  # type: ignore[method-assign,assignment]
        drive(session, given)


if __name__ == "__main__":
    main()
