"""What deploy/ holds is well-formed, and its dataflow can be built."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "kubernetes" / "bids.yaml"
LOCATED = "s3://bucket/bids"


def documents() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(EXAMPLE.read_text())}


def test_the_dataflow_of_the_example_can_be_built(tmp_path: Path) -> None:
    times = pa.array([0], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times, "bidder": [1]}), tmp_path / "one.parquet")
    text = documents()["ConfigMap"]["data"]["flow.py"]
    assert LOCATED in text
    made: dict[str, Any] = {}
    exec(text.replace(LOCATED, str(tmp_path)), made)
    assert list(made["flow"].sinks) == ["counts"]
    assert made["protection"].interval == "10 seconds"


def test_the_driver_is_started_again_and_runs_what_the_map_holds() -> None:
    found = documents()
    pod = found["Job"]["spec"]["template"]["spec"]
    (driver,) = pod["containers"]
    assert pod["restartPolicy"] == "OnFailure"
    (command,) = driver["args"]
    (mount,) = driver["volumeMounts"]
    for name in found["ConfigMap"]["data"]:
        assert f"{mount['mountPath']}/{name}" in command
    assert found["Service"]["spec"]["selector"]["job-name"] == found["Job"]["metadata"]["name"]
    assert f"spark.driver.host={found['Service']['metadata']['name']} " in command


def pod_of_executors() -> dict[str, Any]:
    """The template in the map, as the pod that Spark makes of it."""
    pod = yaml.safe_load(documents()["ConfigMap"]["data"]["executor.yaml"])
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def test_kubernetes_knows_every_field_of_the_example() -> None:
    newest = kubernetes_validate.latest_version()
    for each in (*documents().values(), pod_of_executors()):
        kubernetes_validate.validate(each, newest, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    pod = pod_of_executors()
    pod["spec"]["containers"][0]["enviroment"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_the_files_of_the_image_are_enough_to_build_and_run_the_package(tmp_path: Path) -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    image = tmp_path / "image"
    image.mkdir()
    for each in copied:
        if (ROOT / each).is_dir():
            compiled = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / each, image / each, ignore=compiled)
        else:
            shutil.copy(ROOT / each, image / each)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=image,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert "holdfast/shell/spark/task.py" in packed.namelist()
    (command,) = (line for line in lines if "warm_up" in line)
    program = command.partition('-c "')[2].partition('"')[0]
    compile(program, "Dockerfile", "exec")


def test_the_user_of_the_image_may_write_where_its_kernels_are() -> None:
    """Numba takes no folder for its cache that it may not write to, and then compiles nothing."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\w+)$", text.partition("warm_up")[2], re.MULTILINE)
    assert "ENV NUMBA_CACHE_DIR=" in text
    assert f'chown -R {user} "$NUMBA_CACHE_DIR"' in text.partition("warm_up")[2]
