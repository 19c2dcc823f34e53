"""Sections that look at other figures: calibrated ones, the paper's, the targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast_bench.checkmate import calibration, paper
from holdfast_bench.checkmate.dataflows import PROTOCOLS
from holdfast_bench.reporter import Results, table
from holdfast_bench.running import median

_CALIBRATED: Final = """
## 5 to 100 workers, calibrated by the real runs

The costs of a tuple are fitted to the runs with 1 and 2 instances, and times to those of Q12
(`checkmate/calibration.py`). They foretell the runs that were left out: other numbers of instances
on this machine, and the other queries. `error`: by how much too high.

"""
_CLUSTER: Final = """
Q12 with a processor for each instance of a unit, and checkpoints every 5 s: what the fit and the
simulation of cuts (`checkmate/timing.py`) say. Nothing in this table is measured. The paper: UNC
reaches about 10 % less than COOR, and CIC falls below 50 % of no checkpoints with many workers
(§VII, Figure 7).

"""
_BESIDE: Final = """
## Beside the paper

| the paper's figure | theirs | ours | why they differ |
| --- | --- | --- | --- |
"""
_WHY: Final[dict[str, str]] = {
    "bytes": "Clocks are sent once for a batch, as bits and varints, and only what has changed; "
    "theirs go with each record, as nested dictionaries",
    "invalid": "Without a circle no checkpoint is on a Z-cycle. Theirs are those newer than the "
    "line, which we count as rolled past: the killed node alone goes back here, to its newest "
    "checkpoint, as the others stay where they are",
    "cyclic": "All instances of the loop send to all others all the time here, and changes are "
    "kept apart by sign, so that deletions work; their join ignores deletions and stores no "
    "sources. A checkpoint counts here when it is durable, upload included",
    "coor": "Aligned rounds do not wait on feedback streams; what is in a loop is in the sender's "
    "checkpoint",
    "restart": "Here a process is killed and another one has to come up; in theirs a message ends "
    "the work. Here the survivors keep what they have sent in memory; theirs fetch it from logs",
    "recovery": "Here results wait for the line, for about an interval; theirs leave at once, and "
    "come again after a failure. So our latencies are those of an interval",
    "throughput": "Their messages of CIC are twice as long, ours are not; and here senders store "
    "channels with the checkpoint instead of each message in a log",
}
_TARGETS: Final = """
## Targets

| what | target | measured | met | what limits it |
| --- | --- | --- | --- | --- |
"""
_LEAST_SHARE: Final = {"COOR": 0.97, "COOR unaligned": 0.97, "UNC": 0.97, "CIC": 0.95}
_MOST_BYTES, _MOST_MS, _MOST_STANDSTILL_MS, _LEAST_CHANGES = 1.02, 300.0, 2.0, 200_000
_MOST_PRESSURE: Final = 1.5
_LIMITS: Final[dict[str, str]] = {
    "throughput": "results that wait for the line are written into a checkpoint, and once more "
    "into the sink's log. All but aligned rounds write what lies between units, too. The job uses "
    "these cores in full. Runs take seconds, and their last results wait for a last round or cut",
    "recovery": "a failed process is noticed, another one comes up and loads its state; then its "
    "first checkpoint and those of its senders must be durable before results leave",
    "standstill": "marks of all pages are looked at, and are not in the processor's caches; an "
    "aligned cut is taken in a step that has processed tuples, whose time is counted, too",
    "changes": "each change meets the loop's join in Python once per lap, on two cores for all "
    "instances; in UNC results wait until the loop is quiet",
    "pressure": "what is in flight is written too, on the cores that the job uses in full",
    "bytes": "clocks of all members in each batch where everybody sends to everybody",
}


# -- calibrated -----------------------------------------------------------------------------------


def calibrated(results: Results) -> str:
    """What was foretold beside what was measured, and many instances."""
    throughput, failure = results.get("throughput", {}), results.get("failure", {})
    tried = [*calibration.throughput_tried(throughput), *calibration.times_tried(failure)]
    if not tried:
        return ""
    rows = [
        (
            each.what,
            f"{each.query}, {each.workers}",
            each.protocol,
            f"{each.foretold:,.0f}",
            f"{each.measured:,.0f}",
            f"{each.error:+.0%}",
            "fitted" if each.is_fitted else "left out",
        )
        for each in tried
    ]
    header = ("figure", "run", "protocol", "foretold", "measured", "error", "the run was")
    text = _CALIBRATED + table(header, rows)
    worst = calibration.largest_error(tried)
    if worst is not None:
        text += f"\nThe largest error of what was left out: {worst:.0%}.\n"
    return text + _cluster(throughput, failure)


def _cluster(throughput: Results, failure: Results) -> str:
    query = calibration.TIMED
    rows = []
    for workers in calibration.CLUSTER:
        costs = {p: calibration.tuple_cost(throughput, query, p) for p in PROTOCOLS}
        bare = costs["unprotected"]
        for protocol in PROTOCOLS[1:]:
            cost = costs[protocol]
            times = calibration.foretold_times(failure, query, workers, protocol)
            rate = share = "–"
            if cost is not None and bare is not None:
                per_s = cost.rate(workers, workers)
                rate, share = f"{per_s:,.0f}", f"{per_s / bare.rate(workers, workers):.0%}"
            said = ["–", "–", "–"]
            if times is not None:
                all_times = (times.delay_ms, times.complete_ms, times.recovered_ms)
                said = [f"{ms:,.0f}" for ms in all_times]
            rows.append((workers, protocol, rate, share, *said))
    header = (
        "instances", "protocol", "tuples/s", "of unprotected", "delay (p50), ms", "complete, ms",
        "recovered, ms",
    )  # fmt: skip
    return _CLUSTER + table(header, rows)


# -- beside the paper -----------------------------------------------------------------------------


def beside_the_paper(results: Results) -> str:
    """Each of the paper's tables, with ours and the reason why they differ."""
    rows = [*_bytes(results), *_invalid(results), *_cyclic(results), *_failure(results)]
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |\n" for row in rows]
    return _BESIDE + "".join(lines) if rows else ""


