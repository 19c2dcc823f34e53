"""`holdfast bench`, or `python -m holdfast_bench`: measure what the documents claim."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console

app = typer.Typer(
    help="Measure; each benchmark has --quick and --json.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def bench() -> None:
    """Measure; each benchmark has --quick and --json."""


@app.command()
def simulation(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About a minute or two.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    seeds: Annotated[int | None, typer.Option(min=0, help="Simulated runs.")] = None,
    real_faults: Annotated[int | None, typer.Option(min=0, help="Real faults.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Keep the campaign in this file; go on behind its last seed."),
    ] = None,
    first_seed: Annotated[
        int | None, typer.Option(min=0, help="The first seed of a new campaign.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a core.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write simulation.md, .json and a plot here.")
    ] = None,
    keep_scale: Annotated[
        bool, typer.Option("--keep-scale", help="Keep the cost by size that the report has.")
    ] = False,
) -> None:
    """A campaign of faults, simulated and real, and the simulator's cost by size."""
    from holdfast_bench import simulation as campaign

    if keep_scale and report is None:
        raise typer.BadParameter("--keep-scale says what --report keeps; give both")
    sizes = campaign.QUICK if quick else campaign.FULL
    sizes = replace(
        sizes,
        seeds=sizes.seeds if seeds is None else seeds,
        real_faults=sizes.real_faults if real_faults is None else real_faults,
        first_seed=sizes.first_seed if first_seed is None else first_seed,
        file=resume,
        processes=processes,
        scale=() if keep_scale or (resume and report is None) else sizes.scale,
    )
    results = campaign.run(sizes, _say)
    if keep_scale and report is not None:
        results = campaign.with_former_scale(results, report)
    _show(results, campaign, report, as_json=as_json)
    raise typer.Exit(1 if campaign.has_violations(results) else 0)


@app.command()
def spine(
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Within a minute on idle cores: Q12 alone, fewer runs."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="throughput, latency, frames, recovery, protection or start; repeatable. "
            "The others stay in the report as they are."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write spine.md, spine.json and plots here.")
    ] = None,
) -> None:
    """The main job: throughput beside Structured Streaming, latency, recovery, cost, start."""
    from holdfast_bench.spine import EXPERIMENTS, FULL, QUICK, QUICK_EXPERIMENTS, merged, run
    from holdfast_bench.spine_page import PAGE

    wanted = tuple(only or (QUICK_EXPERIMENTS if quick else EXPERIMENTS))
    for name in wanted:
        if name not in EXPERIMENTS:
            raise typer.BadParameter(f"{name!r}; there are {', '.join(EXPERIMENTS)}")
    results = run(wanted, QUICK if quick else FULL, _say)
    former = {} if report is None else PAGE.former(report)
    results = merged(former, results)
    _show(results, PAGE, report, as_json=as_json)
    has_wrong_output = any(
        target["is_correctness"] and not target["is_met"] for target in results["targets"]
    )
    raise typer.Exit(1 if has_wrong_output or results["failed"] else 0)


@app.command()
def sguard(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About two minutes; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="An experiment; repeatable.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write sguard.md, sguard.json and plots here.")
    ] = None,
) -> None:
    """Checkpoints: what pages cost, preparing, writing, loading, latency meanwhile, Peace."""
    from holdfast_bench.sguard import page

    wanted = tuple(only or page.EXPERIMENTS)
    for name in wanted:
        if name not in page.EXPERIMENTS:
            raise typer.BadParameter(f"{name!r}; there are {', '.join(page.EXPERIMENTS)}")
    results = page.run(page.QUICK if quick else page.FULL, _say, only=wanted)
    _show(results, page.PAGE, report, as_json=as_json)


@app.command()
def ha(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Five runs a point; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="figure6, figure7, table6, table7 or table8, simulated; kills, bytes or "
            "handovers, on Spark; repeatable. The others stay in the report as they are."
        ),
    ] = None,
    approach: Annotated[
        list[str] | None, typer.Option(help="Name of a protection; repeatable.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs a point instead.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write ha.md, ha.json and plots here.")
    ] = None,
) -> None:
    """Recovery time against overhead of every approach, simulated, beside the paper's."""
    from holdfast_bench.ha import page

    wanted = _known(only, page.EXPERIMENTS)
    approaches = _known(approach, page.APPROACHES)
    size = page.QUICK if quick else page.FULL
    size = size if runs is None else replace(size, name=f"{runs} runs", runs=runs)
    results = page.run(size, _say, only=wanted, approaches=approaches)
    before = page.PAGE.former(report) if report is not None and (only or approach) else {}
    _show(page.combined(before, results), page.PAGE, report, as_json=as_json)


