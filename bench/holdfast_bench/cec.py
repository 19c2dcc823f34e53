"""Eventual checkpoints measured: what they cost, and how soon a node is back. [CEC §IV]

Two kinds of experiments. In `share` and `objective` the operator, its footprints and their log run
in this process as a node runs them, pass by pass: without Spark, one thing at a time can be timed.
Then a replacement is made from the log, and the rest is replayed. In `beside` the same dataflow
runs on Spark tasks with each protection in turn, and the node that counts is killed; in `kills`
with each objective (cec_spark.py). `results` has a large state and many results (cec_results.py).
In `matrix` a node is killed with each size of the state, number of windows and objective
(cec_matrix.py).
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import EventualCheckpoints, UpstreamBackup
from holdfast.api.windows import counting, tumbling
from holdfast.core.checkpoint.eventual import (
    ExtentSize,
    Pacer,
    RecoveryCosts,
    RecoveryObjective,
)
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter, Place
from holdfast.core.haunit.plan import NodeLimits
from holdfast.core.model.footprints import has_checks
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.operators.base import Operator, Rows
from holdfast.core.operators.footprinted import Footprinted
from holdfast.core.state.page_manager import PageManager
from holdfast.planning.plan import plan_dataflow
from holdfast.shell.storage.footprint_log import FootprintLogWriter, read_extent
from holdfast_bench import cec_matrix, cec_results, cec_spark
from holdfast_bench.cec_bytes import written_per_changed
from holdfast_bench.preloaded import WINDOW, PreloadedBids
from holdfast_bench.running import median
from holdfast_bench.spine import machine

Say = Callable[[str], None]
EXPERIMENTS: Final = ("share", "objective", "beside", "results", "kills", "matrix")
SLOW, FAST, MIXED = "slow", "fast", "mixed"
PASS_TUPLES: Final = 8_192
_REPLAY_TUPLES: Final = 1 << 16
_MARK_S: Final = NodeLimits().ack_interval_ms / 1000
"""So often a busy node notes a restart point."""
_WINDOW_US: Final = 3_600_000_000
FAST_PASSES: Final = 10
"""So many passes bring the tuples of a fast window."""
_HOT_KEYS: Final = 16
"""Of mixed windows: every second tuple is of these, whose windows of 1,000 tuples close soon."""
_WARM_S: Final = 0.1
_PART_S: Final = 0.2
"""Two that work in turn do so for so long at a time."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: For the report.
        seconds: Of each run in this process, once every window has been open.
        repeats: Of each pair of runs; the median of what is kept of the throughput counts.
        keys: Windows that are open at a time, of `share`.
        shares: Of a node's time; 0 writes G_open and R alone.
        windows: Open at a time, of `objective`.
        objectives_ms: For reading and replaying.
        kills: Of each protection.
        rate: Bids per second meanwhile.
        spark_keys: Windows that are open meanwhile.
        kill_keys: The same, of `kills`, with each objective.
        state_mb: Of `results`.
        result_s: Of each of its runs, beyond the time to fill the state.
        result_runs: With each protection.
        states_mb: Of `matrix`.
        state_windows: That stay open in it.
        matrix_kills: Of each of its cells.
    """

    name: str
    seconds: float
    repeats: int
    keys: int
    shares: tuple[float, ...]
    windows: tuple[int, ...]
    objectives_ms: tuple[int, ...]
    kills: int
    rate: float
    spark_keys: int
    kill_keys: tuple[int, ...]
    state_mb: int
    result_s: float
    result_runs: int
    states_mb: tuple[int, ...]
    state_windows: tuple[int, ...]
    matrix_kills: int


QUICK: Final = Sizes(
    *("quick", 0.8, 1, 20_000, (0.0, 0.02, 0.2), (1, 1_000, 100_000), (100, 1_000), 1, 5_000.0),
    *(20_000, (2_000,), 20, 6.0, 1),
    states_mb=(2,),
    state_windows=(200,),
    matrix_kills=1,
)
FULL: Final = Sizes(
    *("full", 1.0, 9, 100_000, (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)),
    *((1, 1_000, 10_000, 100_000, 1_000_000, 15_000_000), (100, 250, 1_000), 10, 20_000.0, 200_000),
    *((1_000, 10_000, 100_000), 169, 20.0, 3),
    states_mb=(10, 100, 600),
    state_windows=(1_000, 100_000, 1_000_000),
    matrix_kills=50,
)


def run(sizes: Sizes, say: Say, *, only: tuple[str, ...] = EXPERIMENTS) -> dict[str, Any]:
    """Measure; by experiment a list of points, fit for JSON, beside `machine` and `sizes`."""
    results: dict[str, Any] = {"machine": machine(), "sizes": asdict(sizes), "experiments": {}}
    Worked(SLOW, 1_000, None).work(0.2, RecoveryObjective(0))  # Kernels are compiled.
    Worked(SLOW, 1_000, 0.5).work(0.2, RecoveryObjective(0))
    gc.collect()
    gc.freeze()  # As the daemon does of which nodes are forks (shell/spark/daemon.py).
    experiments = {
        "share": _shares,
        "objective": _objectives,
        "beside": cec_spark.beside,
        "results": cec_results.results,
        "kills": cec_spark.kills,
        "matrix": cec_matrix.matrix,
    }
    for name, points in experiments.items():
        if name in only:
            say(f"cec: {name}")
            here, began_s = machine(), time.monotonic()
            results[name] = points(sizes, say)
            results["experiments"][name] = {
                "size": sizes.name,
                "seconds": round(time.monotonic() - began_s, 1),
                "commit": here["commit"],
                "load_before": here["load_before"],
            }
    return results


# -- in this process ------------------------------------------------------------------------------


def _operator(has_footprints: bool, kind: str = SLOW) -> Operator:
    """What counts bids per bidder, as a plan has it."""
    windows = counting(1_000) if kind == MIXED else tumbling(WINDOW)
    protection = (EventualCheckpoints() if has_footprints else UpstreamBackup()).of_unit()
    flow = Dataflow("cec")
    source = PreloadedBids(1, 1.0, 0, "")
    bids = flow.source_generator(source, name="bids", unit="ingest").select("bidder", "price")
    counted = bids.key_by("bidder").window(windows)
    counted.aggregate("count(*) AS n", "sum(price) AS total", name="counts").sink("out")
    plan = plan_dataflow(
        flow, "", parallelism=1, limits=NodeLimits(), protection=lambda _: protection
    )
    specs = next(node for node in plan.nodes if node.unit == "counts").operators
    made = [spec.build(PageManager(state_bytes_max=4 << 30)) for spec in specs]
    return next(operator for operator in made if operator.keeps_state)


Parts = Generator[None, None, dict[str, Any]]
"""Work that is done a part at a time, and gives what it came to."""


def alternately(*works: Parts) -> list[dict[str, Any]]:
    """Do them in turn, a part of each at a time; what they came to."""
    found: dict[int, dict[str, Any]] = {}
    while len(found) < len(works):
        for number, work in enumerate(works):
            if number not in found:
                try:
                    next(work)
                except StopIteration as over:
                    found[number] = over.value
    return [found[number] for number in range(len(works))]


@dataclass
class Worked:
    """A node's work in this process: passes, footprints, and a replacement.

    Attributes:
        kind: Whether windows stay open, close after some passes, or a few close soon beside many
            that stay open.
        keys: Bidders.
        share: Of the time for G_check; None: no footprints.
        costs: What the last recovery has cost; a replacement measures its own.
    """

    kind: str
    keys: int
    share: float | None
    costs: RecoveryCosts = field(default_factory=RecoveryCosts)

    def _rows(self, first: int, end: int) -> tuple[Rows, int]:
        """The tuples [first, end) and the boundary behind them."""
        ids = np.arange(first, end, dtype=np.int64)
        bidders = (ids * 2_654_435_761) % (1 << 32) % self.keys
        if self.kind == MIXED:
            bidders = np.where(ids % 2 == 0, ids // 2 % min(_HOT_KEYS, self.keys), bidders)
        step = 1 if self.kind == SLOW else _WINDOW_US // (FAST_PASSES * PASS_TUPLES)
        columns = [pa.array(bidders), pa.array(ids % 997)]
        batch = pa.RecordBatch.from_arrays(columns, names=["bidder", "price"])
        order = np.arange(end - first, dtype=np.int64)
        return Rows(batch, ids * step, order, 0), (end - 1) * step

    def _pass(self, operator: Operator, first: int, end: int) -> float:
        """Seconds that it takes."""
        rows, boundary_us = self._rows(first, end)
        low = np.array([first], dtype=np.int64)
        began_s = time.perf_counter()
        operator.process([rows], low, boundary_us)
        return time.perf_counter() - began_s

    def work(self, seconds: float, objective: RecoveryObjective) -> dict[str, Any]:
        """So many seconds of passes, then a recovery; what they came to."""
        (found,) = alternately(self.parts(seconds, objective))
        return found

    def parts(self, seconds: float, objective: RecoveryObjective) -> Parts:
        """The same, in parts of a fifth of a second: another one may work between them."""
        operator = _operator(self.share is not None, self.kind)
        if not isinstance(operator, Footprinted):
            return (yield from self._plain(operator, seconds))
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            log = FootprintLogWriter(folder, operator.body_schema, "counts~footprints", 1)
            footprints = FootprintWriter(operator, objective, 0, None, 1)
            found = yield from self._protected(operator, footprints, log, objective, seconds)
            log.close()
            if self.kind == SLOW:
                found["written_per_changed"] = written_per_changed(folder)
            return found | self._recover(folder, footprints, found, objective)

    def _plain(self, operator: Operator, seconds: float) -> Parts:
        taken, spent_s, part_s = 0, 0.0, 0.0
        while spent_s < seconds:
            if spent_s - part_s > _PART_S:
                part_s = spent_s
                yield
            pass_s = self._pass(operator, taken, taken + PASS_TUPLES)
            taken += PASS_TUPLES
            if not self._is_beginning(taken):
                spent_s += pass_s
        return {"tuples": taken, "tuples_per_s": self._rate(taken, spent_s)}

    def _is_beginning(self, taken: int) -> bool:
        """Whether windows may still have been opened that stay open: once is not all the time."""
        return taken - PASS_TUPLES < self.keys

    def _rate(self, taken: int, spent_s: float) -> int:
        """Tuples per second since the beginning."""
        return round(self._counted(taken) / spent_s)

    def _counted(self, taken: int) -> int:
        """Of so many tuples, those since the beginning."""
        return taken - -(-self.keys // PASS_TUPLES) * PASS_TUPLES

    def _place(self, taken: int) -> Place:
        step = 1 if self.kind == SLOW else _WINDOW_US // (FAST_PASSES * PASS_TUPLES)
        return Place(taken, (taken - 1) * step, (taken,), (taken,))

    def _protected(
        self,
        operator: Footprinted,
        footprints: FootprintWriter,
        log: FootprintLogWriter,
        objective: RecoveryObjective,
        seconds: float,
    ) -> Parts:
        pacer = Pacer(self.share or 0.0)
        taken, spent_s, part_s, written = 0, 0.0, 0.0, 0
        passes_s = marks_s = unmarked_s = taking_us = saying_us = 0.0
        checks_s: list[float] = []
        worked_s: list[float] = []  # of them, on a core

        def append(record: TupleBatch) -> int:
            log.append(0, record.first_id, record.batch, 0, 0)
            nbytes: int = record.batch.nbytes
            return nbytes

        while spent_s < seconds:
            if spent_s - part_s > _PART_S:
                part_s = spent_s
                yield
            began_s = time.perf_counter()
            footprints.begin_pass()
            mark_s = time.perf_counter() - began_s
            pass_s = self._pass(operator, taken, taken + PASS_TUPLES)
            taken += PASS_TUPLES
            place = self._place(taken)
            apart_s = max(_MARK_S, pacer.marks_apart_ms / 1000)
            is_beginning, is_due = self._is_beginning(taken), unmarked_s >= apart_s
            if is_due or is_beginning:
                began_s = time.perf_counter()
                written += sum(map(append, footprints.mark(place)))
                mark_s += time.perf_counter() - began_s
                unmarked_s = 0.0
            if is_due:
                pacer.marked(mark_s * 1e6)
            made_s = pass_s + mark_s
            objective.learn(self._costs(made_s * 1e6 / PASS_TUPLES, pacer))
            pacer.worked(made_s * 1e6)
            while (windows := pacer.windows) and footprints.is_check_due(place):
                began_s, began_cpu_s = time.perf_counter(), time.thread_time()
                records = footprints.piece(windows, place)
                written += sum(map(append, records))
                checks_s.append(time.perf_counter() - began_s)
                worked_s.append(time.thread_time() - began_cpu_s)
                made_s += checks_s[-1]
                if records:
                    checked = sum(each.count for each in records if has_checks(each))
                    took_us = taking_us if checked else saying_us
                    pacer.wrote(checked, checks_s[-1] * 1e6, took_us)
                elif footprints.footprints_taken:
                    taking_us = checks_s[-1] * 1e6
                else:
                    saying_us = checks_s[-1] * 1e6
                if footprints.has_taken:
                    break  # A pass comes before the record is made: tuples are waiting.
            if is_due:
                log.sync()  # A node has a thread beside it for that.
            unmarked_s += made_s
            if not is_beginning:
                spent_s, passes_s, marks_s = spent_s + made_s, passes_s + pass_s, marks_s + mark_s
        written += sum(map(append, footprints.mark(self._place(taken))))
        log.sync()
        return {
            "tuples": taken,
            "tuples_per_s": self._rate(taken, spent_s),
            "pass_us": round(passes_s * 1e6 / self._counted(taken), 4),
            "mark_share": round(marks_s / spent_s, 4),
            "check_share": round(sum(checks_s) / spent_s, 4),
            "median_check_ms": round(median(checks_s or [0.0]) * 1000, 3),
            "p99_check_ms": round(_p99(checks_s) * 1000, 3),
            "longest_check_ms": round(max(checks_s, default=0.0) * 1000, 3),
            "p99_on_core_ms": round(_p99(worked_s) * 1000, 3),
            "longest_on_core_ms": round(max(worked_s, default=0.0) * 1000, 3),
            "written_bytes": written,
            "state_mb": round(operator.state_bytes() / (1 << 20), 1),
            "windows": self.keys,
            "footprints": operator.open_windows,
            "shortfall": objective.shortfall(footprints.size(self._place(taken))),
        }

    def _costs(self, tuple_us: float, pacer: Pacer) -> RecoveryCosts:
        """As a node's shell says them."""
        known = self.costs
        return replace(
            known, tuple_us=tuple_us, footprint_us=known.footprint_us or pacer.footprint_us
        )

    def _recover(
        self,
        folder: str,
        footprints: FootprintWriter,
        found: dict[str, Any],
        objective: RecoveryObjective,
    ) -> dict[str, Any]:
        """Have a replacement do what it does; how long, and how long that was to take."""
        taken = found["tuples"]
        size: ExtentSize = footprints.size(self._place(taken))
        began_s = time.perf_counter()
        extent = read_extent(folder, footprints.log_needed_from, footprints.ends_at, 1)
        read_s = time.perf_counter() - began_s
        operator = _operator(True, self.kind)
        assert isinstance(operator, Footprinted)
        began_s = time.perf_counter()
        other = FootprintWriter(operator, objective, extent.next_id, extent, 1)
        adopt_s = time.perf_counter() - began_s
        replay_s = 0.0
        for first in range(extent.starts[0], taken, _REPLAY_TUPLES):
            replay_s += self._pass(operator, first, min(taken, first + _REPLAY_TUPLES))
        other.end_replay()
        self.costs = RecoveryCosts(
            replayed_us=replay_s * 1e6 / max(1, size.tuples),
            footprint_us=adopt_s * 1e6 / max(1, size.footprints),
            byte_us=read_s * 1e6 / max(1, size.log_bytes),
        )
        return {
            "extent_bytes": size.log_bytes,
            "extent_tuples": size.tuples,
            "tuple_us": round(objective.tuple_us, 4),
            "replayed_us": round(self.costs.replayed_us, 4),
            "footprint_us": round(self.costs.footprint_us, 4),
            "predicted_ms": round(objective.predicted_us(size) / 1000, 1),
            "read_ms": round(read_s * 1000, 1),
            "adopt_ms": round(adopt_s * 1000, 1),
            "replay_ms": round(replay_s * 1000, 1),
            "recovery_ms": round((read_s + adopt_s + replay_s) * 1000, 1),
        }


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100] if times else 0.0


