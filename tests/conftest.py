"""What tests share: one Spark session, a Kafka broker, and modules beside some tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from holdfast.cli import checkout, main
from holdfast.driver.listeners import queries
from holdfast.driver.session import session
from holdfast_chaos.hdfs_cluster import HdfsCluster, hdfs_cluster
from holdfast_chaos.kafka_broker import KafkaBroker, NoBroker, kafka_broker

checkout.enter()  # Workers of Spark find what stands beside the package, too.
# How long an example takes, is no matter, nor how long it takes to draw one.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# Of every session that a test starts, also by another program: on a busy machine nobody is taken
# for dead who is only slow. Who is killed is missed at once all the same.
HOWEVER_BUSY = {"keepAliveMisses": 100, "launchTimeoutMs": 240_000, "driverLeaseMs": 60_000}
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    [
        os.environ.get("SPARK_SUBMIT_OPTS", ""),
        *(f"-Dspark.holdfast.{name}={value}" for name, value in HOWEVER_BUSY.items()),
    ]
)
sys.path.insert(0, str(Path(__file__).parent / "simulation"))
sys.path.insert(0, str(Path(__file__).parent / "shell"))
sys.path.insert(0, str(Path(__file__).parent / "api"))
sys.path.insert(0, str(Path(__file__).parent / "view"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in the shared Spark session can run beside those with servers of their own.

    Real faults pass through proxies, and take so long that they go with the latter.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        has_servers = bool(fixtures & {"kafka", "hdfs"}) or item.path.parent.name == "chaos"
        if "spark" in fixtures and not has_servers:
            item.add_marker("session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    """Queries that a failed test leaves behind hold slots that all later tests need."""
    report = yield
    if report.failed and "spark" in getattr(item, "fixturenames", ()):
        for query in [*queries.active]:
            query.stop()
    return report


@pytest.fixture
def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Has the command line refuse arguments, with exit code 2, and gives what it says then."""

    def refused(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code == 2
        return " ".join(capsys.readouterr().err.split())

    return refused


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session, for all tests that need one; its Python daemon is warm."""
    made = session("holdfast-tests")
    made.conf.set("spark.sql.shuffle.partitions", "2")  # Of a few rows each: a task costs more.
    made.sparkContext.parallelize([0], 1).foreach(lambda _: None)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A broker that any test may kill, and starts again; every test has topics of its own."""
    pytest.importorskip("confluent_kafka")
    cache = Path(__file__).parents[1] / "build"
    try:
        with kafka_broker(cache) as broker:
            yield broker
    except NoBroker as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """HDFS from Maven, fetched once; without Maven the test is skipped. Tests have own places."""
    script = Path(__file__).parent.parent / "scripts" / "hdfs.sh"
    run = subprocess.run([script], capture_output=True, text=True, timeout=800, check=False)
    if run.returncode != 0:
        pytest.skip(run.stderr.strip() or run.stdout[-500:])
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster
