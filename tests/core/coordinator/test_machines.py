"""Machines with room are known by name, each once."""

import pytest

from holdfast.core.coordinator.machines import Machines
from holdfast.core.errors import InvariantViolation


@pytest.mark.parametrize("hosts", [("m1", "m1"), ("m1", "")])
def test_a_machine_is_listed_once_and_has_a_name(hosts: tuple[str, ...]) -> None:
    machines = Machines()
    machines.with_room = ("m1", "m2")
    machines.check_invariants()
    machines.with_room = hosts
    with pytest.raises(InvariantViolation, match="no machines with room"):
        machines.check_invariants()