@app.command()
def cluster(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A run or two of each fault.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="executor, worker, two-executors, two-workers, cut, driver, standby, region, "
            "leaving or programs; repeatable. The others stay in the report as they are."
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of the main faults.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write cluster.md and cluster.json here.")
    ] = None,
) -> None:
    """Faults on a Spark standalone cluster that this starts: executors, workers, the driver."""
    from holdfast_bench import cluster as page

    wanted = _known(only, page.EXPERIMENTS)
    size = page.QUICK if quick else page.FULL
    size = size if runs is None else replace(size, runs=runs)
    others = {} if report is None else page.former(report)

    def keep(results: dict[str, Any]) -> None:
        if report is not None:
            page.write(others | results, report)

    results = page.run(size, _say, only=wanted, keep=keep)
    _show(others | results, page, report, as_json=as_json)
    raise typer.Exit(1 if page.has_violations(results) else 0)


@app.command()
def view(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Within a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Also write view.md and view.json here.")
    ] = None,
) -> None:
    """The view of 1,000 units in Chromium, at ten updates a second."""
    from holdfast_bench import view as page

    results = page.run(page.QUICK if quick else page.FULL, _say)
    _show(results, page, report, as_json=as_json)
    raise typer.Exit(0 if page.is_met(results) else 1)


@app.command()
def security(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="7,000 frames; a minute or two.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Also write security.md and security.json here.")
    ] = None,
) -> None:
    """Strangers and bad frames against a running query: refused, counted, no effect."""
    from holdfast_bench import security as page

    results = page.run(page.QUICK if quick else page.FULL, _say)
    _show(results, page, report, as_json=as_json)
    raise typer.Exit(1 if page.has_effects(results) else 0)


@app.command()
def hdfs(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Two runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="So many runs instead.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write hdfs.md and hdfs.json here.")
    ] = None,
) -> None:
    """A data node of HDFS killed during a checkpoint; see scripts/hdfs.sh."""
    from holdfast_bench import hdfs as page

    results = page.run(runs or (page.QUICK if quick else page.FULL), _say)
    _show(results, page, report, as_json=as_json)
    raise typer.Exit(1 if page.is_wrong(results) else 0)


@app.command()
def files(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Q12 alone, about a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    query: Annotated[list[str] | None, typer.Option(help="q1, q3, q8, q12; repeatable.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="queries, delta, reading, boundary, visible, kills, iceberg_kills, cold_start; "
            "repeatable."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write files.md and files.json here, beside what is not repeated."),
    ] = None,
) -> None:
    """A user's own Parquet files, beside Structured Streaming."""
    from holdfast_bench import files as page

    sizes = page.QUICK if quick else page.FULL
    wanted = _known(query, tuple(page.FULL.tuples))
    sizes = replace(sizes, tuples={q: n for q, n in sizes.tuples.items() if q in wanted})
    experiments = ("queries",) if quick and not only else _known(only, page.EXPERIMENTS)
    results = page.run(sizes, _say, experiments)
    before = page.former(report) if report is not None else {}
    _show(page.combined(before, results), page, report, as_json=as_json)
    raise typer.Exit(1 if page.is_wrong(results) else 0)


@app.command()
def kafka(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Two restarts, a minute or two.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Restarts instead.")] = None,
    cache: Annotated[
        Path, typer.Option(help="Where the broker's jars are kept; mvn fetches them once.")
    ] = Path("build"),
    report: Annotated[
        Path | None, typer.Option(help="Also write kafka.md and kafka.json here.")
    ] = None,
) -> None:
    """Topic to topic while a Kafka broker is killed and restarted: what is lost or doubled."""
    from holdfast_bench import kafka as page
    from holdfast_chaos.kafka_broker import NoBroker

    size = page.QUICK if quick else page.FULL
    size = size if runs is None else replace(size, runs=runs)
    try:
        results = page.run(size, _say, cache=cache)
    except NoBroker as missing:
        _say(str(missing))
        raise typer.Exit(2) from None
    _show(results, page, report, as_json=as_json)
    raise typer.Exit(1 if page.has_wrong_output(results) else 0)


@app.command()
def peers(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs, everything once; about ten minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="An experiment; repeatable. The others stay in the report as they are."),
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(help="A peer; repeatable.")] = None,
    query: Annotated[list[str] | None, typer.Option(help="q1, q3, q8 or q12; repeatable.")] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How often all run, in the race and at half of the maximum; by default three "
            "times, quick once.",
        ),
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Where the peers' environments are kept; pip fills them once.")
    ] = Path("build/peers"),
    report: Annotated[
        Path | None, typer.Option(help="Also write peers.md, peers.json and plots here.")
    ] = None,
) -> None:
    """Beside other stream processors: throughput, memory, latency, recovery, correctness."""
    from holdfast_bench.peers import bench, page

    wanted = _known(only, bench.EXPERIMENTS)
    names = _known(peer, bench.NAMES)
    size = bench.QUICK if quick else bench.FULL
    size = size if query is None else size.of(_known(query, bench.QUERIES))
    size = size if repeats is None else size.with_repeats(repeats)
    others = {} if report is None else page.PAGE.former(report)

    def keep(results: dict[str, Any]) -> None:
        if report is not None:
            page.PAGE.write(page.merged(others, results), report)

    results = bench.run(size, _say, only=wanted, names=names, cache=cache, keep=keep, others=others)
    _show(page.merged(others, results), page.PAGE, report, as_json=as_json)
    raise typer.Exit(1 if page.has_wrong_output(results) else 0)


