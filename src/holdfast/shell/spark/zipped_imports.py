"""What Python reads of the archives on its path, `pyspark.zip` first of all, before a daemon forks.

Each worker adds a folder to its path and then has Python look anew for modules. Python reads the
directories of all archives again for that, in Python itself: 0.2 s of CPU in each worker, more
than half of what a node took to start.
"""

from __future__ import annotations

import functools
import importlib
import os
import zipimport
from pathlib import Path
from typing import Any, Final

_ZIPS_OF_SPARK: Final = ("python", "lib")
"""Where in the folder of PySpark its archives are."""


def keep_directories() -> None:
    """Read an archive's directory again only when the file is another one than before.

    Archives on the path now are read once more, so that forks need not.
    """
    original: Any = zipimport.zipimporter.invalidate_caches
    known: dict[tuple[str, str], tuple[int, int, int]] = {}

    @functools.wraps(original)
    def invalidate_caches(importer: Any) -> None:
        place = importer.archive, importer.prefix
        present = _version(importer.archive)
        if present is None or known.get(place) != present:
            original(importer)
            known.pop(place, None)
            if present is not None:
                known[place] = present

    importer_of_zips: Any = zipimport.zipimporter
    importer_of_zips.invalidate_caches = invalidate_caches
    importlib.invalidate_caches()


def _version(archive: str) -> tuple[int, int, int] | None:
    """What differs when a file was replaced or written; None: there is none."""
    try:
        found = os.stat(archive)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def without_spark_zips(path: list[str]) -> list[str]:
    """A path without PySpark's archives if PySpark is installed around them, and Py4J beside it.

    Both hold the same modules. Those of an archive are compiled from source by each process that
    imports them; those of a folder, once.
    """
    return [entry for entry in path if not _is_installed(entry, path)]


def _is_installed(entry: str, path: list[str]) -> bool:
    archive = Path(entry)
    package = Path(*archive.parts[:-3])
    return (
        archive.suffix == ".zip"
        and archive.parts[-3:-1] == _ZIPS_OF_SPARK
        and str(package.parent) in path
        and package.name == "pyspark"
        and all((package.parent / name / "__init__.py").exists() for name in ("pyspark", "py4j"))
    )
