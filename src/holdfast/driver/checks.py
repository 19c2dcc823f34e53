"""What has to hold of a session, a cluster and a dataflow before anything of a query begins."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from holdfast.api.steps import FromFiles, FromFrame, FromGenerator, FromLog, Source
from holdfast.core.haunit.plan import Standby
from holdfast.driver.options import PREFIX
from holdfast.driver.security import (
    AUTHENTICATION,
    InsecureClusterWarning,
    Shortcoming,
    shortcomings,
)
from holdfast.errors import (
    InsecureClusterError,
    NotEnoughHostsError,
    OptionError,
    RescalingError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api.graph import Graph
    from holdfast.api.protections.of_units import Protections
    from holdfast.planning.plan import Plan
    from holdfast.shell.sources.recorder import Recorder
    from holdfast.shell.spark.executors import Executors

_LOG = logging.getLogger(__name__)


def check_session(
    master: str, conf: Mapping[str, str], *, is_insecure_allowed: bool
) -> list[Shortcoming]:
    """Refuse sessions in which nodes would not be safe; warn of the rest, and give it back.

    Args:
        master: Spark's.
        conf: What Spark was told when it began.
        is_insecure_allowed: Whether tasks may travel unauthenticated.

    Raises:
        InsecureClusterError: Tasks, and with them this run's keys, travel unauthenticated.
        OptionError: Spark would run a second attempt of a slow task, or take executors away.
    """
    if conf.get("spark.speculation", "false") == "true":
        raise OptionError(
            "spark.speculation=true would start nodes twice; set it to false for this session"
        )
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        raise OptionError(
            "spark.dynamicAllocation.enabled=true would take away the executors that wait for "
            "nodes to replace; set it to false and ask for as many executors as are needed"
        )
    lacking = shortcomings(master, conf)
    if any(each.setting == AUTHENTICATION for each in lacking) and not is_insecure_allowed:
        raise InsecureClusterError(
            "spark.authenticate is off, so that anyone on the network could read this run's keys; "
            f"turn it on (with spark.network.crypto.enabled), or set {PREFIX}allowInsecureCluster="
            "true if the network is yours alone"
        )
    for each in lacking:
        warnings.warn(str(each), InsecureClusterWarning, stacklevel=5)
    return lacking


def check_hosts(plan: Plan, executors: Executors, wait_s: float) -> None:
    """Replicas belong on different machines; where there is one only, say so, or refuse.

    Args:
        wait_s: How long executors of a cluster may take to come up, if there must be two.
    """
    doubled = [node for node in plan.nodes if node.standby is not Standby.NONE]
    if any(node.is_strict for node in doubled):
        executors.wait_for_machines(2, wait_s)
    if not doubled or len(executors.machines) > 1:
        return
    names = ", ".join(dict.fromkeys(node.unit for node in doubled))
    if any(node.is_strict for node in doubled):
        raise NotEnoughHostsError(
            f"both replicas of {names} would run on one machine, and strict=True forbids that: "
            "give Spark executors on a second one, or leave strict out"
        )
    _LOG.warning("both replicas of %s run on one machine, and fail with it", names)


def require_end(flow: Graph, ingests: list[Recorder]) -> None:
    """Raise `UnsupportedError` when nobody could say that what is available is worked off."""
    available = [ingest.name for ingest in ingests if ingest.is_available_now]
    endless = {ingest.name for ingest in ingests if ingest.is_unbounded}
    for step in flow.steps if available else ():
        is_unknown = isinstance(step.operation, Source) and not _says_how_much(step.operation)
        if step.name in endless or is_unknown:
            raise UnsupportedError(
                f"source {available[0]} has trigger availableNow, so that the query ends when what "
                f"is there has been worked off; source {step.name} does not say how much that is. "
                "Give all streaming DataFrames availableNow, or none; beside it may be batch "
                "DataFrames and logs"
            )


def _says_how_much(source: Source) -> bool:
    """Whether a source is a log that is read as fast as it goes."""
    match source:
        case FromFrame(speed=speed) | FromLog(speed=speed):
            return speed is None
        case _:
            return isinstance(source, FromFiles)


def require_cut(flow: Graph, ingests: list[Recorder], protections: Protections) -> None:
    """Raise `RescalingError` for dataflows that cannot be left at a cut in common."""
    if not protections.keep_states:
        raise RescalingError(
            "a changed dataflow and other numbers of instances need protection=Checkpointed(...), "
            "or EventualCheckpoints(...)"
        )
    for step in flow.steps:
        match step.operation:
            case (
                FromGenerator() | FromFrame(speed=float() | int()) | FromLog(speed=float() | int())
            ):
                raise RescalingError(
                    f"source {step.name} cannot be stopped at a cut: it is a generator or is "
                    "replayed at a set speed; dataflow and numbers of instances stay as they are"
                )
    for ingest in ingests:
        if ingest.has_ended:
            raise RescalingError(
                f"source {ingest.name} has ended: nothing more comes that other instances, or "
                "a changed dataflow, could work off"
            )
