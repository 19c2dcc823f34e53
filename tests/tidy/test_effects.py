"""Cores return their effects: none fills a list handed in, and none that is returned is lost."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "src" / "holdfast" / "core"
RETURNED = "list[Effect]"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def returned_by(function: ast.FunctionDef) -> str:
    return "" if function.returns is None else ast.unparse(function.returns)


def fills(function: ast.FunctionDef) -> bool:
    """Whether it takes a list of effects and appends to it."""
    taken = {
        argument.arg
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and ast.unparse(argument.annotation) == RETURNED
    }
    appended = {
        ast.unparse(node.func.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend", "insert")
    }
    joined = {
        ast.unparse(node.target) for node in ast.walk(function) if isinstance(node, ast.AugAssign)
    }
    return bool(taken & (appended | joined))


def names_of_effects(trees: dict[str, ast.Module]) -> set[str]:
    """The functions that return effects wherever there is one of their name."""
    found: dict[str, set[bool]] = {}
    for tree in trees.values():
        for function in functions(tree):
            found.setdefault(function.name, set()).add(RETURNED in returned_by(function))
    return {name for name, kinds in found.items() if kinds == {True}}


def lost(tree: ast.AST, names: set[str]) -> list[int]:
    """The lines of calls whose effects nobody takes."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in names
    ]


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {str(p.relative_to(CORE)): ast.parse(p.read_text()) for p in CORE.rglob("*.py")}


def test_no_core_fills_a_list_of_effects_that_it_was_given(trees: dict[str, ast.Module]) -> None:
    filling = [
        f"{path}:{function.lineno} {function.name}"
        for path, tree in trees.items()
        for function in functions(tree)
        if fills(function)
    ]
    assert not filling


def test_no_core_forgets_effects_that_it_was_returned(trees: dict[str, ast.Module]) -> None:
    names = names_of_effects(trees)
    assert len(names) > 100
    assert not [f"{path}:{line}" for path, tree in trees.items() for line in lost(tree, names)]


def test_a_list_that_is_filled_and_one_that_is_forgotten_are_found() -> None:
    filled = ast.parse("def f(self, effects: list[Effect]) -> None:\n    effects.append(1)")
    joined = ast.parse("def f(self, effects: list[Effect]) -> None:\n    effects += self.g()")
    read = ast.parse("def f(self, effects: list[Effect]) -> list[Effect]:\n    return effects + []")
    assert [fills(next(functions(tree))) for tree in (filled, joined, read)] == [True, True, False]
    tree = ast.parse("def g(self) -> list[Effect]: ...\ndef h(self) -> None:\n    self.g()")
    assert lost(tree, names_of_effects({"a": tree})) == [3]
