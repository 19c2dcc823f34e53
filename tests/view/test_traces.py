"""Traces: recoveries and checkpoints become spans, once each, with the times that were measured."""

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from holdfast.driver.listeners import QueryManager
from holdfast.view.traces import Traces

ID = "6a1f7f0e-0000-0000-0000-000000000001"
RUN = "6a1f7f0e-0000-0000-0000-000000000002"
RECOVERED_S = 1_700_000_000.0


def recovery(node: str, caught_up_ms: int | None = None) -> dict[str, Any]:
    return {
        "node": node,
        "detected_ms": 100,
        "restarted_ms": 50,
        "replayed_ms": 20,
        "recovered_ms": 200,
        "recovered_unix_s": RECOVERED_S,
        "caught_up_ms": caught_up_ms,
        "replayed_tuples": 7,
        "was_promoted": False,
    }


def checkpoint(number: int, failure: str | None = None) -> dict[str, Any]:
    return {
        "node": "counts[0]",
        "checkpoint": number,
        "failure": failure,
        "prepared_us": 300,
        "written_bytes": 4096,
        "state_bytes": 8192,
        "duration_ms": 250,
        "at_s": 1.0,
        "at_unix_s": RECOVERED_S + number,
    }


class Watched:
    """A query with lists that tests fill, whose reports reach the traces that are sent."""

    def __init__(self) -> None:
        self.name, self.id, self.runId = "bids", ID, RUN
        self.recoveries: list[dict[str, Any]] = []
        self.checkpoints: list[dict[str, Any]] = []
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.manager = QueryManager()
        self.manager.began(self)  # type: ignore[arg-type]
        self.traces = Traces(provider.get_tracer("holdfast"), self.manager)

    def exception(self) -> None:
        return None

    def idle(self) -> None:
        self.manager.tell("onQueryIdle", SimpleNamespace(id=ID, runId=RUN))

    def end(self) -> None:
        """As the reporter does it: the last report comes when the query is no longer active."""
        self.manager.has_ended(self)  # type: ignore[arg-type]
        progress = {
            "id": ID,
            "runId": RUN,
            "name": self.name,
            "recoveries": self.recoveries,
            "checkpoints": self.checkpoints,
        }
        self.manager.tell("onQueryProgress", SimpleNamespace(progress=progress))
        self.manager.tell("onQueryTerminated", SimpleNamespace(runId=RUN))

    def spans(self) -> list[ReadableSpan]:
        """Those sent since it was asked last."""
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


@pytest.fixture
def query() -> Watched:
    return Watched()


def lasted_ms(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e6


def test_a_recovery_is_a_trace_with_a_span_for_each_of_its_numbers(query: Watched) -> None:
    query.recoveries.append(recovery("counts[1]"))
    query.idle()
    found = {span.name: span for span in query.spans()}
    root = found.pop("recovery")
    assert root.parent is None
    assert root.end_time == RECOVERED_S * 1e9
    assert root.attributes is not None
    assert root.attributes["holdfast.unit"] == "counts"
    assert root.attributes["holdfast.query"] == "bids"
    assert {name: lasted_ms(span) for name, span in found.items()} == {
        "detection": 100,
        "restart": 50,
        "replay": 20,
        "first output": 30,
    }
    assert all(span.parent == root.get_span_context() for span in found.values())
    assert found["restart"].start_time == found["detection"].end_time
    assert found["first output"].end_time == root.end_time


def test_catching_up_follows_in_the_trace_of_its_recovery(query: Watched) -> None:
    query.recoveries.append(recovery("counts[0]"))
    query.idle()
    (root,) = (span for span in query.spans() if span.parent is None)
    query.recoveries.append(recovery("counts[1]"))
    query.recoveries[0]["caught_up_ms"] = 1_200
    query.idle()
    (caught_up,) = (span for span in query.spans() if span.name == "catch up")
    assert caught_up.parent == root.get_span_context()
    assert lasted_ms(caught_up) == 1_000
    query.idle()
    assert query.spans() == []


def test_each_checkpoint_is_sent_once_and_one_that_failed_is_an_error(query: Watched) -> None:
    query.checkpoints.append(checkpoint(1))
    query.idle()
    query.checkpoints.append(checkpoint(2, failure="the disk is full"))
    query.end()
    first, second = query.spans()
    assert lasted_ms(first) == 250
    assert first.status.status_code == StatusCode.UNSET
    assert second.status.status_code == StatusCode.ERROR
    assert second.status.description == "the disk is full"
    assert first.parent is second.parent is None
    assert second.attributes is not None
    assert second.attributes["holdfast.written_bytes"] == 4096


def test_after_stop_nothing_is_sent(query: Watched) -> None:
    query.traces.stop()
    query.recoveries.append(recovery("counts[0]"))
    query.idle()
    assert query.spans() == []
