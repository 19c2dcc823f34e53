"""What a process has to load: little for a Python worker of Spark that reads or writes a log."""

import importlib
import subprocess
import sys

import holdfast

_HEAVY = {"pandas", "numba", "zmq", "holdfast.api.expressions"}


def test_every_public_name_comes_from_its_home():
    assert set(holdfast.__all__) == set(holdfast._HOME_OF)
    for name, home in holdfast._HOME_OF.items():
        value = getattr(holdfast, name)
        module = importlib.import_module(f"holdfast.{home}")
        assert value is getattr(module, name)
        assert getattr(value, "__module__", module.__name__) == module.__name__
    assert set(holdfast.__all__) <= set(dir(holdfast))


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(holdfast, "Dataflows")


def test_a_worker_that_reads_a_log_loads_no_compiler():
    loaded = _loaded_by("import pyspark_holdfast")
    assert "holdfast.shell.storage.ingest_log" in loaded
    assert not _HEAVY & loaded


def test_a_node_finds_everything_loaded():
    """What the daemon loads before it forks holds what a node's task names."""
    assert {
        "numba",
        "zmq",
        "holdfast.api.expressions",
        "holdfast.core.state.kernels",
        "holdfast.shell.stores.checked_reading",
    } <= _loaded_by("from holdfast.shell.spark import task; task.warm_up()")


def test_driver_and_daemon_compile_from_two_ends():
    """Where the driver begins is what the daemon, in the order of its imports, comes to late."""
    loaded = _loaded_by(
        "from holdfast.driver import session; "
        "session.importlib.import_module(session._KERNELS_OF_THE_OTHER_END)"
    )
    assert "holdfast.core.state.tree_kernels" in loaded
    assert not {"holdfast.core.state.aggregate_kernels", "holdfast.api.operators"} & loaded


def _loaded_by(statements: str) -> set[str]:
    """The modules of a fresh interpreter that ran these statements."""
    program = f"import sys; {statements}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())
