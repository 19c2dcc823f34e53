"""Refuses a dataflow that would read what it writes, and so never come to an end of its input.

A sink writes files `part-...` into its folder, or into folders `key=value` below it. A source that
goes on finds them there, and a source of a table finds each version that its sink makes.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from glob import has_magic
from typing import TYPE_CHECKING

from holdfast.api.steps import FromFiles
from holdfast.driver.delta_sink import DeltaSink
from holdfast.driver.files_sink import FilesSink
from holdfast.errors import DataflowError
from holdfast.shell.sources.delta_recorder import DeltaSource
from holdfast.shell.storage.places import whole_place

if TYPE_CHECKING:
    from holdfast.api.graph import Graph, OutsideSink
    from holdfast.shell.sources.file_recorder import FilesSource


def require_other_places(flow: Graph) -> None:
    """Raise `DataflowError` if a sink writes where a source of files, or of a table, goes on."""
    for step in flow.steps:
        match step.operation:
            case FromFiles(files=source) if not source.ends:
                for name, sink in flow.outside_sinks.items():
                    if _finds(source, sink):
                        raise DataflowError(
                            f"sink {name!r} writes into {sink.place}, where source {step.name!r} "
                            "looks for new rows: it would read its own results, without end. Give "
                            "the sink another place, or the source ends=True"
                        )


def _finds(source: FilesSource, sink: OutsideSink) -> bool:
    """Whether a source would read what a sink writes."""
    if isinstance(source, DeltaSource):
        return isinstance(sink, DeltaSink) and sink.table == whole_place(source.place)
    match sink:
        case FilesSink(folder=folder, format=format, partition_by=by):
            written = _written(folder, by, format)
        case DeltaSink(table=folder, partition_by=by):
            written = _written(folder, by, "parquet")
        case _:
            return False
    return any(_lists(whole_place(each), written) for each in (source.place, *source.more_places))


def _written(folder: str, partition_by: tuple[str, ...], format: str) -> list[str]:
    """The parts of a path as a sink makes it; `key=` stands for any value."""
    return [*folder.split("/"), *(f"{column}=" for column in partition_by), f"part-0.{format}"]


def _lists(place: str, written: list[str]) -> bool:
    """Whether a source's listing of a place would find such a file: see `list_files`."""
    named, is_glob = place.split("/"), has_magic(place)
    if len(named) > len(written):
        return False
    for wanted, part in zip(named, written, strict=False):
        is_any = part.endswith("=") and wanted.startswith(part)
        if not (is_any or part == wanted or (is_glob and fnmatchcase(part, wanted))):
            return False
    return all("=" in folder for folder in written[len(named) : -1])
