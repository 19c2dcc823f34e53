"""Who may import whom beyond the core, and that nobody imports himself by way of others."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MAY_NOT = {
    "core": ("api", "planning", "driver", "shell", "sim", "cli"),
    "shell": ("api", "planning", "driver", "sim", "cli"),
    "api": ("planning", "sim", "cli"),
    "planning": ("driver", "sim", "cli"),
    "driver": ("sim", "cli"),
    "sim": ("driver", "shell", "cli"),
}
"""By folder, the folders that nothing in it imports, not even where it is called."""
STILL = {
    ("shell/spark/data_source.py", "driver"),
    ("shell/spark/task.py", "api"),
}
"""Files that still do. Only ever take one away."""


def imported(tree: ast.AST) -> Iterator[str]:
    """What runs when the module is loaded or its functions are; not what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported(node)


def strangers(root: Path, package: str) -> set[tuple[str, str]]:
    """Imports that `MAY_NOT` forbids: the file, and the folder that it imports."""
    found: set[tuple[str, str]] = set()
    for folder, forbidden in MAY_NOT.items():
        for path in (root / package / folder).rglob("*.py"):
            for module in imported(ast.parse(path.read_text())):
                top, _, rest = module.partition(".")
                other = rest.partition(".")[0]
                if top == package and other in forbidden:
                    found.add((str(path.relative_to(root / package)), other))
    return found


def circle(root: Path) -> list[str]:
    """Modules that import each other in a circle, lazily or not; empty: there is none."""
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }
    graph = {
        name: {other for other in imported(ast.parse(path.read_text())) if other in modules}
        for name, path in modules.items()
    }
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    try:
        TopologicalSorter({n: o - {n} - packages for n, o in graph.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_folder_imports_one_that_stands_above_it() -> None:
    assert strangers(SOURCE, "holdfast") == STILL


def test_nothing_imports_itself_by_way_of_others() -> None:
    assert not circle(SOURCE)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_stranger_and_a_circle_are_found_wherever_they_are_imported(
    tmp_path: Path, is_lazy: bool
) -> None:
    def write(name: str, module: str) -> None:
        path = tmp_path / "p" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"import {module}\n"
        path.write_text(f"def later():\n    {line}" if is_lazy else line)

    write("shell/a.py", "p.core.b")
    write("core/b.py", "os")
    assert not strangers(tmp_path, "p")
    assert not circle(tmp_path)
    write("core/b.py", "p.shell.a")
    assert strangers(tmp_path, "p") == {("core/b.py", "shell")}
    assert set(circle(tmp_path)) == {"p.shell.a", "p.core.b"}