def _bytes(results: Results) -> Iterator[tuple[str, ...]]:
    for workers, of in _simulated(results):
        theirs = paper.message_overhead("CIC", "q12", int(workers))
        if theirs:
            ours = of["keyed"]["HMNR, all"]["message_overhead"]
            yield f"bytes, CIC, Q12, {workers} workers", theirs, f"{ours}", _WHY["bytes"]


def _invalid(results: Results) -> Iterator[tuple[str, ...]]:
    for workers, of in _simulated(results):
        for protocol, rule in (("UNC", "UNC"), ("CIC", "HMNR, all")):
            theirs = paper.invalid_percent(protocol, "q12", int(workers))
            if theirs:
                found = of["keyed"][rule]
                share = (found["rolled_past"] or 0) / found["checkpoints"]
                what = f"invalid, {protocol}, Q12, {workers} workers"
                yield what, f"{theirs} %", f"{share:.1%}", _WHY["invalid"]


def _cyclic(results: Results) -> Iterator[tuple[str, ...]]:
    for row in paper.table("table4_cyclic"):
        for protocol in ("UNC", "CIC"):
            found = next(iter(results.get("cyclic", {}).get(protocol, {}).values()), None)
            if found is None:
                continue
            run, name, workers = found["failure"], protocol.lower(), row["workers"]
            what = f"loop, {protocol}, {workers} workers"
            took = f"{row[f'{name}_checkpoint_ms']} ms", f"{run['durable_ms']:,.0f} ms"
            yield f"checkpoint, {what}", *took, _WHY["cyclic"]
            invalid = f"{row[f'{name}_invalid_percent']} %", f"{_share_invalid(run):.1%}"
            yield f"invalid, {what}", *invalid, _WHY["cyclic"]
            restart = f"{row[f'{name}_restart_ms']} ms", f"{_restart_ms(run):,.0f} ms"
            yield f"restart, {what}", *restart, _WHY["restart"]
    if results.get("cyclic", {}).get("COOR"):
        yield "loop, COOR", "deadlocks", "goes on", _WHY["coor"]


def _failure(results: Results) -> Iterator[tuple[str, ...]]:
    for query, by_workers in results.get("failure", {}).items():
        for workers, of in by_workers.items():
            runs = of["protocols"]
            ours = ", ".join(f"{p} {_restart_ms(run):,.0f}" for p, run in runs.items())
            theirs = "COOR least, UNC and CIC up to 10 times as long (100 workers, Figure 11)"
            yield f"restart, {query}, {workers}", theirs, f"{ours} ms", _WHY["restart"]
            ours = ", ".join(f"{p} {_caught_up(run)}" for p, run in runs.items())
            theirs = "10 to 30 s (Figure 9)"
            yield f"recovery, {query}, {workers}", theirs, f"{ours} ms", _WHY["recovery"]
    for query, by_workers in results.get("throughput", {}).items():
        for workers, of in by_workers.items():
            shares = of["share_side_by_side"]
            ours = ", ".join(f"{p} {shares[p]:.1%}" for p in PROTOCOLS[1:])
            theirs = "COOR about 100 %, UNC about 90 %, CIC 50 % and less (Figure 7)"
            if query == "q3":
                theirs = "COOR and UNC above 70 %, CIC at most 50 % (Figure 7)"
            yield f"throughput, {query}, {workers}", theirs, ours, _WHY["throughput"]


def _simulated(results: Results) -> list[tuple[str, Results]]:
    return sorted(results.get("scale", {}).items(), key=lambda item: int(item[0]))


def _share_invalid(run: Results) -> float:
    invalid, checkpoints = run["useless"] + run["rolledPast"], run["checkpoints"]
    return float(invalid / max(1, checkpoints))


def _caught_up(run: Results) -> str:
    ms = run["recovery"]["caught_up_ms"]
    return "not before the end" if ms is None else f"{ms:,.0f}"


