"""Every file below a location, damaged or gone: an error that names it and a cure, or no effect.

A real run leaves the files; a restart, complete but for Spark, then meets each of them damaged, one
at a time. What it says, or what comes out, is judged alike for all of them.
"""

import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protection
from holdfast.core.model.ids import NodeId
from holdfast.driver.query import Query
from holdfast.errors import HoldfastError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_reader

TIME: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema([("at", TIME), ("key", pa.int64()), ("id", pa.int64())])
META: Final = IngestMeta(SCHEMA, "at", 0)
ROWS: Final = 1_000
HANGS_S: Final = 300.0
CURES: Final = re.compile(r"[Rr]estore|new checkpointLocation|[Bb]egin again|remove it")
EMBEDDED: Final = hf.Checkpointed(
    interval="50 milliseconds", store=hf.EmbeddedStore(data_nodes=2, copies=2)
)
OFTEN: Final = hf.Checkpointed(interval="50 milliseconds")
EVENTUAL: Final = hf.EventualCheckpoints(extent="1 B")
"""Windows are written as often as there is time."""
EVENTUAL_EMBEDDED: Final = hf.EventualCheckpoints(extent="1 B", store=EMBEDDED.store)


@dataclass(frozen=True)
class Kind:
    """A kind of location, by what protects its query and where it lies."""

    protection: Protection | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    scheme: str = ""
    has_passes: bool = False
    leaves: tuple[str, ...] = ()
    """Folders that its runs must have left, so that the test sees what it is for."""
    only: str = ""
    """Below which folder files are damaged, where the others are those of another kind."""
    is_like_others: bool = False
    """Whether the files beside those of `leaves` are read by the same code in another kind, where
    each is damaged in every way: then those are cut, changed or removed, one after the other."""


KINDS: Final = {
    "plain": Kind(leaves=("coordinator", "ingest", "streams", "metrics")),
    "checkpoints": Kind(OFTEN, leaves=("checkpoint",), is_like_others=True),
    "spill": Kind(
        options={
            "spark.holdfast.outputQueueBytes": "1024",
            "spark.holdfast.partialAggregates": "0",
            "spark.holdfast.passTuples": "100",
        },
        leaves=("spill",),
        is_like_others=True,
    ),
    "standbys": Kind(hf.ActiveStandby(), has_passes=True, leaves=("passes",), is_like_others=True),
    "passive": Kind(hf.PassiveStandby(), has_passes=True, leaves=("passes",), only="passes/"),
    "footprints": Kind(EVENTUAL, leaves=("footprints",), only="footprints/"),
    "data nodes": Kind(EMBEDDED, leaves=("chunks",), only="chunks/"),
    "data nodes, footprints": Kind(EVENTUAL_EMBEDDED, leaves=("chunks",), only="chunks/journal/"),
    "url": Kind(scheme="local://", leaves=("coordinator", "streams")),
    "url, checkpoints": Kind(OFTEN, scheme="local://", leaves=("checkpoint",), is_like_others=True),
    "url, footprints": Kind(
        EVENTUAL, scheme="local://", leaves=("footprints",), only="footprints/"
    ),
}


