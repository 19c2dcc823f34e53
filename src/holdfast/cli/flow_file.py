"""The dataflow that a Python file of the user's defines."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.dataflow import Dataflow

DEFAULT_NAME: Final = "flow"


def split(target: str) -> tuple[str, str] | None:
    """Path and name of `file.py` or `file.py:name`; None: it is neither."""
    path, _, name = target.partition(".py:")
    if target.endswith(".py"):
        return target, DEFAULT_NAME
    return (f"{path}.py", name) if name else None


def file_and_name(target: str) -> tuple[str, str]:
    """The same. Raises `OptionError` if it is neither."""
    place = split(target)
    if place is None:
        raise OptionError(f"{target!r} is no file.py or file.py:name")
    return place


def loaded(file: tuple[str, str], spark: SparkSession) -> tuple[Dataflow, dict[str, Any]]:
    """The dataflow of a file, and what the file says of how it starts, as `flow.start` takes it.

    Raises:
        OptionError: As `module_of` and `dataflow_of`.
    """
    module = module_of(file[0])
    flow = dataflow_of(module, file[1], spark)
    return flow, {"protection": getattr(module, "protection", None)}


def module_of(path: str) -> ModuleType:
    """Run a file, which finds the modules beside it; what it defines.

    Raises:
        OptionError: There is no such file, it cannot be imported, or it raises an error.
    """
    check(path)
    path = os.path.abspath(path)
    spec = importlib.util.spec_from_file_location("holdfast_flow_file", path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(path))
    with _of_the_user(path):
        spec.loader.exec_module(module)
    return module


def check(path: str) -> None:
    """Raise `OptionError` unless there is such a file, and it is Python. Nothing of it runs."""
    if not os.path.isfile(path):
        raise OptionError(f"there is no file {path}")
    try:
        compile(Path(path).read_bytes(), path, "exec")
    except (SyntaxError, ValueError) as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        raise OptionError(f"{path} is no Python:\n{said}") from error
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _of_the_user(path: str) -> Iterator[None]:
    """Errors within say where in the user's file they come from, and nothing of what called it.

    Raises:
        OptionError: With the user's part of the traceback.
        HoldfastError: As it was raised, with a note that names the line.
    """
    try:
        yield
    except HoldfastError as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        if lines:
            error.add_note(f"at {path}, line {lines[-1]}")
        raise
    except Exception as error:  # Whatever the user's file raises.
        said = traceback.TracebackException.from_exception(error)
        while said.stack and said.stack[0].filename != path:
            del said.stack[0]
        raise OptionError(f"{path} has failed:\n{''.join(said.format()).strip()}") from error


def dataflow_of(module: ModuleType, name: str, spark: SparkSession) -> Dataflow:
    """The dataflow of this name, or what the function of this name makes of the session.

    Raises:
        OptionError: There is no such name, or it is no dataflow.
    """
    from holdfast.api.dataflow import Dataflow

    if not hasattr(module, name):
        there = [key for key, made in vars(module).items() if isinstance(made, Dataflow)]
        cure = "name" if there else "give a dataflow that name, or name it as"
        names = " or ".join(
            f"{os.path.basename(str(module.__file__))}:{key}" for key in there or ["NAME"]
        )
        raise OptionError(f"{module.__file__} defines no {name}; {cure} {names}")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, Dataflow):
        with _of_the_user(str(module.__file__)):
            found = found(spark) if inspect.signature(found).parameters else found()
    if not isinstance(found, Dataflow):
        raise OptionError(
            f"{name} of {module.__file__} is neither a Dataflow nor a function that makes one; "
            "name another one by FILE.py:NAME"
        )
    return found
