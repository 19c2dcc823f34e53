"""The simulator's faults for real: Spark tasks, signals, and a proxy that cuts connections."""
