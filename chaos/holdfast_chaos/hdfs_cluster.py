"""A name node and data nodes of HDFS on loopback, from jars that Maven has fetched."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from holdfast.shell.processes import die_with_parent
from holdfast_chaos.ports import Server, free_port, wait_until

VERSION = "3.5.0"
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_JAVA = ("-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_UP_S = 300.0


class HdfsUnavailable(Exception):
    """What the machine lacks, and how to get it."""


def jars() -> list[Path]:
    """The jars, as `scripts/hdfs.sh` fetched them. Raises `HdfsUnavailable`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "holdfast" / f"hdfs-{VERSION}"
    if not (folder / "complete").exists():
        raise HdfsUnavailable(f"{folder} holds no HDFS: run scripts/hdfs.sh, which needs Maven")
    return sorted(folder.glob("*.jar"))


class HdfsCluster:
    """One name node, several data nodes, two copies of each block."""

    def __init__(self, folder: Path, data_nodes: int = 2) -> None:
        """Start all of it. Raises `HdfsUnavailable`, and `ServerFailed` if it does not come up."""
        self._folder = folder
        self._class_path = ":".join([str(folder), *map(str, jars())])
        self._http = 0
        self._data_nodes: dict[int, Server] = {}
        self._addresses: dict[int, str] = {}  # of the data nodes' present lives
        self._configure()
        self._format()
        log = self._log("name node")
        self._name_node = Server("name node", log, self._launch_name_node)
        try:
            wait_until(lambda: self._live() == set(), [self._name_node], "the name node", _UP_S)
            for number in range(data_nodes):
                self.start_data_node(number)
            self.wait_for_all()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The root, as a location."""
        return f"webhdfs://holdfast@127.0.0.1:{self._http}"

    def _configure(self) -> None:
        """Choose the name node's ports, for itself and for all others."""
        self._http, rpc = free_port(), free_port()
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

    def _format(self) -> None:
        command = [*self._java(_NAME_NODE), "-format", "-force"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise HdfsUnavailable(f"cannot format: {(done.stdout + done.stderr)[-1000:]}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("ab") as log:
            return subprocess.Popen(
                [*self._java(main), *arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _launch_name_node(self) -> subprocess.Popen[bytes]:
        self._configure()
        return self._launch("name node", _NAME_NODE)

    def _launch_data_node(self, number: int) -> subprocess.Popen[bytes]:
        names = ("address", "http.address", "ipc.address")
        settings = {f"dfs.datanode.{name}": f"127.0.0.1:{free_port()}" for name in names}
        self._addresses[number] = settings["dfs.datanode.address"]
        settings["dfs.datanode.data.dir"] = f"file://{self._folder}/data-{number}"
        settings["dfs.datanode.hostname"] = "127.0.0.1"
        arguments = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
        return self._launch(f"data node {number}", _DATA_NODE, *arguments)

    def start_data_node(self, number: int) -> None:
        """Launch one, for the first time or again; see `wait_for_all`."""
        name = f"data node {number}"
        launch = partial(self._launch_data_node, number)
        self._data_nodes[number] = Server(name, self._log(name), launch)

    def kill_data_node(self, number: int) -> None:
        """SIGKILL, and it is gone."""
        self._data_nodes.pop(number).kill()
        del self._addresses[number]

    def _live(self) -> set[str]:
        """Where the data nodes that the name node knows take blocks.

        Raises:
            OSError: Nobody answers.
            ValueError: The name node is not up yet.
        """
        query = "qry=Hadoop:service=NameNode,name=NameNodeInfo"
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/jmx?{query}", timeout=5) as got:
            beans = json.loads(got.read())["beans"]
        if not beans or "LiveNodes" not in beans[0]:
            raise ValueError("the name node is not up yet")
        live = json.loads(beans[0]["LiveNodes"])
        return {str(node["xferaddr"]) for node in live.values()}

    def wait_for_all(self) -> None:
        """Until the name node knows the present lives of all. Raises `ServerFailed`.

        One that was killed and started again has another address, and is taken for alive for a
        while: then their number says nothing.
        """
        is_up = lambda: self._live() >= set(self._addresses.values())  # noqa: E731
        wait_until(is_up, [self._name_node, *self._data_nodes.values()], "all data nodes", _UP_S)

    def close(self) -> None:
        """End all processes."""
        for server in (self._name_node, *self._data_nodes.values()):
            server.kill()


@contextlib.contextmanager
def hdfs_cluster(folder: Path, data_nodes: int = 2) -> Iterator[HdfsCluster]:
    """A cluster for a block of code. Raises as it does."""
    cluster = HdfsCluster(folder, data_nodes)
    try:
        yield cluster
    finally:
        cluster.close()
