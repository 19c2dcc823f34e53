"""A handle in a notebook: the card below its cell, and the example, executed by Jupyter."""

import os
from pathlib import Path
from threading import Event
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from holdfast.errors import HoldfastError
from holdfast.view.model import Facts, page_of
from holdfast.view.notebook import Bundle, Card, bundle_of
from holdfast_bench.shown_query import FAILURE, plan, report

ROOT = Path(__file__).parents[2]


def facts(tick: int = 0, *, is_over: bool = False, **more: Any) -> Facts:
    made = {**report(30, tick, **more), "isLast": is_over}
    return Facts("/data/<bids>", plan(30), made, made["madeUnixS"], is_running=not is_over)


class Played:
    """A query that is over after some looks, of which one fails."""

    location = "/data/bids"

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> Facts:
        self.looks += 1
        if self.looks == 1:
            raise HoldfastError("not now")
        return facts(self.looks, is_over=self.looks == 3)

    def act(self, action: str, target: str) -> dict[str, Any]:
        raise AssertionError("a card does nothing")


def test_a_card_has_state_figures_units_and_the_numbers_of_a_recovery() -> None:
    made = bundle_of(page_of(facts(failures=[{**FAILURE, "reason": "<b>killed</b>"}])))
    card, plain = made["text/html"], made["text/plain"]
    for said in ("running", "/data/&lt;bids&gt;", "Rows in", "unit19", "and 10 more"):
        assert said in card
    assert "unit1[0] is back after 600 ms (detection 310 ms, restart 220 ms" in card
    assert "<b>killed" not in card
    assert "unit20" not in card
    assert plain.startswith("bids: running\n")
    assert "unit1[0] failed: <b>killed</b>" in plain


def test_a_card_changes_until_the_query_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.view.notebook._INTERVAL_S", 0.001)
    seen: list[Bundle] = []
    card = Card(Played(), seen.append)
    card.start()
    assert card.wait(400)
    assert ["running" in one["text/plain"] for one in seen] == [True, False]
    assert seen[-1]["text/plain"].startswith("bids: ended")


def test_a_card_that_was_left_or_whose_notebook_is_gone_looks_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.view.notebook._INTERVAL_S", 0.001)
    query, was_shown = Played(), Event()
    query.looks = 10  # It never ends.

    def update(_: Bundle) -> None:
        was_shown.set()

    left = Card(query, update)
    left.start()
    assert was_shown.wait(400)
    left.leave()
    assert left.wait(400)

    def refuse(_: Bundle) -> None:
        raise RuntimeError("the kernel is going down")

    gone = Card(query, refuse)
    gone.start()
    assert gone.wait(400)


class Watching(NotebookClient):
    """Executes a notebook, and keeps what its displays showed on the way."""

    cards: list[str]

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.cards.append(msg["content"]["data"].get("text/html", ""))
        return super().process_message(msg, cell, cell_index)


@pytest.mark.slow
def test_the_example_runs_in_jupyter_and_its_card_shows_the_recovery_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "bench")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    notebook = nbformat.read(ROOT / "examples" / "live.ipynb", as_version=4)
    last = nbformat.v4.new_code_cell("assert query._card.wait(400)")
    notebook.cells.append(last)
    client = Watching(
        notebook,
        timeout=800,
        startup_timeout=400,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.cards = []
    client.execute()
    (of_handle,) = [
        output["data"]["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.endswith("\nquery")
        for output in cell.outputs
        if output.output_type == "display_data"
    ]
    assert "ended" in of_handle
    assert "counts[0] is back after" in of_handle
    assert len({card for card in client.cards if "holdfast-query" in card}) > 2
    assert any("running" in card for card in client.cards)
    printed = "".join(o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", ()))
    assert "lost=0, doubled=0" in printed