@app.command()
def growth(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Few and small points.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="idle, keys, parallelism, units, batch, rate or day; repeatable. "
            "The others stay in the report as they are."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write growth.md, growth.json and plots here.")
    ] = None,
) -> None:
    """Throughput and latency as work grows, and what a dataflow costs that has none."""
    from holdfast_bench import growth as page

    wanted = _known(only, page.EXPERIMENTS)
    others = {} if report is None else page.former(report)

    def keep(results: dict[str, Any]) -> None:
        if report is not None:
            page.write(page.combined(others, results), report)

    results = page.run(page.QUICK if quick else page.FULL, _say, only=wanted, keep=keep)
    _show(page.combined(others, results), page, report, as_json=as_json)


@app.command()
def cec(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A minute; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="share, objective, beside, results, kills or matrix; repeatable. The others stay "
            "in the report as they are."
        ),
    ] = None,
    objective: Annotated[
        list[int] | None, typer.Option(help="These objectives alone, ms; repeatable.")
    ] = None,
    windows: Annotated[
        list[int] | None,
        typer.Option(help="Of objective, kills, matrix: so many open windows alone; repeatable."),
    ] = None,
    state_mb: Annotated[
        list[int] | None, typer.Option(help="Of matrix: so large a state alone; repeatable.")
    ] = None,
    kills: Annotated[int | None, typer.Option(help="So many of each.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write cec.md, cec.json and plots here; results of before stay."),
    ] = None,
) -> None:
    """Eventual checkpoints: throughput, extent and recovery by share, and beside other ways."""
    from holdfast_bench import cec as bench
    from holdfast_bench import cec_page as page

    wanted = _known(only, bench.EXPERIMENTS)
    sizes = bench.QUICK if quick else bench.FULL
    sizes = replace(
        sizes,
        objectives_ms=tuple(objective or sizes.objectives_ms),
        windows=tuple(windows or sizes.windows),
        kill_keys=tuple(windows or sizes.kill_keys),
        state_windows=tuple(windows or sizes.state_windows),
        states_mb=tuple(state_mb or sizes.states_mb),
        kills=kills or sizes.kills,
        matrix_kills=kills or sizes.matrix_kills,
    )
    others = {} if report is None else page.former(report)
    results = bench.run(sizes, _say, only=wanted)
    _show(page.joined(others, results), page, report, as_json=as_json)


