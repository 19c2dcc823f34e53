"""Regions of nodes that take checkpoints with others, in a small world of their own."""
