"""A running query under attack, and where its keys must not be found."""

import base64
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.shell.transport.channels import RunKeys
from holdfast_bench.feed import Feed
from holdfast_bench.security import Sizes, attack

pytestmark = pytest.mark.slow
SMALL = Sizes("test", 280, 28, 1_400)


def counts(feed: Feed) -> hf.Dataflow:
    flow = hf.Dataflow("attacked")
    bids = flow.source_log(feed.path, name="bids", unit="bids")
    counted = bids.key_by("bidder").window(hf.tumbling("10 seconds"))
    counted.aggregate("count(*) AS bids", name="counts").sink("counts")
    return flow


def keys_of(query: hf.Query) -> list[bytes]:
    """Every key of the query and its store, in all the ways in which a key is written."""
    stores = [] if query._running.chunks is None else [query._running.chunks._service._keys]
    found: list[bytes] = []
    for keys in (query._cluster._keys, *stores):
        assert isinstance(keys, RunKeys)
        for name in RunKeys.__slots__:
            text = getattr(keys, name)
            raw = zmq_decoded(text)
            found += [
                text,
                raw,
                raw.hex().encode(),
                base64.b64encode(raw),
                repr(text).encode()[2:-1],
            ]
    return found


def zmq_decoded(text: bytes) -> bytes:
    from zmq.utils import z85

    return z85.decode(text)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [root], [root]
    while waiting:
        waiting += (new := children.get(waiting.pop(), []))
        found += new
    return found


def process_files(pids: list[int]) -> Iterator[tuple[str, bytes]]:
    """Command lines and environments of processes."""
    for pid in pids:
        for name in ("cmdline", "environ"):
            try:
                yield f"/proc/{pid}/{name}", Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue


def pages(url: str) -> Iterator[tuple[str, bytes]]:
    """The pages and the API of Spark's UI that say something of jobs, settings or executors."""
    apps = json.loads(urllib.request.urlopen(f"{url}/api/v1/applications", timeout=120).read())
    api = f"/api/v1/applications/{apps[0]['id']}"
    paths = ["/jobs/", "/stages/", "/environment/", "/executors/", "/storage/"]
    paths += [f"{api}/{part}" for part in ("jobs", "stages", "environment", "allexecutors")]
    for path in paths:
        yield path, urllib.request.urlopen(url + path, timeout=120).read()


def listeners(pids: list[int]) -> set[str]:
    """The local addresses at which processes listen for TCP connections."""
    inodes: set[str] = set()
    for pid in pids:
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:")}
    found: set[str] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            found.add(fields[1].partition(":")[0])
    return found


def test_an_attack_has_no_effect_and_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(str(tmp_path / "bids"))
    query = counts(feed).start(
        spark,
        checkpointLocation=str(tmp_path / "query"),
        protection=hf.Checkpointed(interval="500 milliseconds", store=hf.EmbeddedStore()),
    )
    try:
        found = attack(query, SMALL, lambda _: None)
        python = [*query.nodes.values(), *query.status["dataNodes"].values()]
        assert listeners(python) <= {"0100007F"}, "nodes listen on this host only"
        assert query.lastProgress["refusedFrames"] == 1_400
        assert query.lastProgress["refusedHandshakes"] == 280
        feed.end()
        assert query.awaitTermination(240)
    finally:
        feed.end()
        query.stop()
    assert len(found["targets"]) == 7
    for name, target in found["targets"].items():
        assert target["strangers_counted"] == target["strangers"] == 40, name
        assert target["frames_counted"] == target["frames"] == 200, name
    assert not query.failures
    assert query.verify().is_identical
    grown = [m["peak"] - m["before"] for n, m in found["memory_mb"].items() if n != "driver"]
    assert max(grown) < 64


KEY_RUN = """
import json, logging, os, signal, sys, time
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[2])
sys.path.insert(0, {tests!r})
import test_under_attack as t
import holdfast as hf
from holdfast.driver.session import SETTINGS, session
from holdfast_bench.feed import Feed

folder = sys.argv[1]
SETTINGS["spark.ui.enabled"] = "true"
SETTINGS["spark.ui.port"] = "0"
SETTINGS["spark.eventLog.enabled"] = "true"
SETTINGS["spark.eventLog.compress"] = "false"
SETTINGS["spark.eventLog.dir"] = folder + "/events"
SETTINGS["spark.log.level"] = "INFO"
os.mkdir(folder + "/events")
spark = session("keys")
feed = Feed(folder + "/bids")
query = t.counts(feed).start(
    spark,
    checkpointLocation=folder + "/query",
    protection=hf.Checkpointed(interval="300 milliseconds", store=hf.EmbeddedStore()),
    options={{
        "spark.holdfast.failuresMax": "2",
        "spark.holdfast.failureWindowMs": "3600000",
    }},
)
keys = t.keys_of(query)
while not query.checkpoints and query.isActive:
    time.sleep(0.05)
seen = list(t.process_files(t.descendants(os.getpid())))
seen += t.pages(spark.sparkContext.uiWebUrl)
seen.append(("status", repr(query.status).encode() + repr(query.lastProgress).encode()))
spec = query._cluster._spec
seen.append(("specs", repr((spec, query._running.chunks.spec, query._cluster._keys)).encode()))
while query.isActive:  # Until it fails: what is said of that is looked at too.
    pid = query.pid("counts[0]")
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.3)
seen.append(("failures", repr(query.failures).encode()))
try:
    query.awaitTermination(240)
    seen.append(("exception", b""))
except hf.QueryFailedError as error:
    seen.append(("exception", repr(error).encode()))
feed.end()
spark.stop()
found = [[place for key in keys if key in data] and place for place, data in seen]
looked = len(seen), sum(len(data) for _, data in seen), len(seen[-1][1])
with open(folder + "/keys", "wb") as file:
    file.write(b"\\n--\\n".join(keys))
print(json.dumps({{"found": [f for f in found if f], "looked": looked}}))
"""


def test_keys_are_found_nowhere(tmp_path: Path) -> None:
    """Command lines, environments, UI, event log, logs, exceptions, and all that is stored."""
    import subprocess
    import sys

    run = subprocess.run(
        [
            *(sys.executable, "-c", KEY_RUN.format(tests=str(Path(__file__).parent))),
            *(str(tmp_path), str(tmp_path / "driver.log")),
        ],
        capture_output=True,
        timeout=800,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3_000:]
    told = json.loads(run.stdout.strip().splitlines()[-1])
    assert told["found"] == []
    assert told["looked"][0] > 20
    assert told["looked"][2] > 20, "the query failed and said why"
    keys = (tmp_path / "keys").read_bytes().split(b"\n--\n")
    assert len(keys) == 40
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del files[tmp_path / "keys"]
    files[Path("stdout")], files[Path("stderr")] = run.stdout, run.stderr
    events = [data for path, data in files.items() if path.name.startswith("events_")]
    assert any(b"SparkListenerJobStart" in data for data in events)
    assert len(files[tmp_path / "driver.log"]) > 1_000
    assert re.search(rb"INFO", run.stderr)
    for path, data in files.items():
        for key in keys:
            assert key not in data, path


def test_a_key_would_be_found(tmp_path: Path) -> None:
    keys = RunKeys.generate()
    assert keys.client_secret not in repr(keys).encode()
    assert repr(keys) == "RunKeys()"
    (tmp_path / "x").write_bytes(b"..." + zmq_decoded(keys.client_secret))
    assert zmq_decoded(keys.client_secret) in (tmp_path / "x").read_bytes()
