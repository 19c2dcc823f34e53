"""The page in a real browser: what it shows, a kill asked for there, a large dataflow."""

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import DESK, chromium, is_as_wide_as_the_screen, opened
from playwright.sync_api import Browser, Page

from holdfast.view.model import Facts
from holdfast.view.serving import serve
from holdfast_bench.shown_query import FAILURE, plan, report

pytestmark = pytest.mark.slow


class KilledOnDemand:
    """A query, simulated, that shows a failure as soon as a unit is killed."""

    location = "/data/bids"

    def __init__(self, units: int) -> None:
        self.units = units
        self.looks = 0
        self.killed: list[str] = []

    def look(self) -> Facts:
        self.looks += 1
        failures = [{**FAILURE, "node": f"{unit}[0]"} for unit in self.killed]
        made = report(self.units, tick=self.looks, failures=failures, recoveries=[])
        for unit in self.killed:
            made["status"]["nodes"][f"{unit}[0]"]["state"] = "launching"
        return Facts(self.location, plan(self.units), made, made["madeUnixS"], is_running=True)

    def act(self, action: str, target: str) -> dict[str, Any]:
        assert action == "kill"
        self.killed.append(target)
        return {"killed": [f"{target}[0]"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as made:
        yield made


def test_a_unit_is_killed_from_the_page_which_asks_back_and_shows_it(page: Page) -> None:
    query = KilledOnDemand(6)
    view = serve(query, port=0, allow_actions=True)
    try:
        page.goto(view.url)
        page.wait_for_selector('#state[data-word="running"]')
        assert page.locator("#graph .box").count() == 6 + 3 + 1
        assert is_as_wide_as_the_screen(page)
        page.get_by_role("button", name="Kill a unit…").click()
        page.get_by_role("button", name="Cancel").click()
        assert not query.killed
        page.get_by_role("button", name="Kill a unit…").click()
        page.get_by_role("combobox", name="Unit", exact=True).select_option("unit2")
        page.get_by_role("button", name="Kill", exact=True).click()
        page.wait_for_selector('#timeline li[data-kind="failure"]:has-text("unit2[0]")')
        page.wait_for_selector('#warnings li:has-text("unit2[0] is launching")')
        assert query.killed == ["unit2"]
        box = page.get_by_role("button", name="unit2")
        assert box.get_attribute("data-level") == "down"
        box.press("ArrowRight")
        page.locator(":focus").press("Enter")
        assert "from unit2" in page.locator("#picked").inner_text()
    finally:
        view.stop()


def test_a_thousand_units_are_drawn_and_found(page: Page) -> None:
    view = serve(KilledOnDemand(1_000), port=0)
    try:
        page.goto(view.url)
        page.wait_for_selector("#graph .box[data-level=up]")
        assert page.locator("#graph .box").count() == 1_004
        assert page.locator("#graph .box:not(.far)").count() < 100
        last = '#graph .box[aria-label^="unit999,"]'
        page.locator(last).focus()
        page.wait_for_selector(f"{last}:not(.far)")
        said = page.locator(last).get_attribute("aria-label")
        page.wait_for_selector(f'{last}:not([aria-label="{said}"])')
        page.get_by_label("Find among replicas").fill("unit999")
        page.wait_for_function(
            "document.querySelectorAll('[data-table=replicas] tbody tr').length == 1"
        )
        assert page.locator("#actions button").count() == 0
    finally:
        view.stop()


ALIGNED_PX = 8
"""Boxes of one row or column: whoever lays them out may round."""
FLOWS = """([across, along, aligned]) => {
  const [source, unit] = ["source0", "unit0"].map((name) =>
    document.querySelector(`#graph .box[aria-label^="${name}"]`).getBoundingClientRect());
  return unit[along] - source[along] > aligned && Math.abs(unit[across] - source[across]) < aligned;
}"""


def test_rows_flow_downwards_on_a_phone_and_to_the_right_on_a_desk(page: Page) -> None:
    view = serve(KilledOnDemand(2), port=0)
    try:
        page.goto(view.url)
        page.wait_for_selector("#graph .box[data-level=up]")
        page.wait_for_function(FLOWS, arg=["x", "y", ALIGNED_PX])
        assert page.locator("#graph").evaluate("graph => graph.scrollWidth <= graph.clientWidth")
        page.get_by_role("button", name="source0").press("ArrowDown")
        assert (page.locator(":focus").get_attribute("aria-label") or "").startswith("unit0")
        page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
        page.locator("#graph").scroll_into_view_if_needed()
        page.wait_for_function(FLOWS, arg=["y", "x", ALIGNED_PX])
    finally:
        view.stop()
