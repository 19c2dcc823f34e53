"""The documentation site builds without network, with links checked, and loads nothing."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
import yaml
from chromium import DESK, PHONE, chromium, is_as_wide_as_the_screen, opened, violations

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


def named(nav: object) -> set[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        return {nav}
    inner = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(named, inner))  # type: ignore[call-overload]


def test_every_page_stands_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = {str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md")}
    assert named(settings["nav"]) == pages


def drawings() -> list[Path]:
    """The figures that are drawn by hand."""
    return sorted((PAGES / "figures").glob("*.svg"))


@pytest.mark.parametrize("drawing", drawings(), ids=lambda drawing: drawing.stem)
def test_a_figure_is_described_readable_in_the_dark_and_shown_on_a_page(drawing: Path) -> None:
    text = drawing.read_text()
    root = ElementTree.fromstring(text)
    inner = {child.get("id"): child.text for child in root}
    described_by = root.get("aria-labelledby", "").split()
    assert root.get("role") == "img"
    assert all(inner[name] for name in described_by), described_by
    assert {"title", "desc"} <= set(described_by)
    assert "@media (prefers-color-scheme: dark)" in text
    assert not re.search(r"(?:href|src)=\"(?!#)|url\((?!#)", text), "loads something"
    shown = re.compile(rf"!\[[^\]]{{20,}}\]\((?:\.\./)*figures/{drawing.name}\)")
    assert any(shown.search(page.read_text()) for page in PAGES.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    # Whatever tried to reach the network would fail: nobody listens there.
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    made = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **proxies},
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_and_its_pages_load_nothing_from_elsewhere(site: Path) -> None:
    reference = (site / "reference.html").read_text()
    assert "sink_files" in reference
    # The site has no files outside of docs: it names them as they lie in the repository.
    metrics = (site / "metrics.html").read_text()
    assert "<code>deploy/prometheus/alerts.yml</code>" in metrics
    assert "../deploy" not in metrics
    loads = re.compile(r"<(?:script|img|link)[^>]*(?:src|href)=\"https?://")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page.name
    assert (site / "search" / "search_index.json").exists()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Tests say nothing."""


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """Browsers let no page of a file load another one, as the search does."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
def test_the_search_finds_pages_and_asks_nobody_elsewhere(served: str) -> None:
    asked: list[str] = []
    with chromium() as browser, opened(browser, DESK) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{served}/index.html")
        page.get_by_role("textbox", name="Search").click()
        page.keyboard.type("promote secondaries")
        page.wait_for_selector(".md-search-result__link[href*='commands.html']")
    assert all(url.startswith(served) for url in asked)
    assert any("search_index.json" in url for url in asked)


KINDS = ("index.html", "metrics.html", "kafka.html", "protocols/guarantees.html")
"""Tables, code and figures: looked at by day and by night, others in turns."""
NAMED = """[...document.querySelectorAll('.md-typeset table:not([class]), .md-typeset pre > code')]
.every(one => one.tabIndex === 0 || one.closest('.md-typeset__scrollwrap[tabindex]'))"""
"""All that scrolls can be reached by keys; pages.js sees to it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "size", "turn"), [("light", PHONE, 0), ("dark", DESK, 1)], ids=["day", "night"]
)
def test_no_page_hinders_anybody(
    site: Path, served: str, scheme: Literal["light", "dark"], size: tuple[int, int], turn: int
) -> None:
    names = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    found = {}
    with chromium() as browser, opened(browser, size, scheme) as page:
        for name in dict.fromkeys([*KINDS, *names[turn::2]]):
            page.goto(f"{served}/{name}")
            page.wait_for_function(NAMED)
            wrong = violations(page)
            if not is_as_wide_as_the_screen(page):
                wrong.append("wider than the screen")
            if wrong:
                found[name] = wrong
    assert not found
