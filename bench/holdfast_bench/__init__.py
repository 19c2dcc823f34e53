"""Experiments: what Holdfast reaches, beside its peers, on the same machine in the same run."""
