"""Peace: who may write when and where, and what it promises whatever comes. [SGuard §5]"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.core.errors import LocalProtocolError, RemoteProtocolError
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.peace.messages import (
    ChunkWritten,
    CopyConstraint,
    FailWrite,
    GrantWrite,
    PeaceSettings,
    RefuseWrite,
    ServerJoined,
    ServerLost,
    WriteRequested,
    WriteRequestId,
    WriteWithdrawn,
)
from holdfast.core.peace.network_model import NetworkModel, ServerCapacities, ServerName
from holdfast.core.peace.peace import Peace

RACKS = {"one": ["a", "b", "c"], "two": ["d", "e", "f"]}
ANYWHERE = PeaceSettings(constraints=())
ONE = ServerCapacities(1, 1, 1, 1)


def request(name: str, writer: str, *, copies: int = 2, chunks: int = 1) -> WriteRequested:
    return WriteRequested(WriteRequestId(name), ServerName(writer), copies, chunks)


def written(name: str, chunk: int) -> ChunkWritten:
    return ChunkWritten(WriteRequestId(name), chunk)


def lost(name: str) -> ServerLost:
    return ServerLost(ServerName(name))


class Driver:
    """Steps Peace, checks it, and keeps what is granted and not yet reported."""

    def __init__(
        self, model: NetworkModel, settings: PeaceSettings | None = None, seed: int = 0
    ) -> None:
        self.machine = Peace(
            model, settings=settings or PeaceSettings(), random=random.Random(seed)
        )
        self.now_ms = 0
        self.granted: dict[tuple[str, int], tuple[ServerName, ...]] = {}
        self.effects: list[Effect] = []
        self.granted_in: dict[str, dict[int, int]] = {}  # chunks by request and timestep

    @property
    def timestep(self) -> int:
        return self.machine.statistics().timestep

    def step(self, stimulus: Stimulus) -> list[Effect]:
        effects = self.machine.step(stimulus, self.now_ms)
        self.machine.check_invariants()
        for effect in effects:
            if isinstance(effect, GrantWrite):
                by_timestep = self.granted_in.setdefault(effect.request_id, {})
                by_timestep[self.timestep] = len(effect.placements)
                for placement in effect.placements:
                    self.granted[effect.request_id, placement.chunk] = placement.servers
        self.effects += effects
        return [effect for effect in effects if not isinstance(effect, SetTimer)]

    def write_all(self) -> list[Effect]:
        """Report what is granted now; what is granted for that is not reported yet."""
        effects: list[Effect] = []
        for name, chunk in list(self.granted):
            del self.granted[name, chunk]
            effects += self.step(written(name, chunk))
        return effects


def grants(effects: list[Effect]) -> dict[str, int]:
    """Chunks granted, by request."""
    return {e.request_id: len(e.placements) for e in effects if isinstance(e, GrantWrite)}


def small(capacities: ServerCapacities = ONE, count: int = 4) -> NetworkModel:
    names = [f"s{number}" for number in range(count)]
    return NetworkModel.of_racks({"one": names}, server=capacities)


# -- asking and being answered --------------------------------------------------------------


def test_an_idle_scheduler_grants_at_once_and_sets_a_timer() -> None:
    driver = Driver(NetworkModel.of_racks(RACKS))
    (grant,) = driver.step(request("q", "a", chunks=2))
    assert isinstance(grant, GrantWrite)
    assert [placement.chunk for placement in grant.placements] == [0, 1]
    assert driver.effects[-1] == SetTimer("timestep", 60_000)


def test_who_does_not_fit_is_refused_at_once_and_granted_later() -> None:
    driver = Driver(small())
    driver.step(request("first", "s0"))
    assert driver.step(request("second", "s0")) == [RefuseWrite(WriteRequestId("second"))]
    assert grants(driver.write_all()) == {"second": 1}


def test_who_fits_beside_the_others_is_granted_in_the_same_timestep() -> None:
    driver = Driver(NetworkModel.of_racks(RACKS), PeaceSettings(constraints=()))
    driver.step(request("first", "a", copies=1))
    assert grants(driver.step(request("second", "d", copies=1))) == {"second": 1}
    assert driver.timestep == 1


def test_a_repeated_request_is_answered_again() -> None:
    driver = Driver(small())
    asked, other = request("first", "s0"), request("second", "s0")
    granted, refused = driver.step(asked), driver.step(other)
    assert driver.step(asked) == granted
    assert driver.step(other) == refused
    driver.write_all()
    assert driver.machine.statistics().waiting_requests == 0


def test_a_request_that_asks_for_another_size_keeps_its_place() -> None:
    driver = Driver(small(), ANYWHERE)
    driver.step(request("first", "s0", copies=3))
    for name in ("second", "third"):
        driver.step(request(name, "s1", copies=3))
    driver.step(request("second", "s1", copies=3, chunks=2))
    assert grants(driver.write_all()) == {"second": 1}
    assert grants(driver.write_all()) == {"second": 1}
    assert grants(driver.write_all()) == {"third": 1}


def test_a_granted_request_may_still_change_its_size_before_it_writes() -> None:
    driver = Driver(small(ServerCapacities(4, 4, 4, 4)), ANYWHERE)
    driver.step(request("other", "s1", copies=1))
    driver.step(request("q", "s0", copies=1, chunks=4))
    assert grants(driver.step(request("q", "s0", copies=1, chunks=3))) == {"q": 3}
    assert driver.timestep == 1  # What it had been granted is free for it at once.
    driver.step(written("q", 0))
    with pytest.raises(RemoteProtocolError, match="after writing some of its chunks"):
        driver.step(request("q", "s0", copies=1, chunks=4))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request("q", "a", copies=6), "6 copies need as many servers; there are 5"),
        (request("q", "x"), "the writer's server x is not in the network"),
        (request("q", "a", copies=0), "the network has no store"),
        (request("q", "a", copies=9), "9 copies are more than copies_max"),
        (request("q", "a", chunks=4_097), "4097 chunks are more than chunks_max"),
    ],
)
def test_what_can_never_be_placed_fails(asked: WriteRequested, why: str) -> None:
    driver = Driver(NetworkModel.of_racks(RACKS))
    (failed,) = driver.step(asked)
    assert isinstance(failed, FailWrite)
    assert why in failed.reason
    assert driver.machine.statistics().waiting_requests == 0


def test_a_writer_without_a_way_out_fails() -> None:
    driver = Driver(small(ServerCapacities(send=0)))
    (failed,) = driver.step(request("q", "s0"))
    assert isinstance(failed, FailWrite)
    assert "even the empty network has no way from s0" in failed.reason


def test_the_queue_has_a_bound() -> None:
    driver = Driver(small(), PeaceSettings(requests_max=2))
    for name in ("first", "second"):
        driver.step(request(name, "s0"))
    (failed,) = driver.step(request("third", "s0"))
    assert isinstance(failed, FailWrite)
    assert "requests_max" in failed.reason


@pytest.mark.parametrize(
    "wrong",
    [request("r", "a", chunks=0), request("r", "a", copies=-1), written("q", 7), written("q", 2)],
)
def test_a_writer_that_breaks_the_protocol_changes_nothing(wrong: Stimulus) -> None:
    driver = Driver(small(count=6), ANYWHERE)
    driver.step(request("q", "s0", chunks=3, copies=1))
    before = driver.machine.statistics()
    with pytest.raises(RemoteProtocolError):
        driver.step(wrong)
    assert driver.machine.statistics() == before


@pytest.mark.parametrize(
    "wrong",
    [
        ("timestep_done_percent", 0),
        ("timestep_done_percent", 101),
        ("passed_over_max", -1),
        ("drafts_max", 0),
        ("requests_max", 0),
    ],
)
def test_senseless_settings_are_refused_by_name(wrong: tuple[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match=wrong[0]):
        replace(ANYWHERE, **dict([wrong]))


# -- timesteps ------------------------------------------------------------------------------


def test_a_timestep_ends_when_eighty_percent_is_written() -> None:
    driver = Driver(small(ServerCapacities(10, 10, 10, 10)), ANYWHERE)
    driver.step(request("first", "s0", copies=1, chunks=10))
    driver.step(request("second", "s0", copies=1, chunks=10))
    for chunk in range(7):
        assert driver.step(written("first", chunk)) == []
    assert driver.step(written("first", 6)) == []  # Reported twice: counted once.
    assert driver.machine.statistics().ignored_reports == 1
    assert grants(driver.step(written("first", 7))) == {"second": 10}
    assert driver.step(written("first", 8)) == []  # A straggler does not count for the next one.
    assert driver.machine.statistics().done_chunks == 0


def test_withdrawn_chunks_are_not_waited_for() -> None:
    driver = Driver(small(ServerCapacities(4, 4, 4, 4)), ANYWHERE)
    driver.step(request("first", "s0", copies=1, chunks=4))
    driver.step(request("second", "s0", copies=1, chunks=4))
    assert grants(driver.step(WriteWithdrawn(WriteRequestId("first")))) == {"second": 4}
    assert driver.step(WriteWithdrawn(WriteRequestId("first"))) == []
    assert driver.step(written("first", 0)) == []


def test_a_request_too_large_for_a_timestep_gets_equal_portions_in_consecutive_ones() -> None:
    driver = Driver(small(ServerCapacities(3, 3, 9, 9)), ANYWHERE)
    driver.step(request("q", "s0", copies=1, chunks=8))
    while driver.granted:
        driver.write_all()
    assert driver.granted_in["q"] == {1: 3, 2: 3, 3: 2}


def test_a_dead_writer_does_not_hold_up_the_others() -> None:
    driver = Driver(small())
    driver.step(request("dead", "s0"))
    driver.step(request("next", "s0"))
    driver.now_ms = 59_999
    assert driver.step(TimerFired("timestep")) == []
    driver.now_ms = 60_000
    effects = driver.step(TimerFired("timestep"))
    assert grants(effects) == {"next": 1}
    assert [e.request_id for e in effects if isinstance(e, FailWrite)] == ["dead"]
    assert driver.machine.statistics().expired_timesteps == 1


def test_a_straggler_is_given_up_even_if_nobody_else_comes() -> None:
    driver = Driver(small(ServerCapacities(5, 5, 5, 5)), ANYWHERE)
    driver.step(request("q", "s0", copies=1, chunks=5))
    driver.now_ms = 30_000
    for chunk in range(4):
        driver.step(written("q", chunk))
    driver.now_ms = 60_000
    assert driver.step(TimerFired("timestep")) == []
    assert driver.effects[-1] == SetTimer("timestep", 120_000)
    driver.now_ms = 120_000
    (failed,) = driver.step(TimerFired("timestep"))
    assert isinstance(failed, FailWrite)


def test_a_slow_writer_keeps_its_grant_when_the_timestep_runs_out() -> None:
    driver = Driver(small(ServerCapacities(2, 2, 2, 2)), ANYWHERE)
    driver.step(request("slow", "s0", copies=1, chunks=2))
    driver.step(request("next", "s0", copies=1, chunks=2))
    driver.now_ms = 50_000
    driver.step(written("slow", 0))
    driver.now_ms = 60_000
    assert (
        driver.step(TimerFired("timestep"))
        == [effect for effect in driver.effects if isinstance(effect, GrantWrite)][-1:]
    )
    driver.step(written("slow", 1))
    assert driver.machine.statistics().granted_requests == 1  # Only `next` is left.


def test_a_refused_request_takes_nothing_from_the_others() -> None:
    driver = Driver(small(ServerCapacities(2, 2, 1, 1), count=3), ANYWHERE)
    driver.step(request("first", "s0", copies=1, chunks=2))  # Leaves a place on s0.
    refused = driver.step(request("second", "s1", copies=1, chunks=2))
    assert refused == [RefuseWrite(WriteRequestId("second"))]
    assert grants(driver.step(request("third", "s1", copies=1))) == {"third": 1}


def test_a_chunk_without_a_place_for_its_second_copy_takes_nothing_from_the_others() -> None:
    model = NetworkModel.of_racks({"one": ["a", "b", "e", "g"], "two": ["c"]}, server=ONE)
    driver = Driver(model)
    driver.step(request("first", "a"))  # The second copy fills c.
    free = next(name for name in "beg" if name not in driver.granted["first", 0])
    refused = driver.step(request("second", free))
    assert refused == [RefuseWrite(WriteRequestId("second"))]
    assert grants(driver.step(request("third", free, copies=1))) == {"third": 1}


def test_the_first_of_an_empty_timestep_is_granted_whatever_chance_does() -> None:
    """Two chunks fit only if neither goes from one server that can pass chunks on to the other.

    Where a cable inside a switch is cut, a server looks as if it could send.
    """
    entries = small(count=5).to_dict()
    servers = entries["servers"]
    assert isinstance(servers, list)
    servers[0] |= {"send": 2, "up": 2}
    for server in servers[3:]:
        server["up"] = 0
    portions = set()
    for seed in range(30):
        driver = Driver(NetworkModel.from_dict(entries), replace(ANYWHERE, drafts_max=1), seed)
        for name in ("first", "second"):
            driver.step(request(name, "s0", copies=2, chunks=2))
        while driver.granted:
            driver.write_all()
        first, second = (list(driver.granted_in[name].values()) for name in ("first", "second"))
        assert first == second
        portions.add(tuple(first))
    assert portions == {(2,), (1, 1)}  # As the trial went.


# -- where copies lie -----------------------------------------------------------------------


def test_the_writer_may_hold_a_copy_only_if_that_is_set() -> None:
    can = PeaceSettings(can_writer_hold_copy=True, constraints=())
    (grant,) = Driver(small(), can).step(request("q", "s0", copies=2))
    assert isinstance(grant, GrantWrite)
    assert grant.placements[0].servers[0] == "s0"  # Nothing is nearer.
    held = {
        server
        for seed in range(30)
        for e in Driver(small(), ANYWHERE, seed).step(request("q", "s0"))
        if isinstance(e, GrantWrite)
        for server in e.placements[0].servers
    }
    assert held == {"s1", "s2", "s3"}


def test_a_network_of_one_rack_stores_though_the_constraint_wants_two() -> None:
    assert grants(Driver(small()).step(request("q", "s0", copies=3))) == {"q": 1}


def test_a_rack_in_which_nobody_stores_meets_no_constraint() -> None:
    entries = NetworkModel.of_racks({"one": ["a", "b"], "two": ["c"]}).to_dict()
    servers = entries["servers"]
    assert isinstance(servers, list)
    servers[1]["receive"] = 0
    driver = Driver(NetworkModel.from_dict(entries))
    driver.step(request("q", "a", copies=1))
    assert driver.granted["q", 0] == ("c",)


def test_a_constraint_that_can_be_met_later_is_not_dropped_now() -> None:
    model = NetworkModel.of_racks(
        {"one": ["a", "b"], "two": ["c", "d"]}, server=ServerCapacities(2, 2, 1, 1)
    )
    driver = Driver(model)
    driver.step(request("first", "a", copies=1))
    assert driver.step(request("second", "a", copies=1)) == [RefuseWrite(WriteRequestId("second"))]
    driver.write_all()
    assert driver.granted["second", 0] == ("b",)


def test_a_server_that_stores_nothing_holds_no_copy() -> None:
    entries = NetworkModel.of_racks({"one": ["a", "b", "c"]}).to_dict()
    servers = entries["servers"]
    assert isinstance(servers, list)
    servers[1]["receive"] = 0
    for seed in range(10):
        driver = Driver(NetworkModel.from_dict(entries), seed=seed)
        driver.step(request("q", "a", copies=1))
        assert driver.granted["q", 0] == ("c",)


def test_writes_to_a_store_count_only_what_leaves_the_writer_and_what_the_store_takes() -> None:
    driver = Driver(NetworkModel.of_racks(RACKS, store_capacity=3))
    (grant,) = driver.step(request("first", "a", copies=0, chunks=2))
    assert isinstance(grant, GrantWrite)
    assert [placement.servers for placement in grant.placements] == [(), ()]
    assert grants(driver.step(request("copies", "d", copies=1, chunks=2))) == {"copies": 2}
    assert grants(driver.step(request("second", "c", copies=0))) == {"second": 1}
    assert driver.step(request("third", "e", copies=0)) == [RefuseWrite(WriteRequestId("third"))]
    assert grants(driver.write_all()) == {"third": 1}


# -- servers come and go --------------------------------------------------------------------


def test_chunks_on_a_lost_server_are_granted_again_elsewhere() -> None:
    driver = Driver(small(ServerCapacities(4, 4, 4, 4)), ANYWHERE)
    driver.step(request("q", "s0", copies=1, chunks=4))
    gone = driver.granted["q", 0][0]
    hit = {chunk for (_, chunk), servers in driver.granted.items() if gone in servers}
    effects = driver.step(lost(gone))
    for chunk in set(range(4)) - hit:
        effects += driver.step(written("q", chunk))
    (grant,) = effects
    assert isinstance(grant, GrantWrite)
    assert {placement.chunk for placement in grant.placements} == hit
    assert all(gone not in placement.servers for placement in grant.placements)


def test_a_chunk_reported_just_after_its_server_was_lost_is_written() -> None:
    driver = Driver(NetworkModel.of_racks({"one": ["a", "b"], "two": ["c", "d"]}))
    driver.step(request("q", "a", copies=1))
    driver.step(request("r", "c", copies=1))
    assert driver.granted["q", 0] == ("b",)
    assert driver.step(lost("b")) == []
    assert driver.step(written("q", 0)) == []
    assert driver.step(written("r", 0)) == []
    assert driver.timestep == 1  # Nothing was left to be granted again.


def test_a_server_lost_in_this_timestep_gets_nothing_more_in_it() -> None:
    for seed in range(10):
        driver = Driver(small(ServerCapacities(4, 4, 4, 4)), ANYWHERE, seed)
        driver.step(request("first", "s0", copies=1, chunks=4))
        driver.step(lost("s3"))
        driver.step(request("second", "s1", copies=1, chunks=2))
        assert driver.timestep == 1
        assert ("s3",) not in [driver.granted["second", chunk] for chunk in (0, 1)]


def test_the_requests_of_a_lost_server_fail() -> None:
    driver = Driver(small(count=5))
    driver.step(request("first", "s0"))
    driver.step(request("second", "s0"))
    failed = driver.step(lost("s0"))
    assert [type(effect) for effect in failed] == [FailWrite, FailWrite]
    assert driver.step(lost("s0")) == []


def test_a_request_fails_when_too_few_servers_are_left() -> None:
    driver = Driver(small())
    driver.step(request("q", "s0", copies=3))
    (failed,) = driver.step(lost("s1"))
    assert isinstance(failed, FailWrite)
    assert "3 copies need as many servers; there are 2" in failed.reason


def test_a_server_that_comes_back_has_its_own_capacities() -> None:
    entries = small(count=2).to_dict()
    servers = entries["servers"]
    assert isinstance(servers, list)
    servers[0] |= {"send": 6, "up": 6}
    servers[1] |= {"down": 6, "receive": 6}
    driver = Driver(NetworkModel.from_dict(entries), ANYWHERE)
    driver.step(lost("s1"))
    driver.step(ServerJoined(ServerName("s1"), "one"))
    assert grants(driver.step(request("q", "s0", copies=1, chunks=6))) == {"q": 6}


def test_a_request_is_no_longer_split_when_a_new_server_makes_room_for_all_of_it() -> None:
    driver = Driver(small(ServerCapacities(2, 2, 1, 1), count=2), ANYWHERE)
    for name in ("first", "second"):
        driver.step(request(name, "s0", copies=1, chunks=2))
    driver.step(ServerJoined(ServerName("s2"), "one"))
    driver.write_all()
    while driver.granted:
        driver.write_all()
    assert driver.granted_in == {"first": {1: 1, 2: 1}, "second": {3: 2}}


def test_a_new_server_writes_and_stores_from_the_next_timestep_on() -> None:
    driver = Driver(small(count=2), ANYWHERE)
    driver.step(request("q", "s0", copies=1))
    driver.step(ServerJoined(ServerName("new"), "two"))
    assert driver.step(ServerJoined(ServerName("new"), "two")) == []
    refused = driver.step(request("r", "new", copies=2))
    assert refused == [RefuseWrite(WriteRequestId("r"))]
    assert grants(driver.write_all()) == {"r": 1}
    assert set(driver.granted["r", 0]) == {"s0", "s1"}
    driver.step(request("s", "s1", copies=2))
    driver.write_all()
    assert set(driver.granted["s", 0]) == {"s0", "new"}


def test_a_server_that_moved_to_another_rack_is_lost_and_joins() -> None:
    driver = Driver(NetworkModel.of_racks(RACKS))
    driver.step(request("q", "a"))
    (failed,) = driver.step(ServerJoined(ServerName("a"), "two"))
    assert isinstance(failed, FailWrite)
    assert grants(driver.step(request("r", "a"))) == {"r": 1}
    assert driver.granted["r", 0][0] in RACKS["two"]


# -- nobody starves -------------------------------------------------------------------------


def overtaken(passed_over_max: int, *, queued: int = 0, is_resized: bool = False) -> dict[int, int]:
    """When a request is granted that needs all servers, of which others always hold two.

    The others take three timesteps each, and in every timestep one ends and one begins; so many
    are queued at all times.
    """
    driver = Driver(small(), PeaceSettings(constraints=(), passed_over_max=passed_over_max))

    def ask_small(number: int) -> None:
        driver.step(request(f"small {number}", ("s0", "s2", "s3")[number % 3], copies=1, chunks=3))

    for number in range(40):
        ask_small(number + (queued if number > 2 else 0))
        if number == 2:
            driver.step(request("large", "s1", copies=3))
            for early in range(queued):
                ask_small(3 + early)
        if is_resized and number > 2 and "large" not in driver.granted_in:
            driver.step(request("large", "s1", copies=3, chunks=1 + number % 2))
        driver.write_all()
    return driver.granted_in.get("large", {})


@pytest.mark.parametrize("queued", [0, 3])
def test_a_request_that_is_passed_over_too_often_goes_first(queued: int) -> None:
    assert overtaken(1_000, queued=queued) == {}  # It would wait for ever.
    assert overtaken(4, queued=queued)


def test_a_request_that_changes_its_size_all_the_time_goes_first_too() -> None:
    assert overtaken(4, is_resized=True)


def test_no_request_is_passed_over_at_all_if_so_set() -> None:
    driver = Driver(small(count=6), PeaceSettings(constraints=(), passed_over_max=0))
    driver.step(request("first", "s0", copies=1))
    driver.step(request("second", "s0", copies=1))
    refused = driver.step(request("third", "s3", copies=1))
    assert refused == [RefuseWrite(WriteRequestId("third"))]


sizes = st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 5))


@settings(max_examples=40)
@given(
    st.lists(sizes, max_size=6),
    sizes,
    st.lists(sizes, min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_every_request_is_granted_within_a_bound_whatever_comes_after_it(
    older: list[tuple[int, int, int]],
    asked: tuple[int, int, int],
    younger: list[tuple[int, int, int]],
    passed_over_max: int,
    capacity: int,
    seed: int,
) -> None:
    model = NetworkModel.of_racks(
        RACKS, server=ServerCapacities(*[capacity] * 4), link_capacity=capacity
    )
    limits = PeaceSettings(passed_over_max=passed_over_max, drafts_max=2)
    driver = Driver(model, limits, seed)

    def ask(name: str, size: tuple[int, int, int]) -> None:
        writer, copies, chunks = size
        driver.step(request(name, "abcdef"[writer], copies=copies, chunks=chunks))

    for number, size in enumerate(older):
        ask(f"older {number}", size)
    ask("asked", asked)
    began = driver.timestep
    bound = sum(chunks for _, _, chunks in older) + passed_over_max * 5 + 1
    for number in range(bound):
        if "asked" in driver.granted_in:
            break
        for place, size in enumerate(younger):
            ask(f"younger {number} {place}", size)
        driver.write_all()
    assert "asked" in driver.granted_in, f"not granted within {bound} timesteps from {began} on"


# -- what holds in every timestep -----------------------------------------------------------


class PeaceMachine(RuleBasedStateMachine):
    """Anything may happen; edges, chains and portions are counted from the grants alone."""

    SEND, RECEIVE, LINK = 2, 3, 3
    CONSTRAINTS = (CopyConstraint.SAME_RACK_AS_WRITER, CopyConstraint.OTHER_RACK_THAN_PREVIOUS)

    def __init__(self) -> None:
        super().__init__()
        self.rack_of = {name: rack for rack, names in RACKS.items() for name in names}
        model = NetworkModel.of_racks(
            RACKS,
            server=ServerCapacities(self.SEND, self.SEND, self.RECEIVE, self.RECEIVE),
            link_capacity=self.LINK,
        )
        self.peace = Peace(
            model, settings=PeaceSettings(self.CONSTRAINTS, drafts_max=3), random=random.Random(5)
        )
        self.now_ms = 0
        self.asked: dict[str, WriteRequested] = {}  # neither failed nor withdrawn
        self.next_name = 0
        self.to_grant: dict[str, set[int]] = {}
        self.outstanding: dict[tuple[str, int], tuple[str, ...]] = {}
        self.portions: dict[str, int] = {}
        self.newest: dict[str, int] = {}  # timestep of the newest grant
        self.network_changed_in = 0  # timestep
        self.lost: set[str] = set()
        self.is_steady = False  # no server is lost in this run
        self.timestep = 0
        self.carried: list[tuple[str, str, tuple[str, ...]]] = []  # request, writer, chain

    @initialize(is_steady=st.booleans())
    def begin(self, is_steady: bool) -> None:
        self.is_steady = is_steady

    # -- stimuli

    def step(self, stimulus: Stimulus) -> None:
        effects = self.peace.step(stimulus, self.now_ms)
        self.peace.check_invariants()
        timestep = self.peace.statistics().timestep
        if timestep != self.timestep:
            assert timestep == self.timestep + 1
            self.check_continued(effects)
            self.timestep = timestep
            self.carried = []
        for effect in effects:
            if isinstance(effect, GrantWrite):
                self.take_grant(effect)
            elif isinstance(effect, FailWrite):
                self.forget(effect.request_id)

    def check_continued(self, effects: list[Effect]) -> None:
        """Who was granted a part in the last timestep is granted more in this one."""
        if self.network_changed_in >= self.timestep:
            return
        failed = {e.request_id for e in effects if isinstance(e, FailWrite)}
        for name, newest in self.newest.items():
            if newest == self.timestep and self.to_grant[name]:
                assert name in grants(effects) or name in failed, f"{name} is not continued"

    def take_grant(self, grant: GrantWrite) -> None:
        name = grant.request_id
        asked = self.asked[name]
        chunks = {placement.chunk for placement in grant.placements}
        assert chunks, "a grant of nothing"
        assert chunks <= self.to_grant[name], "granted twice"
        left = len(self.to_grant[name])
        if name in self.portions and not self.network_changed_in:
            assert len(chunks) == min(left, self.portions[name])
        self.portions.setdefault(name, len(chunks))
        if self.portions[name] < left:
            assert left > self.SEND or asked.copies > 1, "split though it fits an empty network"
        self.to_grant[name] -= chunks
        self.newest[name] = self.timestep
        for placement in grant.placements:
            self.check_chain(asked, placement.servers)
            self.outstanding[name, placement.chunk] = placement.servers
            self.carried.append((name, asked.writer, placement.servers))

    def check_chain(self, asked: WriteRequested, chain: tuple[str, ...]) -> None:
        assert len(chain) == asked.copies
        assert len({asked.writer, *chain}) == asked.copies + 1
        assert not self.lost & {asked.writer, *chain}
        if self.lost or self.network_changed_in > self.timestep:
            return  # A constraint may have become impossible, at least for this timestep.
        if asked.copies >= 1:
            assert self.rack_of[chain[0]] == self.rack_of[asked.writer]
        if asked.copies >= 2:
            assert self.rack_of[chain[1]] != self.rack_of[chain[0]]

    def forget(self, name: str) -> None:
        self.asked.pop(name, None)
        self.to_grant.pop(name, None)
        self.newest.pop(name, None)
        self.portions.pop(name, None)
        self.outstanding = {key: chain for key, chain in self.outstanding.items() if key[0] != name}

    @rule(
        sizes=st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(1, 4), st.integers(1, 10)),
            min_size=1,
            max_size=5,
        )
    )
    def ask(self, sizes: list[tuple[str, int, int]]) -> None:
        for writer, copies, chunks in sizes:
            name = f"q{self.next_name}"
            self.next_name += 1
            self.asked[name] = request(name, writer, copies=copies, chunks=chunks)
            self.to_grant[name] = set(range(chunks))
            self.step(self.asked[name])

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 7), chunks=st.integers(1, 6))
    def ask_for_another_size(self, pick: int, chunks: int) -> None:
        name = list(self.asked)[pick % len(self.asked)]
        known = self.asked[name]
        is_written = known.chunks > len(self.to_grant[name]) + sum(
            key[0] == name for key in self.outstanding
        )
        if is_written or known.chunks == chunks:
            return
        self.forget(name)
        self.carried = [flow for flow in self.carried if flow[0] != name]
        self.asked[name] = replace(known, chunks=chunks)
        self.to_grant[name] = set(range(chunks))
        self.step(self.asked[name])

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 30), count=st.integers(1, 8))
    def report(self, pick: int, count: int) -> None:
        self.report_some(pick, count)

    @rule(timesteps=st.integers(1, 4))
    def let_timesteps_pass(self, timesteps: int) -> None:
        for _ in range(timesteps):
            self.report_some(0, len(self.outstanding))

    def report_some(self, pick: int, count: int) -> None:
        for _ in range(min(count, len(self.outstanding))):
            name, chunk = list(self.outstanding)[pick % len(self.outstanding)]
            del self.outstanding[name, chunk]
            self.step(written(name, chunk))
            if not self.to_grant.get(name) and all(key[0] != name for key in self.outstanding):
                self.forget(name)

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 7))
    def withdraw(self, pick: int) -> None:
        name = list(self.asked)[pick % len(self.asked)]
        self.forget(name)
        self.step(WriteWithdrawn(WriteRequestId(name)))

    @rule(server=st.sampled_from("abcdef"))
    def lose(self, server: str) -> None:
        if self.is_steady or server in self.lost or len(self.lost) == 4:
            return
        self.lost.add(server)
        self.network_changed_in = self.timestep + 1
        for (name, chunk), chain in list(self.outstanding.items()):
            if server in chain:
                del self.outstanding[name, chunk]
                self.to_grant[name].add(chunk)
        self.carried = [flow for flow in self.carried if server not in (flow[1], *flow[2])]
        self.step(lost(server))

    @precondition(lambda self: self.lost)
    @rule()
    def join(self) -> None:
        server = min(self.lost)
        self.lost.remove(server)
        self.network_changed_in = self.timestep + 1
        self.step(ServerJoined(ServerName(server), self.rack_of[server]))

    @rule()
    def run_out_of_time(self) -> None:
        self.now_ms += 60_000
        self.step(TimerFired("timestep"))

    # -- what must hold

    @invariant()
    def no_edge_carries_more_than_its_capacity_in_a_timestep(self) -> None:
        sent: Counter[str] = Counter()
        stored: Counter[str] = Counter()
        crossed: Counter[str] = Counter()
        for _, writer, chain in self.carried:
            for sender, receiver in zip((writer, *chain), chain, strict=False):
                sent[sender] += 1
                stored[receiver] += 1
                if self.rack_of[sender] != self.rack_of[receiver]:
                    crossed[self.rack_of[sender]] += 1
        assert max(sent.values(), default=0) <= self.SEND
        assert max(stored.values(), default=0) <= self.RECEIVE
        assert max(crossed.values(), default=0) <= self.LINK

    @invariant()
    def everyone_is_granted_or_waits_for_a_running_timestep(self) -> None:
        if any(self.to_grant.values()):
            figures = self.peace.statistics()
            assert figures.awaited_chunks > 0
            assert figures.done_chunks * 100 < figures.awaited_chunks * 80


TestPeaceMachine = PeaceMachine.TestCase
TestPeaceMachine.settings = settings(max_examples=100, stateful_step_count=30)


@settings(max_examples=40)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_a_request_gets_all_that_an_empty_network_holds_of_it_or_nothing(
    send: int, receive: int, asked: list[tuple[int, int]], seed: int
) -> None:
    """With one copy and one switch it is plain how many chunks of a writer fit."""
    driver = Driver(small(ServerCapacities(send, send, receive, receive)), ANYWHERE, seed)
    holds = min(send, 3 * receive)
    for number, (writer, chunks) in enumerate(asked):
        driver.step(request(f"q{number}", f"s{writer}", copies=1, chunks=chunks))
    while driver.granted:
        driver.write_all()
    for number, (_, chunks) in enumerate(asked):
        portions = driver.granted_in[f"q{number}"]
        first = min(portions)
        assert list(portions) == list(range(first, first + len(portions)))
        whole, rest = divmod(chunks, holds)
        assert list(portions.values()) == [holds] * whole + [rest] * (rest > 0)


def chains_of(seed: int) -> list[Effect]:
    driver = Driver(NetworkModel.of_racks(RACKS), seed=seed)
    for number, writer in enumerate("abcdef"):
        driver.step(request(f"q{number}", writer, copies=3, chunks=4))
    while driver.granted:
        driver.write_all()
    return driver.effects


@settings(max_examples=10)
@given(st.integers(0, 9), st.integers(0, 9))
def test_the_same_chance_gives_the_same_effects(one: int, other: int) -> None:
    assert chains_of(one) == chains_of(one)
    assert (chains_of(one) == chains_of(other)) == (one == other)


def test_several_drafts_hold_more_than_one() -> None:
    timesteps = {}
    for drafts in (1, 16):
        total = 0
        for seed in range(5):
            limits = PeaceSettings(drafts_max=drafts)
            driver = Driver(NetworkModel.of_racks({"one": "abcd", "two": "efgh"}), limits, seed)
            for number in range(12):
                driver.step(request(f"q{number}", "abcdefgh"[number % 8], copies=3, chunks=2))
            while driver.granted:
                driver.write_all()
            total += driver.timestep
        timesteps[drafts] = total
    assert timesteps[16] < timesteps[1]
