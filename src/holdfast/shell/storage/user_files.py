"""Users' own files: listing them, and reading their rows in place.

A file counts as it was when it was recorded. Whoever finds another size or version later, or no
file, says so and reads nothing. Names that begin with `_` or `.` are passed over, as Spark does:
who writes a file under such a name and renames it when it is whole is never read half-way.

Readers of formats are imported when a file is read: most processes that know of logs read none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic, iglob
from typing import IO, Any, Final
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.queues.file_discovery import ListedFile
from holdfast.core.queues.recording import UserFile
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import is_remote, local_path

FORMATS: Final = ("parquet", "orc", "arrow", "csv", "json")
_BATCH_ROWS: Final = 1 << 17
_BLOCK_BYTES: Final = 8 << 20
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_ZONED: Final = r"(Z|[T ]\d\d.*[+-]\d\d(:?\d\d)?)$"
"""A time of the day comes before a zone: the end of `2026-11-25` is none."""


class UserFileError(StorageError):
    """A user's file cannot be read as it was recorded."""


class UserFileChanged(UserFileError):
    """A user's file was replaced, changed or removed after it had become part of a stream."""


class UserFileDamaged(UserFileError):
    """A user's file is not what its format and schema say."""


@dataclass(frozen=True, slots=True)
class FilesFormat:
    """How rows lie in files.

    Attributes:
        name: One of `FORMATS`.
        options: Of CSV `header` and `sep`, as Spark names them.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str) -> str:
        """An option's value."""
        return dict(self.options).get(name, default)


# -- listing --------------------------------------------------------------------------------------


def list_files(place: str) -> list[ListedFile]:
    """The files of a folder, of its partitions' folders (`key=value`), or of a glob.

    Raises:
        UserFileError: The place cannot be listed.
    """
    return _list_remote(place) if is_remote(place) else _list_local(local_path(place))


def _list_local(place: str) -> list[ListedFile]:
    place = os.path.abspath(place)  # Nodes, and later drivers, may run in other folders.
    roots = sorted(iglob(place)) if has_magic(place) else [place]
    try:
        return [found for root in roots for found in _walk(root)]
    except OSError as error:
        raise UserFileError(f"{place} cannot be listed: {error}") from None


def _walk(place: str) -> Iterator[ListedFile]:
    if not os.path.isdir(place):
        if os.path.lexists(place) and not _is_hidden(place):
            yield from _listed(place)
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if not entry.is_dir():
                yield from _listed(entry.path)
            elif "=" in entry.name:
                yield from _walk(entry.path)


def _listed(path: str) -> Iterator[ListedFile]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return  # Gone since it was listed: it is not part of the stream.
    yield ListedFile(UserFile(path, found.st_size, str(found.st_mtime_ns)), found.st_mtime_ns)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(("_", "."))


def _list_remote(place: str, *, is_file: bool = False) -> list[ListedFile]:
    scheme = place.partition("://")[0]
    try:
        system, root = fsspec.core.url_to_fs(place)
        system.invalidate_cache()
        found = _matching(system, root) if has_magic(root) and not is_file else _below(system, root)
        return [
            _remote_file(f"{scheme}://{path.lstrip('/')}", info) for path, info in found.items()
        ]
    except Exception as error:  # File systems of fsspec raise whatever their clients do.
        raise UserFileError(f"{place} cannot be listed: {error}") from None


def _matching(system: Any, pattern: str) -> dict[str, dict[str, Any]]:
    """The files that a glob names, and those of the folders that it names."""
    found: dict[str, dict[str, Any]] = {}
    for path, info in system.glob(pattern, detail=True).items():
        if info["type"] != "file":
            found.update(_below(system, path))
        elif not _is_hidden(path):
            found[path] = info
    return found


def _below(system: Any, root: str) -> dict[str, dict[str, Any]]:
    """The files of a folder and of its partitions' folders, or a file itself."""
    base = root.rstrip("/")
    return {
        path: info
        for path, info in system.find(root, detail=True).items()
        if info["type"] == "file" and _is_in_partition(path.removeprefix(base))
    }


