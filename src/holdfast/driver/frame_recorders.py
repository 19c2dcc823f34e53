"""Who makes the rows of a DataFrame part of a stream: Spark, or nodes that read its files.

A filter of a plain scan is a step of the dataflow that runs, behind the files. So the dataflow is
made anew before it is planned, by the way that each of its DataFrames goes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.graph import Graph
from holdfast.api.streams import Stream
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.trees import frame_of
from holdfast.driver.scan_filters import conditions_of
from holdfast.driver.scans import SETTING, NotPlain, needs_order, plain_scan
from holdfast.driver.schemas import schema_from_spark
from holdfast.shell.sources.file_recorder import FileRecorder, FilesSource
from holdfast.shell.spark.ingest import FrameSource, Ingest
from holdfast.shell.storage.errors import UnknownStream
from holdfast.shell.storage.ingest_log import IngestMeta, read_meta
from holdfast.shell.storage.paths import ingest_path

if TYPE_CHECKING:
    from holdfast.api.steps import FromFrame, Step
    from holdfast.shell.sources.recorder import Recorder


def as_read(flow: Graph, location: str, *, is_allowed: bool) -> Graph:
    """The dataflow as it is run: filters of DataFrames whose files nodes read are steps of it.

    Args:
        flow: As it was written; it stays as it is.
        location: The checkpoint location.
        is_allowed: Whether nodes may read files; a location that was begun so goes on so.
    """
    made = Graph(flow.name)
    made.outside_sinks = flow.outside_sinks
    placed: dict[Step, Step] = {}
    for step in flow.steps:
        divided = _divided(step, flow, location, is_allowed=is_allowed)
        if divided is None:
            inputs = tuple(placed[source] for source in step.inputs)
            divided = [replace(step, inputs=inputs)]
        made.steps += divided
        placed[step] = divided[-1]
    if len(made.steps) == len(flow.steps):
        return flow
    made.sinks = {sink: placed[step] for sink, step in flow.sinks.items()}
    return made


def _divided(step: Step, flow: Graph, location: str, *, is_allowed: bool) -> list[Step] | None:
    """A source and its filters; None: it has none, or Spark computes them."""
    frame = step.operation
    if not isinstance(frame, steps.FromFrame):
        return None
    begun = _begun(ingest_path(location, step.name))
    if _why_by_spark(begun, is_allowed=is_allowed):
        return None
    try:
        scan = plain_scan(frame, flow, is_begun=begun is not None)
        if not scan.filters:
            return None
        conditions = conditions_of(frame, scan, flow, is_begun=begun is not None)
    except NotPlain:
        return None
    assert scan.leaf is not None
    names = list(dict.fromkeys([*step.schema.names, *(n for c in conditions for n in c.columns)]))
    below = frame_of(frame.df.sparkSession, scan.leaf.java).select(*map(quoted, names))
    alone = Graph(flow.name)
    source = replace(
        step, operation=replace(frame, df=below), schema=schema_from_spark(below.schema)
    )
    alone.steps.append(source)
    stream = Stream(alone, source)
    for condition in conditions:
        stream = stream.filter(condition.sql)
    if len(names) > len(step.schema.names):
        stream.select(*map(quoted, step.schema.names))
    chain = [source]
    for made in alone.steps[1:]:
        chain.append(replace(made, name=f"{step.name}~{made.name}", inputs=(chain[-1],)))
    return chain


def _why_by_spark(begun: IngestMeta | None, *, is_allowed: bool) -> str:
    """Why Spark reads a DataFrame, whatever it is; empty: nodes may.

    Args:
        begun: What its log says of itself; None: there is none yet.
        is_allowed: Whether nodes may read files where nothing has begun.
    """
    if begun is None:
        return "" if is_allowed else f"{SETTING} is off"
    return "its log was begun so" if begun.user_files is None else ""


def recorder_of_frame(step: Step, flow: Graph, location: str, *, is_allowed: bool) -> Recorder:
    """Who makes the rows of a DataFrame part of its log.

    Args:
        step: The source.
        flow: Its dataflow, as `as_read` gives it.
        location: The checkpoint location.
        is_allowed: As of `as_read`.
    """
    frame = step.operation
    assert isinstance(frame, steps.FromFrame)
    begun = _begun(ingest_path(location, step.name))
    reason = _why_by_spark(begun, is_allowed=is_allowed)
    if not reason:
        try:
            source = _files_source(frame, flow, is_begun=begun is not None)
            return FileRecorder(step.name, source, location)
        except NotPlain as error:
            reason = str(error)
    return Ingest(step.name, _frame_source(frame, flow), location, reason)


def _frame_source(frame: FromFrame, flow: Graph) -> FrameSource:
    return FrameSource(
        frame.df,
        frame.time,
        frame.delay_us,
        frame.ahead_us,
        frame.has_watermark,
        frame.partitions,
        frame.speed is not None,
        frame.trigger,
        needs_order=frame.speed is not None or bool(needs_order(flow)),
    )


def _begun(log: str) -> IngestMeta | None:
    """What an ingest log says of itself; None: there is none yet."""
    with suppress(UnknownStream):
        return read_meta(log)
    return None


def _files_source(frame: FromFrame, flow: Graph, *, is_begun: bool) -> FilesSource:
    """The DataFrame as files that nodes read. Raises `NotPlain`."""
    scan = plain_scan(frame, flow, is_begun=is_begun)
    if scan.filters:
        conditions_of(frame, scan, flow, is_begun=is_begun)
        raise NotPlain("its filter is no step of the dataflow")
    meta = IngestMeta(
        schema_from_spark(frame.df.schema),
        frame.time,
        frame.delay_us,
        frame.ahead_us,
        scan.of,
    )
    return FilesSource(
        scan.places[0],
        meta,
        ends=not frame.df.isStreaming,
        is_available_now=frame.trigger is not None,
        has_watermark=frame.has_watermark,
        files_max=scan.files_max,
        more_places=scan.places[1:],
    )
