"""The stage for each block of Python in the guides: what a reader has by then, and what must come.

Each page is one story: its blocks run in order, in one namespace.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """Before and after a block of code.

    Attributes:
        before: Code that runs first.
        replaced: What stands in the page for something of the reader's, and what it is here.
        after: Code that runs then, with what must be so.
    """

    before: str = ""
    replaced: tuple[tuple[str, str], ...] = ()
    after: str = ""


_START = """
import pyarrow as pa
import holdfast as hf
if "spark" not in globals(): spark = hf.session()
def frame(rows, *more):
    at = "timestamp_micros(1700000000000000 + id * 1000) AS at"
    return spark.range(rows).selectExpr(at, "id AS n", *more)
def source(flow, name, rows=3_000, *more):
    return flow.source(frame(rows, *more), name=name, time="at")
def counted(stream, unit="counts"):
    windows = stream.unit(unit).window(hf.tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
"""
_DONE = "query.awaitTermination()\nassert query.verify().is_identical"
SCENES: dict[str, list[Block]] = {
    "README.md": [Block(after="assert query.verify().is_identical")],
    "docs/metrics.md": [
        Block(
            replaced=(
                ("9464)", "0)"),
                ("...", "import urllib.request as r\nsaid = r.urlopen(server.url).read().decode()"),
            ),
            after="assert 'holdfast_input_rows_total' in said",
        ),
        Block(after="metrics.stop()"),
        Block(after="traces.stop()"),
    ],
    "docs/protocols/cec.md": [
        Block(
            "flow = hf.Dataflow('bids')\ncounted(source(flow, 'a', 3_000, 'id % 9 AS bidder'))",
            after=_DONE,
        )
    ],
}
"""By page, its blocks in order."""
