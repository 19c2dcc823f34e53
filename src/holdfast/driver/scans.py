"""Which DataFrames are plain scans of files, so that nodes can read the files instead of Spark.

A scan is plain if nothing but columns and rows is chosen of files in local folders, and if pyarrow
gives of these files exactly what Spark gives: of a file whose columns have other types or other
names, or whose times are of Spark's old calendar, that is not so (`exact_files.py`). Of bad lines
of CSV and JSON Spark makes nulls, unless its reader has `mode=FAILFAST`: then both raise.

Filters become steps of the dataflow behind the files (`scan_filters.py`). Rows that they leave out
still move time, which decides what is late. Nothing of a batch DataFrame is late. Of a stream,
Spark itself moves a filter below the watermark, unless it reads the watermark's column; so no other
filter is possible there.

The way is chosen when the query starts. A location that was begun one way goes on that way.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from glob import has_magic, iglob
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.api import steps
from holdfast.api.windows import SessionWindow
from holdfast.core.operators.accumulators import BY_ORDER
from holdfast.driver.catalyst.trees import plan_of
from holdfast.driver.schemas import schema_from_spark
from holdfast.shell.storage.exact_files import FAILFAST, why_not_exact
from holdfast.shell.storage.exact_parquet import why_not_of_folders
from holdfast.shell.storage.exact_texts import COLUMNS, columns_of
from holdfast.shell.storage.user_files import UserFileError, list_files, partition_of
from holdfast.shell.storage.user_rows import FilesFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.graph import Graph
    from holdfast.api.steps import FromFrame
    from holdfast.core.queues.recording import UserFile
    from holdfast.driver.catalyst.trees import Expression, Plan

SETTING: Final = "readFilesInNodes"
_PASSED: Final = ("SubqueryAlias",)
_OPTIONS: Final = {
    "parquet": {},
    "orc": {},
    "csv": {
        "mode": "failfast",
        "enforceschema": "true",
        **dict.fromkeys(("header", "sep", "delimiter", "inferschema"), ""),
    },
    "json": {"mode": "failfast"},
}
"""By format the options that a reader may have, and the values that these must have; empty: any."""
_OF_ALL: Final = {"path", "maxfilespertrigger"}
_USUAL: Final = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
"""Settings by which Spark reads other rows or values of the same files."""
_USUAL_OF: Final = {
    "orc": {"spark.sql.orc.impl": "native"},
    "csv": {"spark.sql.legacy.timeParserPolicy": "CORRECTED"},
    "json": {"spark.sql.legacy.timeParserPolicy": "CORRECTED"},
}
_ASIDE: Final = "spark.sql.columnNameOfCorruptRecord"
_OF_GLOBS: Final = frozenset("*?[{\\")
_ZONES: Final = ("UTC", "Etc/UTC", "GMT")
_FILES_MAX: Final = 1_000
"""Of a micro-batch, unless the reader says otherwise; Spark's own default."""


