"""Faults on a real Spark cluster: a standalone master and workers, each host with a network."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast_bench.recovery import catch_up_of, said_of_catch_up
from holdfast_bench.reporter import former_results, table, write_page
from holdfast_bench.spine import machine
from holdfast_chaos.cluster_job import TOGETHER
from holdfast_chaos.cluster_runs import FAULTS, ClusterRuns, RunFailed, run_program
from holdfast_chaos.standalone import StandaloneCluster

FIRST_OUTPUT_MS: Final = {"executor": 2_000, "driver": 10_000, "standby": 3_000}
"""By fault, what the first new output may take, median."""

WORKERS: Final = 3
SLOTS: Final = 4
EXPERIMENTS: Final = (*(fault for fault in FAULTS if fault != "none"), "programs")
_PROTECTIONS: Final = {
    "executor": ("embedded",),
    "region": TOGETHER,
    "two-executors": ("folder", "upstream", "active", "passive"),
    "two-workers": ("folder", "upstream", "active", "passive"),
}
_EVERY: Final = ("embedded", "active", "upstream", "passive")
_PROGRAMS: Final = {
    "demo": ("demo", "--seconds", "15"),
    "q1": ("nexmark", "q1", "--seconds", "10", "--kill", "ingest@4s", "--verify"),
    "q3": ("nexmark", "q3", "--seconds", "10", "--kill", "join@4s", "--verify"),
    "q8": ("nexmark", "q8", "--seconds", "25", "--kill", "join@4s", "--verify"),
    "q12": ("nexmark", "q12", "--seconds", "25", "--kill", "counts@4s", "--verify"),
}
_INTRODUCTION: Final = """\
# Faults on a Spark cluster

`holdfast bench cluster` made this page: a Spark standalone cluster, started from the installed
pyspark with Spark's authentication and encryption on, runs programs begun by `spark-submit`, and
something of it is struck. What is in it, and how to run Holdfast on a cluster, stands in
[cluster.md](../cluster.md).

