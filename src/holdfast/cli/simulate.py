"""`holdfast simulate`: run the cores under seeded faults, see a run, cut a failing one down."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from holdfast.cli import checkout

if TYPE_CHECKING:
    from holdfast.sim.campaign import Summary
    from holdfast.sim.seeds import Outcome, Run

_console = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Approach = Annotated[
    str | None, typer.Option(help="Protect all units so, e.g. 'active standby'; else drawn.")
]
WeakestGuarantee = Annotated[
    str | None,
    typer.Option(help="The weakest that units have: precise, rollback or gap; else drawn."),
]
Kept = Annotated[
    str | None, typer.Option(help="With --seed: strike only these of its faults, by number.")
]
TuplesMax = Annotated[
    int | None, typer.Option(min=0, help="With --seed: most tuples per source partition.")
]

EveryStep = Annotated[
    bool, typer.Option("--every-step", help="With --trace: every step of every machine too.")
]


@app.command()
def simulate(
    *,
    seeds: Annotated[
        str, typer.Option(help="Seeds to run, FROM:TO (TO excluded) or FROM:+COUNT.")
    ] = "0:100",
    seed: Annotated[int | None, typer.Option(help="One seed instead.")] = None,
    faults: Annotated[str, typer.Option(help="all, none, or kinds with commas between.")] = "all",
    dataflow: Annotated[
        str,
        typer.Option(
            help="mixed, random, arbitrary, branches, diamond, clock, recording, topics, q1 ..."
        ),
    ] = "mixed",
    approach: Approach = None,
    guarantee: WeakestGuarantee = None,
    keep: Kept = None,
    tuples: TuplesMax = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: show the timeline.")] = False,
    every_step: EveryStep = False,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Cut the first failing run down to what it needs.")
    ] = False,
    real: Annotated[
        bool, typer.Option("--real", help="The faults that can be had for real, on Spark tasks.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run dataflows under seeded faults in virtual time and check every invariant.

    Exit code 1 when one was violated. Only `--real` needs Java.
    """
    campaign = checkout.load("holdfast.sim.campaign", for_command="holdfast simulate")
    from holdfast.sim.seeds import Run

    _check_names(dataflow, approach, guarantee)
    of_networks = {"--keep": keep is not None, "--tuples": tuples is not None}
    of_one = of_networks | {"--trace": trace}
    if real:
        of_simulation = {"--shrink": shrink, "--dataflow": dataflow != "mixed"}
        of_simulation |= _drawn_otherwise(approach, guarantee, faults)
        _refuse(of_one | of_simulation, "cannot be had with --real")
        wanted = _range(seeds) if seed is None else range(seed, seed + 1)
        raise typer.Exit(_for_real(wanted, as_json=as_json))
    drawn_otherwise = _drawn_otherwise(approach, guarantee, faults)
    _refuse_beside(dataflow, of_networks | drawn_otherwise | {"--shrink": shrink})
    run = Run(seed or 0, _kinds(faults), dataflow, None, tuples, approach, guarantee)
    if seed is not None:
        run = replace(run, keep=_numbers(keep))
        summary = _summary_of_one(run, is_traced=trace, is_full=every_step)
    else:
        _refuse(of_one, "needs --seed")
        summary = _many([replace(run, seed=number) for number in _range(seeds)], processes)
    if shrink and summary.violations:
        summary.violations.insert(0, campaign.shrink(summary.violations[0]))
    _show(summary, is_single=seed is not None, as_json=as_json)
    raise typer.Exit(1 if summary.violations else 0)


def _show(summary: Summary, *, is_single: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(summary.to_json(), indent=2) + "\n")
    else:
        _print(summary, is_single=is_single)


def _check_names(dataflow: str, approach: str | None, guarantee: str | None) -> None:
    """Raise `BadParameter` when one of them is unknown."""
    from holdfast.sim.seeds import DATAFLOWS
    from holdfast.sim.workload.protections import (
        ALL_GO_BACK,
        APPROACHES,
        BESIDE_EVENTUAL,
        CUTS,
        GUARANTEES,
        REPLICAS,
        REPLICATED,
        SURVIVES_ONE,
        UNDO,
    )

    own = SURVIVES_ONE, REPLICATED, UNDO, REPLICAS
    approaches = (*APPROACHES, *own, *CUTS, *ALL_GO_BACK, *BESIDE_EVENTUAL)
    for kind, given, known in (
        ("dataflow", dataflow, DATAFLOWS),
        ("approach", approach, approaches),
        ("guarantee", guarantee, GUARANTEES),
    ):
        if given is not None and given not in known:
            raise typer.BadParameter(f"no {kind} {given!r}; there are {', '.join(known)}")


def _drawn_otherwise(approach: str | None, guarantee: str | None, faults: str) -> dict[str, bool]:
    """Which of these options are given."""
    return {
        "--faults": faults != "all",
        "--approach": approach is not None,
        "--guarantee": guarantee is not None,
    }


