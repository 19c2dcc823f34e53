"""A Kafka broker of one's own, to be killed: one KRaft node on the loopback interface.

Its jars come through `mvn`, once, into a folder of the caller's. Tests and
benchmarks use it; nothing else does.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.shell.kafka.client import library
from holdfast.shell.processes import die_with_parent
from holdfast_chaos.ports import Server, accepts, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.1.0"
_CLUSTER = "aG9sZGZhc3QtdGVzdHMtMQ"
_UP_S = 300.0
_PLACE_S = 60.0
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
        self._server: Server | None = None
        self._has_been_up = False
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "server.properties"
        self._choose_ports()
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings))

    def _choose_ports(self) -> None:
        self._port, controller_port = free_port(), free_port()
        self.servers = f"127.0.0.1:{self._port}"
        self._settings.write_text(_properties(self._port, controller_port, self._folder / "logs"))

    def _command(self, name: str, *arguments: str) -> list[str]:
        return ["java", *_JVM, "-cp", self._classes, name, *arguments]

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(self._command(name, *arguments), capture_output=True, text=True)
        if done.returncode != 0:
            raise NoBroker(f"{name} failed: {(done.stdout + done.stderr)[-500:]}")

    def start(self) -> None:
        """Start it; returns when it answers. Raises `ServerFailed` if it does not.

        The first time it may find other ports; later its clients know them.
        """
        self._server = Server("broker", self._folder / "broker.log", self._launch)
        wait_until(self._answers, [self._server], "the broker", _UP_S)
        self._has_been_up = True

    def _launch(self) -> subprocess.Popen[bytes]:
        if not self._has_been_up:
            self._choose_ports()
        with (self._folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _answers(self) -> bool:
        if not accepts(self._port):
            return False
        try:
            return bool(self.admin().list_topics(timeout=10.0).brokers)
        except library().KafkaException:
            return False

    def admin(self) -> Any:
        """A client for its administration."""
        library()
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        """Create a topic; `_` in settings stands for `.`.

        A broker that a busy machine has kept from saying that it lives has no place for one, until
        it says so.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        wanted = NewTopic(name, partitions, 1, config=config)
        admin, until_s = self.admin(), time.monotonic() + _PLACE_S
        while True:
            try:
                admin.create_topics([wanted])[name].result(120)
                break
            except KafkaException as error:
                is_fenced = error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
                if not is_fenced or time.monotonic() > until_s:
                    raise
            time.sleep(0.2)
        while name not in admin.list_topics(timeout=60).topics:
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._server is not None:
            self._server.kill()
            self._server = None


@contextmanager
def kafka_broker(cache: Path) -> Iterator[KafkaBroker]:
    """A running broker with an empty log. Raises `NoBroker` if it cannot be had."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-kafka-"))
        broker = KafkaBroker(jars(cache), Path(folder))
        stack.callback(broker.kill)
        broker.start()
        yield broker


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
        # How often it looks for transactions that are open for too long; else every ten seconds.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
