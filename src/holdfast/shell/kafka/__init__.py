"""Kafka: reading topics into logs that nodes follow, and writing streams by transactions."""
