"""What can go wrong inside a core, by whose fault it is."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """Our own bug. Nobody catches it: the task dies, and recovery starts from a sound state."""


class LocalProtocolError(RuntimeError):
    """The caller of a machine broke its contract."""


class RemoteProtocolError(RuntimeError):
    """A peer sent what the protocol does not allow; its channel is closed, nothing is applied."""
