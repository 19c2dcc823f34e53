"""What a checkout of Holdfast has beside the package: benchmarks, faults, a simulator.

`bench/`, `chaos/` and `src/holdfast/sim/` are not in the wheel. Commands that need them are
commands of a checkout, and say so where there is none.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import holdfast
from holdfast.errors import UnsupportedError

FOLDERS: Final = {"holdfast_bench": "bench", "holdfast_chaos": "chaos"}
"""Packages, and the folders of a checkout that hold them."""
_TOP: Final = Path(holdfast.__file__).parents[2]


def enter(top: Path = _TOP) -> bool:
    """Have this process, and those that it starts, find what the checkout has beside the package.

    Spark starts its Python workers with the `PYTHONPATH` that this process has when the session
    begins.

    Args:
        top: The folder that would be the checkout's; by default the one that `holdfast` is from.

    Returns:
        Whether it is a checkout.
    """
    folders = [top / folder for folder in FOLDERS.values()]
    if not all(folder.is_dir() for folder in folders):
        return False
    wanted = [str(folder) for folder in folders]
    sys.path[:0] = [place for place in wanted if place not in sys.path]
    known = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    added = [place for place in wanted if place not in known]
    os.environ["PYTHONPATH"] = os.pathsep.join([*added, *known])
    return True


def load(module: str, *, for_command: str, top: Path = _TOP) -> ModuleType:
    """A module of the checkout.

    Args:
        module: Its full name, e.g. `holdfast_bench.commands`.
        for_command: Who asks, for the message.
        top: As in `enter`.

    Raises:
        UnsupportedError: Holdfast is installed from a wheel.
    """
    if not enter(top):
        raise UnsupportedError(
            f"{for_command} is a command of a checkout: it needs the folders "
            f"{' and '.join(FOLDERS.values())}, which the installed package at "
            f"{Path(holdfast.__file__).parent} does not have; clone Holdfast's repository, and run "
            f"`make setup` and then `.venv/bin/{for_command}` there"
        )
    return import_module(module)
