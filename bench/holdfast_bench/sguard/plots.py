"""Plots of SGuard's experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final


@contextmanager
def _figure(path: Path, columns: int = 1) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, columns, figsize=(6 * columns, 4), layout="constrained", squeeze=False
    )
    yield axes[0]
    for part in axes[0]:
        part.grid(visible=True, which="both", alpha=0.3)
        part.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _preparing(found: list[dict[str, Any]], folder: Path) -> None:
    with _figure(folder / "sguard-preparing.png") as (axes,):
        for page_bytes, marker in ((8 << 10, "o"), (64 << 10, "s")):
            mine = [p for p in found if p["page_bytes"] == page_bytes]
            sizes = [p["size_mb"] for p in mine]
            label = f"freeze pages of {page_bytes >> 10} KiB"
            axes.loglog(sizes, [p["prepare_ms"] for p in mine], marker=marker, label=label)
        whole = [p for p in found if "serialize_arrow_ms" in p]
        sizes = [p["size_mb"] for p in whole]
        for key, label in (("arrow", "serialize, Arrow"), ("objects", "serialize, objects")):
            axes.loglog(sizes, [p[f"serialize_{key}_ms"] for p in whole], "--", label=label)
        axes.set_xlabel("state, MB")
        axes.set_ylabel("unit stands still, ms")
        axes.set_title("Preparing a checkpoint (Figure 6)")


def _restoring(found: list[dict[str, Any]], folder: Path) -> None:
    with _figure(folder / "sguard-restoring.png") as (axes,):
        sizes = [r["size_mb"] for r in found]
        axes.plot(sizes, [r["load_ms"] for r in found], "o-", label="load and check")
        axes.plot(sizes, [r["read_ms"] for r in found], "s--", label="read only")
        axes.plot(sizes, [r["page_tables_ms"] for r in found], "^:", label="page tables")
        axes.set_yscale("log")
        axes.set_xlabel("state, MB")
        axes.set_ylabel("ms")
        axes.set_title("Loading a checkpoint (Figure 9)")


def _latency(found: list[dict[str, Any]], folder: Path) -> None:
    parts = sorted({run["parts"] for run in found})
    with _figure(folder / "sguard-latency.png", len(parts)) as panels:
        for axes, count in zip(panels, parts, strict=True):
            for run in found:
                if run["parts"] == count and run["rate"] == 2_000:
                    times, tops = zip(*run["seconds"], strict=True)
                    axes.semilogy(times, tops, label=run["technique"], linewidth=0.9)
            axes.set_xlabel("s")
            axes.set_ylabel("greatest latency in 0.1 s, ms")
            axes.set_title(f"{count} part{'s' if count > 1 else ''}, 2,000 tuples/s")


def _peace(found: list[dict[str, Any]], folder: Path) -> None:
    with _figure(folder / "sguard-peace.png", 2) as (single, everything):
        for size_mb in sorted({row["size_mb"] for row in found}):
            mine = [row for row in found if row["size_mb"] == size_mb]
            writers = [row["writers"] for row in mine]
            for axes, key in ((single, "io"), (everything, "completion")):
                for way, style in (("without", "--"), ("with", "-")):
                    label = f"{size_mb} MB, {way} Peace"
                    axes.plot(writers, [r[f"{key}_{way}_s"] for r in mine], style, label=label)
        single.set_title("One checkpoint (Figure 10, IO)")
        everything.set_title("All checkpoints (Figure 10, COMP)")
        for axes in (single, everything):
            axes.set_xlabel("writers at once")
            axes.set_ylabel("s")


PLOTS: Final[dict[str, Callable[[Any, Path], None]]] = {
    "preparing": _preparing,
    "restoring": _restoring,
    "latency": _latency,
    "peace": _peace,
}
