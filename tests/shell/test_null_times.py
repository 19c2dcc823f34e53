"""Whether a column of a Parquet file holds a null, with statistics and without."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.shell.storage.exact_parquet import has_null
from holdfast.shell.storage.user_files import list_files


@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_null_is_found_whether_or_not_statistics_count_it(
    tmp_path: Path, has_statistics: bool
) -> None:
    rows = pa.table({"whole": [1, 2, 3], "holed": [1, None, 3]})
    pq.write_table(rows, tmp_path / "a.parquet", write_statistics=has_statistics, row_group_size=2)
    (listed,) = list_files(str(tmp_path))
    assert not has_null(listed.file, "whole")
    assert has_null(listed.file, "holed")
    assert has_null(listed.file, "absent")