"""


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """How often each fault is tried.

    Attributes:
        runs: Of the faults with a figure to meet.
        more: Of the others.
        programs: Which of the demo and the NexMark queries are submitted.
    """

    runs: int
    more: int
    programs: tuple[str, ...]


FULL = ClusterSizes(20, 4, tuple(_PROGRAMS))
QUICK = ClusterSizes(2, 1, ("q12",))
_COUNTED: Final = ("executor", "worker", "cut", "driver", "standby")


def run(
    sizes: ClusterSizes,
    say: Callable[[str], None],
    *,
    only: tuple[str, ...] = EXPERIMENTS,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """All experiments wanted, on one cluster.

    Args:
        sizes: How often.
        say: For people.
        only: Which.
        keep: Called with what there is after each.
    """
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-cluster-") as folder:
        cluster = StandaloneCluster(Path(folder, "cluster"), workers=WORKERS, slots=SLOTS)
        try:
            results["network"] = type(cluster.hosts).__name__
            runs = ClusterRuns(cluster, Path(folder, "runs"))
            for name in only:
                about = {"machine": machine()}
                if name == "programs":
                    runs.close()  # An application takes all slots there are.
                    found = _programs(cluster, Path(folder, "programs"), sizes, say)
                elif name == "cut" and not cluster.hosts.can_cut:
                    say("cut: left out; it needs root and iproute2")
                    continue
                else:
                    count = sizes.runs if name in _COUNTED else sizes.more
                    found = _faults(runs, name, count, say)
                results[name] = {**about, **found}
                keep(results)
            runs.close()
        finally:
            cluster.close()
    return results


def _faults(
    runs: ClusterRuns, fault: str, count: int, say: Callable[[str], None]
) -> dict[str, Any]:
    protections = _PROTECTIONS.get(fault, _EVERY)
    found: list[dict[str, Any]] = []
    for number in range(count):
        protection = protections[number % len(protections)]
        outcome = runs.execute(fault, protection)
        found.append(outcome.to_json())
        wrong = "; ".join(outcome.violations)
        say(f"{fault} {number + 1}, {protection}: {outcome.first_output_ms} ms {wrong}")
    return {"runs": found}


def _programs(
    cluster: StandaloneCluster, folder: Path, sizes: ClusterSizes, say: Callable[[str], None]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sizes.programs:
        try:
            said = run_program(cluster, folder / name, *_PROGRAMS[name])
            is_identical = bool(said.get("verified", said.get("identical")))
            kept = ("input_tuples", "output_tuples", "lost", "duplicates", "failures")
            found[name] = {"is_identical": is_identical, **{key: said[key] for key in kept}}
        except RunFailed as error:
            found[name] = {"is_identical": False, "error": str(error)}
        say(f"{name}: {'identical' if found[name]['is_identical'] else found[name]}")
    return {"submitted": found}


def has_violations(results: dict[str, Any]) -> bool:
    """Whether any output was not as it must be."""
    runs = [run for name in FAULTS if name in results for run in results[name]["runs"]]
    programs = results.get("programs", {}).get("submitted", {})
    return any(run["violations"] for run in runs) or not all(
        program["is_identical"] for program in programs.values()
    )


# -- the page -------------------------------------------------------------------------------


def former(folder: Path) -> dict[str, Any]:
    """What a report there says, so that experiments can be repeated one by one."""
    return former_results("cluster", folder)


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `cluster.md` and `cluster.json`; the page's path."""
    return write_page("cluster", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    network = {
        "NamespaceHosts": "each in a network namespace of its own, joined by a bridge",
        "LoopbackHosts": "each with an address of the loopback device",
    }[results["network"]]
    tried = [name for name in FAULTS if name in results]
    page = _INTRODUCTION
    page += f"One master and {WORKERS} workers with {SLOTS} slots, {network}.\n"
    if tried:
        page += "\n## Faults\n\n" + _fault_table(results, tried) + _targets(results)
        page += "\n## By protection\n\n" + _protection_table(results, tried)
        page += _violations(results, tried)
    if "programs" in results:
        page += "\n## Submitted programs\n\n" + _program_table(results["programs"]["submitted"])
    page += "\n## Machine\n\n" + "".join(
        f"- {name}: {', '.join(f'{k} {v}' for k, v in results[name]['machine'].items())}\n"
        for name in EXPERIMENTS
        if name in results
    )
    return page


def _fault_table(results: dict[str, Any], tried: list[str]) -> str:
    rows = []
    for name in tried:
        runs = results[name]["runs"]
        identical = sum(bool(run.get("is_identical")) for run in runs)
        lost = sum(run.get("lost", 0) for run in runs)
        doubled = sum(run.get("doubled", 0) for run in runs)
        rows.append(
            (FAULTS[name], len(runs), identical, lost, doubled, *_times(runs), *_felt(runs))
        )
    header = (
        *("fault", "runs", "identical", "lost", "doubled", "median ms", "least", "most"),
        *("as prompt as before ms", "× first output"),
    )
    return (
        "NexMark Q12 with running results at 10,000 tuples/s, struck after two seconds of input; "
        "*identical*: the sink's log is, tuple by tuple and in order, that of a run without "
        "faults, which was compared with Spark SQL. The times are from the fault to the first new "
        "output of the node that was struck, as a reader of its sink sees it. *As prompt as "
        "before*: from the node's last sign of life until half of the results of a report were no "
        "later than 99 of 100 in the two seconds before, as the query reports it. A driver that "
        "takes over has not seen what was before.\n\n" + table(header, rows)
    )


def _times(runs: list[dict[str, Any]]) -> tuple[str, str, str]:
    times = [run["first_output_ms"] for run in runs if run["first_output_ms"] is not None]
    if not times:
        return "–", "–", "–"
    middle = statistics.median(times)
    return f"{middle:,.0f}", f"{min(times):,.0f}", f"{max(times):,.0f}"


def _felt(runs: list[dict[str, Any]]) -> tuple[str, str]:
    """Medians of catch-up over the recoveries of all runs, for the table."""
    found = [recovery for run in runs for recovery in run.get("recoveries", [])]
    told = [recovery for recovery in found if recovery.get("caught_up_ms") is not None]
    return said_of_catch_up(catch_up_of(told)) if told else ("–", "–")


def _targets(results: dict[str, Any]) -> str:
    said = [_target(results, name, most_ms) for name, most_ms in FIRST_OUTPUT_MS.items()]
    return "".join(said)


def _target(results: dict[str, Any], name: str, most_ms: int) -> str:
    """Whether a fault's times are as they should be; empty if it was not tried."""
    if name not in results:
        return ""
    runs = results[name]["runs"]
    times = [run["first_output_ms"] for run in runs if run["first_output_ms"] is not None]
    middle = statistics.median(times) if times else float("inf")
    is_met = "met" if middle <= most_ms else "**not met**"
    said = (
        f"\nFirst new output after *{FAULTS[name]}*, median of {len(times)} runs: {middle:,.0f} "
        f"ms (at most {most_ms:,} ms: {is_met})."
    )
    if name == "executor":
        held = Counter(
            "a node, its sink and a data node" if _holds_all(run) else ", ".join(run["held"])
            for run in runs
        )
        what = "; ".join(f"{count} times {name}" for name, count in held.items())
        said += f" It held {what}."
    return said + "\n"


def _holds_all(run: dict[str, Any]) -> bool:
    held = run["held"]
    return any(name.startswith("data node") for name in held) and "primary of counts[0]" in held


def _protection_table(results: dict[str, Any], tried: list[str]) -> str:
    rows = []
    for name in tried:
        of: dict[str, list[dict[str, Any]]] = {}
        for run in results[name]["runs"]:
            of.setdefault(run["run"]["protection"], []).append(run)
        rows += [(name, key, len(runs), *_times(runs)) for key, runs in of.items()]
    names = (
        "*embedded*: `Checkpointed` every 0.5 s in data nodes on the workers' own disks, two "
        "copies; *folder*: the same in a shared folder; *upstream*: `UpstreamBackup`; *active* and "
        "*passive*: standby, `strict=True`; *aligned*, *unaligned*, *uncoordinated*, *induced*: "
        "units that recover together, which read events as they come.\n\n"
    )
    return names + table(("fault", "protection", "runs", "median ms", "least", "most"), rows)


def _violations(results: dict[str, Any], tried: list[str]) -> str:
    found = [
        f"- {name}, {run['run']['protection']}: {text}\n"
        for name in tried
        for run in results[name]["runs"]
        for text in run["violations"]
    ]
    return "\n## Violations\n\n" + ("".join(found) or "None.\n")


def _program_table(programs: dict[str, Any]) -> str:
    rows = [
        (
            f"`holdfast {' '.join(_PROGRAMS[name])}`",
            "identical" if said["is_identical"] else f"**{said.get('error', 'different')}**",
            f"{said.get('input_tuples', 0):,}",
            f"{said.get('output_tuples', 0):,}",
        )
        for name, said in programs.items()
    ]
    return table(("program", "output", "tuples in", "tuples out"), rows)
