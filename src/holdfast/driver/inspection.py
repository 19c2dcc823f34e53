"""Looking into a checkpoint location: which checkpoints there are, and what state they hold.

Works while the query runs and after it has died: nothing is written, nothing is locked. So that
state can be read without the program that made it, a query leaves a file `operators.json` that says
how each operator with state lays it out. It is data: expressions are text and compiled anew.
"""

from __future__ import annotations

import base64
import os
import time
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

import pyarrow as pa

from holdfast.api.expressions import compile_expression
from holdfast.api.operators import Recipe
from holdfast.api.processors import StoredStates
from holdfast.api.protections import CHECKPOINT_FOLDER
from holdfast.api.steps import Aggregate, Operation, Process, Stateful, said
from holdfast.api.windows import window_from, window_words
from holdfast.core.model.ids import CheckpointId, NodeId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire import manifests
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.manifests import Manifest
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.errors import InspectionError
from holdfast.shell.io_service import IOService
from holdfast.shell.spark.journal import registry_at
from holdfast.shell.storage.places import has_files, local_path, read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import CheckpointStore, StoreSpec
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.operators.base import Operator
    from holdfast.core.state.page_manager import PageManager
    from holdfast.planning.plan import Plan

FILE_NAME = "operators.json"
_STATE_BYTES = 1 << 44
_OPERATIONS: Final = {kind.WORD: kind for kind in get_args(Stateful)}


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One checkpoint in the store.

    Attributes:
        unit: The HA unit.
        node: The instance.
        checkpoint: Its number.
        incarnation: Which life of the node wrote it.
        role: `newest` or `older`: a replacement may start from it; `unused`: nothing leads to it.
        age_s: Seconds since it was written.
        pages: Pages of state.
        state_bytes: Their size.
        changed_pages: Pages that it stores itself; the others are where earlier ones put them.
        written_bytes: Bytes of pages and output tuples written for it.
        output_tuples: Output tuples that receivers may still need.
        problem: Why it cannot be read; empty: its manifest is whole.
    """

    unit: str
    node: str
    checkpoint: int
    incarnation: int
    role: str
    age_s: float
    pages: int = 0
    state_bytes: int = 0
    changed_pages: int = 0
    written_bytes: int = 0
    output_tuples: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def describe_operators(plan: Plan, store: StoreSpec | None) -> bytes:
    """What `operators.json` says; of a store only what is no secret.

    Operators stand in the order in which a node makes them, and with them their page sets.
    """
    where: dict[str, str] = {}
    if isinstance(store, FolderStoreSpec):
        where = {"folder": store.path}
    elif isinstance(store, FileSystemStoreSpec):
        where = {"url": store.url}
    return encode_sealed({"format": 1, "store": where, "units": operators_of(plan)}, indent=1)


def operators_of(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Per unit its operators with state, in the order in which a node makes them."""
    units: dict[str, list[dict[str, Any]]] = {}
    for node in plan.nodes:
        recipes = [spec.build for spec in node.operators if isinstance(spec.build, Recipe)]
        made = [_described(recipe) for recipe in recipes if isinstance(recipe.operation, Stateful)]
        if made:
            units[node.unit] = made
    return units


def operators_at(location: str) -> dict[str, list[dict[str, Any]]]:
    """The same of the query that has run at a location last; empty if nothing is checkpointed.

    Raises:
        FileDamaged: What is there is not what was written.
    """
    found = read_if_any(store_at(location), FILE_NAME) if has_files(location) else None
    if found is None:
        return {}
    return decode(found, f"{location}/{FILE_NAME}", lambda said: dict(said["units"]))


def _described(recipe: Recipe) -> dict[str, Any]:
    plain: dict[str, Any] = dict(said(recipe.operation))
    windows, aggregates = plain.pop("windows", None), plain.pop("aggregates", None)
    if isinstance(recipe.operation, Process):
        plain["processor"] = list(recipe.operation.processor.state_names)
    if windows is not None:
        plain["windows"] = window_words(windows)
    if aggregates is not None:
        plain["aggregates"] = [_words(each) for each in aggregates]
    if "presence" in plain:
        plain["presence"] = _words(plain["presence"])
    inputs = [base64.b64encode(s.serialize().to_pybytes()).decode() for s in recipe.inputs]
    return {"name": recipe.name, "kind": recipe.operation.WORD, "inputs": inputs, "settings": plain}


