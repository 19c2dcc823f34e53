"""In an application of its own: Spark's pages and sinks, and traces, say what nodes do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.model.ids import NodeId
from holdfast.shell.spark.web_ui import description, view_path

SCRIPT = """
import sys, time, urllib.request
from pathlib import Path
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from holdfast.driver import session
_, location, path, csv = sys.argv
of_sink = "spark.metrics.conf.*.sink.csv."
session.SETTINGS.update({
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    of_sink + "class": "org.apache.spark.metrics.sink.CsvSink",
    of_sink + "period": "1",
    of_sink + "unit": "seconds",
    of_sink + "directory": csv,
})
import holdfast as hf

def read(url):
    with urllib.request.urlopen(url, timeout=240) as answer:
        return answer.read().decode()

def until(holds, what):
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    print(what, flush=True)

def sent(name):
    return any(span.name == name for span in exporter.get_finished_spans())

SUNK = "*.driver.*holdfast.ticks.input_rows.csv"

def sunk():
    (*_, last) = next(Path(csv).glob(SUNK)).read_text().splitlines()
    return float(last.split(",")[1])

spark = hf.session()
metrics = hf.metrics_to_spark(spark, interval_s=0.2)
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
traces = hf.send_traces(provider)
pages = spark.sparkContext.uiWebUrl
rows = spark.sql(
    "SELECT timestamp_micros(1700000000000000 + id * 10000) AS at, id FROM range(60000)"
)
flow = hf.Dataflow("ticks")
ticks = flow.source(rows, name="ticks", time="at", speed=1).unit("counts")
ticks.window(hf.tumbling("1 second")).aggregate("count(*) AS n", name="counts").sink("counts")
query = flow.start(
    spark, checkpointLocation=location, protection=hf.Checkpointed(interval="200 milliseconds")
)
query.pid("counts[0]")

jobs = read(pages + "/jobs/")
assert "Holdfast ticks: unit counts, instance 0" in jobs, jobs
assert f'href="{path}"' in jobs, jobs
view = query.view(port=0)
assert "<title>Holdfast</title>" in read(pages + path)
view.stop()
assert "<title>Holdfast</title>" not in read(pages + path)

until(lambda: sent("checkpoint"), "a checkpoint was sent")
query.kill("counts[0]")
until(lambda: sent("recovery"), "a recovery was sent")
until(lambda: any(Path(csv).glob(SUNK)) and sunk() > 0, "rows reached a sink")
traces.stop()
metrics.stop()
query.stop()
print("all was so", flush=True)
"""


def test_a_description_has_a_link_only_where_spark_has_pages() -> None:
    node = NodeId("counts[3]")
    assert description("a<b", node, "") == "Holdfast a<b: unit counts, instance 3"
    linked = description("a<b", node, view_path("/data/x"))
    assert linked.startswith("Holdfast a&lt;b: unit counts, instance 3 <a href=")
    assert view_path("/data/x") in linked != view_path("/data/y")


@pytest.mark.slow
def test_sparks_jobs_are_named_and_lead_to_the_view_and_sinks_and_traces_get_what_happens(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "q")
    csv = tmp_path / "csv"
    csv.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, location, view_path(location), str(csv)],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert "all was so" in done.stdout, done.stdout[-3000:] + done.stderr[-5000:]
