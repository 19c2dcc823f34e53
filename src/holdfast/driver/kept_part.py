"""What a batch twin can still be compared with, where the oldest rows were removed.

Of a source of which rows are gone, results are right from a time on: those that no removed row has
a part in. That is behind the newest time of those rows, by the sizes of the windows in between. An
operator that remembers longer has no such time, and there is nothing to compare.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.windows import Window
from holdfast.core.model.ids import BEGINNING_US
from holdfast.errors import UnsupportedError
from holdfast.shell.storage.beginnings import first_kept
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.paths import ingest_path, kafka_path
from holdfast.shell.storage.places import has_files, store_at

if TYPE_CHECKING:
    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.core.queues.beginning import Beginning

_STATELESS = (steps.Filter, steps.Select, steps.Union)


@dataclass(frozen=True, slots=True)
class KeptPart:
    """What of a sink can be compared.

    Attributes:
        removed: What is not kept any more, for people; empty: all is there.
        from_us: Results of this tuple time and later follow from what is kept.
        is_sink_whole: Whether all results are still in the sink.
    """

    removed: tuple[str, ...] = ()
    from_us: int = BEGINNING_US
    is_sink_whole: bool = True

    @property
    def is_input_whole(self) -> bool:
        """Whether nothing is gone of the sources."""
        return self.from_us == BEGINNING_US


def kept_part(flow: Graph, sink: str, location: str) -> KeptPart:
    """What of a sink and its sources is kept.

    Raises:
        UnsupportedError: Nothing can be compared, as every result may depend on what is gone.
        StorageError: A log cannot be looked at.
    """
    removed: list[str] = []
    from_us = _right_from(flow.sinks[sink], sink, location, removed)
    place, is_whole = os.path.join(location, "streams", sink), True
    if sink not in flow.outside_sinks and has_files(place):
        for name in filter(str.isdigit, store_at(place).children()):
            first = first_kept(os.path.join(place, name))
            if first:
                removed.append(f"sink {sink}: the results before tuple {first} of stream {name}")
                is_whole = False
    return KeptPart(tuple(removed), from_us, is_whole)


def _right_from(step: Step, sink: str, location: str, removed: list[str]) -> int:
    """From which time on the tuples of a step are right; what is gone is added to `removed`."""
    operation = step.operation
    if isinstance(operation, steps.Source):
        return _source_from(step, location, removed)
    begins = [_right_from(source, sink, location, removed) for source in step.inputs]
    if all(begin == BEGINNING_US for begin in begins):
        return BEGINNING_US
    if isinstance(operation, _STATELESS):
        return max(begins)
    if isinstance(operation, steps.WindowAggregate):
        windows = operation.windows
        if isinstance(windows, Window) and windows.alignment != "first":
            return max(begins) + windows.size_us - 1
    raise UnsupportedError(
        f"sink {sink} cannot be compared any more: {step.name} may depend on all of its input, of "
        f"which some was removed ({'; '.join(dict.fromkeys(removed))}). Give "
        "start(retention='for ever') to what is to be verified"
    )


def _source_from(step: Step, location: str, removed: list[str]) -> int:
    if isinstance(step.operation, steps.FromKafka):
        return _topic_from(step, location, removed)
    if isinstance(step.operation, steps.FromGenerator):
        return BEGINNING_US
    log = ingest_path(location, step.name)
    if isinstance(step.operation, steps.FromLog):
        log = step.operation.path
    beginning = beginning_at(log)
    if beginning is None:
        return BEGINNING_US
    removed.append(f"source {step.name}: {removed_text(beginning)}")
    return beginning.newest_us + 1


def _topic_from(step: Step, location: str, removed: list[str]) -> int:
    """The times of what is gone of a topic's log are not known: all results may depend on it."""
    assert isinstance(step.operation, steps.FromKafka)
    begin_us = BEGINNING_US
    for instance in range(step.operation.partitions):
        first = first_kept(kafka_path(location, step.name, instance))
        if first:
            removed.append(f"source {step.name}: the tuples before {first} of instance {instance}")
            raise UnsupportedError(
                f"nothing can be compared any more: of {'; '.join(removed)} the times are not "
                "known. Give start(retention='for ever') to what is to be verified"
            )
    return begin_us


def beginning_at(log: str) -> Beginning | None:
    """Of an ingest log; None: it has all that was ever recorded, or is not there."""
    if not has_files(log):
        return None
    store = CommitStore(log)
    try:
        return store.beginning()
    finally:
        store.close()


def removed_text(beginning: Beginning) -> str:
    """What is gone, for people."""
    rows = beginning.shares[1][0].rows
    newest = datetime.fromtimestamp(max(0, beginning.newest_us) / 1e6, UTC)
    return (
        f"{rows} rows in the commits before {beginning.first_commit}, the newest of "
        f"{newest.isoformat(timespec='seconds')}"
    )
