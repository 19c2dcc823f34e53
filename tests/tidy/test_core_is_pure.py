"""What the simulator relies on: nothing in a core reads a clock, socket, file or chance."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
CORE = sorted((SOURCE / "core").rglob("*.py"))
BANNED = {
    "time",
    "datetime",
    "random",
    "os",
    "io",
    "socket",
    "threading",
    "asyncio",
    "logging",
    "uuid",
    "secrets",
    "subprocess",
    "pyspark",
    "zmq",
}
ALLOWED_THIRD_PARTY = {"numpy", "pyarrow", "numba", "xxhash"}
BANNED_CALLS = {"hash", "id", "open", "print", "eval", "exec", "input"}
ROWS = {
    "errors": 1,
    "machine": 1,
    "model": 2,
    "state": 3,
    "peace": 3,
    "operators": 4,
    "queues": 4,
    "checkpoint": 4,
    "recovery": 4,
    "chunks": 4,
    "replication": 5,
    "haunit": 6,
    "coordinator": 7,
    "wire": 8,
}
STANDARD = {
    "abc",
    "bisect",
    "collections",
    "contextlib",
    "dataclasses",
    "decimal",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "mmap",  # Anonymous memory, of which pages are made; nothing is read or written by it.
    "struct",
    "types",
    "typing",
    "__future__",
    "hashlib",
    "json",
}


def imports(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_core_imports_nothing_impure(path: Path) -> None:
    allowed = ALLOWED_THIRD_PARTY | {"holdfast"} | STANDARD
    for module in imports(ast.parse(path.read_text())):
        top = module.split(".")[0]
        assert top not in BANNED, f"{path.name} imports {module}"
        assert top in allowed, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_core_calls_nothing_impure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in BANNED_CALLS, f"{path.name}:{node.lineno}"
        if isinstance(node, ast.For):
            assert not isinstance(node.iter, ast.Set), f"{path.name}:{node.lineno} iterates a set"


def below(root: Path, path: Path) -> list[str]:
    """Imports of a core that do not lie in a row above its own, nor in its own package."""
    own = path.relative_to(root).parts[0].removesuffix(".py")
    ours = [m.split(".") for m in imports(ast.parse(path.read_text())) if m.startswith("holdfast.")]
    if own == "__init__":
        return []
    return [
        ".".join(parts)
        for parts in ours
        if parts[1] != "core" or (parts[2] != own and ROWS[parts[2]] >= ROWS[own])
    ]


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_core_imports_only_what_lies_above_it(path: Path) -> None:
    assert not below(SOURCE / "core", path)


def test_an_import_from_a_row_below_or_beside_is_found(tmp_path: Path) -> None:
    (tmp_path / "queues").mkdir()
    path = tmp_path / "queues" / "a.py"
    allowed = ("holdfast.core.state.homes", "holdfast.core.queues.b", "holdfast.core.errors")
    for module in (*allowed, "json"):
        path.write_text(f"def later():\n    from {module} import x\n")
        assert not below(tmp_path, path)
    for module in ("holdfast.core.operators.join", "holdfast.core.haunit.node", "holdfast.errors"):
        path.write_text(f"def later():\n    from {module} import x\n")
        assert below(tmp_path, path) == [module]


def test_the_simulator_and_the_shell_do_not_know_each_other() -> None:
    for folder, stranger in (("sim", "holdfast.shell"), ("shell", "holdfast.sim")):
        for path in (SOURCE / folder).rglob("*.py"):
            for module in imports(ast.parse(path.read_text())):
                assert not module.startswith(stranger), f"{path.name} imports {module}"


def test_nothing_is_ever_unpickled() -> None:
    banned = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
    for path in SOURCE.rglob("*.py"):
        for module in imports(ast.parse(path.read_text())):
            assert module.split(".")[0] not in banned, f"{path} imports {module}"
