"""Packages that Holdfast needs for some sources and sinks alone."""

from __future__ import annotations

from holdfast.errors import DataflowError


def lacks(step: str, package: str, extra: str) -> DataflowError:
    """What to raise when a package is not there.

    Args:
        step: What needs it, as users call it.
        package: Its name.
        extra: Holdfast's extra that installs it.
    """
    return DataflowError(
        f"{step} needs the package {package}: pip install 'holdfast-streaming[{extra}]'"
    )
