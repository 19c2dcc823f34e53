"""A real browser for tests of pages, and axe-core, which says what hinders those who cannot see."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
PHONE = (390, 844)
DESK = (1_280, 900)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's; without one the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install -y chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@contextmanager
def opened(
    browser: Browser,
    size: tuple[int, int] = PHONE,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Page]:
    """A page on which nothing may go wrong."""
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(120_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield page
    page.close()
    assert not problems


def violations(page: Page) -> list[str]:
    """What axe-core finds, each with the places where it is so."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {' | '.join(str(node['html']) for node in one['nodes'])}"
        for one in found
    ]


def is_as_wide_as_the_screen(page: Page) -> bool:
    """Whether nobody has to scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
