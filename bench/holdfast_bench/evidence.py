"""Runs the quick form of every report again, and says which figures have moved.

The quick form measures less, for a shorter time. So it is compared by rules that hold for both:

- A *promise* must not be worse than in the committed report: rows lost or doubled, violations, and
  whether results were identical.
- A *measured* figure, which its name ends with a unit to show, must lie within a factor of the
  committed one. Several of one name and place are compared by their medians.
- What only depends on the size of a run, such as the number of rows, is not compared. Neither is a
  figure that only one of the two has.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast_bench.reporter import table

REPORTS: Final = Path(__file__).parents[2] / "docs" / "reports"
FACTORS: Final = {"view": 2.0, "steps": 2.0, "simulation": 4.0}
"""By report; `FACTOR` for others. Recoveries of a few runs scatter most."""
FACTOR: Final = 3.0
_UNITS: Final = ("_ms", "_s", "_us", "_ns", "_per_s", "_percent", "ratio", "share")
_PROMISES: Final = ("lost", "doubled", "violations", "missing", "unexpected", "is_identical")
_WHO: Final = (
    *("approach", "at", "fault", "keys", "kind", "name", "nodes", "page_bytes", "place"),
    *("process", "protection", "query", "rate", "shape", "size_mb", "step", "units", "window_kb"),
)
"""Fields by which an entry of a list is known."""
_APART: Final = ("machine", "sizes", "size", "seconds", "experiments", "runs_s", "virtual_s")
_BLURS: Final = {"_ms": 2.0, "_percent": 5.0, "share": 0.02}
"""By unit, the difference that says nothing, e.g. of an overhead near zero."""
_TIMEOUT_S: Final = 1_800.0
_HEADER: Final = ("report", "figure", "committed", "now", "times", "allowed")

Results = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure outside its bounds.

    Attributes:
        report: Where it stands.
        figure: Its place there.
        committed: What the report says.
        now: What the quick form has found.
        allowed: The factor; None: a promise, which must not be worse at all.
    """

    report: str
    figure: str
    committed: float
    now: float
    allowed: float | None

    @property
    def times(self) -> float:
        """The new figure as a multiple of the committed one."""
        return self.now / self.committed if self.committed else float("inf")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the quick form of a report stands beside the committed one.

    Attributes:
        report: Its name.
        compared: How many figures both have.
        moved: Those outside their bounds.
        failure: Why it could not be compared; empty: it was.
    """

    report: str
    compared: int
    moved: tuple[Moved, ...]
    failure: str = ""

    @property
    def holds(self) -> bool:
        """Whether something was compared, and nothing has moved."""
        return not self.moved and not self.failure and self.compared > 0


def names() -> tuple[str, ...]:
    """All reports that there are."""
    return tuple(sorted(path.stem for path in REPORTS.glob("*.json")))


def compare(
    report: str, committed: Results, now: Results, factor: float | None = None
) -> Comparison:
    """What has moved from one result of a benchmark to another one."""
    allowed = FACTORS.get(report, FACTOR) if factor is None else factor
    before, after = _figures(committed), _figures(now)
    moved = []
    shared = before.keys() & after.keys()
    for figure in sorted(shared):
        old, new = before[figure], after[figure]
        if _is_promise(figure):
            if new > old:
                moved.append(Moved(report, figure, old, new, None))
        elif not _is_near(figure, old, new, allowed):
            moved.append(Moved(report, figure, old, new, allowed))
    failure = "" if shared else "they have no figure in common"
    return Comparison(report, len(shared), tuple(moved), failure)


def _figures(results: Results) -> dict[str, float]:
    """All figures that can be compared, by their place; promises as how often they were broken."""
    found: dict[str, list[float]] = defaultdict(list)
    for place, value in _leaves(results, ()):
        figure = " / ".join(place)
        if _is_promise(figure):
            broken = not value if isinstance(value, bool) else value
            found[figure].append(float(broken))
        elif any(name.endswith(_UNITS) for name in place) and not isinstance(value, bool):
            found[figure].append(float(value))
    return {
        figure: max(values) if _is_promise(figure) else statistics.median(values)
        for figure, values in found.items()
    }


def _is_near(figure: str, old: float, new: float, factor: float) -> bool:
    """Whether a figure is within a factor of the other, or differs by less than is measurable."""
    blur = max((least for unit, least in _BLURS.items() if figure.endswith(unit)), default=0.0)
    low, high = sorted((old / factor, old * factor))
    return low - blur <= new <= high + blur


def _is_promise(figure: str) -> bool:
    return figure.rpartition(" / ")[2] in _PROMISES


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Numbers, and where they stand; entries of a list by what they are known by."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _APART and name not in _WHO:
                yield from _leaves(inner, (*place, str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, (*place, *_known_by(inner)))
    elif isinstance(value, (bool, int, float)):
        yield place, value


def _known_by(entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, Mapping):
        return ()
    plain = (name for name in _WHO if isinstance(entry.get(name), (str, int)))
    said = ", ".join(f"{name} {entry[name]}" for name in plain)
    return (said,) if said else ()


def measured(report: str) -> Results:
    """What the quick form of a benchmark finds now.

    Raises:
        RuntimeError: It gives no results; a benchmark whose targets are not met gives some.
    """
    command = [sys.executable, "-m", "holdfast_bench", report, "--quick", "--json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        found: Results = json.loads(done.stdout)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"it did not end within {_TIMEOUT_S:.0f} s") from late
    except json.JSONDecodeError as error:
        raise RuntimeError(f"no results: {done.stderr[-500:]}") from error
    return found


def run(
    reports: tuple[str, ...],
    say: Callable[[str], None],
    factor: float | None = None,
    measure: Callable[[str], Results] = measured,
) -> list[Comparison]:
    """Compare these reports with what is measured now, one after the other."""
    found = []
    for report in reports:
        committed = json.loads((REPORTS / f"{report}.json").read_text())
        try:
            comparison = compare(report, committed, measure(report), factor)
        except RuntimeError as error:
            comparison = Comparison(report, 0, (), str(error))
        found.append(comparison)
        said = comparison.failure or f"{len(comparison.moved)} of {comparison.compared} moved"
        say(f"{report}: {said}")
    return found


def render(found: list[Comparison]) -> str:
    """What has moved, as Markdown."""
    moved = [each for comparison in found for each in comparison.moved]
    rows = [
        (
            each.report,
            each.figure,
            f"{each.committed:,.4g}",
            f"{each.now:,.4g}",
            f"{each.times:.2f}",
            "not worse" if each.allowed is None else f"1/{each.allowed:g} to {each.allowed:g}",
        )
        for each in moved
    ]
    compared = sum(comparison.compared for comparison in found)
    text = f"{compared} figures of {len(found)} reports were compared; {len(moved)} have moved.\n"
    failed = [f"\n{each.report}: {each.failure}\n" for each in found if each.failure]
    return "".join((text, *failed, "\n" + table(_HEADER, rows) if rows else ""))


def as_json(found: list[Comparison]) -> str:
    """The same for programs."""
    return json.dumps([asdict(each) for each in found], indent=2) + "\n"
