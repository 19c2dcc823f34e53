"""Sinks are synced beside a node's loop, one after the other, as often as was asked for."""

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.core.haunit.events import SinkSynced
from holdfast.core.model.ids import StreamId
from holdfast.shell.spark.syncing import Syncing

A, B = StreamId("a[0]"), StreamId("b[0]")


class Sink:
    """Counts its syncs; each takes until it may end."""

    def __init__(self) -> None:
        self.next_id = 0
        self.syncs = self.tidied = 0
        self.begun_s: list[float] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.error: Exception | None = None

    def sync(self) -> None:
        self.syncs += 1
        self.begun_s.append(time.monotonic())
        assert self.may_end.wait(240)
        if self.error is not None:
            raise self.error

    def tidy(self) -> None:
        self.tidied += 1


@pytest.fixture
def told() -> queue.Queue[SinkSynced | Exception]:
    return queue.Queue()


@pytest.fixture
def syncing(told: queue.Queue[SinkSynced | Exception]) -> Iterator[Syncing]:
    thread = Syncing("syncing", told.put)
    yield thread
    thread.end()
    thread.join()


def test_requests_that_come_during_a_sync_share_the_next(
    syncing: Syncing, told: queue.Queue[SinkSynced | Exception]
) -> None:
    sink, other = Sink(), Sink()
    sink.may_end.clear()
    sink.next_id = 3
    syncing.request(A, sink)
    while not sink.syncs:
        time.sleep(0.001)
    for sink.next_id in (5, 7, 9):
        syncing.request(A, sink)
        syncing.request(B, other)
    sink.may_end.set()
    assert [told.get(timeout=240) for _ in range(3)] == [
        SinkSynced(A, 3),
        SinkSynced(A, 9),
        SinkSynced(B, 0),
    ]
    syncing.end()
    syncing.join()
    assert (sink.syncs, other.syncs) == (sink.tidied, other.tidied) == (2, 1)
    assert told.empty()


def test_an_error_is_told_and_is_the_end(
    syncing: Syncing, told: queue.Queue[SinkSynced | Exception]
) -> None:
    sink = Sink()
    sink.error = OSError("no room")
    syncing.request(A, sink)
    assert told.get(timeout=240) is sink.error
    syncing.join()
    syncing.request(A, sink)
    assert sink.syncs == 1


def test_nobody_asks_and_it_ends_all_the_same(syncing: Syncing) -> None:
    syncing.end()
    syncing.join()


def test_syncs_begin_no_sooner_than_the_interval_after_one_another(
    told: queue.Queue[SinkSynced | Exception],
) -> None:
    sink = Sink()
    thread = Syncing("syncing", told.put, interval_s=0.2)  # A lower bound, on any machine.
    for _ in range(3):
        thread.request(A, sink)
        told.get(timeout=240)
    first, second, third = sink.begun_s
    assert min(second - first, third - second) >= 0.2
    thread.end()
    thread.join()


def test_the_end_waits_for_no_interval(told: queue.Queue[SinkSynced | Exception]) -> None:
    thread = Syncing("syncing", told.put, interval_s=3600)
    thread.request(A, Sink())
    told.get(timeout=240)
    thread.end()
    thread._thread.join(240)
    assert not thread._thread.is_alive()
