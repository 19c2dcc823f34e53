"""From the steps of a dataflow to units, instances and streams: pure, for Spark and simulator."""
