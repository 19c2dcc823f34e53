"""Every word of the glossary is found in the name or the header of a module."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def words(glossary: str) -> list[str]:
    """The words of a glossary's table; a row may have several, with commas between."""
    rows = [line.split("|")[1] for line in glossary.splitlines() if line.startswith("| ")]
    bare = [re.sub(r"\(.*?\)", "", row) for row in rows]  # A function's, or of what it is said.
    terms = [term.strip().lower() for row in bare for term in row.split(",")]
    return [term for term in terms if term != "word" and set(term) != {"-"}]


def headers(source: Path) -> list[str]:
    """Of every module its name and its docstring, in lower case, in one line."""
    found = []
    for path in source.rglob("*.py"):
        text = f"{path.stem.replace('_', ' ')} {ast.get_docstring(ast.parse(path.read_text()))}"
        found.append(re.sub(r"\s+", " ", text).lower())
    return found


def test_every_word_of_the_glossary_leads_to_a_module() -> None:
    found = headers(ROOT / "src" / "holdfast")
    terms = words((ROOT / "docs" / "glossary.md").read_text())
    assert len(terms) > 100
    assert [term for term in terms if not any(term in header for header in found)] == []


def test_a_word_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "low_watermark.py").write_text('"""Held\ncut, and\nmore."""\n')
    table = "| word | means |\n| --- | --- |\n| Low watermark, held cut | |\n| feed (of x) | |"
    assert words(table) == ["low watermark", "held cut", "feed"]
    (header,) = headers(tmp_path)
    assert "low watermark" in header
    assert "held cut" in header
    assert "feed" not in header