def _is_in_partition(path: str) -> bool:
    """Whether a file is not hidden and lies in partitions' folders alone, below the root."""
    *folders, name = path.strip("/").split("/")
    return not _is_hidden(name) and all("=" in folder for folder in folders)


def _remote_file(path: str, info: dict[str, Any]) -> ListedFile:
    modified = info.get("LastModified") or info.get("mtime") or info.get("created") or 0.0
    seconds = modified if isinstance(modified, (int, float)) else modified.timestamp()
    version = str(info.get("ETag") or info.get("etag") or int(seconds * 1e9))
    return ListedFile(UserFile(path, int(info["size"]), version), int(seconds * 1e9))


def require_unchanged(file: UserFile) -> None:
    """Raise `UserFileChanged` unless the file is the one that was recorded."""
    found = _as_it_is(file.path)
    if found != file:
        what = "is gone" if found is None else "was replaced or changed"
        raise UserFileChanged(
            f"{file.path} {what} after it had become part of the stream ({file.size_bytes} bytes, "
            f"version {file.version}). Put it back as it was, or begin again in a new "
            "checkpointLocation"
        )


def _as_it_is(path: str) -> UserFile | None:
    """A file by its very name, which may have characters of globs; None: there is none."""
    try:
        listed = _list_remote(path, is_file=True) if is_remote(path) else list(_listed(path))
    except OSError as error:
        raise UserFileError(f"{path} cannot be looked at: {error}") from None
    return next((each.file for each in listed), None)


# -- reading --------------------------------------------------------------------------------------


