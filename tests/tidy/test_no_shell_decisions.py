"""The shell performs what cores ask for; it decides nothing that a peer could notice.

Three signs of a decision are looked for in shell/:

- a branch on the protection that a node has, or on the part that it plays among its replicas;
- an import of a package whose modules say when to cut, what is tentative, where to go back to, or
  what an operator makes of its input;
- an effect that the shell makes by itself: cores make them, shells perform them.
"""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.machine import Effect

SHELL = Path(__file__).parents[2] / "src" / "holdfast" / "shell"
PROTECTION = {
    "checkpoints",
    "cuts",
    "delays",
    "diverges",
    "footprints",
    "guarantee",
    "is_arbitrary",
    "is_primary",
    "is_protected",
    "is_scope_whole",
    "is_secondary",
    "keeps_passes",
    "protection",
    "repeats",
    "standby",
}
"""Attributes that say how a node is protected, and which part it plays."""
DECIDING = ("checkpoint", "operators", "recovery", "replication")
"""Packages of core/ whose modules decide."""

BRANCHES = {
    ("spark/background.py", "footprints"): "how much time may go to windows is measured here",
    ("spark/node_checkpoints.py", "checkpoints"): "asked to open a store that is not there",
    ("spark/node_reports.py", "is_secondary"): "has the ends of logs looked at beforehand",
    ("spark/node_sinks.py", "keeps_passes"): "opens the logs that the plan names",
    ("spark/traffic.py", "is_secondary"): "counts bytes",
}
"""File and attribute, with why no peer notices this branch. Only ever take one away."""
IMPORTS = {
    ("io_service.py", "checkpoint.loading"): "where pages go as they are read",
    ("spark/background.py", "checkpoint.eventual"): "a pacer over time that the shell measures",
    ("spark/launch.py", "recovery.restart_point"): "a noun of words",
    ("spark/task.py", "recovery.guarantee"): "an error that a task ends with",
    ("storage/feed_log.py", "replication.feed_reading"): "what a reader makes of a feed",
    ("storage/footprint_log.py", "recovery.extent"): "says which piece to read next",
    ("stores/checked_reading.py", "checkpoint.page_checksum"): "checks bytes",
}
"""File and module, with why nothing is decided by it. Only ever take one away."""


def branches(tree: ast.AST) -> Iterator[str]:
    """The attributes of `PROTECTION` that a condition asks for."""
    for node in ast.walk(tree):
        for test in conditions(node):
            for part in ast.walk(test):
                if isinstance(part, ast.Attribute) and part.attr in PROTECTION:
                    yield part.attr


def conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.match_case):
        return [] if node.guard is None else [node.guard]
    if isinstance(node, ast.Match):
        return [node.subject]
    return node.values if isinstance(node, ast.BoolOp) else []


def imported(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Module, name there and name here of what is imported; not of what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, a.name, a.asname or a.name) for a in node.names)
        yield from imported(node)


def deciders(tree: ast.AST) -> Iterator[str]:
    """Modules of deciding packages."""
    for module, name, _ in imported(tree):
        package, _, rest = module.removeprefix("holdfast.core.").partition(".")
        if module.startswith("holdfast.core.") and package in DECIDING:
            yield f"{package}.{rest or name}"


def effects_made(tree: ast.AST) -> Iterator[str]:
    """Classes of effects that are called."""
    named: dict[str, object] = {}
    for module, name, here in imported(tree):
        if module.startswith("holdfast.core"):
            home = importlib.import_module(module)
            is_there = hasattr(home, name)
            named[here] = (
                getattr(home, name) if is_there else importlib.import_module(f"{module}.{name}")
            )
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        value, called = None, node.func
        if isinstance(called, ast.Name):
            value = named.get(called.id)
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            value = getattr(named.get(called.value.id), called.attr, None)
        if inspect.isclass(value) and issubclass(value, Effect):
            yield value.__name__


def found(root: Path, look: Callable[[ast.AST], Iterator[str]]) -> set[tuple[str, str]]:
    """File and what is found there."""
    return {
        (str(path.relative_to(root)), name)
        for path in root.rglob("*.py")
        for name in look(ast.parse(path.read_text()))
    }


def test_the_shell_does_not_branch_on_protections() -> None:
    assert found(SHELL, branches) == set(BRANCHES)


def test_the_shell_imports_nothing_that_decides() -> None:
    assert found(SHELL, deciders) == set(IMPORTS)


def test_the_shell_makes_no_effects() -> None:
    assert not found(SHELL, effects_made)


@pytest.mark.parametrize(
    ("look", "code", "expected"),
    [
        (branches, "if plan.standby is other: pass", {"standby"}),
        (branches, "x = 1 if self.machine.is_secondary else 2", {"is_secondary"}),
        (branches, "x = [s for s in all if s.guarantee]", {"guarantee"}),
        (branches, "match plan.cuts:\n    case _: pass", {"cuts"}),
        (branches, "x = plan.standby", set()),
        (deciders, "def f():\n    from holdfast.core.operators import join", {"operators.join"}),
        (deciders, "from holdfast.core.checkpoint.aligned import A", {"checkpoint.aligned"}),
        (deciders, "from holdfast.core.model.ids import NodeId", set()),
        (effects_made, "from holdfast.core.machine import SetTimer\nSetTimer()", {"SetTimer"}),
        (
            effects_made,
            "from holdfast.core.haunit import events as e\ne.SendAck(1)\ne.AckReceived(2)",
            {"SendAck"},
        ),
    ],
)
def test_a_decision_is_found(
    tmp_path: Path, look: Callable[[ast.AST], Iterator[str]], code: str, expected: set[str]
) -> None:
    (tmp_path / "shell.py").write_text(code)
    assert found(tmp_path, look) == {("shell.py", name) for name in expected}