def _restart_ms(run: Results) -> float:
    recovery: dict[str, float | None] = run["recovery"]
    return sum(recovery[n] or 0 for n in ("detected_ms", "restarted_ms", "replayed_ms"))


# -- targets --------------------------------------------------------------------------------------


def targets(results: Results) -> str:
    """Each target beside what was measured, and what limits it where it is missed."""
    rows = [
        *_throughput_targets(results),
        *_time_targets(results),
        *_pressure_targets(results),
        *_loop_targets(results),
    ]
    lines = [
        f"| {what} | {target} | {measured} | {'yes' if is_met else 'NO'} | "
        f"{'' if is_met else limit} |\n"
        for what, target, measured, is_met, limit in rows
    ]
    missed = dict.fromkeys(limit for *_, is_met, limit in rows if not is_met)
    lines += ["\n", *(f"- *{limit}*: {_LIMITS[limit]}.\n" for limit in missed)]
    return _TARGETS + "".join(lines) if rows else ""


_Row = tuple[str, str, str, bool, str]


def _throughput_targets(results: Results) -> Iterator[_Row]:
    for query, by_workers in results.get("throughput", {}).items():
        for workers, of in by_workers.items():
            for protocol, least in _LEAST_SHARE.items():
                share = of["share_side_by_side"][protocol]
                what = f"throughput, {query}, {workers}, {protocol}"
                yield what, f"≥ {least:.0%}", f"{share:.1%}", share >= least, "throughput"


def _time_targets(results: Results) -> Iterator[_Row]:
    for protocol, of in results.get("kills", {}).items():
        median_ms = of["first_output_ms"]["median"]
        what = f"kill -9 to first output, 10 MB, {len(of['kills'])} kills, {protocol}"
        is_met = median_ms <= _MOST_MS and of["is_identical"]
        yield what, f"≤ {_MOST_MS:.0f} ms", f"{median_ms:,.0f} ms", is_met, "recovery"
    for protocol, of in results.get("standstill", {}).items():
        stood_ms = of["median_ms"]
        what = f"standstill at a cut, {of['state_bytes'] >> 20} MiB, {protocol}"
        bound = f"≤ {_MOST_STANDSTILL_MS:.0f} ms"
        yield what, bound, f"{stood_ms:.2f} ms", stood_ms <= _MOST_STANDSTILL_MS, "standstill"


def _pressure_targets(results: Results) -> Iterator[_Row]:
    """A round of a run as fast as it can be, beside one of a run at a steady rate."""
    for query, by_workers in results.get("throughput", {}).items():
        for workers, of in by_workers.items():
            rest = results.get("failure", {}).get(query, {}).get(workers)
            for protocol in ("COOR unaligned", "COOR"):
                took = [run["complete_ms"] for run in of["runs"][protocol] if run["complete_ms"]]
                at_rest_ms = rest and rest["protocols"][protocol]["complete_ms"]
                if not took or not at_rest_ms:
                    continue
                ratio = median(took) / at_rest_ms
                what = f"round under back-pressure, {query}, {workers}, {protocol}"
                measured = f"{ratio:.2f} × ({median(took):,.0f} ms, at rest {at_rest_ms:,.0f} ms)"
                bound = f"≤ {_MOST_PRESSURE} ×" if protocol == "COOR unaligned" else "shown beside"
                is_met = ratio <= _MOST_PRESSURE or protocol == "COOR"
                yield what, bound, measured, is_met, "pressure"


def _loop_targets(results: Results) -> Iterator[_Row]:
    for protocol in ("UNC", "COOR unaligned"):
        for workers, of in results.get("cyclic", {}).get(protocol, {}).items():
            rate = of["changes_per_s"]
            what = f"reachability, {workers}, {protocol}"
            bound = f"≥ {_LEAST_CHANGES:,}/s"
            yield what, bound, f"{rate:,}/s", rate >= _LEAST_CHANGES, "changes"
    for workers, of in _simulated(results):
        bytes_ = of["cyclic"]["HMNR"]["message_overhead"]
        is_met = bytes_ <= _MOST_BYTES
        what = f"bytes, CIC in a circle, {workers}, simulated"
        yield what, f"≤ {_MOST_BYTES}", f"{bytes_}", is_met, "bytes"


# -- pieces ---------------------------------------------------------------------------------------


def commits(results: Results) -> str:
    """Which code the pieces were measured on; a warning if that was not the same."""
    found = dict.fromkeys(on["commit"] for on in _machines(results))
    if len(found) < 2:
        return ""
    return (
        f"\nThe pieces were measured on different commits ({', '.join(found)}); each names its "
        "own. Compare protocols within a piece.\n"
    )


def _machines(found: Any) -> Iterator[Results]:
    """Those of all pieces."""
    for name, inner in found.items():
        if name == "machine" and "load_after" in inner:
            yield inner
        elif isinstance(inner, dict):
            yield from _machines(inner)
