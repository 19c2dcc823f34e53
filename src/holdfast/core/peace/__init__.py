"""Peace: where the copies of a chunk go, and when, so that writes do not delay tuples."""