def _median(sizes: Sizes, kind: str, share: float) -> dict[str, Any]:
    """The run with the median of what is kept of the throughput.

    One without footprints works in turn with each: a machine is not always as fast. Windows are
    written as long as there is time for them.
    """
    runs: list[dict[str, Any]] = []
    for _ in range(sizes.repeats):
        both = (Worked(kind, sizes.keys, each) for each in (None, share))
        off, on = alternately(*(one.parts(sizes.seconds, RecoveryObjective(0)) for one in both))
        kept = round(on["tuples_per_s"] / off["tuples_per_s"], 4)
        slower = round(on["pass_us"] * off["tuples_per_s"] / 1e6, 4)
        runs.append({"throughput": kept, "pass_ratio": slower, **on})
    return sorted(runs, key=lambda run: float(run["throughput"]))[len(runs) // 2]


def _shares(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for kind in (SLOW, FAST):
        for share in sizes.shares:
            on = _median(sizes, kind, share)
            points.append({"kind": kind, "share": share, **on})
            kept = on["throughput"]
            say(f"{kind} windows, share {share:g}: {kept:.1%}, {on['recovery_ms']:g} ms")
    return points


def _objectives(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for kind in (SLOW, MIXED):
        for windows in sizes.windows:
            for objective_ms in sizes.objectives_ms:
                point = _objective(sizes, kind, windows, objective_ms)
                points.append(point)
                said = point["shortfall"] or "no shortfall was said"
                text = f"{windows:,} {kind} windows, {objective_ms} ms"
                say(f"{text}: {point['recovery_ms']:g} ms; {said}")
    return points


def _objective(sizes: Sizes, kind: str, windows: int, objective_ms: int) -> dict[str, Any]:
    """The second recovery of a node: from the first it knows what one costs."""
    worked = Worked(kind, windows, 0.05)
    worked.work(_WARM_S, RecoveryObjective(1 << 40))
    objective = RecoveryObjective(1 << 40, objective_ms * 1000)
    found = worked.work(sizes.seconds, objective)
    is_met = found["recovery_ms"] <= objective_ms
    return {"kind": kind, "objective_ms": objective_ms, "is_met": is_met, **found}
