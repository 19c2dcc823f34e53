"""Errors an application can see. Each message names what was given, and what would work."""

from __future__ import annotations


class HoldfastError(Exception):
    """The base of all errors of Holdfast's API."""


class DataflowError(HoldfastError):
    """A dataflow that makes no sense; raised while it is built."""


class UnsupportedError(HoldfastError):
    """Something Holdfast does not do; raised while the dataflow is built or started."""


class OptionError(HoldfastError):
    """An unknown option, or a value out of its bounds."""


class NotEnoughSlotsError(HoldfastError):
    """Spark cannot run all nodes at the same time."""


class NotEnoughHostsError(HoldfastError):
    """Replicas that must not share a machine would."""


class QueryFailedError(HoldfastError):
    """A running query stopped because of an error it could not recover from."""


class QueryEndedError(HoldfastError):
    """The query that a driver in standby has waited for is finished, or was stopped."""


class NotRunningError(HoldfastError):
    """No running query answers at a checkpoint location."""


class RequestError(HoldfastError):
    """A running query did not do what it was asked for."""


class DataflowChangedError(HoldfastError):
    """A checkpoint location holds the state of another dataflow."""


class RescalingError(HoldfastError):
    """A checkpoint location cannot go on at another parallelism."""


class InsecureClusterError(HoldfastError):
    """The cluster would hand this run's keys over without authentication."""


class InspectionError(HoldfastError):
    """What was asked for is not in the checkpoint location."""


class AdviceError(HoldfastError):
    """Nothing was measured from which advice could be given, or the objectives make no sense."""
