"""What eventual checkpoints were to reach, beside what was measured, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast_bench.reached import Reached, reached

SHARE: Final = 0.02
THROUGHPUT: Final = 0.98
STANDSTILL_MS: Final = 1.0
WRITTEN: Final = 1.2
MET: Final = 0.95
P99: Final = 1.05
_MET: Final = "95 %, or foretold"


def targets(results: dict[str, Any]) -> list[Reached]:
    """All figures with a target of which there is a measurement."""
    return [
        *_of_shares(results.get("share", [])),
        *_of_objectives(results.get("objective", [])),
        *_of_results(results.get("results", [])),
        *_of_kills(results.get("kills", [])),
        *_of_matrix(results.get("matrix", [])),
    ]


def _of_shares(points: list[dict[str, Any]]) -> Iterator[Reached]:
    points = [point for point in points if "pass_ratio" in point]  # Earlier runs did not say.
    for point in points:
        if point["share"] == SHARE:
            kept, checks, marks = point["throughput"], point["check_share"], point["mark_share"]
            limit = (
                f"passes take {point['pass_ratio']:.2f} times as long as without footprints; "
                f"records of what has opened and closed take {marks:.1%} of the time, those "
                f"written in the background {checks:.1%}"
            )
            figure = f"throughput, {point['kind']} windows, share {SHARE:g}"
            yield reached(figure, "98 %", f"{kept:.1%}", limit, is_met=kept >= THROUGHPUT)
    written = [point for point in points if point["check_share"]]
    if written:
        worst = max(written, key=lambda point: float(point["longest_check_ms"]))
        took, cpu = worst["longest_check_ms"], worst["longest_on_core_ms"]
        limit = (
            f"{cpu:g} ms of it on a core; 99 of 100 pieces of that run take at most "
            f"{worst['p99_check_ms']:g} ms, {worst['p99_on_core_ms']:g} ms of it on a core"
        )
        is_met = took <= STANDSTILL_MS
        yield reached(
            "longest piece of background work", "1 ms", f"{took:g} ms", limit, is_met=is_met
        )
        bytes_ = [p["written_per_changed"] for p in written if p.get("written_per_changed")]
        if bytes_:
            most = max(bytes_)
            limit = "records name windows and places; of a segment that has changed all is written"
            figure = "bytes written for each that has changed, slow windows"
            yield reached(figure, "1.2", f"{most:g}", limit, is_met=most <= WRITTEN)


def _of_objectives(points: list[dict[str, Any]]) -> Iterator[Reached]:
    if not points:
        return
    missed = [point for point in points if not (point["is_met"] or point["shortfall"])]
    limit = "; ".join(
        f"{p['windows']:,} {p['kind']} windows, {p['objective_ms']} ms: {p['recovery_ms']:g} ms, "
        f"of which reading took {p['read_ms']:g}, taking over {p['adopt_ms']:g}, replaying "
        f"{p['replay_ms']:g}; {p['predicted_ms']:g} ms were foretold"
        for p in missed
    )
    measured = f"{len(points) - len(missed)} of {len(points)}"
    figure = "objectives met, or said before that they are not"
    yield reached(figure, "all", measured, limit, is_met=not missed)


def _of_results(points: list[dict[str, Any]]) -> Iterator[Reached]:
    found = {point["protection"]: point for point in points}
    if not {"EventualCheckpoints", "UpstreamBackup"} <= set(found):
        return
    ours, others = found["EventualCheckpoints"], found["UpstreamBackup"]
    ratio = ours["p99_ms"] / others["p99_ms"]
    limit = (
        f"{ours['p99_ms']:g} ms beside {others['p99_ms']:g}, medians {ours['p50_ms']:g} and "
        f"{others['p50_ms']:g}: a pass waits for a piece of background work, and for the record "
        "before each restart point"
    )
    figure = (
        f"p99 of results at {ours['rate']:,} tuples/s and {ours['state_mb']:.0f} MB of state, "
        "beside a unit without copies of its state"
    )
    yield reached(figure, "1.05", f"{ratio:.2f}", limit, is_met=ratio <= P99)


def _of_kills(points: list[dict[str, Any]]) -> Iterator[Reached]:
    for point in points:
        figure = f"kills, {point['windows']:,} keys, {point['objective_ms']} ms: met"
        limit = (
            f"medians: {point['restarted_ms']:g} ms until a process is there, "
            f"{point['replayed_ms']:g} ms to replay; {point['predicted_ms']:g} ms were foretold"
        )
        measured, is_met = _met_or_foretold(point)
        yield reached(figure, _MET, measured, limit, is_met=is_met)


def _met_or_foretold(point: dict[str, Any]) -> tuple[str, bool]:
    """How often an objective was met, or said to be missed, and whether that is often enough."""
    kills, met, said = point["kills"], point["met"], point["said_before"]
    return f"{met} of {kills}, {said} of the others foretold", met + said >= MET * kills


def _of_matrix(points: list[dict[str, Any]]) -> Iterator[Reached]:
    for point in points:
        size = f"{point['state_mb']} MB, {point['windows']:,} windows"
        figure = f"kills, {size}, {point['objective_ms']} ms: met"
        if "failed" in point:
            yield Reached(figure, _MET, point["failed"], "it failed")
            continue
        limit = (
            f"medians: {point['recovery_ms']:g} ms; {point['predicted_ms']:g} ms were foretold; "
            f"results {point['results']}"
        )
        measured, is_met = _met_or_foretold(point)
        is_right = point["results"] == "right"
        yield reached(figure, _MET, measured, limit, is_met=is_met and is_right)
