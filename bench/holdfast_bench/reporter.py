"""The reporter: writes what was measured as a page, with plots, and as JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Results = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page; only what was measured is in it.

    Attributes:
        name: Of its files.
        head: What stands before the sections.
        sections: By the name of what was measured; in this order.
        plots: The same; each is drawn into a folder.
        takes_all: Whether sections and plots take all results, instead of their own.
    """

    name: str
    head: Callable[[Results], str]
    sections: Mapping[str, Callable[[Any], str]]
    plots: Mapping[str, Callable[[Any, Path], None]] = field(default_factory=dict)
    takes_all: bool = False

    def _of(self, name: str, results: Results) -> Any:
        return results if self.takes_all else results[name]

    def render(self, results: Results) -> str:
        """The page as Markdown."""
        parts = [self.head(results)]
        parts += [
            section(self._of(name, results))
            for name, section in self.sections.items()
            if results.get(name)
        ]
        return "".join(parts)

    def write(self, results: Results, folder: Path) -> Path:
        """Write the page, the results and the plots into a folder; the page's path."""
        page = write_page(self.name, results, self.render(results), folder)
        for name, plot in self.plots.items():
            if results.get(name):
                plot(self._of(name, results), folder)
        return page

    def former(self, folder: Path) -> Results:
        """What an earlier run has left in a folder."""
        return former_results(self.name, folder)


def machine_of(results: Results) -> str:
    """The machine that it was measured on."""
    return ", ".join(f"{key} {value}" for key, value in results["machine"].items())


def how_measured(results: dict[str, Any]) -> str:
    """A line on the machine and on every experiment; each may have been repeated alone.

    Where experiments name their commits, those that do not were measured before they did.
    """
    experiments = results["experiments"]
    names_commits = any("commit" in entry for entry in experiments.values())
    how = ", ".join(
        f"{name} ({entry['size']}, {entry['seconds']:.0f} s"
        + (f", {entry.get('commit', 'an older commit')})" if names_commits else ")")
        for name, entry in experiments.items()
    )
    return f"Machine: {machine_of(results)}. Experiments: {how}.\n"


def write_page(name: str, results: dict[str, Any], text: str, folder: Path) -> Path:
    """Write a page, and what it says as JSON beside it, into a folder; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    page = folder / f"{name}.md"
    page.write_text(text)
    return page


def former_results(name: str, folder: Path) -> dict[str, Any]:
    """What a page there says, so that experiments can be repeated one by one; maybe nothing."""
    path = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def new_figure() -> tuple[Any, Any]:
    """A figure and its axes, as all plots of reports look."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=120)
    pyplot.close(figure)
