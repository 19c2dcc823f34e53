"""Dataflows, inputs, protections and guarantees that a seed draws."""