class Location:
    """A query's location, as it was left in its middle: some input is there, more came later."""

    def __init__(self, kind: Kind, folder: Path, session: Any) -> None:
        self.kind, self.session = kind, session
        self.folder, self._template = folder / "location", folder / "template"
        self.folder.mkdir()
        self.place = f"{kind.scheme}{self.folder}"
        self._root = f"{self.place}/ingest/rows"
        ingest_log.prepare(self._root, META)
        self._put(0)
        query = self.start()
        query.processAllAvailable()
        if isinstance(kind.protection, hf.Checkpointed):
            while not any(checkpoint["failure"] is None for checkpoint in query.checkpoints):
                query._cluster.done.wait(0.01)
        if isinstance(kind.protection, hf.EventualCheckpoints):
            while not self._leads_to_footprints(query):
                query._cluster.done.wait(0.01)
        query.stop()
        assert query.exception() is None
        self._put(1)
        ingest_log.end(self._root)
        shutil.copytree(self.folder, self._template)
        query = self.start()
        assert query.awaitTermination(HANGS_S)
        self.results = self.sinks()

    @staticmethod
    def _leads_to_footprints(query: Query) -> bool:
        """Whether a restart reads the footprint log."""
        point = query._cluster.registry.newest(NodeId("counts[0]"))
        return point is not None and point.next_ids["counts[0]~footprints"] > 0

    def _put(self, part: int) -> None:
        ids = np.arange(part * ROWS, (part + 1) * ROWS)
        times = pa.array(1_700_000_000_000_000 + ids * 1_000).cast(TIME)
        rows = pa.RecordBatch.from_arrays([times, ids % 7, ids], schema=SCHEMA)
        file = ingest_log.write_file(self._root, META, iter([rows]))
        assert file is not None
        ingest_log.append_batch(self._root, [file])

    def flow(self) -> Dataflow:
        flow = Dataflow("damaged")
        rows = flow.source_log(self._root, name="rows")
        rows.filter("id % 3 = 0").sink("thirds")
        windows = rows.key_by("key").window(hf.tumbling("500 milliseconds"))
        windows.aggregate("count(*) AS n", "sum(id) AS total", name="counts").sink("counts")
        if self.kind.has_passes:
            others = flow.source_log(self._root, name="others").filter("id % 2 = 0")
            rows.filter("id % 2 = 1").union(others, order="arrival").sink("merged")
        return flow

    def start(self) -> Query:
        options = {"spark.holdfast.failuresMax": "2", **self.kind.options}
        return self.flow().start(
            self.session,
            checkpointLocation=self.place,
            protection=self.kind.protection,
            options=options,
        )

    def sinks(self) -> dict[str, list[dict[str, Any]]]:
        """What the sinks hold; rows that were merged as they arrived in another order."""
        found = {}
        for sink in self.flow().sinks:
            reader = open_reader(f"{self.place}/streams/{sink}/0")
            rows: list[dict[str, Any]] = []
            while batches := reader.poll():
                for batch in batches:
                    rows += batch.batch.to_pylist()
            reader.close()
            found[sink] = sorted(rows, key=lambda row: row["id"]) if sink == "merged" else rows
        return found

    def files(self) -> list[str]:
        """All files that are there before the restart."""
        below = (file for file in self._template.rglob("*") if file.is_file())
        return sorted(str(file.relative_to(self._template)) for file in below)

    def damaged(self) -> list[str]:
        """Those that the restarts meet damaged."""
        return [file for file in self.files() if file.startswith(self.kind.only)]

    def damages(self, file: str) -> Mapping[str, Callable[[Path], Any]]:
        """In which ways it is damaged."""
        own = tuple(f"{folder}/" for folder in self.kind.leaves)
        if self.kind.is_like_others and not file.startswith(own):
            name = ("half", "a byte", "gone")[self.files().index(file) % 3]
            return {name: DAMAGES[name]}
        return DAMAGES

    def restore(self) -> None:
        """All as it was before the restart."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._template, self.folder)

    def damage(self, file: str, damage: Callable[[Path], Any]) -> None:
        """Damage one file; a log whose last commit is gone has not ended, so it is ended again."""
        damage(self.folder / file)
        if not (self.folder / file).exists() and file == self.last_commit():
            ingest_log.end(self._root)

    def last_commit(self) -> str:
        """The commit that ends the log."""
        return max(file for file in self.files() if file.startswith("ingest/rows/commits/"))

    def outcome(self) -> str:
        """What is wrong with a restart; empty: it has no effect, or is an error as it should be."""
        query: Query | None = None
        try:
            query = self.start()
            if not query.awaitTermination(HANGS_S):
                return "it runs for ever"
            if self.sinks() != self.results:
                return "other results"
        except HoldfastError as error:
            text = str(error)
            names_it = str(self.folder) in text
            return "" if names_it and CURES.search(text) else f"{type(error).__name__}: {text}"
        except Exception as error:
            return f"foreign: {type(error).__name__}: {error}"
        finally:
            if query is not None:
                query.stop()
        return ""


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


def _replace(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: Final[dict[str, Callable[[Path], Any]]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a byte": _flip,
    "garbage": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size or 9)),
    "gone": Path.unlink,
    "a folder": _replace,
}


@pytest.fixture(params=KINDS, scope="module")
def location(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    with without_spark() as session:
        yield Location(KINDS[request.param], tmp_path_factory.mktemp("damaged"), session)


@pytest.mark.slow
def test_every_file_damaged_in_every_way_is_named_with_a_cure_or_has_no_effect(
    location: Location,
) -> None:
    files = location.files()
    for folder in location.kind.leaves:
        assert any(file.startswith(f"{folder}/") for file in files), (folder, files)
    wrong = []
    for file in location.damaged():
        for name, damage in location.damages(file).items():
            location.restore()
            location.damage(file, damage)
            outcome = location.outcome()
            if outcome:
                wrong.append(f"{file}, {name}: {outcome}")
    assert not wrong, "\n".join(wrong)
