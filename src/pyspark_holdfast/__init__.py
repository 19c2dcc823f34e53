"""Lets Spark find `format("holdfast")` by itself: it looks into packages named `pyspark_*`.

So the format is known to every session whose Python has Holdfast, without a call: to notebooks, to
`spark-pipelines`, to Spark Connect.
"""

from holdfast.driver.data_source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
