"""Who may import whom beyond the core, and that nobody imports himself by way of others."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MAY: dict[str, tuple[str, ...]] = {
    "core": (),
    "shell": ("core", "errors"),
    "api": ("core", "errors", "shell", "driver"),
    "planning": ("core", "errors", "shell", "api"),
    "driver": ("core", "errors", "shell", "api", "planning", "view"),
    "view": ("core", "errors", "shell", "driver"),
    "nexmark": ("core", "errors", "shell", "api"),
    "flights": ("errors", "api"),
    "sim": ("core", "errors", "api", "planning", "nexmark", "flights"),
    "cli": ("errors", "shell", "api", "driver", "view", "nexmark", "flights", "sim"),
}
"""By folder all that it imports, also inside of functions; `api` has `driver` there alone."""


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
    """Imports that `MAY` does not allow: the file, and the folder or module that it imports."""
    found: set[tuple[str, str]] = set()
    for path in (root / package).rglob("*.py"):
        name = path.relative_to(root / package)
        if len(name.parts) == 1:
            continue  # The front door and the errors.
        for module in imported(ast.parse(path.read_text())):
            other = module.removeprefix(f"{package}.").partition(".")[0]
            is_ours = module.startswith(f"{package}.") and not other.startswith("_")
            if is_ours and other not in (name.parts[0], *MAY.get(name.parts[0], ())):
                found.add((str(name), other))
    return found


def lazy(root: Path, folder: str, other: str) -> bool:
    """Whether a folder imports another one only where it is called, never when it is loaded."""
    return not any(
        module.startswith(f"holdfast.{other}")
        for path in (root / "holdfast" / folder).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for module in imported(ast.Module([node], []))
    )


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
    assert strangers(SOURCE, "holdfast") == set()


def test_every_folder_says_what_it_may_import() -> None:
    assert {path.parent.name for path in (SOURCE / "holdfast").glob("*/__init__.py")} == set(MAY)


def test_what_stands_above_is_imported_where_it_is_called_alone() -> None:
    assert lazy(SOURCE, "api", "driver")
    assert not lazy(SOURCE, "driver", "api")


def test_nothing_is_imported_by_its_place_alone() -> None:
    """`from . import x` would pass by all rules of this page."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.ImportFrom) or not node.level, path


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
