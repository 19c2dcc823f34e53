"""Rows for people: the newest first, what is theirs alone, and tables of several nodes as one."""

import pyarrow as pa

from holdfast.core.model.shown_rows import ROWS_MAX, newest_of, table_of, together
from holdfast.core.model.tuples import TupleBatch, TupleType, with_time


def batch(count: int, kind: TupleType = TupleType.STABLE) -> TupleBatch:
    schema = with_time(pa.schema([pa.field("n", pa.int64())]))
    numbers = pa.array(range(count))
    return TupleBatch(0, pa.RecordBatch.from_arrays([numbers, numbers], schema=schema), 0, 0, kind)


def test_the_newest_rows_of_a_batch_come_first_and_no_more_than_are_shown() -> None:
    found = newest_of(batch(ROWS_MAX + 5), "sums[0]")
    assert [values["n"] for _, values in found] == list(range(ROWS_MAX + 4, 4, -1))
    assert found[0] == ("stable", {"to": "sums[0]", "n": ROWS_MAX + 4})
    assert newest_of(batch(1, TupleType.TENTATIVE), "x")[0][0] == "tentative"


def test_cells_are_text_and_one_that_a_row_lacks_is_empty() -> None:
    columns, cells = table_of([("stable", {"n": None, "text": "x" * 300}), ("stable", {"m": 1.5})])
    assert columns == ("", "n", "text", "m")
    assert cells == (("stable", "", "x" * 200 + "…", ""), ("stable", "", "", "1.5"))
    assert table_of([]) == (("",), ())


def test_tables_of_several_nodes_become_one_with_the_columns_of_all() -> None:
    found = together([(("", "to", "n"), [("stable", "a", "1")]), (("", "m"), [("undo", "2")])])
    assert found["columns"] == ["", "to", "n", "m"]
    assert found["rows"] == [["stable", "a", "1", ""], ["undo", "", "", "2"]]
