"""What is defined is used: a name that stands once in all the code is nobody's."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "bench", "chaos", "scripts", "tests", "docs")
FRAMEWORK = {
    "streamReader",
    "streamWriter",
    "initialOffset",
    "latestOffset",
    "awaitAnyTermination",
    "prettyJson",
    *("do_GET", "do_POST", "log_message"),
}
"""Names that Spark calls, that users know from it, or that the library's servers call."""


def defined(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name


def unused(root: Path, folders: tuple[str, ...]) -> set[str]:
    """Functions and classes of src, bench and chaos that nothing else names, by file."""
    words: Counter[str] = Counter()
    files = [path for folder in folders for path in (root / folder).rglob("*.*")]
    for path in files:
        if path.suffix in (".py", ".md", ".pyi"):
            words.update(re.findall(r"\w+", path.read_text()))
    return {
        f"{path.name}:{name}"
        for path in files
        if path.suffix == ".py" and path.relative_to(root).parts[0] in ("src", "bench", "chaos")
        for name in defined(path)
        if words[name] == 1 and not name.startswith("__")
    }


def test_nothing_is_defined_that_nobody_names() -> None:
    found = {n for n in unused(ROOT, FOLDERS) if n.partition(":")[2] not in FRAMEWORK}
    assert not {n for n in found if not re.match(r"^(.*_job\.py:.*|.*:(visit_|_).*)$", n)}


def test_what_nobody_names_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def used(): ...\ndef dead(): ...\nused()\n")
    assert unused(tmp_path, ("src",)) == {"a.py:dead"}