class NotPlain(Exception):
    """The DataFrame is no plain scan; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """A filter above the files.

    Attributes:
        condition: As Spark has analysed it.
        is_marked: Whether a watermark lies below it.
    """

    condition: Expression
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """A plain scan.

    Attributes:
        places: Folders and files.
        files_max: Of one micro-batch.
        of: How rows lie in the files.
        filters: The lowest first.
        leaf: The plan that reads the files; None: nobody needs it.
    """

    places: tuple[str, ...]
    files_max: int
    of: FilesFormat
    filters: tuple[Filtering, ...] = ()
    leaf: Plan | None = None

    @property
    def place(self) -> str:
        """The only folder or file. Raises `NotPlain` if there are several."""
        if len(self.places) != 1:
            raise NotPlain("it reads several paths")
        return self.places[0]


def plain_scan(frame: FromFrame, flow: Graph, *, is_begun: bool) -> Scan:
    """What a DataFrame scans. Raises `NotPlain` if nodes may not read it.

    Args:
        frame: The DataFrame as a source.
        flow: Its dataflow.
        is_begun: Whether its location was begun so: then its files are known to do.
    """
    df = frame.df
    if frame.speed is not None:
        raise NotPlain("it is replayed at a set speed")
    if frame.trigger and "availableNow" not in frame.trigger:
        raise NotPlain("its trigger is a time")
    if not df.isStreaming and (word := needs_order(flow)):
        raise NotPlain(f"{word} takes the rows of a batch DataFrame in order of time")
    scan = _scan_of(df)
    if not is_begun:
        require_exact(df, scan, schema_from_spark(df.schema))
    return scan


def needs_order(flow: Graph) -> str:
    """A step whose results depend on the order of rows with different times; empty: none does.

    It takes the rows of a batch DataFrame in order of time.
    """
    return next((step.name for step in flow.steps if _depends_on_order(step.operation)), "")


def _depends_on_order(operation: steps.Operation) -> bool:
    match operation:
        case steps.WindowAggregate(windows=windows, aggregates=aggregates, emit=emit):
            is_by_arrival = not (windows.is_plain or isinstance(windows, SessionWindow))
            return is_by_arrival or emit == "changes" or _picks(aggregates)
        case steps.PartialAggregate(aggregates=aggregates):
            return _picks(aggregates)
        case steps.Distinct():
            return not operation.is_of_one_time  # Of several the first one is kept.
        case _:
            by_arrival = steps.Sort | steps.Sample | steps.RunningAggregate | steps.Process
            return isinstance(operation, by_arrival)


def _picks(aggregates: Sequence[steps.Aggregate]) -> bool:
    return any(each.function in BY_ORDER for each in aggregates)


def _scan_of(df: DataFrame) -> Scan:
    """What is scanned. Raises `NotPlain`."""
    plan = plan_of(df)
    filters: list[Filtering] = []
    while len(plan.children) == 1:
        if plan.kind == "Project":
            _require_columns(plan)
        elif plan.kind == "Filter":
            is_marked = any(each.kind == "EventTimeWatermark" for each in plan.all())
            filters.insert(0, Filtering(plan.expression("condition"), is_marked))
        elif plan.kind not in ("EventTimeWatermark", *_PASSED):
            raise NotPlain(f"its plan has {plan.kind}")
        plan = plan.child
    if plan.kind == "LogicalRelation":
        scan = _of_relation(df.sparkSession, plan.java)
    elif plan.kind == "StreamingRelation":
        scan = scan_of_stream(df.sparkSession, plan.java)
    else:
        raise NotPlain(f"it reads {plan.kind}, no files")
    return replace(scan, filters=tuple(filters), leaf=plan)


def _require_columns(project: Plan) -> None:
    for column in project.expressions("projectList"):
        if column.kind != "AttributeReference":
            raise NotPlain(f"a column is computed: {column.java.sql()}")


def _of_relation(spark: SparkSession, leaf: Any) -> Scan:
    """A batch DataFrame's files."""
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        raise NotPlain("it reads no files")
    if relation.location().getClass().getSimpleName() != "InMemoryFileIndex":
        raise NotPlain("it reads a table")
    paths = [str(path.toString()) for path in _each(relation.location().rootPaths())]
    if any(set(path) & _OF_GLOBS for path in paths):
        raise NotPlain("its path has a character of globs")
    return _scan(spark, str(relation.fileFormat().toString()), paths, relation.options(), leaf)


def scan_of_stream(spark: SparkSession, leaf: Any) -> Scan:
    """The folder of a `StreamingRelation`. Raises `NotPlain`."""
    source = leaf.dataSource()
    options = _dict(source.options())
    paths = [options["path"]] if "path" in options else []
    paths += [str(path) for path in _each(source.paths())]
    for path in paths:
        require_glob_of_files(path)
    return _scan(spark, str(source.className()), paths, source.options(), leaf)


def require_glob_of_files(path: str) -> None:
    """Raise `NotPlain` if a path is a glob of which pyarrow and Spark may find other files."""
    folder, _, name = path.rpartition("/")
    if set(folder) & _OF_GLOBS or set(name) & _OF_GLOBS - {"*", "?"}:
        raise NotPlain("its path is a glob of more than names of files")


def require_no_folders(place: str) -> None:
    """Raise `NotPlain` if a glob names folders, whose own folders may name columns."""
    if has_magic(place) and any(map(os.path.isdir, iglob(place))):
        raise NotPlain("its path is a glob of folders")


def _scan(spark: SparkSession, format: str, paths: list[str], options: Any, leaf: Any) -> Scan:
    name = format.lower()
    if name not in FAILFAST:
        raise NotPlain(f"its format is {format}")
    for setting, usual in (_USUAL | _USUAL_OF.get(name, {})).items():
        if str(spark.conf.get(setting, usual)).lower() != usual.lower():
            raise NotPlain(f"{setting} is set")
    given = {option.lower(): value for option, value in _dict(options).items()}
    _require_options(name, given)
    schema = leaf.schema()
    kinds = {str(field.name()): str(field.dataType().typeName()) for field in schema.fields()}
    if name != "parquet" and "timestamp" in kinds.values():
        _require_utc(spark, name)
    aside = str(spark.conf.get(_ASIDE, "_corrupt_record"))
    if FAILFAST[name] and aside.lower() in (column.lower() for column in kinds):
        raise NotPlain(f"Spark puts bad lines of {name} into the column {aside}, of no file")
    places = tuple(_local(spark, path) for path in paths)
    for place in places:
        require_no_folders(place)
    if any(os.path.exists(os.path.join(place, "_spark_metadata")) for place in places):
        raise NotPlain("Spark keeps a list of the folder's files")
    of = _format_of(name, given, list(kinds))
    return Scan(places, int(given.get("maxfilespertrigger", _FILES_MAX)), of)


