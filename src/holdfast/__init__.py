"""Holdfast: streaming jobs on Spark that survive crashes."""
