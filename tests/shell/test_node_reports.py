"""When a node says what it has done."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.coordinator.events import KeepAliveReceived
from holdfast.core.coordinator.reports import StatisticsReported
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.haunit.told import FiguresWanted
from holdfast.core.model.users_code import USERS_CODE
from holdfast.core.wire.node_words import Task, decode_from_node
from holdfast.shell.spark.loop_watch import LoopWatch
from holdfast.shell.spark.node_reports import NodeReports
from holdfast.shell.telemetry import LatencyHistogram


class Spoken:
    """A node's reports; everything around them is still.

    Attributes:
        said: The words so far.
        machine: The node's.
        stale_looks: How often topics were looked after whose readers have waited for long.
    """

    def __init__(self) -> None:
        self.said: list[object] = []
        self.stale_looks = 0
        limits = SimpleNamespace(keep_alive_ms=100)
        machine = SimpleNamespace(is_secondary=False, statistics=NodeStatistics, trouble=None)
        self.machine = machine
        channels = SimpleNamespace(say=self._say, refused_frames=0, refused_handshakes=0)
        sinks = SimpleNamespace(
            latency=LatencyHistogram(), waits=SimpleNamespace(trouble=""), sync_stale=self._look
        )
        sources = SimpleNamespace(odd=tuple, reached=dict, late_rows={}, reported=lambda _: {})
        life = SimpleNamespace(
            machine=machine,
            incarnation=1,
            known_peers=dict,
            known_secondaries=dict,
            has_joined=True,
        )
        given = (
            SimpleNamespace(plan=SimpleNamespace(node="counts[0]", limits=limits)),
            life,
            channels,
            sinks,
            sources,
            SimpleNamespace(look_at_changes=lambda _: None),
            None,
        )
        self.reports = NodeReports(
            *cast("Any", given),
            bring_up=cast("Any", SimpleNamespace(trouble="")),
            task_id="t",
            former="",
            store_trouble=lambda: "",
        )
        self.reports.loop = LoopWatch(stall_s=60.0)

    def _say(self, word: object) -> int:
        self.said.append(word)
        return 1

    def _look(self) -> None:
        self.stale_looks += 1

    @property
    def figures(self) -> int:
        """How often it has said what it has done."""
        return sum(isinstance(word, StatisticsReported) for word in self.said)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds."""
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    return now_s


def turn(spoken: Spoken, clock: list[float], ms: int) -> None:
    """The loop turns so many milliseconds later."""
    clock[0] += ms / 1000
    spoken.reports.report(round(clock[0] * 1000))


def test_a_node_that_turns_often_says_what_it_has_done_twice_a_second(clock: list[float]) -> None:
    spoken = Spoken()
    for _ in range(400):  # Two seconds.
        turn(spoken, clock, 5)
    assert 4 <= spoken.figures <= 5
    assert spoken.stale_looks >= 18, "whoever waits for a topic does not wait for a report"


def test_whoever_asks_is_answered_at_the_end_of_the_turn_and_once(clock: list[float]) -> None:
    spoken = Spoken()
    turn(spoken, clock, 5)
    assert spoken.figures == 1
    spoken.reports.show_figures(FiguresWanted())
    spoken.reports.show_figures(FiguresWanted())
    assert spoken.figures == 1, "what was read in this turn is not in the queue yet"
    turn(spoken, clock, 1)
    assert spoken.figures == 2
    turn(spoken, clock, 1)
    assert spoken.figures == 2


def test_a_node_without_a_copy_of_its_state_says_so(clock: list[float]) -> None:
    spoken = Spoken()
    turn(spoken, clock, 5)
    assert _waits(spoken) == ()
    spoken.machine.trouble = "the secondary of counts[0] has no copy: output is spilled"
    turn(spoken, clock, 200)
    assert _waits(spoken) == (spoken.machine.trouble,)


def test_the_thread_that_says_so_falls_silent_with_the_loop(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = Spoken()
    reports, sent = spoken.reports, list[bytes]()
    channel = SimpleNamespace(send=sent.append, close=lambda linger: None)
    monkeypatch.setattr(reports._channels, "to_coordinator", lambda _: channel, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: setattr(reports, "_is_closing", True))

    def says() -> list[tuple[str, ...]]:
        """What the node waits for, in each word that is sent now."""
        sent.clear()
        reports._is_closing = False
        reports._keep_alive()
        return [_waits_in(word) for word in sent]

    turn(spoken, clock, 5)
    assert says() == [()]
    clock[0] += 30.0
    assert says() == [("counts[0] has been at one pass for 30 s",)]
    with USERS_CODE.of("ask_the_bank"):
        assert says() == [("counts[0] has been at one pass for 30 s; it is in ask_the_bank",)]
    clock[0] += 60.0
    assert says() == [], "a loop that stands still is as good as dead"
    reports.takes_over()
    clock[0] += 60.0
    assert says() == [("counts[0] comes up: its windows are being taken over",)]
    reports.loop.turned()
    turn(spoken, clock, 100)
    assert says() == [()]


def _waits(spoken: Spoken) -> tuple[str, ...]:
    """What the thread says next that the node waits for."""
    word = spoken.reports._word_now()
    assert word is not None
    return _waits_in(word)


def _waits_in(word: bytes) -> tuple[str, ...]:
    alive = decode_from_node([word], Task("t", "counts[0]", 1, 1))
    assert isinstance(alive, KeepAliveReceived)
    return alive.waits


def test_the_last_words_do_not_wait(clock: list[float]) -> None:
    spoken = Spoken()
    turn(spoken, clock, 5)
    spoken.reports.report(round(clock[0] * 1000), is_last=True)
    assert spoken.figures == 2
