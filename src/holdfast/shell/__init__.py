"""Performs effects; decides nothing that a peer could observe."""
