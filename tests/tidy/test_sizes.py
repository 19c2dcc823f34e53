"""Files, classes and functions that one can take in; larger ones are named, and shrink."""

import ast
import math
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
FILE_BYTES = 30_000
METHODS = 40
LINES = 60
MEDIAN_LINES = 7
P90_LINES = 21
NODE_BYTES = 15_000

LARGE_FILES: dict[str, int] = {}
"""Files above the bound, and how large they may be at most. Only ever lower a number."""
LARGE_CLASSES: dict[str, int] = {}
"""Classes above the bound, and their methods at most. Only ever lower a number."""
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {
    "core/state/aggregate_kernels.py:aggregate": (
        91,
        "compiled: its 18 arguments stand in lines of their own in its head, its docstring and "
        "three calls; numba takes no object that could hold them",
    ),
    "core/state/join_kernels.py:join_pairs": (
        93,
        "compiled: 36 lines are its head and docstring; the rest is one loop that may stop at any "
        "row for want of pages, before that row has changed anything",
    ),
}
"""Functions above the bound, their lines at most, and why. Only ever lower a number."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def file_sizes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*.py")}


def named(root: Path) -> Iterator[tuple[str, ast.AST]]:
    """All classes and functions, by file and name."""
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
                yield f"{path.relative_to(root)}:{node.name}", node


def class_sizes(root: Path) -> dict[str, int]:
    return {
        name: sum(isinstance(member, _FUNCTIONS) for member in node.body)
        for name, node in named(root)
        if isinstance(node, ast.ClassDef)
    }


def function_sizes(root: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, node in named(root):
        if isinstance(node, _FUNCTIONS) and node.end_lineno is not None:
            sizes[name] = max(sizes.get(name, 0), node.end_lineno - node.lineno + 1)
    return sizes


def wrong(sizes: dict[str, int], bound: int, excepted: dict[str, int]) -> list[str]:
    """What is larger than it may be, and exceptions that are none any more."""
    too_large = [f"{n} has {s}" for n, s in sizes.items() if s > excepted.get(n, bound)]
    idle = [f"{n} needs no exception" for n in excepted if sizes.get(n, 0) <= bound]
    return too_large + idle


def test_no_file_is_large() -> None:
    assert not wrong(file_sizes(SOURCE), FILE_BYTES, LARGE_FILES)


def test_no_class_has_many_methods() -> None:
    assert not wrong(class_sizes(SOURCE), METHODS, LARGE_CLASSES)


def test_no_function_is_long() -> None:
    bounds = {name: lines for name, (lines, _) in LONG_FUNCTIONS.items()}
    assert not wrong(function_sizes(SOURCE), LINES, bounds)
    assert all(len(reason.split()) > 5 for _, reason in LONG_FUNCTIONS.values())


def quantile(sizes: list[int], share: float) -> int:
    """The size that this share of functions does not exceed."""
    return sorted(sizes)[max(0, math.ceil(share * len(sizes)) - 1)]


def function_lines(root: Path) -> list[int]:
    """The lines of every function, those of equal names in a file one by one."""
    return [
        node.end_lineno - node.lineno + 1
        for _, node in named(root)
        if isinstance(node, _FUNCTIONS) and node.end_lineno is not None
    ]


def test_most_functions_fit_a_few_lines() -> None:
    lines = function_lines(SOURCE)
    assert quantile(lines, 0.5) <= MEDIAN_LINES
    assert quantile(lines, 0.9) <= P90_LINES


def test_a_quantile_is_the_size_that_a_share_does_not_exceed() -> None:
    assert quantile([1, 2, 3, 4, 100], 0.5) == 3
    assert quantile(list(range(1, 11)), 0.9) == 9
    assert quantile([7], 0.9) == 7


def test_node_routes_only() -> None:
    assert (SOURCE / "core" / "haunit" / "node.py").stat().st_size <= NODE_BYTES


def test_what_is_too_large_is_found_and_so_is_an_exception_that_is_none(
    tmp_path: Path,
) -> None:
    methods = "".join(f"    def m{i}(self):\n        pass\n" for i in range(METHODS + 1))
    body = "    pass\n" * LINES
    text = f"class Large:\n{methods}\n\ndef long():\n{body}"
    (tmp_path / "large.py").write_text(text + "#" * FILE_BYTES)
    assert wrong(file_sizes(tmp_path), FILE_BYTES, {})
    assert wrong(class_sizes(tmp_path), METHODS, {}) == [f"large.py:Large has {METHODS + 1}"]
    assert wrong(function_sizes(tmp_path), LINES, {}) == [f"large.py:long has {LINES + 1}"]
    assert not wrong(function_sizes(tmp_path), LINES, {"large.py:long": LINES + 1})
    assert wrong(function_sizes(tmp_path), LINES, {"large.py:long": LINES + 1, "large.py:m1": 99})
