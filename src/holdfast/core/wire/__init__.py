"""Bytes and values: frames between nodes, records of logs. Pure."""
