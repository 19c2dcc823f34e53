"""Kills of a script that follows its input: what is timed, and what is said of its output."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast_bench.peers import recovery, rows
from holdfast_bench.peers.environment import environment
from holdfast_bench.peers.paced import stage
from holdfast_bench.peers.peer import Peer
from holdfast_bench.peers.recovery import RecoverySizes

SIZES = RecoverySizes(kills=1, rate=1_000.0, settle_s=0.2, seconds=60.0)
JOBS = Path(recovery.__file__).parent / "jobs"
SCRIPT = f"""
import os, sys, time
sys.path.insert(0, {str(JOBS)!r})
from contract import read, say
from pathlib import Path
job = read()
forgets = {{forgets}} and os.path.exists(job.output)
os.makedirs(job.output, exist_ok=True)
out = Path(job.output, "part_0")
done = set(out.read_text().splitlines()) if out.exists() else set()
say(started=time.time())
began = {{{{kind: set(os.listdir(folder)) for kind, folder in job.inputs.items()}}}}
while True:
    found = {{{{}}}}
    for kind, folder in job.inputs.items():
        names = [n for n in sorted(os.listdir(folder)) if not (forgets and n in began[kind])]
        found[kind] = [l.split(",") for n in names for l in Path(folder, n).read_text().split()]
    persons = {{{{p[0]: p[1:] for p in found["person"]}}}}
    with out.open("a") as file:
        for auction in found["auction"]:
            line = ",".join([*persons.get(auction[1], []), auction[0]])
            if auction[1] in persons and line not in done:
                done.add(line)
                file.write(line + "\\n")
    time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def plain_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks with the few columns that the script understands, no spaces in them."""
    plain = {"person": ("id", "name", "city", "state"), "auction": ("id", "seller")}

    def write_csv(table: pa.Table, path: Path, form: str) -> None:
        kind = "auction" if "seller" in table.column_names else "person"
        lines = zip(*(table.column(name).to_pylist() for name in plain[kind]), strict=True)
        text = "".join(",".join(map(str, line)).replace(" ", "_") + "\n" for line in lines)
        path.write_text(text)

    monkeypatch.setattr("holdfast_bench.peers.paced.write_csv", write_csv)


def expected(folder: Path) -> pa.Table:
    """All persons joined with all auctions, as the script joins them."""
    staged = stage("q3", "parquet", SIZES.rate, SIZES.seconds, folder, is_final=False)
    while staged.released < staged.chunks:
        staged.release()
    persons = {row["id"]: row for row in pq.read_table(staged.inputs["person"]).to_pylist()}
    auctions = pq.read_table(staged.inputs["auction"]).to_pylist()
    found = [
        {"id": auction["id"]}
        | {
            name: persons[auction["seller"]][name].replace(" ", "_")
            for name in ("name", "city", "state")
        }
        for auction in auctions
    ]
    return pa.Table.from_pylist(found).select(list(rows.COLUMNS["q3"]))


def killed(tmp_path: Path, *, forgets: bool) -> dict[str, Any]:
    """The results of one kill."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(forgets=forgets))
    peer = Peer("fake", "Fake", job=str(script), input="bare-csv", output="lines", ends=False)
    python = environment("fake", (), tmp_path)
    wanted = expected(tmp_path / "all")
    return recovery._run(peer, python, SIZES, wanted, tmp_path / "fake")


@pytest.mark.slow
def test_a_script_that_goes_on_where_it_stopped_is_identical(tmp_path: Path) -> None:
    found = killed(tmp_path, forgets=False)
    assert found["is_identical"]
    assert found["output"]["expected"] > 0
    assert found["median_ms"] > 0


@pytest.mark.slow
def test_a_script_that_forgets_its_state_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_WHOLE_S", 1.0)
    found = killed(tmp_path, forgets=True)
    assert not found["is_identical"]
    assert found["output"]["lost"] > 0
