"""Waiting for the executors of a new application."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.shell.spark.executors import Executors


@pytest.mark.parametrize(("master", "expected"), [("spark://there:7077", 4), ("local[4]", 0)])
def test_machines_that_are_not_known_yet_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, master: str, expected: int
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Executors, "_look", lambda _: looks.append(1))
    known = {0: (), 1: (), 2: (), 3: ("a",)}
    monkeypatch.setattr(
        Executors, "machines", property(lambda _: known.get(len(looks), ("a", "b")))
    )
    context: Any = SimpleNamespace(master=master)
    Executors(context, "query").wait_for_machines(2, 30.0)
    assert len(looks) == expected
