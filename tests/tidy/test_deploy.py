"""What deploy/ holds is well-formed, and its dataflow can be built."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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


def test_the_image_is_made_of_files_that_there_are() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert "src" in copied
    assert all((ROOT / each).exists() for each in copied)
