"""Where the broker's jars come from."""

import os
from pathlib import Path

import pytest

from holdfast_chaos.kafka_broker import NoBroker, fetched

_MVN = """#!/bin/sh
for word; do
  case "$word" in
    *.pom|*pom.xml) cd "$(dirname "$word")" ;;
    -DoutputDirectory=*) mkdir -p "${word#*=}" && touch "${word#*=}/some.jar" ;;
  esac
done
echo fetched >> "$FETCHES"
"""


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, mvn: str) -> None:
    """Nothing else is on the path but a shell's tools."""
    folder.mkdir()
    for name, text in (("mvn", mvn), ("java", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FETCHES", str(folder / "fetches"))


def test_a_folder_of_jars_may_be_named_from_where_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands(tmp_path / "bin", monkeypatch, _MVN)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        folder = fetched(Path("build/cache"), "some", "group:some:1.0")
        assert folder == tmp_path / "build/cache/some-1.0"
        assert [jar.name for jar in folder.iterdir()] == ["some.jar"]
    assert (tmp_path / "bin/fetches").read_text() == "fetched\n", "once"


def test_jars_that_cannot_be_had_are_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands(tmp_path / "bin", monkeypatch, "#!/bin/sh\necho no network; exit 1\n")
    with pytest.raises(NoBroker, match=r"cannot fetch group:some:1\.0: no network"):
        fetched(tmp_path, "some", "group:some:1.0")
    commands(tmp_path / "other", monkeypatch, "#!/bin/sh\n")
    with pytest.raises(FileNotFoundError):
        fetched(tmp_path, "some", "group:some:1.0")
