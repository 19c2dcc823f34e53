"""What was measured of a dataflow, for the adviser: of a running query, or left by a stopped one.

A query leaves it in its checkpoint location when it ends, as `measurements.json`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.protections import Checkpointed
from holdfast.core.coordinator.reports import MeasurementsReported
from holdfast.core.operators.base import Operator
from holdfast.core.recovery.cost_model import Together
from holdfast.core.state.page_manager import PageManager
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.errors import AdviceError
from holdfast.planning.guarantees import unit_class
from holdfast.shell.storage.places import has_files, local_path, read_if_any, store_at
from holdfast.shell.storage.small_files import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.api.protections import Protection
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.planning.plan import Plan

FILE_NAME: Final = "measurements.json"
_FORMAT: Final = 2
_UNPLANNED: Final = 1
"""The format in which `refused` went by protection alone, and nothing had been planned for it."""
_CHECK_MS: Final = 10
"""Half the period in which the coordinator looks who is silent."""


@dataclass(frozen=True, slots=True)
class UnitMeasurement:
    """One HA unit; figures are those of the instance that gets most input.

    Attributes:
        unit: Its name.
        instances: How many there are.
        hosts: On how many hosts.
        protection: The name of the one that it has.
        operator_class: The class of its most general operator. [HA §3.2]
        operators: How many.
        stateful_operators: How many of them keep state.
        input_streams: Of an instance.
        output_streams: Of an instance.
        receivers: The units that read what it puts out.
        input_tuples_per_s: While there was input.
        output_tuples_per_s: While there was input.
        input_tuple_bytes: In memory, with the time column.
        output_tuple_bytes: In memory, with the time column.
        tuple_cost_us: Processing time per input tuple.
        replay_cost_us: The same in passes as large as those of a replay, receiving included.
        state_bytes: Pages, on average.
        changed_bytes_per_s: Bytes of pages in which anything changed.
        state_tuples: Input tuples that the state goes back to, on average.
        replay_tuples: Input tuples that the newest restart point goes back to, on average.
        delta_interval_ms: Period of what a passive secondary is, or would be, sent.
        jitter_ms: By so much longer the period of its checkpoints is at most.
        together: How it recovers with others under checkpoints taken with others.
    """

    unit: str
    instances: int
    hosts: int
    protection: str
    operator_class: str
    operators: int
    stateful_operators: int
    input_streams: int
    output_streams: int
    receivers: tuple[str, ...]
    input_tuples_per_s: float
    output_tuples_per_s: float
    input_tuple_bytes: float
    output_tuple_bytes: float
    tuple_cost_us: float
    replay_cost_us: float
    state_bytes: float
    changed_bytes_per_s: float
    state_tuples: float
    replay_tuples: float
    delta_interval_ms: float = 50.0
    jitter_ms: float = 0.0
    together: Together = field(default_factory=Together)


@dataclass(frozen=True, slots=True)
class Measurements:
    """A dataflow as it ran.

    Attributes:
        name: Of the dataflow.
        units: In topological order, as far as the plan has one.
        hosts: On how many hosts its nodes ran.
        ack_interval_ms: M.
        checkpoint_interval_ms: Of the units that were checkpointed; None: there were none.
        checkpoints_kept: The same.
        detection_ms: Of its failures, the median; without one, by the keep-alive settings.
        replacement_ms: Until a replacement said hello, the median; None: nothing failed.
        store_bytes_per_ms: At which checkpoints were written; None: there were none.
        refused: Per unit the protections that the dataflow refuses, as one would write them without
            settings, and why; None: nobody has planned them.
        checkpoint_settings: Those of the units that were checkpointed, but for the interval, as one
            would write them.
    """

    name: str
    units: tuple[UnitMeasurement, ...]
    hosts: int
    ack_interval_ms: float
    detection_ms: float
    checkpoint_interval_ms: float | None = None
    checkpoints_kept: int = 2
    replacement_ms: float | None = None
    store_bytes_per_ms: float | None = None
    refused: Mapping[str, Mapping[str, str]] | None = None
    checkpoint_settings: str = ""
    format: int = field(default=_FORMAT)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def save(self, location: str) -> None:
        """Leave it in a checkpoint location, instead of what was left before.

        Raises:
            StorageError: The location cannot be written.
        """
        store = store_at(location)
        store.delete(FILE_NAME)
        store.put(FILE_NAME, [encode_sealed(self.to_json(), indent=1)])

    @staticmethod
    def load(location: str) -> Measurements:
        """What a query has left; of an earlier version, without what the dataflow refuses.

        Raises:
            AdviceError: No query has ended there, or the file is of a version that is not known.
            FileDamaged: It is not what the query has left.
        """
        found = read_if_any(store_at(location), FILE_NAME) if has_files(location) else None
        if found is None:
            raise AdviceError(
                f"{location} holds no {FILE_NAME}: no query has been stopped there yet"
            )
        return decode(found, f"{local_path(location)}/{FILE_NAME}", _measurements_from)


def _measurements_from(value: dict[str, Any]) -> Measurements:
    if value["format"] == _UNPLANNED:
        value = {**value, "refused": None, "format": _FORMAT}
    if value["format"] != _FORMAT:
        raise AdviceError(f"{FILE_NAME} has format {value['format']}, not {_FORMAT}")
    units = tuple(
        UnitMeasurement(
            **{
                **unit,
                "receivers": tuple(unit["receivers"]),
                "together": Together(**unit.get("together", {})),
            }
        )
        for unit in value.pop("units")
    )
    return Measurements(units=units, **value)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the driver has heard, as the query hands it on.

    Attributes:
        figures: The last of every node.
        hosts: Of every node.
        recoveries: As in `Query.recoveries`.
        checkpoints: As in `Query.checkpoints`.
    """

    figures: Mapping[str, MeasurementsReported]
    hosts: Mapping[str, str]
    recoveries: Iterable[Mapping[str, Any]] = ()
    checkpoints: Iterable[Mapping[str, Any]] = ()


