"""Pages in every state: readable on a phone, in light and dark, and nothing that axe-core finds.

The feeds are what real queries have shown (test_protections_shown.py says how to keep new ones).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from chromium import DESK, PHONE, chromium, is_as_wide_as_the_screen, opened, violations
from playwright.sync_api import Browser, Page

from holdfast.view.model import Facts
from holdfast.view.serving import View, serve
from holdfast_bench.shown_query import plan, report

pytestmark = pytest.mark.slow
FEEDS = Path(__file__).parent / "feeds"
PLAIN = Facts("/data/bids", plan(6), report(6), report(6)["madeUnixS"], is_running=True)
DEAD = {**report(6), "exception": "counts[0]: no room on the disk"}
OVER = {**report(6), "isLast": True, "isActive": False}
STATES = {
    "running": PLAIN,
    "ended": replace(PLAIN, report=OVER, is_running=False),
    "failed": replace(PLAIN, report=DEAD, is_running=False),
    "died": replace(PLAIN, is_running=False),
    "unknown": replace(PLAIN, plan=None, report=None, is_running=False),
}


def feed(name: str) -> Facts:
    """What a real query has shown."""
    kept: dict[str, Any] = json.loads((FEEDS / f"{name}.json").read_text())
    return Facts(**{**kept, "actions": tuple(kept["actions"])})


class Still:
    """A query that always shows the same."""

    def __init__(self, facts: Facts) -> None:
        self.location = facts.location
        self._facts = facts

    def look(self) -> Facts:
        return self._facts

    def act(self, action: str, target: str) -> dict[str, Any]:
        raise AssertionError((action, target))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture
def serving() -> Iterator[Callable[[Facts], View]]:
    views: list[View] = []

    def shown(facts: Facts) -> View:
        views.append(serve(Still(facts), port=0, allow_actions=True))
        return views[-1]

    yield shown
    for view in views:
        view.stop()


def show(page: Page, view: View, word: str) -> None:
    page.goto(view.url)
    page.wait_for_selector(f'#state[data-word="{word}"]')
    for closed in page.locator("details").all():
        closed.evaluate("one => one.open = true")


@pytest.mark.parametrize(("scheme", "size"), [("light", PHONE), ("dark", DESK)])
def test_no_state_of_a_query_hinders_anybody(
    browser: Browser,
    serving: Callable[[Facts], View],
    scheme: Literal["light", "dark"],
    size: tuple[int, int],
) -> None:
    with opened(browser, size, scheme) as page:
        for word, facts in STATES.items():
            show(page, serving(facts), word)
            assert not violations(page), word
            assert is_as_wide_as_the_screen(page), word
            if word == "running":
                page.get_by_role("button", name="Stop the query…").click()
                assert not violations(page), "asked back"
                page.get_by_role("button", name="Cancel").click()


@pytest.mark.parametrize(
    ("name", "tables", "text"),
    [
        ("replicated", {"missing"}, "b[0]"),
        ("lines", {"lines"}, "union"),
        ("rounds", {"lines", "rounds"}, "union"),
        ("eventual", {"extents"}, "recovery takes"),
    ],
)
def test_what_a_protection_has_of_its_own_is_shown_and_no_other_ones(
    browser: Browser, serving: Callable[[Facts], View], name: str, tables: set[str], text: str
) -> None:
    facts = feed(name)
    view = serving(facts)
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        with opened(browser, size, scheme) as page:
            page.goto(view.url)
            page.wait_for_selector("[data-table=settings] tr", state="attached")
            shown = {
                each.get_attribute("data-table")
                for each in page.locator("[data-optional] [data-table]").all()
                if each.is_visible()
            }
            assert shown == tables
            told = [page.locator(f"[data-table={each}]").inner_text() for each in tables]
            assert text in " ".join(told)
            assert not violations(page)
            assert is_as_wide_as_the_screen(page)


def test_something_that_hinders_is_found(
    browser: Browser, serving: Callable[[Facts], View]
) -> None:
    with opened(browser, DESK) as page:
        show(page, serving(PLAIN), "running")
        page.evaluate(
            "document.getElementById('stream').parentElement.replaceWith(document.getElementById('stream'))"
        )
        (found,) = violations(page)
        assert found.startswith("select-name")
