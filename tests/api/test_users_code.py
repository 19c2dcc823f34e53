"""While a function of the user's runs, its process knows which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from holdfast.api.expressions.user_functions import UserFunction
from holdfast.api.expressions.values import Value
from holdfast.api.functions import FunctionError, Kind, PythonFunction
from holdfast.api.processors import OpenProcessor, processor_of
from holdfast.core.model.users_code import USERS_CODE

_SCHEMA = pa.schema([("k", pa.string())])
_ROWS = pa.RecordBatch.from_pylist([{"k": "a"}, {"k": "b"}], schema=_SCHEMA)
_GIVEN = {"map_batches": _ROWS, "map": {"k": "c"}, "flat_map": [{"k": "c"}], "filter": True}


@pytest.mark.parametrize("kind", _GIVEN)
def test_a_function_on_rows(kind: Kind) -> None:
    seen: list[str] = []

    def looks(_: Any) -> Any:
        seen.append(USERS_CODE.running)
        return _GIVEN[kind]

    function = PythonFunction(looks, kind, _SCHEMA, is_deterministic=True)
    function.apply(_ROWS, 0, 0)
    assert set(seen) == {function.name}
    assert not USERS_CODE.running


def test_a_function_that_raises_runs_no_more() -> None:
    def fails(_: Any) -> Any:
        raise KeyError

    with pytest.raises(FunctionError):
        PythonFunction(fails, "map", _SCHEMA, is_deterministic=True).apply(_ROWS, 0, 0)
    assert not USERS_CODE.running


def test_a_function_in_an_expression() -> None:
    seen: list[str] = []

    def looks(value: str) -> str:
        seen.append(USERS_CODE.running)
        return value

    column = Value(pa.string(), lambda batch: batch.column(0), is_total=True, text="k")
    UserFunction("looks", looks, "rows", pa.string()).build([column], "looks(k)").evaluate(_ROWS)
    assert seen == ["looks", "looks"]
    assert not USERS_CODE.running


class Looks:
    """Says what runs, where a generator is, too."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def init(self, handle: Any) -> None:
        self.seen.append(USERS_CODE.running)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        for row in rows:
            yield {"k": f"{row.k} {USERS_CODE.running}"}


def test_a_method_of_a_processor() -> None:
    processor = processor_of(Looks(), _SCHEMA, "none", "rows", lambda _: _SCHEMA)
    opened = OpenProcessor(processor)
    scope = opened.scope(("a",), [], set())
    (row, _) = opened.rows(_ROWS)
    assert opened.take(scope, row, 0, 0) == [{"k": f"a {processor.name}"}]
    assert opened._processor.seen == [processor.name], "it may connect to somebody"
    assert not USERS_CODE.running