def read_rows(
    file: UserFile, of: FilesFormat, schema: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, the same batches whenever it is read.

    Args:
        file: As it was recorded.
        of: How its rows lie in it.
        schema: The columns to give; what the file lacks, is null. Those that are named in the
            file's path (`key=value`) come from there.
        columns: Those that are read; the others come as nulls. None: all are.

    Raises:
        UserFileChanged: It is not as it was recorded, before or after it was read.
        UserFileDamaged: Its bytes are not of the format, or its values not of the schema.
    """
    require_unchanged(file)
    wanted = set(schema.names if columns is None else columns)
    named = {k: v for k, v in partition_of(file.path).items() if k in wanted}
    with _opened(file) as source:
        for rows in _READERS[of.name](source, of, schema, wanted - set(named)):
            for start in range(0, rows.num_rows, _BATCH_ROWS):
                yield _conformed(file, rows.slice(start, _BATCH_ROWS), schema, wanted, named)
    require_unchanged(file)


def schema_of(file: UserFile, of: FilesFormat) -> pa.Schema:
    """The columns that a file of Parquet, ORC or Arrow says it has. Raises as `read_rows`."""
    from pyarrow import orc, parquet

    with _opened(file) as source:
        if of.name == "parquet":
            return parquet.ParquetFile(source, coerce_int96_timestamp_unit="us").schema_arrow
        return orc.ORCFile(source).schema if of.name == "orc" else pa.ipc.open_file(source).schema


def partition_of(path: str) -> dict[str, str | None]:
    """What a path says of the columns: `.../day=2026-11-25/part.parquet`; null by its own name."""
    pairs = (folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    return {
        unquote(key): None if value == _NULL_PARTITION else unquote(value) for key, value in pairs
    }


@contextmanager
def _opened(file: UserFile) -> Iterator[Any]:
    """The file's bytes; what Arrow raises over them names the file."""
    try:
        if is_remote(file.path):
            with fsspec.open(file.path, "rb") as remote:
                yield remote
        else:
            with pa.memory_map(file.path) as mapped:
                yield mapped
    except FileNotFoundError:
        raise UserFileChanged(f"{file.path} is gone while it is read; put it back") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserFileDamaged(f"{file.path} cannot be read: {error}") from error


def _conformed(
    file: UserFile,
    rows: pa.RecordBatch,
    schema: pa.Schema,
    wanted: set[str],
    named: dict[str, str | None],
) -> pa.RecordBatch:
    """Rows with the schema's columns and types."""
    count = rows.num_rows
    present = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns: list[pa.Array] = []
    for field in schema:
        try:
            if field.name in named:
                value = pa.array([named[field.name]], pa.string())
                columns.append(pa.repeat(_cast(value, field.type)[0], count))
            elif field.name in present and field.name in wanted:
                columns.append(_cast(present[field.name], field.type))
            else:
                columns.append(pa.nulls(count, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise UserFileDamaged(
                f"{file.path}: column {field.name!r} is not {field.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Values of another type; times without a zone are UTC."""
    if values.type == to:
        return values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pa.types.is_timestamp(to):
        return values.cast(to)
    plain = pa.timestamp(to.unit)
    if pa.types.is_string(values.type):
        is_zoned = pc.match_substring_regex(values, _ZONED)
        zoned = pc.if_else(is_zoned, values, None).cast(to)
        return pc.coalesce(zoned, pc.if_else(is_zoned, None, values).cast(plain).cast(to))
    return values.cast(plain).cast(to) if values.type.tz is None else values.cast(to)


# -- formats --------------------------------------------------------------------------------------

Reader = Callable[[IO[bytes], FilesFormat, pa.Schema, set[str]], Iterable[pa.RecordBatch]]
"""Reads the columns that are wanted, as far as the file has them."""


def _parquet(
    source: Any, _: FilesFormat, schema: pa.Schema, wanted: set[str]
) -> Iterable[pa.RecordBatch]:
    from pyarrow import parquet

    opened = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False)
    columns = [name for name in schema.names if name in wanted & set(opened.schema_arrow.names)]
    if not columns:  # Nothing is wanted but how many rows there are.
        count = opened.metadata.num_rows
        return [_empty_rows(count)] if count else []
    rows: Iterable[pa.RecordBatch] = opened.iter_batches(_BATCH_ROWS, columns=columns)
    return rows


def _empty_rows(count: int) -> pa.RecordBatch:
    """Rows of which no column is wanted."""
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])


def _orc(
    source: Any, _: FilesFormat, schema: pa.Schema, wanted: set[str]
) -> Iterable[pa.RecordBatch]:
    from pyarrow import orc

    opened = orc.ORCFile(source)
    columns = [name for name in schema.names if name in wanted & set(opened.schema.names)]
    for stripe in range(opened.nstripes):
        rows = opened.read_stripe(stripe, columns=columns or opened.schema.names[:1])
        yield rows if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()[0]


def _arrow(
    source: Any, _: FilesFormat, schema: pa.Schema, wanted: set[str]
) -> Iterable[pa.RecordBatch]:
    opened = pa.ipc.open_file(source)
    return (opened.get_batch(number) for number in range(opened.num_record_batches))


def _csv(
    source: Any, of: FilesFormat, schema: pa.Schema, wanted: set[str]
) -> Iterable[pa.RecordBatch]:
    from pyarrow import csv

    has_header = of.option("header", "false") == "true"
    names = [] if has_header else schema.names
    rows: Iterable[pa.RecordBatch] = csv.open_csv(
        source,
        csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=names or None),
        csv.ParseOptions(delimiter=of.option("sep", ","), newlines_in_values=False),
        csv.ConvertOptions(
            column_types=_as_text(schema),
            null_values=[""],
            strings_can_be_null=True,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        ),
    )
    return rows


def _json(
    source: Any, _: FilesFormat, schema: pa.Schema, wanted: set[str]
) -> Iterable[pa.RecordBatch]:
    from pyarrow import json

    explicit = pa.schema([field for field in _as_text(schema) if field.name in wanted])
    rows: Iterable[pa.RecordBatch] = json.open_json(
        source,
        json.ReadOptions(block_size=_BLOCK_BYTES),
        json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore"),
    )
    return rows


def _as_text(schema: pa.Schema) -> pa.Schema:
    """How a text holds the columns: times are converted once it is known which have a zone."""
    fields = (f.with_type(pa.string()) if pa.types.is_timestamp(f.type) else f for f in schema)
    return pa.schema(fields)


_READERS: Final[dict[str, Reader]] = {
    "parquet": _parquet,
    "orc": _orc,
    "arrow": _arrow,
    "csv": _csv,
    "json": _json,
}
