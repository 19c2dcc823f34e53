"""A script per system, run by the Python of its own environment; `contract.py` says how."""
