"""A campaign: thousands of seeds in the simulator, real faults on Spark, and the cost by size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sim.beside import BESIDE, world_of
from holdfast.sim.campaign import Crew, Summary
from holdfast.sim.faults import KINDS
from holdfast.sim.scale import SIZES, measure_all
from holdfast.sim.seeds import Run, simulate
from holdfast_bench import pieces
from holdfast_bench.reporter import former_results, machine_of, table, write_page
from holdfast_bench.spine import commit, machine
from holdfast_chaos.runs import RealOutcome, draw_run, execute_all

_INTRODUCTION = """\
# Faults, simulated and real

`holdfast bench simulation` made this page. What is simulated, what is checked and what was found
and mended on the way stands in [testing.md](../testing.md).

"""
_WHAT_COUNTS = """
A campaign has pieces, each with its commit. A piece counts, and is in the sums below, as long as
some of its seeds, run again on the present code, give the same digests over all events.

"""
_SAY_EVERY = 100
"""Seeds after which the campaign is saved."""
_REAL_EVERY = 20
"""Real faults after which it is."""


@dataclass(frozen=True, slots=True)
class CampaignSizes:
    """How much.

    Attributes:
        seeds: Simulated runs.
        real_faults: Real faults, at least.
        first_seed: The first seed of both, in a new campaign.
        file: What keeps the campaign, to be gone on with; None: it is done at once.
        processes: How many run seeds; None: one a core.
        scale: The sizes at which the cost by size is measured, in nodes.
    """

    seeds: int
    real_faults: int
    first_seed: int
    file: Path | None = None
    processes: int | None = None
    scale: tuple[int, ...] = SIZES


FULL = CampaignSizes(20_000, 200, 100_000)
QUICK = CampaignSizes(400, 6, 100_000, scale=SIZES[:4])


def run(sizes: CampaignSizes, say: Callable[[str], None]) -> dict[str, Any]:
    """All three parts; what a campaign has in `sizes.file` stays, and more seeds follow it."""
    campaign = pieces.load(sizes.file)
    if sizes.real_faults:
        _real(campaign, sizes, say)
    with Crew(sizes.processes) as crew:
        pieces.in_batches(
            sizes.seeds, _SAY_EVERY, lambda n: _simulated(campaign, sizes, crew, n, say)
        )
    counts = pieces.counting(campaign, lambda seed: simulate(Run(seed)).digest)
    say(f"{pieces.total(counts['simulated']).get('runs', 0)} seeds count on this code")
    for piece in counts["simulated"]:
        for violation in piece["violations"]:
            violation["holds"] = holds(violation)
    about = {"commit": commit()}
    scale = [measured.to_json() | about for measured in measure_all(say, sizes.scale)]
    return {"machine": machine(), **campaign, "counting": counts, "scale": scale}


def _real(campaign: dict[str, Any], sizes: CampaignSizes, say: Callable[[str], None]) -> None:
    from holdfast.driver.session import session

    def tell(outcome: RealOutcome) -> None:
        wrong = "; ".join(outcome.violations)
        say(f"real seed {outcome.run.seed}: {', '.join(outcome.struck)} {wrong}")

    done = campaign["real"]
    spark = session("holdfast-real-faults")

    def some(wanted: int) -> int:
        first, seeds, planned = pieces.next_seed(done, sizes.first_seed), list[int](), 0
        while planned < wanted:
            seeds.append(first + len(seeds))
            planned += len(draw_run(seeds[-1]).faults)
        found = execute_all(spark, seeds, tell)
        counted = Counter(str(ms // 10 * 10) for o in found.outcomes for ms in o.recovered_ms)
        result = found.to_json() | {"recovered_ms": dict(counted)}
        pieces.add(done, commit(), first, result)
        pieces.save(campaign, sizes.file)
        return max(1, int(result["faults"]))

    try:
        pieces.in_batches(sizes.real_faults, _REAL_EVERY, some)
    finally:
        spark.stop()


def _simulated(
    campaign: dict[str, Any],
    sizes: CampaignSizes,
    crew: Crew,
    wanted: int,
    say: Callable[[str], None],
) -> int:
    done, started_s = campaign["simulated"], time.monotonic()
    first = pieces.next_seed(done, sizes.first_seed)
    runs = [Run(seed) for seed in range(first, first + wanted)]
    beside = [Run(run.seed, dataflow=world_of(run.seed)) for run in runs]
    summary = Summary()
    for outcome in crew.outcomes(runs + beside):
        is_beside = outcome.run.dataflow in BESIDE
        if not is_beside:
            summary.add(outcome)
        if outcome.invariant is not None:
            say(f"{outcome.violation}\n  {outcome.run.command()}")
            if is_beside:
                summary.violations.append(outcome)
    summary.real_s = time.monotonic() - started_s
    lists = {
        "beside": dict(Counter(world_of(run.seed) for run in runs)),
        "pairs_of_faults_met": sorted(f"{a} and {b}" for a, b in summary.pairs),
        "kinds_of_faults": sorted(KINDS),
        pieces.PROBES: pieces.probes_of(summary.digests),
    }
    pieces.add(done, commit(), first, summary.to_json() | lists)
    pieces.save(campaign, sizes.file)
    say(f"{pieces.total(done)['runs']} seeds")
    return wanted


def with_former_scale(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With the cost by size of the report in a folder, and the commit that it ran on."""
    found = former_results("simulation", folder)
    about = {"commit": found.get("machine", {}).get("commit", "")}
    return {**results, "scale": [about | measured for measured in found.get("scale", [])]}


def holds(violation: dict[str, Any]) -> bool:
    """Whether the seed violates something on the present code, too."""
    seed = violation["seed"]
    is_beside = "--dataflow" in violation["command"]
    run = Run(seed, dataflow=world_of(seed)) if is_beside else Run(seed)
    return simulate(run).invariant is not None


