"""Holdfast beside other stream processors, on the same events and the same cores.

`peer.py` lists the peers; each is a script in `jobs/` under one contract (`jobs/contract.py`), run
by the Python of an environment of its own (`environment.py`) as a process that is watched, measured
and killed (`process.py`). Its input comes whole (`events.py`) or chunk by chunk at a rate
(`paced.py`), and its output, whatever its format, is compared as rows (`rows.py`). The experiments
are `race.py` (throughput, memory), `latency.py` and `recovery.py`; `bench.py` runs them and
`report.py` writes the page. Another peer is a script and an entry.
"""
