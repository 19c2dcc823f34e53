"""A Spark standalone cluster, each worker with its own network: what is struck costs nothing."""

from collections.abc import Iterator

import pytest

from holdfast_chaos.cluster_runs import ClusterRuns, FaultOutcome
from holdfast_chaos.hosts import LoopbackHosts, make_hosts
from holdfast_chaos.standalone import StandaloneCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

WORKERS = 3
SECONDS = 6.0
"""Of input, if nothing is struck."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Started once; every test leaves it whole."""
    # However busy the machine is: nobody is taken for dead who is only slow.
    conf = {"spark.holdfast.keepAliveMisses": "100", "spark.holdfast.driverLeaseMs": "60000"}
    made = StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS, conf=conf)
    yield made
    made.close()


@pytest.fixture(scope="module")
def runs(
    cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterRuns]:
    """One driver for all runs, but for the one that is killed."""
    # Nothing is measured, and nobody stands by a second time.
    folder = tmp_path_factory.mktemp("runs")
    made = ClusterRuns(cluster, folder, watch_s=0.1, stands_by_again=False)
    yield made
    made.close()


def check(outcome: FaultOutcome) -> None:
    """Identical, and it was struck where it hurts."""
    assert not outcome.violations, outcome.to_json()
    assert outcome.result["is_identical"]
    assert "primary of counts[0]" in outcome.held


def test_an_executor_with_a_node_a_sink_and_a_data_node_may_be_killed(runs: ClusterRuns) -> None:
    outcome = runs.execute("executor", "embedded", seconds=SECONDS)
    check(outcome)
    assert any(name.startswith("data node") for name in outcome.held), outcome.held
    assert outcome.first_output_ms is not None
    assert "counts[0]" in {recovery["node"] for recovery in outcome.result["recoveries"]}


def test_nobody_misses_an_executor_that_leaves_politely(runs: ClusterRuns) -> None:
    """Decommissioned, as on Kubernetes: its nodes are elsewhere before it goes."""
    outcome = runs.execute("leaving", "upstream", seconds=SECONDS)
    check(outcome)
    assert outcome.first_output_ms is not None
    assert "counts[0]" in {recovery["node"] for recovery in outcome.result["recoveries"]}


def test_a_worker_may_be_cut_off_and_healed(runs: ClusterRuns, cluster: StandaloneCluster) -> None:
    if not cluster.hosts.can_cut:
        pytest.skip("a worker's own network needs root and iproute2 (apt-get install iproute2)")
    # It lasts until somebody has taken over.
    outcome = runs.execute("cut", "active", seconds=SECONDS)
    check(outcome)
    assert outcome.first_output_ms is not None
    promoted = [r["node"] for r in outcome.result["recoveries"] if r["was_promoted"]]
    assert "counts[0]" in promoted
    assert "secondary of counts[0]" not in outcome.held, "replicas are apart"


def test_a_worker_with_one_of_two_replicas_may_be_cut_off_and_healed(
    runs: ClusterRuns, cluster: StandaloneCluster
) -> None:
    """Readers go over to the other one, which lacks nothing: there is nothing to correct."""
    if not cluster.hosts.can_cut:
        pytest.skip("a worker's own network needs root and iproute2 (apt-get install iproute2)")
    outcome = runs.execute("cut", "replicated", seconds=SECONDS)
    check(outcome)
    assert "primary of counts[0]+1" not in outcome.held, "replicas are apart"
    assert "counts[0]" in {recovery["node"] for recovery in outcome.result["recoveries"]}
    assert outcome.result["tentative"] == 0


def test_units_that_recover_together_may_lose_an_executor(runs: ClusterRuns) -> None:
    """`holdfast bench cluster --only region` does the same to all of their protections."""
    outcome = runs.execute("region", "uncoordinated", seconds=SECONDS)
    check(outcome)
    assert outcome.first_output_ms is not None
    assert "counts[0]" in {recovery["node"] for recovery in outcome.result["recoveries"]}


def test_the_driver_may_be_killed_and_submitted_again(runs: ClusterRuns) -> None:
    check(runs.execute("driver", "embedded", seconds=SECONDS))


def test_a_driver_in_standby_takes_over_from_one_that_is_killed(runs: ClusterRuns) -> None:
    """It is an application of its own, with executors of its own on the same workers."""
    outcome = runs.execute("standby", "upstream", seconds=SECONDS)
    check(outcome)
    assert outcome.first_output_ms is not None


def test_hosts_that_cannot_be_made_are_addresses_of_the_loopback_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast_chaos.hosts.shutil.which", lambda _: None)
    hosts = make_hosts(2)
    assert isinstance(hosts, LoopbackHosts)
    assert len({hosts.address(number) for number in range(3)}) == 3
    with pytest.raises(OSError, match="iproute2"):
        hosts.cut(1)
