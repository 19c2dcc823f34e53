"""The steps of a dataflow, and one class for each kind of source and operator: what it needs.

An application writes them by `Dataflow` and `Stream`; planning/ makes nodes of them. A checkpoint
location says of each its `WORD` and then its fields, in their order, as `said` gives them; so
names and places of fields are part of a stored format (see driver/description.py).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import pyarrow as pa

from holdfast.core.operators.base import Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from holdfast.api.dead_letters import FunctionWithBadRows
    from holdfast.api.expressions import CompiledExpression
    from holdfast.api.functions import PythonFunction
    from holdfast.api.processors import Processor
    from holdfast.api.windows import AnyWindow, Window
    from holdfast.core.operators.interval_join import How
    from holdfast.driver.kafka import KafkaSource
    from holdfast.shell.sources.file_recorder import FilesSource

_IS_SAID = "is_said"
_UNSAID = {_IS_SAID: False}
"""Of a field that may differ when a location is taken up again."""

Emit: TypeAlias = Literal["final", "changes"]
JoinField: TypeAlias = tuple[Literal["left", "right"], str, str]
"""Of a join's output: the side and the column that it is of, and its name."""


class Expression(Evaluator, Protocol):
    """A compiled expression, and its text as Spark SQL."""

    @property
    def sql(self) -> str:
        """The text, without the name of the result."""
        ...


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: `function(expression) AS name`; the expression is None for `count(*)`."""

    function: str
    expression: CompiledExpression | None
    name: str
    sql: str
    percentages: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Changelog:
    """A stream of changes; see core/model/changes.py.

    Attributes:
        keys: Columns by which the table has at most one row each; None: nobody knows any.
        is_paired: Whether each `update_before` is followed by an `update_after` of its key.
    """

    keys: tuple[str, ...] | None
    is_paired: bool


# -- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFrame:
    """A DataFrame, which Spark writes into an ingest log.

    Attributes:
        df: Batch or streaming.
        time: The column with the event time.
        delay_us: How far rows may be out of order.
        ahead_us: How far a row may be ahead and still move time; None: every row moves it.
        has_watermark: Whether Spark's own watermark says what is late.
        partitions: Instances that read it.
        speed: Seconds of event time per second; None: as fast as it goes.
        trigger: As `DataStreamWriter.trigger` takes it.
        silent_s: Of a replay: from so many seconds after its start to so many it gives nothing.
    """

    WORD: ClassVar = "source"

    df: DataFrame = field(metadata=_UNSAID)
    time: str
    delay_us: int
    ahead_us: int | None
    has_watermark: bool = False
    partitions: int
    speed: float | None = field(metadata=_UNSAID)
    trigger: dict[str, Any] | None = field(metadata=_UNSAID)
    silent_s: tuple[float, float] | None = field(metadata=_UNSAID, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFiles:
    """Files that nodes read where they lie; an ingest log names them."""

    WORD: ClassVar = "source"

    files: FilesSource
    time: str
    delay_us: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLog:
    """An ingest log that exists already; `time` is its time column, `speed` as of `FromFrame`."""

    WORD: ClassVar = "source"

    path: str
    time: str | None
    partitions: int
    speed: float | None = field(metadata=_UNSAID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromGenerator:
    """A generator inside the nodes; see `Dataflow.source_generator`."""

    WORD: ClassVar = "source"

    generator: Any = field(metadata=_UNSAID)
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromKafka:
    """A topic that nodes read."""

    WORD: ClassVar = "source"

    kafka: KafkaSource
    partitions: int


Source: TypeAlias = FromFrame | FromFiles | FromLog | FromGenerator | FromKafka


# -- operators without state ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the tuples for which the expression is true."""

    WORD: ClassVar = "filter"

    expression: Expression


@dataclass(frozen=True, slots=True)
class Select:
    """One column for each expression."""

    WORD: ClassVar = "select"

    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """Run a function of the user's on rows."""

    WORD: ClassVar = "apply"

    function: PythonFunction | FunctionWithBadRows


@dataclass(frozen=True, slots=True)
class Sample:
    """Keep each tuple with this probability."""

    WORD: ClassVar = "sample"

    fraction: float


@dataclass(frozen=True, slots=True)
class Union:
    """All tuples of the inputs; `order`: `time` or `arrival`."""

    WORD: ClassVar = "union"

    order: Literal["time", "arrival"] = "time"

    @property
    def is_by_arrival(self) -> bool:
        """Whether tuples are taken as they come."""
        return self.order == "arrival"


@dataclass(frozen=True, slots=True)
class Loop:
    """All tuples of the input, and of what comes back.

    No node runs it: whoever reads it reads both.

    Attributes:
        back: The step that comes back, once the loop is closed.
    """

    WORD: ClassVar = "loop"

    back: list[Step] = field(default_factory=list, repr=False, compare=False, metadata=_UNSAID)


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """What each batch adds to the aggregates of a pane; see planning/partial_aggregates.py."""

    WORD: ClassVar = "part"

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    pane_us: int


