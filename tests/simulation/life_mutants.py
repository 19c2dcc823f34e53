"""Deliberate bugs of bring-up, restoration and promotion; see mutants.py."""

from __future__ import annotations

from typing import Any

from mutants import Mutant

from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.instance import Instance
from holdfast.core.coordinator.replica import Replica
from holdfast.core.haunit.life import NodeLife
from holdfast.core.haunit.openings import Openings
from holdfast.core.haunit.told import PeerTold

_LATE_WORDS = ("stale-frames", "kill")
_NO_SLOTS = ("no-slots",)
_ACTIVE, _PASSIVE = "active standby", "passive standby"


def _heed_earlier_incarnations(original: Any) -> Any:
    def is_outdated(self: NodeLife, told: PeerTold) -> bool:
        is_own = told.peer == self.plan.node
        return bool(original(self, told)) if is_own else not self.incarnation

    return is_outdated


def _heed_what_was_said_of_itself(original: Any) -> Any:
    def is_outdated(self: NodeLife, told: PeerTold) -> bool:
        return told.peer != self.plan.node and bool(original(self, told))

    return is_outdated


def _tell_a_promoted_node_of_itself(_: Any) -> Any:
    def to_be_told(self: NodeLife) -> list[PeerTold]:
        return list(self._peers.values())

    return to_be_told


def _write_as_who_it_was(original: Any) -> Any:
    def open_all(self: NodeLife, _: Any, *arguments: Any) -> Any:
        return original(self, self.incarnation, *arguments)

    return open_all


def _read_no_passes(original: Any) -> Any:
    def note(self: Openings, answer: Any) -> None:
        original(self, answer)
        self.open.passes = ()

    return note


def _wait_for_slots_for_ever(original: Any) -> Any:
    def check(self: Coordinator, instance: Instance, replica: Replica, now_ms: int) -> Any:
        return original(self, instance, replica, now_ms) if replica.is_waiting else []

    return check


def _give_up_without_slots(original: Any) -> Any:
    def check(self: Coordinator, instance: Instance, replica: Replica, now_ms: int) -> Any:
        effects = original(self, instance, replica, now_ms)
        if replica.timeouts and replica is instance.primary:
            return self._fail(f"{instance.plan.node} did not come up")
        return effects

    return check


LIFE_MUTANTS: dict[str, Mutant] = {
    "heeds a neighbour's earlier incarnation": Mutant(
        NodeLife, "_is_outdated", _heed_earlier_incarnations, _LATE_WORDS
    ),
    "heeds what was said of itself before": Mutant(
        NodeLife, "_is_outdated", _heed_what_was_said_of_itself, _LATE_WORDS
    ),
    "tells a promoted node of itself": Mutant(
        NodeLife, "_to_be_told", _tell_a_promoted_node_of_itself, ("kill",), _PASSIVE
    ),
    "takes over as who it was": Mutant(NodeLife, "_open", _write_as_who_it_was, ("kill",), _ACTIVE),
    "waits for a slot for ever": Mutant(
        Coordinator, "_check_launch", _wait_for_slots_for_ever, _NO_SLOTS
    ),
    "gives up when it waits for a slot": Mutant(
        Coordinator, "_check_launch", _give_up_without_slots, _NO_SLOTS
    ),
    "reads no passes when it begins": Mutant(
        Openings, "_note", _read_no_passes, ("kill",), None, "arbitrary"
    ),
}
