"""What people see: in narrow terminals, and where there is no terminal."""

import io
import signal
from typing import Any

import pytest
from rich.console import Console

from holdfast.cli import views
from holdfast.cli.interrupts import Interrupts
from holdfast.flights.demo import DemoResult

NODES = {
    name: {
        "state": "running",
        "pid": 12_345,
        "input_tuples": 336_776,
        "output_tuples": 1_234_567,
        "retained_tuples": 264_000,
        "state_bytes": 10_000_000,
    }
    for name in ("departures[0]", "conditions[0]")
}
LOST = {"at_s": 4.5, "node": "conditions[0]", "reason": "no keep-alive for 300 ms"}
BACK = {"node": "conditions[0]", "recovered_ms": 310, "caught_up_ms": 900}


def report(failures: int = 0) -> dict[str, Any]:
    return {
        "numInputRows": 362_888,
        "inputRowsPerSecond": 24_000.0,
        "numOutputRows": 161_960,
        "latencyMs": {"p50": 3.25, "p99": 3_047.372},
        "failures": [LOST] * failures,
        "recoveries": [BACK] * failures,
    }


def shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(views.progress("flights", NODES, report(1), 7.0, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_off_whatever_the_width(width: int) -> None:
    text = shown(width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for word in (
        "departures[0]",
        "running",
        "336,776",
        "1,234,567",
        "conditions[0] lost",
        "after 900 ms",
    ):
        assert word in text
    assert ("12345" in text) == (width == 120)


def test_without_a_terminal_every_event_is_a_line_and_progress_comes_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=60, color_system=None)
    lines = views.Lines(console, "flights")
    for failures in (0, 0, 1, 1):
        lines(report(failures))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "flights: in 362,888 tuples (24,000/s), out 161,960, latency p50 3.2 ms, p99 3,047 ms",
        "4.50 s  conditions[0] lost: no keep-alive for 300 ms",
        "conditions[0] back after 310 ms",
        "conditions[0] caught up after 900 ms",
    ]


def test_an_interrupt_waits_while_asked_and_is_deaf_while_stopping() -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupts, steps = Interrupts(), []
    try:

        def watch() -> None:
            with interrupts.asking():
                signal.raise_signal(signal.SIGINT)
                steps.append("went on")

        with pytest.raises(KeyboardInterrupt):
            watch()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

        def fails() -> None:
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("the connection was torn")

        interrupts.stop(fails, lambda: steps.append("stopped"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["went on", "stopped"]


def test_an_error_while_stopping_is_shown_when_nobody_interrupted() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(ZeroDivisionError):
            Interrupts().stop(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    finally:
        signal.signal(signal.SIGINT, before)


def consistency(state: str, *, missing: tuple[str, ...] = (), tentative: int = 0) -> dict[str, Any]:
    said = {"state": state, "missing": list(missing), "tentativeRows": tentative, "undoneRows": 0}
    return {"units": {"departures": {"consistency": said}}}


def test_what_a_unit_goes_on_without_is_shown_and_said_once() -> None:
    failed = consistency("up_failure", missing=("jfk[0]",), tentative=1_234)
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(views.progress("flights", NODES, report() | failed, None, 80))
    lines = views.Lines(console, "flights")
    for state in (failed, failed, consistency("stabilization"), consistency("stable")):
        lines(report() | state)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "departures goes on without jfk[0]: 1,234 tentative rows stand" in text
    assert text.count("departures goes on without jfk[0], as tentative") == 1


def test_days_that_were_tentative_first_stand_beside_what_is_right() -> None:
    silence = {
        "airport": "jfk",
        "seconds": 3.0,
        "bound": "1 second",
        "waited_ms_max": 905,
        "waited_for_correction_ms_max": 40,
        "tentative_rows": 120,
        "undone_rows": 120,
        "events": [{"ms": 0, "event": "departures: goes on without jfk[0], as tentative"}],
    }
    day = {"day": "2013-04-02", "tentative departures": 620, "without": "jfk[0]", "right": 915}
    summary = {
        "silence": silence,
        "timeline": [],
        "latency_ms": {"p50": 3.0, "p99": 4.0},
        **dict.fromkeys(("flights", "cancelled", "input_tuples", "output_tuples"), 1),
        "seconds": 10.0,
        "throughput_tps": 1.0,
        "identical": True,
    }
    console = Console(file=io.StringIO(), width=120, color_system=None)
    views.print_result(console, DemoResult(summary, [], [], [day]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "nothing waited for it for longer than 905 ms (the bound is 1 second)" in text
    assert "40 ms" in text, "and how long for the correction"
    assert "915" in text
    assert "identical to Spark SQL: yes" in text


def test_what_failed_is_said_in_a_line_a_node() -> None:
    assert views.what_failed([]) == "none"
    assert views.what_failed([LOST, {**BACK, "replayed_tuples": 2_000}]).splitlines() == [
        "conditions[0] lost: no keep-alive for 300 ms",
        "conditions[0] back after 310 ms, 2,000 tuples replayed",
    ]
