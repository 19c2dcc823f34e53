"""A name node and data nodes of HDFS on loopback, from jars that Maven has fetched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

VERSION = "3.5.0"
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_JAVA = ("-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_UP_S = 120.0


class HdfsUnavailable(Exception):
    """What the machine lacks, and how to get it."""


def jars() -> list[Path]:
    """The jars, as `scripts/hdfs.sh` fetched them. Raises `HdfsUnavailable`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "holdfast" / f"hdfs-{VERSION}"
    if not (folder / "complete").exists():
        raise HdfsUnavailable(f"{folder} holds no HDFS: run scripts/hdfs.sh, which needs Maven")
    return sorted(folder.glob("*.jar"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HdfsCluster:
    """One name node, several data nodes, two copies of each block."""

    def __init__(self, folder: Path, data_nodes: int = 2) -> None:
        """Start all of it. Raises `HdfsUnavailable`."""
        self._folder = folder
        self._class_path = ":".join([str(folder), *map(str, jars())])
        self._http = _free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[int, str] = {}  # of the data nodes' present lives
        self._configure(_free_port())
        format_ = [*self._java(_NAME_NODE), "-format", "-force"]
        subprocess.run(format_, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._launch("name node", _NAME_NODE)
        for number in range(data_nodes):
            self.start_data_node(number)
        try:
            self.wait_for_all()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The root, as a location."""
        return f"webhdfs://holdfast@127.0.0.1:{self._http}"

    def _configure(self, rpc: int) -> None:
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
            "dfs.namenode.name.dir": f"file://{self._folder}/name",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
            "dfs.namenode.safemode.extension": "0",
            "dfs.replication": "2",
            "dfs.permissions.enabled": "false",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "2000",
            "dfs.namenode.stale.datanode.interval": "3000",
            "dfs.namenode.stale.datanode.minimum.interval": "2",
            "dfs.namenode.avoid.read.stale.datanode": "true",
            "dfs.namenode.avoid.write.stale.datanode": "true",
        }
        lines = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in settings.items()
        )
        for file in ("core-site.xml", "hdfs-site.xml"):
            (self._folder / file).write_text(f"<configuration>\n{lines}</configuration>\n")

    def _java(self, main: str) -> list[str]:
        return ["java", *_JAVA, "-cp", self._class_path, main]

    def _launch(self, name: str, main: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self._java(main), *arguments], stdout=log, stderr=log, start_new_session=True
            )

    def start_data_node(self, number: int) -> None:
        """Launch one, for the first time or again."""
        ports = {"address": _free_port(), "http.address": _free_port(), "ipc.address": _free_port()}
        settings = {f"dfs.datanode.{key}": f"127.0.0.1:{port}" for key, port in ports.items()}
        self._addresses[number] = settings["dfs.datanode.address"]
        settings["dfs.datanode.data.dir"] = f"file://{self._folder}/data-{number}"
        settings["dfs.datanode.hostname"] = "127.0.0.1"
        arguments = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
        self._launch(f"data node {number}", _DATA_NODE, *arguments)

    def kill_data_node(self, number: int) -> None:
        """SIGKILL, and it is gone."""
        process = self.processes[f"data node {number}"]
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def _live(self) -> set[str]:
        """Where the data nodes that the name node knows take blocks."""
        query = "qry=Hadoop:service=NameNode,name=NameNodeInfo"
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/jmx?{query}", timeout=5) as got:
            beans = json.loads(got.read())["beans"]
        live = json.loads(beans[0]["LiveNodes"]) if beans else {}
        return {str(node["xferaddr"]) for node in live.values()}

    def wait_for_all(self, timeout_s: float = _UP_S) -> None:
        """Until the name node knows the present lives of all. Raises `HdfsUnavailable`.

        One that was killed and started again has another address, and is taken for alive for a
        while: then their number says nothing.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError, ValueError):
                if self._live() >= set(self._addresses.values()):
                    return
            time.sleep(0.2)
        raise HdfsUnavailable(f"not all data nodes came up within {timeout_s} s")

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait(10)


@contextlib.contextmanager
def hdfs_cluster(folder: Path, data_nodes: int = 2) -> Iterator[HdfsCluster]:
    """A cluster for a block of code. Raises `HdfsUnavailable`."""
    cluster = HdfsCluster(folder, data_nodes)
    try:
        yield cluster
    finally:
        cluster.close()
