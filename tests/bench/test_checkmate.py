"""CheckMate's experiments, in small."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.scope import scope_of
from holdfast.core.model.ids import END_US, CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.recovery.checkpoint_graph import Channel, CheckpointGraph, Place
from holdfast.core.recovery.forced_checkpoints import forced_per_basic
from holdfast.core.recovery.recovery_line import recovery_line
from holdfast_bench.checkmate import bench, beside, calibration, page, paper, scale, timing
from holdfast_bench.checkmate.dataflows import PROTOCOLS, shares_of
from holdfast_bench.checkmate.reachability import LINKS, SOURCES, Changes
from holdfast_bench.commands import app


def test_what_was_found_in_pieces_comes_together_and_is_kept(tmp_path: Path) -> None:
    for workers in ("2", "3"):
        asked = ["checkmate", "--quick", "--only", "scale", "--workers", workers]
        done = CliRunner().invoke(app, [*asked, "--report", str(tmp_path)])
        assert done.exit_code == 0, done.output
    found = page.PAGE.former(tmp_path)
    assert list(found["scale"]) == ["2", "3"]
    text = (tmp_path / "checkmate.md").read_text()
    assert "| 3 | cyclic | UNC |" in text
    assert "## Throughput" not in text
    again = bench.merged(found, {"scale": {"2": {"machine": {}, "keyed": {}}}})
    assert again["scale"]["2"] == {"machine": {}, "keyed": {}}
    assert again["scale"]["3"] == found["scale"]["3"]


def test_the_papers_tables_are_read_and_ours_stand_beside_them() -> None:
    assert paper.message_overhead("CIC", "q12", 50) == "2.58"
    assert paper.invalid_percent("UNC", "q3", 10) == "4"
    assert paper.message_overhead("CIC", "q12", 7) == ""
    point = {"checkpoints": 9, "forced_per_basic": 0.1, "useless": 0, "rolled_past": None}
    of = {graph: {rule: point | {"message_overhead": 1.0} for rule in scale.RULES} for graph in
          scale.GRAPHS}  # fmt: skip
    text = page.PAGE.render(
        {"machine": {"python": "3", "pyspark": "4", "system": "L"}, "scale": {"50": of}}
    )
    (row,) = [line for line in text.splitlines() if "| keyed | HMNR, all |" in line]
    assert "| 1.0 | 2.58 | 3 % |" in row


def test_every_experiment_has_its_section_and_runs_that_failed_are_told_apart(
    tmp_path: Path,
) -> None:
    on = {"commit": "abc", "cores": 2, "load_before": 0.1, "load_after": 1.0}
    times = dict.fromkeys(
        ("detected_ms", "restarted_ms", "replayed_ms", "recovered_ms", "caught_up_ms"), 40
    )
    run = {
        "seconds": [
            {"second": n, "results": n % 3, "p50": 5.0, "p99": 8.0, "max": 9.0} for n in range(9)
        ],
        "recovery": times,
        "is_identical": False,
        "checkpoints": 5,
        "forced": 0,
        "useless": 1,
        "rolledPast": 2,
        "unplanned_failures": 1,
        "standstill_ms": 0.25,
        "standstill_max_ms": 0.5,
        "durable_ms": 30,
        "complete_ms": 70,
        "message_overhead": 1.01,
        "predicted": {"recovery_ms": 61.0, "delay_ms": 77.0, "overhead_percent": 3.0},
    }
    failed = {"machine": on, "size": "quick", "tuples_per_s": 9.0}
    failed["protocols"] = dict.fromkeys(PROTOCOLS[1:], run)
    rates = dict.fromkeys(PROTOCOLS, 1000)
    shares = dict.fromkeys(PROTOCOLS, 0.987)
    throughput = {"machine": on, "size": "quick", "tuples_per_s": rates}
    fast = {"complete_ms": 140, "cpu_s": 1.5, "seconds": 1.0}
    throughput |= {"share_side_by_side": shares, "runs": {p: [fast] for p in PROTOCOLS}}
    first = {"median": 250.0, "p99": 400.0, "max": 401.0}
    killed = {"machine": on, "size": "quick", "kills": [0] * 20, "is_identical": True}
    killed |= {"first_output_ms": first, "reported_median_ms": times}
    large = {"machine": on | {"commit": "def"}, "size": "quick", "state_bytes": 512 << 20}
    large |= {"cuts": 9, "median_ms": 2.5, "max_ms": 3.0}
    loop = {"machine": on, "size": "quick", "changes_per_s": 5, "runs": [{"results": 3}]}
    results = {
        "machine": {"python": "3", "pyspark": "4", "system": "L"},
        "throughput": {"q1": {"1": throughput}},
        "failure": {"q1": {"1": failed}},
        "kills": {"UNC": killed},
        "standstill": {"UNC": large},
        "skew": {"q12": {"0.1": failed}},
        "cyclic": {"UNC": {"1": loop | {"failure": run}}},
    }
    text = page.PAGE.write(results, tmp_path).read_text()
    assert "1,000 (98.7%)" in text
    assert "| q12, 10% | COOR | 5.00 | 77 | 8.00 | 120 | 40 | 61 |" in text
    assert text.count("| NO |") == 9 + 3, "what is not identical, and the targets that are missed"
    for line in (
        "| kill -9 to first output, 10 MB, 20 kills, UNC | ≤ 300 ms | 250 ms | yes |",
        "| standstill at a cut, 512 MiB, UNC | ≤ 2 ms | 2.50 ms | NO | standstill |",
        "- *standstill*: marks of all pages",
        "| round under back-pressure, q1, 1, COOR unaligned | ≤ 1.5 × | 2.00 × (140 ms, at rest 70",
        "| restart, loop, UNC, 5 workers | 620 ms | 120 ms | Here a process is killed",
        "different commits (abc, def)",
    ):
        assert line in text, text
    assert (tmp_path / "checkmate-failure-q1.png").stat().st_size > 1000
    assert (tmp_path / "checkmate-throughput.png").stat().st_size > 1000


def test_who_has_not_caught_up_is_not_said_to_have_done_so_at_once() -> None:
    times = {"detected_ms": 1, "restarted_ms": 2, "replayed_ms": 3, "caught_up_ms": None}
    runs = {protocol: {"recovery": times} for protocol in PROTOCOLS[1:]}
    text = beside.beside_the_paper({"failure": {"q8": {"1": {"protocols": runs}}}})
    assert "| COOR not before the end, " in text


def test_clocks_leave_no_checkpoint_useless_where_without_them_some_are() -> None:
    found = scale.measure(4, 20.0)["cyclic"]
    assert found["UNC"]["useless"] > 0
    assert [found[rule]["useless"] for rule in scale.RULES[1:]] == [0, 0, 0, 0]
    assert found["HMNR"]["forced"] <= found["BCS"]["forced"]
    keyed = scale.measure(4, 20.0)["keyed"]
    assert {keyed[rule]["message_overhead"] for rule in ("UNC", "BCS", "HMNR")} == {1.0}
    assert keyed["HMNR, all"]["message_overhead"] > 1.0


class _Textbook:
    """HMNR as the paper has it: everything with each message, nothing in batches."""

    def __init__(self, own: int, members: int) -> None:
        self.own, self.members = own, range(members)
        self.clock, self.checkpoints = 0, [0] * members
        self.sent_to, self.taken, self.greater = ([False] * members for _ in range(3))
        self.forced = -1
        self.cut(is_forced=True)

    def cut(self, *, is_forced: bool) -> None:
        self.forced += is_forced
        self.sent_to = [False for _ in self.members]
        self.taken = [k != self.own for k in self.members]
        self.greater = [k != self.own for k in self.members]
        self.clock += 1
        self.checkpoints[self.own] += 1

    def send(self, to: int) -> tuple[int, list[int], list[bool], list[bool]]:
        self.sent_to[to] = True
        return self.clock, list(self.checkpoints), list(self.taken), list(self.greater)

    def receive(self, message: tuple[int, list[int], list[bool], list[bool]]) -> None:
        clock, checkpoints, taken, greater = message
        own = self.own
        passes = any(self.sent_to[k] and greater[k] for k in self.members) and clock > self.clock
        if passes or (checkpoints[own] == self.checkpoints[own] and taken[own]):
            self.cut(is_forced=True)
        if clock > self.clock:
            self.clock = clock
            self.greater = [k != own and greater[k] for k in self.members]
        elif clock == self.clock:
            self.greater = [a and b for a, b in zip(self.greater, greater, strict=True)]
        for k in self.members:
            if k != own and checkpoints[k] > self.checkpoints[k]:
                self.checkpoints[k], self.taken[k] = checkpoints[k], taken[k]
            elif k != own and checkpoints[k] == self.checkpoints[k]:
                self.taken[k] = self.taken[k] or taken[k]


class _Schedule:
    """Nodes that all send to all, with our rule and with the paper's, one message at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        names = tuple(NodeId(f"n{i}") for i in range(4))
        self.names = names
        self.others = [tuple(n for n in names if n != own) for own in names]
        scopes = (scope_of(own, names, o, o) for own, o in zip(names, self.others, strict=True))
        self.rules = [HMNR(scope) for scope in scopes]
        self.books = [_Textbook(i, len(names)) for i in range(len(names))]
        self.edges: dict[tuple[str, str], list[tuple[Any, Any]]] = {
            (a, b): [] for a in names for b in names if a != b
        }
        self.stands = [[0] * 3 for _ in names]
        self.points = [0] * len(names)

    def cut(self, at: int) -> None:
        """Ours alone."""
        self.points[at] += 1
        checkpoint = CheckpointId(self.points[at], Incarnation(1))
        self.rules[at].cut(checkpoint, tuple(self.stands[at]))

    def step(self) -> None:
        """Somebody cuts, sends, or receives."""
        at, kind = self.rng.randrange(len(self.names)), self.rng.random()
        if kind < 0.05:
            self.rules[at].asked(NO_ROUND)
            self.cut(at)
            self.books[at].cut(is_forced=False)
        elif kind < 0.5:
            to = self.rng.choice(self.others[at])
            note = self.rules[at].before_output(self.others[at].index(to))
            message = self.books[at].send(self.names.index(to))
            self.edges[self.names[at], to].append((note, message))
        else:
            waiting = [s for s in self.others[at] if self.edges[s, self.names[at]]]
            if waiting:
                self.receive(at, self.rng.choice(waiting))

    def receive(self, at: int, sender: NodeId) -> None:
        """The oldest message of a sender."""
        rule, stands = self.rules[at], self.stands[at]
        number = self.others[at].index(sender)
        note, message = self.edges[sender, self.names[at]].pop(0)
        if note is not None:
            rule.noted(number, stands[number], note)
        while rule.is_due(tuple(stands)):
            self.cut(at)
        rule.begin_pass(tuple(stands))
        stands[number] += 1
        self.books[at].receive(message)


