"""What the driver ships to a node's task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.shell.transport.addresses import Ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import StreamId
    from holdfast.shell.sinks.base import OutsideSpec
    from holdfast.shell.sources.base import SourceSpec
    from holdfast.shell.stores.base import StoreSpec
    from holdfast.shell.transport.channels import RunKeys


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a task needs to run a node.

    Attributes:
        plan: The node's part of the dataflow.
        launch: Number of the launch; the coordinator refuses tasks of earlier ones.
        coordinator: The coordinator's endpoint.
        keys: This run's CURVE keys.
        sources: How to open each source stream.
        sink_paths: The log folder of each sink stream that is written to a log.
        outside_sinks: The sink streams that are written outside: to topics, or as files.
        pass_place: The pass log of an arbitrary node.
        footprint_place: The footprint log of a node that has one.
        spill_path: Folder for spill logs.
        store: Where checkpoints are kept; None: there are none.
        is_local: All nodes share a host, so that channels can be `ipc`.
        ports: Where it may listen otherwise.
        lease_s: Without word from the coordinator for so long, the node ends.
        stall_s: A node whose loop has neither turned nor computed for so long no longer says that
            it lives.
        niceness: Of nodes, beside other sessions of their machine.
        segments: Per sink stream of which the oldest part is removed in time, the size and the age
            in seconds at which its log gets another segment.
    """

    plan: NodePlan
    launch: int
    coordinator: str
    keys: RunKeys = field(repr=False)
    sources: dict[StreamId, SourceSpec]
    sink_paths: dict[StreamId, str]
    pass_place: str
    footprint_place: str
    spill_path: str
    store: StoreSpec | None
    is_local: bool
    ports: Ports = field(default_factory=Ports)
    outside_sinks: tuple[OutsideSpec, ...] = ()
    lease_s: float = 10.0
    stall_s: float = 10.0
    niceness: int = 0
    segments: Mapping[StreamId, tuple[int, float | None]] = field(default_factory=dict)