def _words(of: Aggregate) -> list[Any]:
    words: list[Any] = [of.function, None if of.expression is None else of.expression.sql, of.name]
    return [*words, list(of.percentages)] if of.percentages else words


def _aggregate(words: list[Any], schema: pa.Schema) -> Aggregate:
    """The aggregate that `_words` described."""
    function, sql, name, *more = words
    expression = None if sql is None else compile_expression(sql, schema)
    return Aggregate(function, expression, name, "", tuple(more[0]) if more else ())


def schema_from(text: str) -> pa.Schema:
    """A schema as an operator's description has it."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def built(described: dict[str, Any], pages: PageManager) -> Operator:
    """The operator over the pages of a checkpoint."""
    schemas = tuple(schema_from(text) for text in described["inputs"])
    operation = _operation(described["kind"], dict(described["settings"]), schemas)
    return Recipe(operation, described["name"], schemas)(pages)


def _operation(kind: str, settings: dict[str, Any], schemas: tuple[pa.Schema, ...]) -> Operation:
    """The operation that `_described` described."""
    of = _OPERATIONS[kind]
    values = {name: settings.get(name) for name in (field.name for field in fields(of))}
    if of is Process:
        values["processor"] = StoredStates(tuple(settings["processor"]), settings["time"])
    if values.get("windows") is not None:
        values["windows"] = window_from(settings["windows"])
    if "aggregates" in values:
        values["aggregates"] = tuple(_aggregate(w, schemas[0]) for w in settings["aggregates"])
    if values.get("presence") is not None:
        values["presence"] = _aggregate(settings["presence"], schemas[0])
    for name in ("fields", "match", "resampled"):
        if name in values:
            values[name] = tuple(tuple(each) for each in settings[name])
    made: Operation = of(**values)
    return made


def has_checkpoints(location: str) -> bool:
    """Whether a checkpointed query has run at a location."""
    location = local_path(location)
    return has_files(location) and read_if_any(store_at(location), FILE_NAME) is not None


class Inspection:
    """A checkpoint location, read only."""

    def __init__(self, location: str, store: StoreSpec | None = None) -> None:
        """Open it.

        Args:
            location: As given to `start`.
            store: Where its checkpoints are, if the location does not say: a store that needs
                credentials.

        Raises:
            InspectionError: No checkpointed query has run there.
            FileDamaged: What says how its operators lay out their state is not what was written.
        """
        self._location = location = local_path(location)
        found = read_if_any(store_at(location), FILE_NAME) if has_files(location) else None
        if found is None:
            raise InspectionError(
                f"{location} holds no checkpoints: no query with protection=Checkpointed(...) has "
                "run there"
            )
        place = f"{location}/{FILE_NAME}"
        units, where = decode(found, place, lambda said: (dict(said["units"]), dict(said["store"])))
        self._units: dict[str, list[dict[str, Any]]] = units
        self._store_spec = store or _store_of(where, location)

    @property
    def operators(self) -> dict[str, str]:
        """Every operator with state, and its unit."""
        return {o["name"]: unit for unit, members in self._units.items() for o in members}

    def checkpoints(self) -> list[CheckpointInfo]:
        """All checkpoints in the store, by node, newest first.

        A query may run there: where the newest one of a node gives way while the store is looked
        through, the store is looked through again.
        """
        points = self._points()
        while True:
            found, known = self._stored(points), points
            shown = {checkpoint.node for checkpoint in found if checkpoint.role == "newest"}
            if shown >= {node for node, point in known.items() if point.checkpoint}:
                return found
            points = self._points()
            if points == known:
                return found

    def _stored(self, points: Mapping[NodeId, RestartPoint]) -> list[CheckpointInfo]:
        roles = {
            (node, point.checkpoint.checkpoint): "newest" if place == 0 else "older"
            for node, newest in points.items()
            for place, point in enumerate(newest.candidates())
            if point.checkpoint is not None
        }
        store = self._store_spec.open()
        try:
            found = [
                _info(store, name, *parsed, roles.get(parsed, "unused"))
                for name in store.names()
                if name.endswith(".manifest") and (parsed := manifests.parse_name(name))
            ]
        finally:
            store.close()
        return sorted(found, key=lambda c: (c.node, -c.checkpoint, -c.incarnation))

    def state(self, operator: str) -> pa.Table:
        """What an operator's newest checkpoints hold, over all instances.

        Raises:
            InspectionError: There is no such operator with state, or no checkpoint that can be
                read.
        """
        unit = self.operators.get(operator)
        if unit is None:
            raise InspectionError(
                f"no operator with state is named {operator!r}; there are "
                f"{', '.join(self.operators) or 'none'}"
            )
        tables = [
            self._state_of(node, point, unit, operator)
            for node, point in sorted(self._points().items())
            if node.rpartition("[")[0] == unit and point.checkpoint is not None
        ]
        if not tables:
            raise InspectionError(f"unit {unit!r} has no checkpoint yet")
        return pa.concat_tables(tables)

    def _points(self) -> dict[NodeId, RestartPoint]:
        """The newest restart point of every node."""
        return dict(registry_at(self._location).newest_points())

    def _state_of(self, node: NodeId, point: RestartPoint, unit: str, operator: str) -> pa.Table:
        reasons: list[str] = []
        for candidate in point.candidates():
            if candidate.checkpoint is None:
                continue
            store = self._store_spec.open()
            io = IOService(store, node, 2, lambda _: None, lambda *_: ())
            try:
                pages = io.load_pages_now(candidate.checkpoint, _STATE_BYTES)
            except Exception as error:  # Whatever is wrong with it, the older one may be whole.
                reasons.append(f"checkpoint {candidate.sequence}: {error}")
                continue
            finally:
                io.close()
            operators = {d["name"]: built(d, pages) for d in self._units[unit]}
            rows = operators[operator].state_rows()
            if rows is None:
                raise InspectionError(f"{operator} keeps no rows")
            return rows.append_column("_node", pa.array([node] * len(rows), pa.string()))
        raise InspectionError(f"no checkpoint of {node} can be read: {'; '.join(reasons)}")


def _store_of(where: dict[str, str], location: str) -> StoreSpec:
    if "folder" in where:
        moved = os.path.join(location, CHECKPOINT_FOLDER)  # The location may have been copied.
        return FolderStoreSpec(where["folder"] if os.path.isdir(where["folder"]) else moved)
    if "url" in where:
        return FileSystemStoreSpec(where["url"])
    raise InspectionError(f"{location} does not say where its checkpoints are; name the store")


def _info(
    store: CheckpointStore, name: str, node: NodeId, checkpoint: CheckpointId, role: str
) -> CheckpointInfo:
    named = partial(
        CheckpointInfo,
        node.rpartition("[")[0],
        node,
        checkpoint.sequence,
        checkpoint.incarnation,
        role,
    )
    manifest: Manifest | CorruptRecord
    try:
        manifest = manifests.decode_manifest(bytes(store.read(name)))
    except Exception as error:  # Whatever is wrong with one, the others are to be shown.
        manifest = CorruptRecord(str(error))
    if isinstance(manifest, CorruptRecord):
        return named(0.0, problem=manifest.reason)
    image = manifest.image
    own = [i for i, file in enumerate(image.files) if file.checkpoint == checkpoint]
    return named(
        round(max(0.0, time.time() - manifest.created_ms / 1000), 1),
        pages=len(image.file),
        state_bytes=len(image.file) * image.page_bytes,
        changed_pages=int(sum(int((image.file == i).sum()) for i in own)),
        written_bytes=manifest.written_bytes,
        output_tuples=sum(s.to_id - s.from_id for s in manifest.outputs),
    )