def test_a_batch_with_its_clocks_forces_what_the_paper_forces_with_each_message() -> None:
    """Notes that say what was known before are left out; nobody is forced more for it, or less."""
    forced = 0
    for seed in range(40):
        schedule = _Schedule(seed)
        for _ in range(400):
            schedule.step()
        ours = [rule.forced for rule in schedule.rules]
        assert ours == [book.forced for book in schedule.books], seed
        forced += sum(ours)
    assert forced > 100


def test_links_and_sources_come_and_go_in_the_papers_mix() -> None:
    links, sources = (Changes(kind, 1_000, nodes=50) for kind in (LINKS, SOURCES))
    assert (links.count, sources.count) == (800, 200)
    for changes, per_block, gone in ((links, 80, 20), (sources, 20, 5)):
        rows = changes.rows(np.arange(changes.count)).to_pandas()
        assert (rows["change"] == -1).sum() == gone * 9  # In the first block nothing can go.
        ends = [name for name in changes.schema.names if name != "change"]
        left = rows.groupby(ends)["change"].sum()
        assert left.min() >= 0
        assert rows["change"].sum() == changes.count - 2 * gone * 9
        assert rows["__time_us"].is_monotonic_increasing
        assert per_block == changes.per_block
    readers = [links.spec(partition, 3).open() for partition in range(3)]
    read = [reader.read(0, 1_000) for reader in readers]
    assert sum(rows.batches[0].count for rows in read) == 800
    assert all(rows.boundary_us == END_US for rows in read)
    both = readers[1].read(5, 10).batches[0].batch, read[1].batches[0].batch.slice(5, 10)
    assert both[0].equals(both[1])