# -- operators with state -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates per key and window.

    Attributes:
        keys: Columns; maybe none.
        windows: Of which each has a result per key.
        aggregates: The results.
        emit: `final`: when a window closes; `changes`: after each tuple.
        has_footprints: Whether windows are checkpointed one by one, as planning decides. [CEC]
    """

    WORD: ClassVar = "aggregate"

    keys: tuple[str, ...]
    windows: AnyWindow
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    has_footprints: bool = field(default=False, metadata=_UNSAID)


@dataclass(frozen=True, slots=True)
class RunningAggregate:
    """Aggregates per key of all tuples there have been, put out after each; as there.

    Attributes:
        keys: Columns; maybe none.
        aggregates: The results.
        presence: Of a changelog: an aggregate that is above zero while a key has a result.
    """

    WORD: ClassVar = "running_aggregate"

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    presence: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """Pairs of one window, put out when it closes.

    Attributes:
        left_keys: Columns of the left input, each equal to the one at its place in `right_keys`.
        right_keys: Columns of the right input.
        windows: In which pairs are found.
        fields: The output columns.
        how: `inner` or `left`.
        has_footprints: As of `WindowAggregate`.
    """

    WORD: ClassVar = "window_join"

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    windows: Window
    fields: tuple[JoinField, ...]
    how: Literal["inner", "left"]
    has_footprints: bool = field(default=False, metadata=_UNSAID)


@dataclass(frozen=True, slots=True)
class RunningJoin:
    """Pairs of one window, put out when both tuples are there; fields as of `WindowJoin`."""

    WORD: ClassVar = "running_join"

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    windows: Window
    fields: tuple[JoinField, ...]
    how: Literal["inner"]


@dataclass(frozen=True, slots=True)
class IncrementalJoin:
    """Pairs of all tuples there have been, put out when both are there; as `WindowJoin`."""

    WORD: ClassVar = "join"

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    windows: None
    fields: tuple[JoinField, ...]
    how: Literal["inner"]


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Pairs of tuples whose times lie in a span of each other; keys and fields as of `WindowJoin`.

    Attributes:
        left_keys: As there.
        right_keys: As there.
        lower_us: A right tuple is at least so much later than a left one that it matches.
        upper_us: At most so much.
        fields: As there.
        how: Which rows are put out; see core/operators/interval_join.py.
        where: What must hold of the output columns of a pair, as Spark SQL.
    """

    WORD: ClassVar = "interval_join"

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    lower_us: int
    upper_us: int
    fields: tuple[JoinField, ...]
    how: How
    where: str | None


@dataclass(frozen=True, slots=True)
class Sort:
    """Tuples in ascending order, as far as a buffer of `slack` goes; by tuple time if None."""

    WORD: ClassVar = "sort"

    by: str | None
    slack: int


@dataclass(frozen=True, slots=True)
class Resample:
    """Columns at other times.

    Attributes:
        resampled: Column and name of each result.
        match: Per input, the columns of the key.
        within_us: How far away a value may be.
        every_us: The period; None: at the times of the second input.
    """

    WORD: ClassVar = "resample"

    resampled: tuple[tuple[str, str], ...]
    match: tuple[tuple[str, ...], ...]
    within_us: int
    every_us: int | None


@dataclass(frozen=True, slots=True)
class Distinct:
    """The first tuple of every key.

    Attributes:
        keys: Columns.
        within_us: Tuples less than so much later are copies; 0: those of the same tuple time; None:
            all are.
    """

    WORD: ClassVar = "distinct"

    keys: tuple[str, ...]
    within_us: int | None

    @property
    def is_of_one_time(self) -> bool:
        """Whether only tuples of the same tuple time are copies."""
        return self.within_us == 0


@dataclass(frozen=True, slots=True)
class Process:
    """A class of the user's that keeps states and timers per key.

    Attributes:
        keys: Columns.
        time: What its timers are of.
        processor: The class.
    """

    WORD: ClassVar = "process"

    keys: tuple[str, ...]
    time: Literal["none", "event", "processing"]
    processor: Processor


Join: TypeAlias = WindowJoin | RunningJoin | IncrementalJoin | IntervalJoin
Passing: TypeAlias = Filter | Select
"""They leave rows where they are, or out."""
Merging: TypeAlias = Union | IncrementalJoin | RunningJoin
"""Where the order of rows on one port among those of another matters."""
Holding: TypeAlias = Sort | Resample
"""Their operators put rows out later than the boundary alone would."""
Stateful: TypeAlias = (
    WindowAggregate | RunningAggregate | Join | Sort | Resample | Distinct | Process
)
"""Their operators keep state."""
Operation: TypeAlias = (
    Source | Filter | Select | Apply | Sample | Union | Loop | PartialAggregate | Stateful
)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One vertex of the dataflow: a source or an operator; equal to itself alone.

    Attributes:
        operation: What it does.
        name: Unique in the dataflow.
        unit: The HA unit it belongs to.
        schema: Attributes of its output, without the time column.
        inputs: The steps it reads.
        changelog: What is known of its output, if that says how a table changes.
    """

    operation: Operation
    name: str
    unit: str
    schema: pa.Schema
    inputs: tuple[Step, ...] = ()
    changelog: Changelog | None = None

    @property
    def feedback(self) -> tuple[Step, ...]:
        """What comes back to it; `inputs` leaves that out, so that steps are without circles."""
        return tuple(self.operation.back) if isinstance(self.operation, Loop) else ()


def said(operation: Operation) -> Iterator[tuple[str, object]]:
    """Name and value of each field of which a checkpoint location depends, in order."""
    for each in fields(operation):
        value = getattr(operation, each.name)
        is_default = each.default is not MISSING and value == each.default
        if each.metadata.get(_IS_SAID, True) and not is_default:
            yield each.name, value


def held_back(step: Step) -> Step | None:
    """The operator of the step's unit that holds back the rows it puts out, if there is one."""
    return step if isinstance(step.operation, Holding) else before(step, Holding)


def before(step: Step, kinds: Any) -> Step | None:
    """An operator of these kinds on the way to a step, in its unit.

    Args:
        step: Where the way ends.
        kinds: Classes of operations, as `isinstance` takes them.
    """
    for source in step.inputs:
        if source.unit == step.unit:
            found = source if isinstance(source.operation, kinds) else before(source, kinds)
            if found is not None:
                return found
    return None
