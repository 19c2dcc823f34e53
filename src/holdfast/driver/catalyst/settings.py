"""The settings of a session by which Spark computes expressions as Holdfast does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUIRED: Final = {
    "spark.sql.ansi.enabled": (("true",), "Holdfast computes as Spark does in ANSI mode"),
    "spark.sql.session.timeZone": (("UTC", "Etc/UTC", "GMT"), "the session's time zone is UTC"),
    "spark.sql.decimalOperations.allowPrecisionLoss": (
        ("true",),
        "decimals have the precision of Spark's default",
    ),
}
"""Settings of the session, the values that they may have, and why."""


def unmet(spark: SparkSession) -> tuple[str, str] | None:
    """A setting that is another one, as it should be, and why; None: all are as they should be."""
    for setting, (possible, why) in _REQUIRED.items():
        value = str(spark.conf.get(setting))
        if not {value, value.lower()} & set(possible):
            return f"{setting}={possible[0]}", why
    return None