def test_persons_and_auctions_come_one_to_three() -> None:
    assert shares_of("q3", 8_000) == {"person": 1_000, "auction": 3_000}
    assert shares_of("q12", 8_000) == {"bid": 4_000}


@pytest.mark.parametrize("circle", [3, 6])
def test_hmnr_forces_about_as_many_as_the_adviser_assumes(circle: int) -> None:
    found = scale.Region("cyclic", circle, "HMNR", seed=2).run(90.0)
    period_ms = scale.INTERVAL_MS + scale.JITTER_MS / 2
    foretold = forced_per_basic(circle, period_ms, scale.PASS_MS)
    assert found["forced_per_basic"] == pytest.approx(foretold, rel=0.25)


# -- calibration ----------------------------------------------------------------------------------


def _measured_throughput(own_us: float, instance_us: float, of_four: float = 1.0) -> dict[str, Any]:
    """Runs on two processors whose tuples cost that much; with four instances so much more."""
    found = {}
    for workers in (1, 2, 4):
        cost_us = (own_us + instance_us * workers) * (of_four if workers == 4 else 1.0)
        rate = 2 * 0.9 * 1e6 / cost_us
        run = {"cpu_s": 1e6 * cost_us / 1e6, "seconds": 1e6 / rate}
        found[str(workers)] = {
            "machine": {"cores": 2},
            "tuples": 1_000_000,
            "tuples_per_s": dict.fromkeys(PROTOCOLS, rate),
            "runs": {protocol: [run] for protocol in PROTOCOLS},
        }
    return {"q12": found}


def test_costs_fitted_to_one_and_two_instances_foretell_four() -> None:
    tried = list(calibration.throughput_tried(_measured_throughput(1.0, 0.25)))
    assert [each.is_fitted for each in tried] == [True] * 10 + [False] * 5
    assert max(abs(each.error) for each in tried) < 1e-6
    dearer = list(calibration.throughput_tried(_measured_throughput(1.0, 0.25, of_four=1.5)))
    assert calibration.largest_error(dearer) == pytest.approx(0.5), "of what was left out"
    cost = calibration.tuple_cost(_measured_throughput(1.0, 0.25), "q12", "UNC")
    assert cost is not None
    assert cost.rate(100, 100) == pytest.approx(100 * 0.9 * 1e6 / 26)


def test_nothing_is_foretold_of_what_was_not_measured() -> None:
    only_one = {"q12": {"1": _measured_throughput(1, 0)["q12"]["1"]}}
    assert not list(calibration.throughput_tried(only_one))
    assert calibration.foretold_times({}, "q3", 4, "UNC") is None
    assert beside.calibrated({}) == ""


TIMES = timing.Times((30.0, 50.0), hop_ms=5.0, detected_ms=100.0, restarted_ms=150.0)


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
@pytest.mark.parametrize("query", ["q1", "q12"])
def test_with_more_instances_results_wait_for_more(query: str, protocol: str) -> None:
    few, many = (
        timing.foretell(timing.Setting(query, n, protocol, 5_000, 1_000, 60.0, 18.0), TIMES)
        for n in (1, 50)
    )
    assert few.delay_ms <= many.delay_ms + 200
    assert 2_000 < few.delay_ms < 12_000
    assert 200 < few.recovered_ms < 1_500, "long before an interval is over"
    if protocol == "UNC" and query == "q12":
        assert many.delay_ms > 1.2 * few.delay_ms, "the line waits for the last of many"


def test_the_line_that_is_simulated_is_that_of_the_rules() -> None:
    """Cuts by one's own clock: what `timing` says of a cut, beside `recovery_line` at that time."""
    run = timing._Run(timing.Setting("q12", 3, "UNC", 1_000, 400, 20.0, 18.0), TIMES, 1)
    cuts = {NodeId(f"s{i}"): run._cuts() for i in range(3)}
    receiver = NodeId("r")
    own = run._cuts()
    channels = tuple(Channel(StreamId(f"{s}>r"), s, receiver) for s in cuts)

    def line_at(now_ms: float) -> int:
        """Which cut of the receiver the line has come to."""

        def places(node: NodeId, of: list[Any]) -> tuple[Place, ...]:
            found = [Place(0)]
            for number, cut in enumerate(of, 1):
                if cut.durable_ms > now_ms:
                    break
                at = int(cut.at_ms * 1_000)
                hop = int(TIMES.hop_ms * 1_000)
                if node == receiver:
                    before: dict[str, int] = {c.stream: at - hop for c in channels}
                    found.append(Place(number, before, {}))
                else:
                    found.append(Place(number, {}, {f"{node}>r": at}))
            return tuple(found)

        graph = CheckpointGraph(
            {receiver: places(receiver, own)} | {s: places(s, of) for s, of in cuts.items()},
            channels,
        )
        return recovery_line(graph)[receiver].sequence

    for number, cut in enumerate(own[:12], 1):
        passed_ms = run._passed(cut, list(cuts.values()))
        assert line_at(passed_ms + 0.01) >= number
        assert line_at(passed_ms - 0.01) < number
