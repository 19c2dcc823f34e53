"""The pages can be read by strangers: links lead somewhere, files exist, sentences are short."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli.main import app
from holdfast.driver.options import OPTIONS
from holdfast_bench.commands import app as bench

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "docs" / "reports"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    key=lambda page: str(page.relative_to(ROOT)),
)
WORDS_MAX = 35
COMMANDS = frozenset(get_command(app).commands)
BENCHMARKS = frozenset(get_command(bench).commands)
SETTINGS = frozenset(option.name for option in OPTIONS)
README_LINES_MAX = 100
PLACES_OF_CODE = ("", "src/holdfast", "src/holdfast/core", "src/holdfast/core/haunit", "docs")
"""Pages may name a file from any of these: `core/machine.py`, `tests/tidy`, `haunit/life.py`."""
ENDS_OF_FILES = ("py", "md", "sh", "toml", "lock")
FOLDERS = (
    "src/",
    "tests/",
    "docs/",
    "bench/",
    "chaos/",
    "scripts/",
    "deploy/",
    "core/",
    "shell/",
    "driver/",
    "api/",
    "planning/",
    "sim/",
    "cli/",
    "view/",
    "nexmark/",
    "flights/",
    "state/",
)
""" `core/chunks/` names a folder of ours, `writers/` one that a query makes."""
OF_THE_READER = {"my_query.py", "bids.py"}

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"^[\w./-]+/?$")
_ABBREVIATED = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|ca|No)\.", re.IGNORECASE)


def prose(text: str) -> str:
    """A page without blocks of code and comments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which headings of a page can be linked to, as GitHub and mkdocs make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", prose(page.read_text()), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


def paragraphs(text: str) -> Iterator[str]:
    """Each paragraph, item of a list and cell of a table by itself, as one line."""
    for block in re.split(r"\n\s*\n", prose(text)):
        lines: list[str] = []
        for line in block.splitlines():
            if line.lstrip().startswith("|"):
                yield from (cell.strip() for cell in line.strip().strip("|").split("|"))
                continue
            if re.match(r"\s*([-*]|\d+\.|#+) ", line):
                yield " ".join(lines)
                lines = []
                line = re.sub(r"^\s*([-*]|\d+\.|#+) ", "", line)
            lines.append(line.strip())
        yield " ".join(lines)


def sentences(text: str) -> Iterator[str]:
    """All sentences of a page; a colon or semicolon does not end one."""
    for paragraph in paragraphs(text):
        plain = _CODE.sub(lambda code: re.sub(r"\s+", "_", code.group(0)), paragraph)
        plain = re.sub(r"\]\([^)]*\)", "", plain).replace("[", "").replace("**", "")
        plain = _ABBREVIATED.sub(r"\1", plain)
        yield from re.split(r"(?<=[.!?])[)\"']? +(?=[^a-z])|→", plain)


def is_written_by_a_program(page: Path) -> bool:
    """Reports are as old as their measurements; their words are those of `holdfast bench`."""
    return page.is_relative_to(REPORTS) and page.name != "README.md"


def words(sentence: str) -> int:
    """How many words a sentence has, names of code left out: a list of functions is no sentence."""
    return sum(not word.startswith("`") for word in sentence.split())


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(place), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_files_that_pages_name_exist(page: Path) -> None:
    if page.is_relative_to(REPORTS):
        return  # A report speaks of the code that it ran on.
    for name in _CODE.findall(prose(page.read_text())):
        is_file = name.endswith(tuple(f".{end}" for end in ENDS_OF_FILES))
        is_folder = name.startswith(FOLDERS) and "." not in name
        if not _PATH.match(name) or not (is_file or is_folder) or name in OF_THE_READER:
            continue
        assert exists(name), f"{page.name} names {name}"


def exists(name: str) -> bool:
    """Whether there is such a file, or such a file somewhere below if no folder is named."""
    if name.startswith("/"):
        return True  # A place of the reader's.
    if any((ROOT / place / name).exists() for place in PLACES_OF_CODE):
        return True
    folders = ("src", "tests", "bench", "chaos")
    return "/" not in name and any(any((ROOT / folder).rglob(name)) for folder in folders)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_sentences_are_short(page: Path) -> None:
    if is_written_by_a_program(page):
        return
    too_long = [s for s in sentences(page.read_text()) if words(s) > WORDS_MAX]
    assert not too_long, "\n".join(too_long)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_no_sentence_has_a_clause_as_its_subject(page: Path) -> None:
    """ "What was sent is kept" hides who keeps it: "the producer keeps it" does not."""
    if is_written_by_a_program(page):
        return
    hiding = [
        s
        for s in sentences(page.read_text())
        if re.match(r"(What|Whatever|Who|Whoever) .*[.:;]$", s) and not s.endswith("?")
    ]
    assert not hiding, "\n".join(hiding)


def test_the_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    reports = (REPORTS / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name == "README.md":
            continue
        of = reports if page.parent == REPORTS else index
        name = page.name if page.parent == REPORTS else str(page.relative_to(ROOT / "docs"))
        assert f"({name})" in of, f"{page.relative_to(ROOT)} stands in no index"


def test_reports_name_their_commits() -> None:
    table = (REPORTS / "README.md").read_text()
    for report in REPORTS.glob("*.md"):
        if report.name != "README.md":
            line = next(x for x in table.splitlines() if f"({report.name})" in x)
            assert re.search(r"\b[0-9a-f]{7,40}\b", line + report.read_text()), report.name


def test_figures_of_the_readme_name_their_reports() -> None:
    """Each line links to a report; the first one is of the user's own files once that exists."""
    text = (ROOT / "README.md").read_text()
    table = text.split("## What was measured")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 5
    for row in rows:
        assert "](docs/reports/" in row, row
    if (REPORTS / "files.md").exists():
        assert "](docs/reports/files.md" in rows[0]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_dotted_names_can_be_imported(page: Path) -> None:
    if is_written_by_a_program(page) or page.name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        return
    for name in re.findall(
        r"(?<!spark\.)\b(?:holdfast|holdfast_chaos)(?:\.\w+)+", page.read_text()
    ):
        assert is_importable(name), f"{page.name} names {name}"


def is_importable(name: str) -> bool:
    """Whether it is a module, or what one holds; a setting of Spark or a file is passed over."""
    parts = name.split(".")
    if parts[-1] in (*ENDS_OF_FILES, "json"):
        return True
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        return not parts[size:] or hasattr(found, parts[size])
    return False


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_exist(page: Path) -> None:
    """Those of `holdfast` and `holdfast bench`, where they stand in code."""
    if page.is_relative_to(REPORTS):
        return
    text = page.read_text()
    code = [*_CODE.findall(text), *re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)]
    for words in re.findall(r"^holdfast ([a-z]+)(?: ([a-z]+))?", "\n".join(code), re.MULTILINE):
        assert words[0] in COMMANDS, f"{page.name} names holdfast {words[0]}"
        if words[0] == "bench" and words[1]:
            assert words[1] in BENCHMARKS, f"{page.name} names holdfast bench {words[1]}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_settings_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # It tells of names that are gone.
    for name in re.findall(r"spark\.holdfast\.(\w+)", page.read_text()):
        assert name in SETTINGS, f"{page.name} names spark.holdfast.{name}"


def test_the_changelog_has_the_usual_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.match(r"\[\d+\.\d+\.\d+\] - ", version) for version in versions[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds
