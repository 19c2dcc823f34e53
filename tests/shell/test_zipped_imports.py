"""A daemon's forks read the directories of archives only when these have changed."""

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path
from typing import Any

import pytest

from holdfast.shell.spark.zipped_imports import keep_directories, without_spark_zips


def put_modules(archive: Path, *names: str) -> None:
    with zipfile.ZipFile(archive, "w") as written:
        for name in names:
            written.writestr(f"{name}.py", "")


def test_an_archive_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original: Any = zipimport.zipimporter.invalidate_caches

    def counted(importer: Any) -> None:
        read.append(importer.archive)
        original(importer)

    archive = tmp_path / "modules.zip"
    put_modules(archive, "zipped_first")
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", counted)
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    importlib.import_module("zipped_first")
    keep_directories()
    assert read.count(str(archive)) == 1
    importlib.invalidate_caches()
    assert read.count(str(archive)) == 1

    put_modules(archive, "zipped_first", "zipped_second")
    importlib.invalidate_caches()
    assert read.count(str(archive)) == 2
    importlib.import_module("zipped_second")

    archive.unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("zipped_third")
    put_modules(archive, "zipped_third")
    importlib.invalidate_caches()
    importlib.import_module("zipped_third")


def test_sparks_archives_are_left_out_where_the_same_is_installed(tmp_path: Path) -> None:
    packages, elsewhere = tmp_path / "packages", tmp_path / "spark" / "python" / "lib"
    zips = packages / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True)
    (packages / "pyspark" / "__init__.py").touch()
    spark, py4j = str(zips / "pyspark.zip"), str(zips / "py4j-src.zip")
    others = [str(elsewhere / "pyspark.zip"), "", "modules.zip", str(packages)]

    path = [spark, py4j, *others]
    assert without_spark_zips(path) == path, "Py4J is in the archive alone"
    (packages / "py4j").mkdir()
    (packages / "py4j" / "__init__.py").touch()
    assert without_spark_zips(path) == others
    assert without_spark_zips(path[:-1]) == path[:-1], "the packages are not on the path"
