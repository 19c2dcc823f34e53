"""Every word of the glossary leads to the one module whose header explains it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
HOMES = "## Where each word is at home"


def cells(table: str) -> list[list[str]]:
    """The rows of a page's tables, without their heads."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] not in ("word", "module") and set(row[0]) != {"-"}]


def bare(terms: str) -> list[str]:
    """Words with commas between, without what stands in brackets."""
    return [term.strip() for term in re.sub(r"\(.*?\)", "", terms).split(",")]


def words(glossary: str) -> list[str]:
    """The words of a glossary's table; a row may have several, with commas between."""
    rows = cells(glossary.partition(HOMES)[0])
    return list(dict.fromkeys(_as_said(term) for row in rows for term in bare(row[0])))


def homes(glossary: str) -> dict[str, str]:
    """Per word the module that the second table names."""
    rows = cells(glossary.partition(HOMES)[2])
    return {_as_said(term): module.strip("` ") for module, terms in rows for term in bare(terms)}


def _as_said(term: str) -> str:
    """In lower case, but for symbols; a hyphen is as good as a space."""
    return term if len(term) == 1 else term.lower().replace("-", " ")


def headers(source: Path) -> dict[str, str]:
    """Of every module its name and its docstring in one line."""
    found = {}
    for path in source.rglob("*.py"):
        text = f"{path.stem.replace('_', ' ')} {ast.get_docstring(ast.parse(path.read_text()))}"
        found[str(path.relative_to(source))] = re.sub(r"[\s-]+", " ", text)
    return found


def explains(header: str, word: str) -> bool:
    """Whether a header has a word, in whatever form; of a symbol just this one."""
    if len(word) == 1:
        return re.search(rf"\b{word}\b", header) is not None
    return word in header.lower()


def lost(glossary: str, found: dict[str, str]) -> list[str]:
    """Words that lead nowhere, or to several modules; and homes that do not know their words."""
    at_home = homes(glossary)
    wrong = [f"{word} is no word of the table" for word in at_home.keys() - set(words(glossary))]
    for word in words(glossary):
        if word in at_home:
            if not explains(found.get(at_home[word], ""), word):
                wrong.append(f"{at_home[word]} does not explain {word}")
        else:
            known = [module for module, header in found.items() if explains(header, word)]
            if len(known) != 1:
                wrong.append(f"{word} is in {len(known)} headers; say which one explains it")
    return wrong


def test_every_word_of_the_glossary_leads_to_one_module() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert len(words(glossary)) > 100
    assert lost(glossary, headers(SOURCE)) == []


def test_a_word_that_leads_nowhere_or_to_several_modules_is_found(tmp_path: Path) -> None:
    (tmp_path / "low_watermark.py").write_text('"""Held\ncut, and\nmore."""\n')
    (tmp_path / "other.py").write_text('"""Of more held-cuts, every M."""\n')
    found = headers(tmp_path)
    table = "| word | means |\n| --- | --- |\n| Low watermark, more | |\n| feed (of x) | |\n| M | |"
    assert words(table) == ["low watermark", "more", "feed", "M"]
    assert lost(table, found) == [
        "more is in 2 headers; say which one explains it",
        "feed is in 0 headers; say which one explains it",
    ]
    at_home = f"{table}\n{HOMES}\n| module | explains |\n| --- | --- |\n| `other.py` | more"
    assert lost(f"{at_home}, feed |", found) == ["other.py does not explain feed"]
    assert lost(f"{at_home} |\n| `gone.py` | feed, cut |", found) == [
        "cut is no word of the table",
        "gone.py does not explain feed",
    ]