def _require_options(name: str, given: Mapping[str, str]) -> None:
    """Raise `NotPlain` if a reader has options by which it may give something else."""
    known = _OPTIONS[name]
    if unknown := [option for option in given if option not in {*known, *_OF_ALL}]:
        raise NotPlain(f"its reader has the option {unknown[0]}")
    for option, value in given.items():
        if known.get(option) and value.lower() != known[option]:
            raise NotPlain(f"its reader has {option}={value}")
    if FAILFAST[name] and "mode" not in given:
        raise NotPlain(
            f"it makes nulls of bad lines of {name}; with the reader's option mode=FAILFAST nodes "
            "read it"
        )


def _require_utc(spark: SparkSession, name: str) -> None:
    """Raise `NotPlain` if times of files depend on a zone: in ORC the JVM's, in texts Spark's."""
    jvm: Any = spark._jvm
    zone = str(jvm.java.util.TimeZone.getDefault().getID())
    zone = zone if name == "orc" else str(spark.conf.get("spark.sql.session.timeZone"))
    if zone not in _ZONES:
        raise NotPlain(f"times of {name} are in the time zone {zone}")


def _format_of(name: str, given: Mapping[str, str], columns: list[str]) -> FilesFormat:
    """How rows lie in the files. Columns of CSV are known by their places, as to Spark."""
    if name != "csv":
        return FilesFormat(name, is_exact=True)
    sep = given.get("sep", given.get("delimiter", ","))
    if len(sep) != 1 or sep in '"\\\r\n' or not sep.isascii():
        raise NotPlain(f"its reader has sep={sep}")
    options = {"header": given.get("header", "false").lower(), "sep": sep}
    said = (*options.items(), (COLUMNS, json.dumps(columns)))
    return FilesFormat(name, tuple(sorted(said)), is_exact=True)


def _local(spark: SparkSession, path: str) -> str:
    """The local folder that Spark takes a path for: it is no URL, so `%` and `#` are themselves."""
    jvm: Any = spark._jvm
    named = jvm.org.apache.hadoop.fs.Path(path)
    system = named.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    found = system.makeQualified(named).toUri()
    if found.getScheme() != "file":
        raise NotPlain(f"it reads from {found.getScheme()}")
    return str(found.getPath())


def require_exact(df: DataFrame, scan: Scan, schema: pa.Schema) -> None:
    """Raise `NotPlain` unless pyarrow gives of these files what Spark gives, as far as is known."""
    listed = [files_in(place) for place in scan.places]
    paths = [file.path for files in listed for file in files]
    if len(paths) != len(set(paths)):
        raise NotPlain("it reads a file twice")
    if not df.isStreaming:
        given = {unquote(urlsplit(url).path) for url in df.inputFiles()}
        if given != set(paths):
            raise NotPlain("its folder holds other files by now")
    taken = set(schema.names)
    if scan.of.name == "csv":
        taken |= set(columns_of(scan.of.option(COLUMNS, "")))
    for place, files in zip(scan.places, listed, strict=True):
        for name in partition_of(f"{place}/"):
            if name in taken:
                raise NotPlain(f"its path names the column {name}")
        # A text shows by its name whether it is packed.
        for file in files if FAILFAST[scan.of.name] else files[:1]:
            _require_exact(file, scan.of, schema, taken)


def _require_exact(file: UserFile, of: FilesFormat, schema: pa.Schema, taken: set[str]) -> None:
    named = partition_of(file.path)
    if of.name == "csv" and (columns := taken.intersection(named)):
        raise NotPlain(f"folders name the column {min(columns)}")
    if reason := why_not_of_folders(named, schema):
        raise NotPlain(reason)
    if reason := why_not_exact(file, of, [field for field in schema if field.name not in named]):
        raise NotPlain(reason)


def files_in(place: str) -> list[UserFile]:
    """The files of a folder. Raises `NotPlain` if it cannot be listed."""
    try:
        return [found.file for found in list_files(place)]
    except UserFileError as error:
        raise NotPlain(str(error)) from None


def _each(found: Any) -> list[Any]:
    """What a sequence of Scala's holds."""
    return [found.apply(number) for number in range(found.size())]


def _dict(found: Any) -> dict[str, str]:
    """What a map of Scala's holds."""
    keys = found.keys().toSeq()
    return {str(key): str(found.apply(key)) for key in _each(keys)}
