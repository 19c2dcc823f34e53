"""The dataflow that a Python file of the user's defines."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from holdfast.errors import OptionError

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


def module_of(path: str) -> ModuleType:
    """Run a file, which finds the modules beside it; what it defines.

    Raises:
        OptionError: There is no such file, or it cannot be imported.
    """
    if not os.path.isfile(path):
        raise OptionError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location("holdfast_flow_file", path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    return module


def dataflow_of(module: ModuleType, name: str, spark: SparkSession) -> Dataflow:
    """The dataflow of this name, or what the function of this name makes of the session.

    Raises:
        OptionError: There is no such name, or it is no dataflow.
    """
    from holdfast.api.dataflow import Dataflow

    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, Dataflow):
        found = found(spark) if inspect.signature(found).parameters else found()
    if not isinstance(found, Dataflow):
        raise OptionError(
            f"{name} of {module.__file__} is neither a Dataflow nor a function that makes one; "
            "name another one by FILE.py:NAME"
        )
    return found
