"""Which of Spark's sessions a thread uses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Within the block it is the session of this thread.

    Spark looks data sources up in the thread's active session, and a thread that has not used Spark
    yet has none.
    """
    sessions: Any = spark._jvm.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
