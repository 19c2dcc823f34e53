"""The documentation site builds without network, with links checked, and loads nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

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


@pytest.mark.slow
def test_the_site_builds_and_its_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
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
    reference = (tmp_path / "reference.html").read_text()
    assert "sink_files" in reference
    # The site has no files outside of docs: it names them as they lie in the repository.
    metrics = (tmp_path / "metrics.html").read_text()
    assert "<code>deploy/prometheus/alerts.yml</code>" in metrics
    assert "../deploy" not in metrics
    loads = re.compile(r"<(?:script|img|link)[^>]*(?:src|href)=\"https?://")
    for page in tmp_path.rglob("*.html"):
        assert not loads.search(page.read_text()), page.name
    assert (tmp_path / "search" / "search_index.json").exists()