@app.command()
def checkmate(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Small and rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="throughput, failure, kills, standstill, skew, cyclic or scale; repeatable. All "
            "else stays in the report as it is."
        ),
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="q1, q3, q8, q12; repeatable.")] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Of kills, standstill, cyclic."),
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Instances of every unit, or of scale; repeatable."),
    ] = None,
    hot: Annotated[
        list[float] | None,
        typer.Option(min=0.0, max=1.0, help="Of skew: the share of hot items; repeatable."),
    ] = None,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Of skew: one item is hot for ever, as in the paper.")
    ] = False,
    repeats: Annotated[int | None, typer.Option(min=1, help="Runs as fast as possible.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write checkmate.md, .json and plots here.")
    ] = None,
) -> None:
    """Coordinated, uncoordinated and communication-induced checkpoints, as CheckMate measures."""
    from holdfast_bench.checkmate import bench, page

    sizes = bench.with_repeats(bench.QUICK if quick else bench.FULL, repeats)
    experiments = _known(only, bench.EXPERIMENTS)
    wanted = bench.Wanted(
        experiments,
        _known(query, bench.QUERIES),
        (1,) if workers is None else tuple(workers),
        _known(protocol, bench.PROTOCOLS[1:]),
        bench.HOT_RATIOS if hot is None else tuple(hot),
        fixed,
    )
    if workers is not None:
        sizes = replace(sizes, workers=tuple(workers))
    others = {} if report is None else page.PAGE.former(report)

    def keep(results: dict[str, Any]) -> None:
        if report is not None:
            page.PAGE.write(bench.merged(others, results), report)

    results = bench.merged(others, bench.run(wanted, sizes, _say, keep))
    _show(results, page.PAGE, report, as_json=as_json)


@app.command()
def dpc(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Some minutes; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="bound, waits, modes, chain, crash, interval, cost, redo, standstill, overhead or "
            "runs; repeatable. The others stay in the report as they are."
        ),
    ] = None,
    combination: Annotated[
        list[str] | None,
        typer.Option(help="Of modes and chain, e.g. 'process & delay'; repeatable."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Of runs, FROM:TO (TO excluded).")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write dpc.md, dpc.json and plots here.")
    ] = None,
) -> None:
    """Missing input: delays, tentative tuples and corrections, beside the paper's statements."""
    from holdfast_bench import dpc as experiments
    from holdfast_bench.dpc_page import PAGE

    wanted = _known(only, experiments.EXPERIMENTS)
    combinations = _known(combination, experiments.COMBINATIONS)
    former = {} if report is None else PAGE.former(report)
    sizes = experiments.QUICK if quick else experiments.FULL
    chosen = None if seeds is None else range(*map(int, seeds.split(":")))
    results = experiments.run(sizes, _say, only=wanted, combinations=combinations, seeds=chosen)
    _show(experiments.merged(former, results), PAGE, report, as_json=as_json)


@app.command()
def steps(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Few tuples; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Also write steps.md and steps.json here.")
    ] = None,
) -> None:
    """What a tuple costs in each step from log to log, beside what memory allows."""
    from holdfast_bench import steps as page

    _show(page.run(page.QUICK if quick else page.FULL, _say), page, report, as_json=as_json)


@app.command()
def newcomer(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="The same; it has one form.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Also write newcomer.md and newcomer.json here.")
    ] = None,
) -> None:
    """From the built wheel to the first killed node survived, in a new environment."""
    from holdfast_bench import newcomer as page

    results = page.run(_say)
    _show(results, page, report, as_json=as_json)
    raise typer.Exit(0 if page.is_met(results) else 1)


@app.command()
def evidence(
    *,
    only: Annotated[list[str] | None, typer.Option(help="A report; repeatable.")] = None,
    within: Annotated[
        float | None, typer.Option(min=1.0, help="The factor that is allowed; each report's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Measure every report again in its quick form, and say which figures have moved."""
    from holdfast_bench import evidence as comparing

    found = comparing.run(_known(only, comparing.names()), _say, within)
    sys.stdout.write(comparing.as_json(found) if as_json else comparing.render(found))
    raise typer.Exit(0 if all(each.holds for each in found) else 1)


def _known(given: list[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for, or everything."""
    for name in given or ():
        if name not in names:
            raise typer.BadParameter(f"{name!r}; there are {', '.join(names)}")
    return tuple(given or names)


class _Page(Protocol):
    """What a benchmark's report can do."""

    def write(self, results: dict[str, Any], folder: Path) -> Path:
        """Write page, figures and plots into a folder; the page's path."""
        ...

    def render(self, results: dict[str, Any]) -> str:
        """The page as Markdown."""
        ...


def _say(text: str) -> None:
    """Tell how it goes, beside the results."""
    Console(stderr=True).print(text, markup=False)


def _show(results: dict[str, Any], page: _Page, report: Path | None, *, as_json: bool) -> None:
    """Write the report if one is wanted, and print the results as JSON or as its page."""
    if report is not None:
        _say(f"wrote {page.write(results, report)}")
    if as_json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    else:
        Console().print(page.render(results), markup=False)
