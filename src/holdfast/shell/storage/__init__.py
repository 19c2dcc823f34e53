"""Logs on files."""
