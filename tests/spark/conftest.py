"""One Spark session for all tests that need one."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from holdfast.api.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with the warm daemon."""
    made = session("holdfast-tests")
    yield made
    made.stop()
