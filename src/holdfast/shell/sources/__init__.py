"""What nodes can read."""
