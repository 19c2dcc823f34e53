"""After a failure: what to load, what to replay."""
