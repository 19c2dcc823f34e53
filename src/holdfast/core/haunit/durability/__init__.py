"""What makes the state of a node's operators durable, or lets it be rebuilt."""
