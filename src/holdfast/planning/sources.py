"""How an instance opens a source, and which columns of it anybody needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.expressions import CompiledExpression
from holdfast.api.expressions.pruning import Pruning, parts_of
from holdfast.api.operators import columns_read
from holdfast.api.steps import Source
from holdfast.shell.kafka.source import KafkaSourceSpec
from holdfast.shell.sources.base import in_records
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.paths import ingest_path, kafka_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.api.expressions.pruning import Part
    from holdfast.api.steps import Step
    from holdfast.shell.sources.base import SourceSpec


def source_spec(
    step: Step,
    index: int,
    location: str,
    started_s: float,
    columns: tuple[str, ...] | None = None,
    pruning: Pruning | None = None,
) -> SourceSpec:
    """How an instance opens a source.

    Args:
        step: The source.
        index: The instance.
        location: The checkpoint location.
        started_s: Wall-clock time at which a paced log's first tuple is due.
        columns: Those that anybody reads; None: all.
        pruning: What leaves out whole groups of rows; None: nothing does.
    """
    log, speed, silent_s = ingest_path(location, step.name), None, None
    match step.operation:
        case steps.FromGenerator(generator=generator, partitions=partitions):
            spec: SourceSpec = generator.spec(index, partitions)
            return spec
        case steps.FromKafka(kafka=kafka, partitions=partitions):
            reading = kafka.reading(step.name, index, partitions)
            return KafkaSourceSpec(reading, kafka_path(location, step.name, index))
        case steps.FromLog():
            log, speed = step.operation.path, step.operation.speed
        case steps.FromFrame():
            speed, silent_s = step.operation.speed, step.operation.silent_s
    assert isinstance(step.operation, Source)
    partitions = step.operation.partitions
    spec = LogSourceSpec(log, "ingest", index, partitions, speed, started_s, silent_s=silent_s)
    return replace(spec, columns=columns, pruning=pruning)


def is_recorded(step: Step) -> bool:
    """Whether the tuples of a source always come in the same batches."""
    return in_records(source_spec(step, 0, "", 0.0)) is not None


def columns_used(step: Step, steps_read: list[Step], sinks: list[Step]) -> tuple[str, ...]:
    """The columns of a step that decide what comes out anywhere, in its schema's order."""
    used: set[str] = set(step.schema.names) if step in sinks else set()
    for reader in steps_read:
        for position, source in enumerate(reader.inputs):
            if source is step:
                used.update(_columns_used_by(reader, position, steps_read, sinks))
    return tuple(name for name in step.schema.names if name in used)


def _columns_used_by(
    reader: Step, position: int, steps_read: list[Step], sinks: list[Step]
) -> Iterable[str]:
    """Those of its input that a step evaluates, or hands on to somebody who uses them."""
    schema = reader.inputs[position].schema
    everything: list[str] = schema.names
    match reader.operation:
        case steps.Filter(expression):
            evaluated = getattr(expression, "columns", everything)
            return [*evaluated, *columns_used(reader, steps_read, sinks)]
        case steps.Select(expressions):
            named = [getattr(e, "columns", everything) for e in expressions]
            return [column for columns in named for column in columns]
        case steps.Loop():
            return everything  # It is read for what comes back, too.
        case steps.PartialAggregate(keys=keys, aggregates=aggregates):
            evaluating = [a.expression for a in aggregates if a.expression is not None]
            return [*keys, *(column for each in evaluating for column in each.columns)]
        case _:
            return columns_read(reader.operation, position, schema)


def pruning_of(step: Step, steps_read: list[Step], sinks: list[Step]) -> Pruning | None:
    """What leaves out groups of a source's rows; None: somebody may see every row.

    Filters of another unit do not count: what a unit sends must not depend on who receives it.
    """
    readers = [each for each in steps_read if any(read is step for read in each.inputs)]
    filters = [_parts_of_filters(each, steps_read, sinks) for each in readers]
    is_seen = any(sink is step for sink in sinks) or any(each.unit != step.unit for each in readers)
    return Pruning(tuple(filters)) if filters and all(filters) and not is_seen else None


def _parts_of_filters(reader: Step, steps_read: list[Step], sinks: list[Step]) -> tuple[Part, ...]:
    """The parts of a filter, and of those that alone read what it keeps; none: it is no filter."""
    match reader.operation:
        case steps.Filter(CompiledExpression() as expression):
            parts = parts_of(expression, reader.inputs[0].schema)
        case _:
            return ()
    following = pruning_of(reader, steps_read, sinks) if expression.is_total else None
    if following is not None and len(following.filters) == 1:
        parts += following.filters[0]
    return parts
