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
    "docs/coming-from-structured-streaming.md": [
        Block(
            """
frame(3_000).write.parquet(folder + "/rows")
rows = spark.readStream.schema("at TIMESTAMP, n BIGINT").parquet(folder + "/rows")
from pyspark.sql.functions import window
counts = rows.withWatermark("at", "1 second").groupBy(window("at", "1 second")).count()
place = folder + "/counts"
def _after(query): query.processAllAvailable()
""",
            replaced=(
                ("query = (counts.writeStream                      flow", "flow"),
                ('    .option("checkpointLocation", place)         query', "query"),
                ('    .toTable("counts"))                          query', "_after(query)\nquery"),
            ),
            after="query.stop()\nassert query.verify().is_identical",
        )
    ],
    "docs/files.md": [
        Block(
            """
import pyarrow.csv, pyarrow.parquet, os
at = [1_700_000_000_000_000 + n * 1_000 for n in range(9)]
table = pa.table({"pickup": pa.array(at, pa.timestamp("us")), "km": [1.5] * 9})
os.mkdir(folder + "/trips")
pyarrow.parquet.write_table(table, folder + "/trips/1.parquet")
flow = hf.Dataflow("trips")
""",
        ),
        Block(
            """
os.remove(folder + "/trips/1.parquet")
pyarrow.csv.write_csv(table, folder + "/trips/1.csv")
flow = hf.Dataflow("texts")
""",
            after="assert 'bad_trips' in flow.sinks",
        ),
        Block(
            """
os.remove(folder + "/trips/1.csv")
pyarrow.parquet.write_table(table, folder + "/trips/1.parquet")
flow = hf.Dataflow("late")
""",
            after="assert late.step.name",
        ),
        Block(
            """
import deltalake
orders_at = pa.array(at, pa.timestamp("us", "UTC"))
deltalake.write_deltalake(folder + "/orders", pa.table({"at": orders_at}))
flow = hf.Dataflow("orders")
""",
            after="assert orders.schema.names == ['at']",
        ),
        Block(
            """
flow = hf.Dataflow("counts")
days = source(flow, "days", 3_000, "CAST(id % 3 AS STRING) AS day").key_by("day")
counts = days.window(hf.tumbling("1 second")).aggregate("count(*) AS n", name="counts")
""",
            after="""
query = flow.start(spark, checkpointLocation=folder + "/q")
query.awaitTermination()
assert sorted(os.listdir(folder + "/counts"))[-3:] == ["day=0", "day=1", "day=2"]
""",
        ),
        Block(
            """
flow = hf.Dataflow("shop")
orders = source(flow, "orders")
""",
            replaced=(
                ('"rest"', '"sql"'),
                ('"http://catalog:8181"', '"sqlite:///" + folder + "/shops.db"'),
            ),
            after="assert 'orders' in flow.sinks",
        ),
    ],
    "docs/in-and-out.md": [
        Block(
            """
flow = hf.Dataflow("kept")
counted(source(flow, "trips"))
location = folder + "/kept"
""",
            after=_DONE,
        ),
    ],
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
    "docs/operators.md": [
        Block(
            """
flow = hf.Dataflow("windows")
bids = source(flow, "bids", 3_000, "id % 9 AS bidder")
""",
            replaced=(("    .window(", "bids.key_by('bidder').window("),),
        ),
        Block(
            "from pyspark.sql import functions as F\n"
            "readings = source(flow, 'readings')\n"
            "given = lambda row, round: {'n': 1, 'p': round.random.random()}",
            replaced=(
                ("...\n", "return batch.select(['at']).append_column('score', pa.array([1.0]))\n"),
                ('drawn, "n', 'given, "n'),
            ),
        ),
        Block(
            "from pyspark.sql import Row\n"
            "from pyspark.sql.streaming import StatefulProcessor\n"
            "clicks = source(flow, 'clicked', 3_000, \"'ann' AS user\", \"'a' AS page\")",
        ),
        Block(
            """
persons = source(flow, "persons", 3_000, "id", "'x' AS name")
auctions = source(flow, "auctions", 3_000, "id AS auction", "id AS seller")
""",
        ),
        Block(
            """
impressions = source(flow, "impressions", 3_000, "id", "true AS shown")
clicks = source(flow, "clicks", 3_000, "id AS impression", "true AS clicked")
""",
        ),
        Block(
            "orders = source(flow, 'worded', 3_000, 'concat(id % 7) AS word')\n"
            "words = source(flow, 'words', 7, 'concat(id) AS word', 'id % 2 AS kind')",
            after="assert large.step.changelog.keys == ('word',)",
        ),
        Block("orders = source(flow, 'orders', 3_000, 'id AS order_id')"),
        Block(
            """
temperatures = source(flow, "temperatures", 3_000, "id % 3 AS room", "1.5D AS celsius")
visits = source(flow, "visits", 3_000, "id % 3 AS room")
""",
        ),
    ],
    "docs/tentative.md": [
        Block(
            "flow = hf.Dataflow('departures')\nleft, right = source(flow, 'a'), source(flow, 'b')\n"
            "left.union(right).sink('merged')",
            after=_DONE,
        )
    ],
    "docs/tutorial.md": [
        Block(after="assert query.verify().is_identical"),
        Block(
            """
flow = hf.Dataflow("slow")
rows.coalesce(1).write.parquet(folder + "/slow")
slow = spark.readStream.schema(rows.schema).parquet(folder + "/slow")
slow = flow.source(slow, name="readings", time="at").key_by("sensor")
slow.window(hf.tumbling("10 seconds")).aggregate("count(*) AS n", name="means").sink("means")
query = flow.start(spark, checkpointLocation=folder + "/killed")
""",
            replaced=(("...", "while not query.recoveries: query.awaitTermination(0.05)"),),
            after="""
query.processAllAvailable()
query.stop()
assert query.recoveries[0]["node"] == "means[0]"
assert query.verify().is_identical
flow = hf.Dataflow("readings")
readings = flow.source(rows, name="readings", time="at").key_by("sensor")
readings.window(hf.tumbling("10 seconds")).aggregate("count(*) AS n", name="means").sink("means")
""",
        ),
        Block(after=_DONE),
        Block(after="assert late.count() == 0"),
        Block(),
        Block(),
        Block(after="assert protection['means'].guarantee == 'precise'"),
    ],
    "docs/view.md": [
        Block(
            "flow = hf.Dataflow('q')\ncounted(source(flow, 'a'))\n"
            "query = flow.start(spark, checkpointLocation=folder + '/q')",
            replaced=(
                ("view()", "view(port=0)"),
                ("...", "import urllib.request as r\nsaid = r.urlopen(view.url).read().decode()"),
            ),
            after="assert '<title>Holdfast' in said\n" + _DONE,
        )
    ],
    "docs/protocols/cec.md": [
        Block(
            "flow = hf.Dataflow('bids')\ncounted(source(flow, 'a', 3_000, 'id % 9 AS bidder'))",
            after=_DONE,
        )
    ],
    "docs/protocols/checkmate.md": [
        Block(
            "flow = hf.Dataflow('merged')\nleft, right = source(flow, 'a'), source(flow, 'b')\n"
            "left.union(right, order='arrival').sink('merged')",
            after=_DONE,
        ),
        Block("", after="protection.check(hf.Dataflow('checked'))"),
        Block(
            """
flow = hf.Dataflow("reached")
starts = flow.source(frame(3, "id AS node", "0L AS hops"), name="starts", time="at")
starts = starts.select("node", "hops")
links = source(flow, "links", 9, "id AS source", "id + 1 AS target")
""",
        ),
    ],
    "docs/protocols/dpc.md": [
        Block(
            "flow = hf.Dataflow('flights')\nleft, right = source(flow, 'a'), source(flow, 'b')\n"
            "left.unit('merged').union(right).sink('merged')",
            after=_DONE,
        )
    ],
    "docs/protocols/guarantees.md": [
        Block(
            """
flow = hf.Dataflow("bids")
bids = source(flow, "ingest", 3_000, "id % 9 AS bidder")
windows = bids.key_by("bidder").window(hf.tumbling("1 second"))
counts = windows.aggregate("count(*) AS n", name="counts")
counts.unit("alerts").filter("n > 100").sink("alerts")
""",
            after="query.awaitTermination()",
        )
    ],
}
"""By page, its blocks in order."""
OF_BROKERS: dict[str, list[Block]] = {
    "docs/kafka.md": [
        Block(
            before="""
import json, time
def until(rows):
    deadline_s = time.monotonic() + 240
    while not rows():
        assert query.exception() is None and time.monotonic() < deadline_s, query.status
        time.sleep(0.05)
    return rows()
def bid(n):
    at = f"2026-01-01T00:00:{n % 60:02d}Z"
    return json.dumps({"auction": n, "bidder": n % 3, "price": n, "at": at}).encode()
kafka.create_topic("bids", 2)
kafka.create_topic("counts", 1)
produce(kafka, "bids", [(n % 2, bid(n)) for n in range(60)] + [(0, b"no JSON")])
""",
            replaced=(('"broker:9092"', "kafka.servers"),),
            after="""
counted = until(lambda: len(found := rows(kafka, "counts")) >= 15 and found)
assert sum(each["n"] for each in counted) == 50
assert {each["bidder"] for each in counted} == {0, 1, 2}
assert "undecodable" in flow.sinks
query.stop()
""",
        ),
        Block(
            before="""
from datetime import datetime, timedelta, timezone
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]
schema = json.dumps({"type": "record", "name": "order", "fields": fields})
write = AvroSerializer(SchemaRegistryClient({"url": registry}), schema)
begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
context = SerializationContext("page-orders", MessageField.VALUE)
kafka.create_topic("page-orders", 1)
kafka.create_topic("page-large-orders", 1)
written = [write({"at": begin + timedelta(seconds=n)}, context) for n in range(20)]
produce(kafka, "page-orders", [(0, record) for record in written])
flow = hf.Dataflow("orders")
""",
            replaced=(
                ('"broker:9092"', "kafka.servers"),
                ('"http://registry:8081"', "registry"),
                ('"orders"', '"page-orders"'),
                ('"large-orders"', '"page-large-orders"'),
            ),
            after="""
query = flow.start(spark, checkpointLocation=folder + "/orders")
told = until(lambda: len(found := committed(kafka, "page-large-orders")) >= 20 and found)
assert len(told) == 20
query.stop()
""",
        ),
        Block(
            before='flow = hf.Dataflow("people")',
            replaced=(('"broker:9092"', "kafka.servers"),),
            after='assert people.step.changelog.keys == ("id",)',
        ),
    ],
}
"""The same for pages whose code needs a broker: its handle is `kafka`, and `registry` is a URL."""
