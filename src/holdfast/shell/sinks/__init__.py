"""What nodes can write beside their own logs."""
