"""A Spark standalone cluster of its own: a master and workers, each on a host of its own.

Started from the installed pyspark, with Spark's authentication and encryption on. Everything ends
with `close`, and with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import pyspark

from holdfast.shell.processes import die_with_parent, is_alive
from holdfast_chaos.hosts import Hosts, make_hosts
from holdfast_chaos.ports import Server, free_port, wait_until

HOME: Final = os.path.dirname(pyspark.__file__)
DISK_VARIABLE: Final = "HOLDFAST_DISK"
"""Of a worker and its executors: a folder that stands for the host's own disk."""
APPLICATIONS: Final = 2
"""A worker's memory is for so many; the first takes all slots, unless it is given a limit."""

_UP_S: Final = 300.0
_POLL_S: Final = 0.05
_SPARK: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # Many small ones on one machine.
_THIS_PORT_OR_NONE: Final = (
    "-Dspark.port.maxRetries=0"  # Else it takes the next, where nobody asks.
)


class StandaloneCluster:
    """One master, on the driver's host, and workers that can be killed, cut off and started."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 3,
        slots: int = 4,
        executor_mb: int = 768,
        conf: dict[str, str] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """Start everything; returns when all workers have registered.

        Args:
            folder: For logs, the workers' disks and the file with the secret.
            workers: How many.
            slots: Of each.
            executor_mb: Memory of an executor, one per worker.
            conf: More of Spark's settings, for all applications.
            hosts: Where; by default what the machine permits.

        Raises:
            ServerFailed: It did not come up.
        """
        self.hosts = hosts or make_hosts(workers)
        self._folder = folder
        self._slots = slots
        self._executor_mb = executor_mb
        self._conf = conf or {}
        self._servers: dict[int, Server] = {}  # 0: the master
        self._properties = folder / "spark.properties"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._servers[0] = Server("master", self.log(0), self._launch_master)
            self._wait(lambda: self._registered() is not None, "the master")
            for number in range(1, workers + 1):
                self.start_worker(number)
            addresses = {self.hosts.address(number) for number in self.workers}
            self._wait(lambda: addresses <= set(self._registered() or ()), "all workers")
        except BaseException:
            self.close()
            raise

    def _write_properties(self) -> None:
        """All settings in a file that only its owner reads: a command line is seen by everybody."""
        address = self.hosts.address(0)
        settings = {
            **_SPARK,
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.master": self.master,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.executor.extraJavaOptions": _JAVA,
            "spark.executor.memory": f"{self._executor_mb}m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            **self._conf,
        }
        descriptor = os.open(self._properties, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.writelines(f"{key} {value}\n" for key, value in settings.items())

    # -- processes --------------------------------------------------------------------------

    def _environment(self, number: int) -> dict[str, str]:
        address = self.hosts.address(number)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        disk = self.disk(number)
        disk.mkdir(exist_ok=True)
        return {
            **kept,
            "SPARK_HOME": HOME,
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_DIRS": str(disk),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA if number else f"{_JAVA} {_THIS_PORT_OR_NONE}",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            DISK_VARIABLE: str(disk),
        }

    def disk(self, number: int) -> Path:
        """The folder that stands for a host's own disk."""
        return self._folder / f"disk-{number}"

    def log(self, number: int) -> Path:
        """What a master (0) or worker has written."""
        return self._folder / f"{'worker' if number else 'master'}-{number}.log"

    def _launch(self, number: int, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            os.path.join(HOME, "bin", "spark-class"),
            f"org.apache.spark.deploy.{name}",
            *("--host", self.hosts.address(number)),
            *("--properties-file", str(self._properties)),
            *arguments,
        ]
        with self.log(number).open("ab") as log:
            return subprocess.Popen(
                self.hosts.command(number, command),
                env=self._environment(number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )

    def _launch_master(self) -> subprocess.Popen[bytes]:
        address = self.hosts.address(0)
        port, self._ui_port = free_port(address), free_port(address)
        self.master = f"spark://{address}:{port}"
        self._write_properties()
        ports = ["--port", str(port), "--webui-port", str(self._ui_port)]
        return self._launch(0, "master.Master", *ports)

    def start_worker(self, number: int) -> None:
        """Start a worker, from 1 on; see `wait_for_worker`."""
        memory_mb = APPLICATIONS * self._executor_mb + 128
        size = ["--cores", str(self._slots), "--memory", f"{memory_mb}m", "--webui-port", "0"]
        work = ["--work-dir", str(self._folder / f"work-{number}")]
        launch = partial(self._launch, number, "worker.Worker", *size, *work, self.master)
        self._servers[number] = Server(f"worker {number}", self.log(number), launch)

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker; its executors notice and end themselves."""
        self._servers[number].kill()

    def wait_for_worker(self, number: int) -> None:
        """Until the master knows it. Raises `ServerFailed`."""
        address = self.hosts.address(number)
        self._wait(lambda: address in (self._registered() or ()), f"worker {number}")

    @property
    def workers(self) -> list[int]:
        """The numbers of all workers that were started."""
        return [number for number in self._servers if number]

    def wait_for_executors(self) -> None:
        """Until an application has one on every worker. Raises `ServerFailed`."""
        workers = {self._servers[number].process.pid for number in self.workers}
        self._wait(lambda: workers <= set(_parents().values()), "an executor on every worker")

    def part_of_slots(self) -> dict[str, str]:
        """Settings of an application that leaves the others as many slots of each worker."""
        each = self._slots // APPLICATIONS
        most = each * len(self.workers)
        return {"spark.executor.cores": str(each), "spark.cores.max": str(most)}

    def worker_of(self, pid: int) -> int | None:
        """On which worker a process runs; None: on none, or it is gone."""
        of_pid = {server.process.pid: number for number, server in self._servers.items()}
        for ancestor in ancestors(pid):
            if ancestor in of_pid:
                return of_pid[ancestor]
        return None

    def executors(self, number: int) -> list[int]:
        """The processes of a worker's executors."""
        return children(self._servers[number].process.pid)

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        wanted = [s for s in self._servers.values() if s.process.poll() != -signal.SIGKILL]
        wait_until(is_so, wanted, what, _UP_S)

    def _registered(self) -> list[str] | None:
        """The addresses of workers that live, as the master says; None: it says nothing yet."""
        found = self.state()
        if found is None:
            return None
        return [worker["host"] for worker in found["workers"] if worker["state"] == "ALIVE"]

    def state(self) -> dict[str, Any] | None:
        """What the master says of itself; None: nothing yet."""
        address = f"http://{self.hosts.address(0)}:{self._ui_port}/json/"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(address, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError, ValueError):
            return None

    # -- applications -----------------------------------------------------------------------

    def submit(
        self, script: str, *arguments: str, conf: dict[str, str] | None = None, log: IO[bytes]
    ) -> subprocess.Popen[str]:
        """Run `spark-submit` on the driver's host, in a session of its own.

        Args:
            script: A Python file.
            arguments: Its own.
            conf: More settings.
            log: Where standard error goes.
        """
        more = [
            text for key, value in (conf or {}).items() for text in ("--conf", f"{key}={value}")
        ]
        return subprocess.Popen(
            [
                os.path.join(HOME, "bin", "spark-submit"),
                *("--properties-file", str(self._properties)),
                *more,
                script,
                *arguments,
            ],
            env=self._environment(0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def close(self) -> None:
        """End all processes, the executors too, and take the hosts away."""
        executors = [pid for number in self._servers for pid in self.executors(number)]
        for server in reversed(list(self._servers.values())):
            server.kill()
        wait_for_end(executors)
        self.hosts.close()
        self._properties.unlink(missing_ok=True)


def kill_session(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a submitted driver: its JVM and its Python process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_end(pids: list[int], timeout_s: float = 10.0) -> None:
    """Until these processes are gone; whoever is not, is killed."""
    deadline_s = time.monotonic() + timeout_s
    for pid in pids:
        while is_alive(pid):
            if time.monotonic() > deadline_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                break
            time.sleep(_POLL_S)


def parent(pid: int) -> int | None:
    """The parent of a process; None: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return None


def ancestors(pid: int) -> list[int]:
    """A process, its parent and so on."""
    found: list[int] = []
    following: int | None = pid
    while following:
        found.append(following)
        following = parent(following)
    return found


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [other for other, its_parent in _parents().items() if its_parent == pid]


def _parents() -> dict[int, int | None]:
    """Of each process its parent."""
    everybody = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return {pid: parent(pid) for pid in everybody}
