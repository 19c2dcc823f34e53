"""A Kafka broker of one's own, to be killed: one KRaft node on the loopback interface.

Its jars come through `mvn`, once, into a folder of the caller's. Tests and
benchmarks use it; nothing else does.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.shell.kafka.client import library
from holdfast.shell.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.1.0"
_CLUSTER = "aG9sZGZhc3QtdGVzdHMtMQ"
_UP_S = 90.0
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>fetched</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


class NoBroker(Exception):
    """The broker cannot be had here; the message says what is missing."""


def jars(cache: Path) -> Path:
    """The folder with the broker's jars, under `cache`. Raises `NoBroker` as `fetched` does."""
    return fetched(cache, "kafka", f"org.apache.kafka:kafka_2.13:{VERSION}")


def fetched(cache: Path, name: str, artifact: str) -> Path:
    """The folder with an artifact and all that it needs, fetched with `mvn` if it is not there.

    Args:
        cache: Where such folders are.
        name: Of the folder; the version is added.
        artifact: `group:artifact:version`.

    Raises:
        NoBroker: There is no `mvn` or no Java, or the jars cannot be fetched.
    """
    group, artifact_id, version = artifact.split(":")
    cache = cache.absolute()  # To `mvn` paths are relative to the pom.
    folder = cache / f"{name}-{version}"
    if folder.is_dir():
        return folder
    for command, package in (("mvn", "maven"), ("java", "openjdk-17-jre-headless")):
        if shutil.which(command) is None:
            raise NoBroker(f"no {command}; on Debian: apt-get install -y {package}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        pom = Path(made, "pom.xml")
        pom.write_text(_POM.format(group=group, artifact=artifact_id, version=version))
        target = Path(made, "jars")
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        copy.append("-DincludeScope=runtime")
        run = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), *copy], capture_output=True, text=True, timeout=600
        )
        if run.returncode != 0:
            raise NoBroker(f"mvn cannot fetch {artifact}: {run.stdout[-500:]}")
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # Else somebody else has just done the same.
                raise
    return folder


class KafkaBroker:
    """One broker; its log survives `kill`, and `start` brings it up again on the same port."""

    def __init__(self, jar_folder: Path, folder: Path) -> None:
        """Format its storage under `folder`."""
        self._classes = f"{jar_folder}/*"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        port, controller_port = _free_port(), _free_port()
        self.servers = f"127.0.0.1:{port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(_properties(port, controller_port, folder / "logs"))
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings))

    def _command(self, name: str, *arguments: str) -> list[str]:
        return ["java", *_JVM, "-cp", self._classes, name, *arguments]

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(self._command(name, *arguments), capture_output=True, text=True)
        if done.returncode != 0:
            raise NoBroker(f"{name} failed: {(done.stdout + done.stderr)[-500:]}")

    @property
    def pid(self) -> int:
        """Of its process. Raises `NoBroker` if it is not running."""
        if self._process is None:
            raise NoBroker("the broker is not running")
        return self._process.pid

    def start(self, *, waits: bool = True) -> None:
        """Start it; unless told otherwise, return when it answers."""
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        if waits:
            self.wait_until_up()

    def wait_until_up(self) -> None:
        """Return when it answers. Raises `NoBroker` if it does not."""
        admin = self.admin()
        deadline_s = time.monotonic() + _UP_S
        while time.monotonic() < deadline_s and self._process and self._process.poll() is None:
            with suppress(library().KafkaException):
                if admin.list_topics(timeout=1.0).brokers:
                    return
        text = (self._folder / "broker.log").read_text(errors="replace")
        raise NoBroker(f"the broker does not answer: {text[-1000:]}")

    def admin(self) -> Any:
        """A client for its administration."""
        library()
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        """Create a topic; `_` in settings stands for `.`."""
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        wanted = NewTopic(name, partitions, 1, config=config)
        admin = self.admin()
        for made in admin.create_topics([wanted]).values():
            made.result(30)
        while name not in admin.list_topics(timeout=5).topics:
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def restart(self) -> None:
        """Kill it and bring it up again."""
        self.kill()
        self.start()


@contextmanager
def kafka_broker(cache: Path) -> Iterator[KafkaBroker]:
    """A running broker with an empty log. Raises `NoBroker` if it cannot be had."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-kafka-"))
        broker = KafkaBroker(jars(cache), Path(folder))
        stack.callback(broker.kill)
        broker.start()
        yield broker


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _properties(port: int, controller_port: int, logs: Path) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": logs,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
