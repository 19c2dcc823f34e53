"""What tests share: one Spark session, and the mutants beside the simulator's tests."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.session import session

sys.path.insert(0, str(Path(__file__).parent / "simulation"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with the warm daemon, for all tests that need one."""
    made = session("holdfast-tests")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def hdfs_jars() -> None:
    """HDFS from Maven, fetched once; without Maven the test is skipped."""
    script = Path(__file__).parent.parent / "scripts" / "hdfs.sh"
    run = subprocess.run([script], capture_output=True, text=True, timeout=280, check=False)
    if run.returncode != 0:
        pytest.skip(run.stderr.strip() or run.stdout[-500:])
