"""What `pip install` brings: the package alone, small, under a name that is free."""

import inspect
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from pyspark.sql.pandas.utils import require_minimum_pandas_version

import holdfast

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WHEEL_BYTES_MAX = 1_700_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


def test_the_wheel_is_the_package_alone_and_small(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith("holdfast_streaming-")
    assert wheel.stat().st_size <= WHEEL_BYTES_MAX
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"holdfast", "pyspark_holdfast"}
    ends = (".py", "py.typed", ".csv")  # The demo's sample of flights.
    ends += (".html", ".css", ".js", ".svg")  # The view.
    assert all(name.endswith(ends) for name in names if ".dist-info/" not in name)
    assert not [name for name in names if name.startswith("holdfast/sim/")]
    assert {"holdfast/py.typed", "holdfast/view/assets/index.html"} <= set(names)


def test_the_wheel_says_what_it_is(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        said = message_from_string(archive.read(name).decode())
    assert said["Name"] == "holdfast-streaming"
    assert said["Version"] == holdfast.__version__
    assert said["License-Expression"] == "Apache-2.0"
    extras = set(said.get_all("Provides-Extra", []))
    assert extras == {
        *(
            "demo",
            "reports",
            "s3",
            "metrics",
            "kafka",
            "avro",
            "protobuf",
            "delta",
            "iceberg",
            "otel",
            "view",
            "docs",
            "dev",
        )
    }
    assert "holdfast.cli.main" in PROJECT["scripts"]["holdfast"]


def test_a_wheel_can_be_built_of_the_source_distribution(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (top,) = tmp_path.iterdir()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "src", "tests"} <= {
        path.name for path in top.iterdir()
    }
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=top, check=True, capture_output=True, timeout=300)
    (again,), (wheel,) = tmp_path.glob("*.whl"), built.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def test_everything_that_the_lock_names_for_an_extra_is_locked() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for extra in (
        "demo",
        "reports",
        "s3",
        "metrics",
        "kafka",
        "avro",
        "delta",
        "iceberg",
        "view",
        "docs",
    ):
        wanted += PROJECT["optional-dependencies"][extra]
    for requirement in wanted:
        name = requirement.split(";")[0]
        for mark in "[<>=!~ ":
            name = name.partition(mark)[0]
        assert f"\n{name.lower()}==" in f"\n{lock.lower()}" or f"\n{name.lower()}[" in lock.lower()


def test_what_spark_asks_for_is_a_dependency() -> None:
    """Without pandas Spark refuses `mapInArrow`, and so the batch twin of a function."""
    asked = inspect.getsource(require_minimum_pandas_version)
    (least,) = re.findall(r'minimum_pandas_version = "([\d.]+)"', asked)
    (pandas,) = (each for each in PROJECT["dependencies"] if each.startswith("pandas"))
    assert least.startswith(re.findall(r">=([\d.]+)", pandas)[0])
