"""One word has one meaning, and a name can be found by what it says."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "bench", "chaos", "docs", "examples")
OF_ROUNDS = re.compile(
    r"region|cut_rule|aligned|coordinat|lines?\b|line_|checkmate|checkpoint|durability/|glossary"
    r"|notes|guarantees|registry|restart_point|progress|history|reports|view|metrics|events|told"
    r"|haunit/(plan|beginning)|sim/|docs/testing|docs/formats|cost_model|advise"
)
"""Files that speak of coordinated checkpoints, by path: only there a *round* is anything at all."""
ROUNDS_ELSEWHERE = {
    "docs/expressions.md": "SQL's function",
    "src/holdfast/api/expressions/arithmetic.py": "SQL's function",
    "src/holdfast/api/expressions/number_functions.py": "SQL's function",
}
UNFINDABLE = re.compile(r"\bdef (_part|_told|_gap|_take)\(")
"""Names of functions that say nothing without their class or file."""
_ROUND = re.compile(r"(?<![\w.\"'`])_?[Rr]ounds?\b(?!\()")
_AROUND = re.compile(r"\b(go|goes|went|going|gone|come|comes|all|way|once|other way) round\b")


def lines_of(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every line of the code and the pages there, by path; reports speak as they were written."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix in (".py", ".md") and not name.startswith("docs/reports/"):
                yield from ((name, line) for line in path.read_text().splitlines())


def rounds(root: Path, folders: tuple[str, ...]) -> set[str]:
    """Files that say round and mean something else than a round of coordinated checkpoints."""
    return {
        name
        for name, line in lines_of(root, folders)
        if not OF_ROUNDS.search(name) and _ROUND.search(_AROUND.sub("", line))
    }


def unfindable(root: Path, folders: tuple[str, ...]) -> set[str]:
    return {
        f"{n}: {line.strip()}" for n, line in lines_of(root, folders) if UNFINDABLE.search(line)
    }


def test_a_round_is_one_of_coordinated_checkpoints() -> None:
    assert rounds(ROOT, FOLDERS) - ROUNDS_ELSEWHERE.keys() == set()


def test_names_say_what_they_are_of() -> None:
    assert unfindable(ROOT, FOLDERS) == set()


def test_another_round_and_a_name_that_says_nothing_are_found(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "a.py").write_text("for n in range(3):  # three rounds\n    pass\n")
    (tmp_path / "bench" / "b.py").write_text("x = round(1.5)  # a tuple goes round a loop\n")
    (tmp_path / "bench" / "coordinated.py").write_text("def _take(round: int) -> None: ...\n")
    assert rounds(tmp_path, ("bench",)) == {"bench/a.py"}
    assert unfindable(tmp_path, ("bench",)) == {
        "bench/coordinated.py: def _take(round: int) -> None: ..."
    }