def measure(
    name: str,
    plan: Plan,
    protection_of: Callable[[str], Protection],
    observed: Observed,
    *,
    misses: int,
    refused: Mapping[str, Mapping[str, str]] | None = None,
    together: Mapping[str, Together] | None = None,
) -> Measurements:
    """Put together what is known of a dataflow.

    Args:
        name: Of the dataflow.
        plan: Its nodes.
        protection_of: What a unit runs with, by its name.
        observed: What the driver has heard.
        misses: Keep-alives that may be missed.
        refused: As in `Measurements`.
        together: Per unit how it would recover with others; without it: alone.
    """
    units: dict[str, list[NodePlan]] = {}
    for node in plan.nodes:
        units.setdefault(node.unit, []).append(node)
    checkpointed = (p for p in map(protection_of, units) if isinstance(p, Checkpointed))
    limits = plan.nodes[0].limits
    recoveries = list(observed.recoveries)
    planned = [n.checkpoints for n in plan.nodes if n.checkpoints is not None]
    by_keep_alive_ms = limits.keep_alive_ms * (misses - 0.5) + _CHECK_MS
    return Measurements(
        name,
        tuple(
            replace(
                _unit(nodes, protection_of(unit), observed),
                together=(together or {}).get(unit, Together()),
            )
            for unit, nodes in units.items()
        ),
        len(set(observed.hosts.values()) - {""}) or 1,
        limits.ack_interval_ms,
        _median(recoveries, "detected_ms") or by_keep_alive_ms,
        planned[0].interval_ms if planned else None,
        planned[0].kept if planned else 2,
        _median(recoveries, "restarted_ms"),
        _store_speed(observed.checkpoints),
        refused,
        next((protection.written() for protection in checkpointed), ""),
    )


def _unit(nodes: list[NodePlan], protection: Protection, observed: Observed) -> UnitMeasurement:
    def figures(node: NodePlan) -> MeasurementsReported:
        return observed.figures.get(node.node, MeasurementsReported())

    busiest = max(nodes, key=lambda node: figures(node).input_tuples_per_s)
    found = figures(busiest)
    pages = PageManager()
    built = [spec.build(pages) for spec in busiest.operators]
    stateful = sum(type(o).state_rows is not Operator.state_rows for o in built)
    outputs = [stream for output in busiest.outputs for stream in output.streams]
    return UnitMeasurement(
        unit=busiest.unit,
        instances=len(nodes),
        hosts=len({observed.hosts.get(node.node, "") for node in nodes} - {""}) or 1,
        protection=_protection_name(busiest, protection),
        operator_class=unit_class(busiest).operator_class.name.lower(),
        operators=len(built),
        stateful_operators=stateful,
        input_streams=len(busiest.inputs),
        output_streams=len(outputs),
        receivers=tuple(dict.fromkeys(r.rpartition("[")[0] for r in busiest.receivers())),
        input_tuples_per_s=found.input_tuples_per_s,
        output_tuples_per_s=found.output_tuples_per_s,
        input_tuple_bytes=found.input_tuple_bytes,
        output_tuple_bytes=found.output_tuple_bytes,
        tuple_cost_us=found.tuple_cost_us,
        replay_cost_us=found.replay_cost_us,
        state_bytes=found.mean_state_bytes,
        changed_bytes_per_s=found.changed_bytes_per_s,
        state_tuples=found.mean_state_tuples,
        replay_tuples=found.mean_replay_tuples,
        delta_interval_ms=busiest.delta_interval_ms,
        jitter_ms=0.0 if busiest.checkpoints is None else busiest.checkpoints.jitter_ms,
    )


def _protection_name(node: NodePlan, protection: Protection) -> str:
    """Units without state are not checkpointed: they have nothing to load."""
    name = type(protection).__name__
    is_of_state = name in ("Checkpointed", "EventualCheckpoints")
    is_copied = node.checkpoints is not None or node.footprints is not None
    return name if is_copied or not is_of_state else "UpstreamBackup"


def _median(entries: list[Mapping[str, Any]], key: str) -> float | None:
    values = [float(entry[key]) for entry in entries if entry.get(key, -1) >= 0]
    return median(values) if values else None


def _store_speed(checkpoints: Iterable[Mapping[str, Any]]) -> float | None:
    written = [
        (float(c["written_bytes"]), float(c["duration_ms"]))
        for c in checkpoints
        if c.get("failure") is None and c.get("duration_ms", 0) > 0
    ]
    if not written:
        return None
    return sum(size for size, _ in written) / sum(ms for _, ms in written)