def _refuse_beside(dataflow: str, given: dict[str, bool]) -> None:
    """Raise `BadParameter` when something is asked of a world of its own that networks have."""
    from holdfast.sim.beside import BESIDE

    if dataflow in BESIDE:
        _refuse(given, f"cannot be had with --dataflow {dataflow}, which has a world of its own")


def _refuse(given: dict[str, bool], why: str) -> None:
    """Raise `BadParameter` when one of these options is given."""
    if refused := [option for option, is_given in given.items() if is_given]:
        raise typer.BadParameter(f"{', '.join(refused)} {why}")


def _summary_of_one(run: Run, *, is_traced: bool, is_full: bool) -> Summary:
    from holdfast.sim import campaign

    _check_kept(run)
    started_s = time.monotonic()
    outcome = _one(run, is_traced=is_traced, is_full=is_full)
    summary = campaign.Summary()
    summary.add(outcome)
    summary.real_s = time.monotonic() - started_s
    return summary


def _kinds(text: str) -> tuple[str, ...]:
    from holdfast.sim.faults import KINDS

    if text == "all":
        return tuple(KINDS)
    kinds = tuple(word for word in text.split(",") if word and word != "none")
    for kind in kinds:
        if kind not in KINDS:
            raise typer.BadParameter(f"no fault {kind!r}; there are {', '.join(KINDS)}")
    return kinds


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(",") if word and word != "none")
    except ValueError:
        raise typer.BadParameter(f"--keep {text!r}: numbers of faults with commas") from None


def _check_kept(run: Run) -> None:
    planned = replace(run, keep=None).faults()
    unknown = [number for number in run.keep or () if number not in planned]
    if unknown:
        raise typer.BadParameter(
            f"--keep {unknown[0]}: seed {run.seed} plans {len(planned)} faults, numbered from 0"
        )


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    count = last.removeprefix("+")
    begins, counted = (int(each) if each.isdigit() else -1 for each in (first, count))
    ends = counted if count == last else begins + counted
    if not 0 <= begins < ends or counted < 0:
        raise typer.BadParameter(f"--seeds {text!r}: write FROM:TO, for example 0:1000, or 0:+1000")
    return range(begins, ends)


def _one(run: Run, *, is_traced: bool, is_full: bool) -> Outcome:
    from holdfast.sim.beside import BESIDE, IN_STEPS
    from holdfast.sim.seeds import simulate
    from holdfast.sim.timeline import Timeline

    timeline = None
    if is_traced:
        is_in_steps = run.dataflow in IN_STEPS
        timeline = Timeline(sys.stderr, is_full=is_full, is_in_steps=is_in_steps)
        if run.dataflow not in BESIDE:
            timeline.describe(run)
    return simulate(run, None if timeline is None else timeline.show)


def _many(runs: list[Run], processes: int | None) -> Summary:
    from holdfast.sim.campaign import run_all

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=_console, transient=True) as progress:
        task = progress.add_task("seeds", total=len(runs))

        def advance(outcome: Outcome) -> None:
            progress.advance(task)
            if outcome.invariant is not None:
                progress.console.print(f"{outcome.violation}\n  {outcome.run.command()}")

        return run_all(runs, processes=processes, progress=advance)


def _for_real(seeds: range, *, as_json: bool) -> int:
    from holdfast.driver.session import session

    runs = checkout.load("holdfast_chaos.runs", for_command="holdfast simulate --real")

    def say(outcome: Any) -> None:
        run = outcome.run
        _console.print(
            f"seed {run.seed}: {run.query}, {run.protection}, {run.parallelism} instances a unit, "
            f"{', '.join(outcome.struck) or 'no fault'}; "
            f"{'; '.join(outcome.violations) or 'as Spark SQL has it'}",
            markup=False,
        )

    spark = session("holdfast-real-faults")
    try:
        summary = runs.execute_all(spark, seeds, say)
    finally:
        spark.stop()
    result = summary.to_json()
    if as_json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        Console().print(
            f"{result['runs']} runs, {result['faults']} faults, "
            f"{result['failures_detected']} losses of nodes detected, recovered in "
            f"{result['recovered_ms']['median']} ms (median), {len(summary.violations)} violations",
            markup=False,
        )
    return 1 if summary.violations else 0


def _print(summary: Summary, *, is_single: bool) -> None:
    out = Console()
    for outcome in summary.violations:
        out.print(outcome.violation, markup=False, style="bold red")
        out.print(f"  {outcome.run.command()}", markup=False)
    struck = ", ".join(f"{n} {kind}" for kind, n in sorted(summary.faults.items()))
    has_own_world = summary.virtual_us == 0  # It counts neither time nor, perhaps, faults.
    if struck or not has_own_world:
        out.print(f"faults: {struck or 'none'}", markup=False)
    if not is_single:
        met = ", ".join(f"{name} in {n}" for name, n in summary.situations.most_common())
        out.print(f"runs that met: {met or 'nothing rare'}", markup=False)
    virtual = "" if has_own_world else f", {summary.virtual_us / 1e6:.1f} virtual seconds"
    out.print(
        f"{summary.runs} runs{virtual} in {summary.real_s:.1f} s, "
        f"{len(summary.violations)} violations",
        markup=False,
    )