def has_violations(results: dict[str, Any]) -> bool:
    """Whether anything was found."""
    return any(piece["violations"] for kind in pieces.KINDS for piece in results[kind])


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `simulation.json`, `simulation.md` and the plot into `folder`; the page's path."""
    page = write_page("simulation", results, render(results), folder)
    if results["scale"]:
        _plot_scale(results["scale"], folder / "simulation-scale.png")
    return page


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    given = machine_of(results)
    counts = results["counting"]
    return "".join(
        [
            _INTRODUCTION,
            f"Machine: {given}.\n",
            _commits_section(results),
            _simulated_section(pieces.total(counts["simulated"])) if counts["simulated"] else "",
            _real_section(pieces.total(counts["real"])) if counts["real"] else "",
            _scale_section(results["scale"]) if results["scale"] else "",
        ]
    )


def _commits_section(results: dict[str, Any]) -> str:
    """Which seeds ran on which code."""
    rows = [
        (
            piece["commit"],
            kind,
            piece["first_seed"],
            piece["runs"],
            len(piece["violations"]),
            "yes" if piece in results["counting"][kind] else "no",
        )
        for kind in pieces.KINDS
        for piece in results[kind]
    ]
    header = ("commit", "runs are", "first seed", "runs", "violations", "counts")
    return _WHAT_COUNTS + table(header, rows)


def _simulated_section(found: dict[str, Any]) -> str:
    last = found["first_seed"] + found["runs"]
    struck = found["faults_injected"]
    protected = sorted(found["protections"].items(), key=lambda item: -item[1])
    kinds = [(kind, struck.get(kind, 0), meaning) for kind, meaning in KINDS.items()]
    met = sorted(found["situations_met_in_runs"].items(), key=lambda item: -item[1])
    return (
        f"\n## Simulated\n\n{found['runs']:,} seeds ({found['first_seed']:,} to {last - 1:,}): "
        f"{sum(struck.values()):,} faults in {found['virtual_seconds']:,.0f} virtual seconds, "
        f"{found['output_tuples']:,} tuples put out, {found['events']:,} events, in "
        f"{found['real_seconds']:.0f} s. Violations: **{len(found['violations'])}**.\n\n"
        + table(("fault", "struck", "what happens"), kinds)
        + f"\nPairs of kinds that met in a run: {len(found['pairs_of_faults_met'])} of "
        f"{len(KINDS) * (len(KINDS) - 1) // 2}.\n\n"
        + table(("situation", "runs that met it"), met)
        + "\n"
        + table(("protection of some unit", "runs"), protected)
        + "\n"
        + table(("world of its own", "runs"), [(n, found["beside"].get(n, 0)) for n in BESIDE])
        + violations_table(found["violations"])
    )


def violations_table(found: list[dict[str, Any]]) -> str:
    """Each, how to run it again, and whether it is mended; nothing if there is none."""
    if not found:
        return ""
    rows = [
        (
            v["seed"],
            v["text"],
            f"`{v.get('command', '')}`",
            "" if v.get("holds", True) else "no longer: what was wrong is mended",
        )
        for v in found
    ]
    return "\n" + table(("seed", "violation", "command", "on the present code"), rows)


def _real_section(found: dict[str, Any]) -> str:
    struck = sorted(found["faults_injected"].items())
    middle, longest = pieces.middle_of(found["recovered_ms"]) or ("-", "-")
    return (
        f"\n## Real\n\n{found['runs']} runs of NexMark queries on Spark tasks with "
        f"{found['faults']} faults in {found['real_seconds']:.0f} s; {found['failures_detected']} "
        f"losses of nodes were detected; from the last sign of life to the first new output it "
        f"took {middle} ms (median), {longest} ms at most, which contains "
        f"faults that go on: a pause, a cut, another kill. "
        f"{found['output_tuples']:,} tuples, compared with Spark SQL. Violations: "
        f"**{len(found['violations'])}**.\n\n"
        + table(("fault", "struck"), struck)
        + "\n"
        + table(("protection", "runs"), sorted(found["protections"].items()))
        + violations_table(found["violations"])
    )


def _scale_section(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            m["shape"],
            m["nodes"],
            m["edges"],
            f"{m['events']:,}",
            f"{m['virtual_per_real']:.3f}",
            f"{m['us_per_edge'] / 1000:.1f}",
            f"{m['run_s'] / m['events'] * 1e6:.0f}",
            m["commit"],
        )
        for m in found
    ]
    header = (
        "shape",
        "nodes",
        "edges",
        "events",
        "virtual s per real s",
        "real ms per edge and virtual s",
        "us per event",
        "commit",
    )
    return (
        "\n## Cost by size\n\nOne virtual second of input, 100 tuples a source, no faults, one "
        "process. `chains`: chains of ten nodes; `exchange`: half of the nodes send to all of the "
        "other half. No cost grows faster than the edges: per edge there are no more events, and "
        "no more calls (testing.md), in a large dataflow than in a small one. What time per event "
        "grows by is memory: a larger run keeps more of it.\n\n"
        + table(header, rows)
        + "\n![cost](simulation-scale.png)\n"
    )


def _plot_scale(found: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for shape, marker in (("chains", "o"), ("exchange", "s")):
        mine = [m for m in found if m["shape"] == shape]
        speeds = [m["virtual_per_real"] for m in mine]
        axes.loglog([m["edges"] for m in mine], speeds, marker=marker, label=shape)
    axes.set_xlabel("edges")
    axes.set_ylabel("virtual seconds per real second")
    axes.set_title("Simulated seconds per second, by edges")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
