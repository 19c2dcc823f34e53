"""Requests to a running query reach its driver once, and are refused by name where they must be."""

import json
import logging
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.driver.asking import ask, stop
from holdfast.driver.requests import RequestDesk, carry_out
from holdfast.errors import NotRunningError, OptionError, RequestError
from holdfast.shell.storage.lock import LocationLock, is_held
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.request_box import Request, RequestBox
from holdfast.shell.storage.rights import open_location


class FakeQuery(SimpleNamespace):
    """As much of a query as requests need."""

    def __init__(self, lock: LocationLock | None = None) -> None:
        super().__init__(name="bids", id="an id", runId="a run", isActive=True)
        self.nodes = {"bids[0]": 1, "counts[0]": 2, "counts[1]": 3}
        self.status = {"message": "running", "nodes": {}, "notes": []}
        self.failures: list[dict[str, Any]] = []
        self.recoveries: list[dict[str, Any]] = []
        self.lastProgress = {"numInputRows": 7}
        self.killed: list[str] = []
        self.done = threading.Event()
        self.lock = lock

    def exception(self) -> None:
        return None

    def kill(self, node: str) -> None:
        self.killed.append(node)

    def promote(self, unit: str) -> None:
        raise OptionError(f"unit {unit!r} has no secondaries; units that have: none")

    def stop(self) -> None:
        self.done.set()
        if self.lock is not None:
            self.lock.release()


def begin(place: str) -> None:
    store_at(place).put("dataflow.txt", [b"a dataflow"])


@pytest.fixture
def location(tmp_path: Path) -> str:
    place = str(tmp_path / "location")
    open_location(place, 0o700)
    begin(place)
    return place


@pytest.fixture
def query(location: str) -> Iterator[FakeQuery]:
    query = FakeQuery(LocationLock(location))
    RequestDesk(query, location, query.done).start()  # type: ignore[arg-type]
    yield query
    query.done.set()


def test_status_is_what_the_handle_shows(location: str, query: FakeQuery) -> None:
    found = ask(location, "status", "", 20)
    assert found["name"] == "bids"
    assert found["progress"] == query.lastProgress
    assert found["status"]["message"] == "running"


def test_a_unit_stands_for_all_its_nodes(location: str, query: FakeQuery) -> None:
    assert ask(location, "kill", "counts", 20) == {"killed": ["counts[0]", "counts[1]"]}
    assert ask(location, "kill", "bids[0]", 20) == {"killed": ["bids[0]"]}
    assert query.killed == ["counts[0]", "counts[1]", "bids[0]"]


def test_what_changes_something_is_said_and_looking_is_not(
    location: str, query: FakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    ask(location, "status", "", 20)
    ask(location, "kill", "bids[0]", 20)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.INFO] == [
        "bids: kill bids[0] is asked for"
    ]


@pytest.mark.parametrize(
    ("action", "target", "message"),
    [
        ("kill", "sums", "no unit or node 'sums'; units are bids, counts, nodes bids\\[0\\]"),
        ("promote", "sums", "no unit or node 'sums'"),
        ("promote", "counts", "no secondaries; units that have: none"),
        ("explode", "counts", "there are status, stop, kill, promote"),
    ],
)
def test_a_refusal_names_what_there_is(
    location: str, query: FakeQuery, action: str, target: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        ask(location, action, target, 20)
    assert query.killed == []


def test_a_stop_is_over_when_the_location_is_free(location: str, query: FakeQuery) -> None:
    assert stop(location, 20)
    assert query.done.is_set()
    assert not is_held(location)


def test_nothing_is_left_behind_and_only_the_owner_reads_on_the_way(
    location: str, query: FakeQuery
) -> None:
    box = RequestBox(location)
    request_id = box.ask("status")
    folder = Path(location, "requests")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())
    while box.answer_of(request_id) is None:
        pass
    box.forget(request_id)
    assert not folder.exists() or not os.listdir(folder)


def test_where_no_query_runs_nothing_is_done_later(location: str) -> None:
    LocationLock(location).release()
    with pytest.raises(NotRunningError, match="no query runs at"):
        ask(location, "kill", "counts", 20)
    assert RequestBox(location).take() == []
    query = FakeQuery()
    RequestDesk(query, location, query.done).start()  # type: ignore[arg-type]
    assert ask_while_running(location, query)["name"] == "bids"
    assert query.killed == []
    query.done.set()


def ask_while_running(location: str, query: FakeQuery) -> dict[str, Any]:
    lock = LocationLock(location)
    try:
        return ask(location, "status", "", 20)
    finally:
        lock.release()


def test_a_request_of_before_the_query_is_forgotten(location: str) -> None:
    box = RequestBox(location)
    box.ask("kill", "counts")
    box.clear()
    assert box.take() == []


def test_of_the_driver_and_who_gives_up_only_one_succeeds(location: str) -> None:
    box = RequestBox(location)
    withdrawn, taken = box.ask("kill", "counts"), box.ask("stop")
    assert box.withdraw(withdrawn)
    assert [request.id for request in box.take()] == [taken]
    assert not box.withdraw(taken)
    assert box.take() == []


@pytest.mark.parametrize("content", [b"", b"garbage", b"[]", b'{"action": 1}', b"x" * 5_000])
def test_what_makes_no_sense_is_answered_and_not_done(location: str, content: bytes) -> None:
    store_at(location).put("requests/0123.json", [content])
    box = RequestBox(location)
    assert box.take() == []
    answer = box.answer_of("0123")
    assert answer is not None
    assert "0123.json is damaged" in answer["error"]


def test_requests_reach_a_query_at_a_url(tmp_path: Path) -> None:
    place = f"local://{tmp_path}/location"
    begin(place)
    query = FakeQuery()
    RequestDesk(query, place, query.done).start()  # type: ignore[arg-type]
    assert ask(place, "kill", "counts", 30)["killed"] == ["counts[0]", "counts[1]"]
    assert not stop(place, 30)
    assert query.done.wait(240)


def test_a_location_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no folder"):
        ask(str(tmp_path / "nowhere"), "status", "", 1)
    with pytest.raises(OptionError, match="no query has run at"):
        ask(str(tmp_path), "status", "", 1)


def test_an_action_that_fails_is_told_and_the_query_goes_on() -> None:
    query = FakeQuery()
    query.status = None
    query.lastProgress = None
    answer = carry_out(query, Request("1", "status", ""))  # type: ignore[arg-type]
    assert "TypeError" in json.dumps(answer)
