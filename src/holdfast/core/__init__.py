"""Protocol logic: pure, deterministic machines without clock, thread, socket, file or Spark."""
