"""What lies below a location is its user's alone, or whose the setting says; else a named error."""

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.errors import OptionError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import PlaceForbidden, StorageError
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.rights import create_file, make_folder, mode_of, open_location
from holdfast.shell.stores.folder import FolderStore

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0)
NOBODY = 65_534


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=["umask 022", "umask 077", "umask 000"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def run_there(location: Path, root: str, **options: str) -> None:
    """A whole run, with checkpoints, metrics and a sink."""
    ingest_log.prepare(root, META)
    rows = pa.RecordBatch.from_pylist([{"at": i, "id": i} for i in range(100)], schema=SCHEMA)
    file = ingest_log.write_file(root, META, iter([rows]))
    assert file is not None
    ingest_log.append_batch(root, [file])
    ingest_log.end(root)
    flow = Dataflow("private")
    windows = flow.source_log(root, name="rows").window(hf.tumbling("10 microseconds"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    with without_spark() as session:
        query = flow.start(
            session,
            checkpointLocation=str(location),
            protection=hf.Checkpointed(interval="20 milliseconds"),
            options={f"spark.holdfast.{name}": value for name, value in options.items()},
        )
        assert query.awaitTermination(300)


def rights_below(location: Path) -> dict[str, int]:
    return {
        str(path.relative_to(location)): stat.S_IMODE(path.stat().st_mode)
        for path in (location, *location.rglob("*"))
    }


def test_all_that_a_run_leaves_is_private(tmp_path: Path, umask: None) -> None:
    location = tmp_path / "deep" / "location"
    run_there(location, str(tmp_path / "log"))
    found = rights_below(location)
    assert {"coordinator", "streams", "metrics", "dataflow.txt", "location.id"} <= set(found)
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}


def test_a_group_shares_all_that_a_run_leaves(tmp_path: Path, umask: None) -> None:
    location = tmp_path / "location"
    run_there(location, str(tmp_path / "log"), locationMode="770")
    found = rights_below(location)
    for name, mode in found.items():
        if name == "lock":  # It is the driver's.
            continue
        wanted = 0o2770 if (location / name).is_dir() else 0o660
        assert mode == wanted, (name, oct(mode))


def test_a_shared_file_appears_with_its_rights_or_not_at_all(
    tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the node that creates it is killed before the file has its rights."""
    tmp_path.chmod(0o770)

    def killed(file: int, rights: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", killed)
        with pytest.raises(KeyboardInterrupt):
            create_file(tmp_path / "page", os.O_WRONLY)
    assert list(tmp_path.iterdir()) == []
    os.close(create_file(tmp_path / "page", os.O_WRONLY))
    assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o660
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "page", os.O_WRONLY)


def test_a_shared_folder_appears_with_its_rights_or_not_at_all(
    tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thread that finds it there gives its files the rights that it does not have yet."""
    tmp_path.chmod(0o2770)
    chmod = os.chmod

    def looked_at(path: str | Path, rights: int) -> None:
        assert not (tmp_path / "new").exists()
        chmod(path, rights)

    def killed(path: str | Path, rights: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", killed)
        with pytest.raises(KeyboardInterrupt):
            make_folder(tmp_path / "new" / "page")
    assert not (tmp_path / "new").exists()
    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", looked_at)
        make_folder(tmp_path / "new")
    make_folder(tmp_path / "new" / "page")
    assert rights_below(tmp_path) == {".": 0o2770, "new": 0o2770, "new/page": 0o2770}


def test_a_folder_that_others_make_meanwhile_keeps_what_they_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o2770)
    chmod = os.chmod

    def overtaken(path: str | Path, rights: int) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "page").touch()
        chmod(path, rights)

    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", overtaken)
        make_folder(tmp_path / "new")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["new", "page"]


def test_a_file_is_shared_where_none_can_be_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o770)

    def unable(*arguments: object, **options: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "there is no such thing here")

    monkeypatch.setattr(os, "link", unable)
    os.close(create_file(tmp_path / "page", os.O_WRONLY))
    assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o660


def test_a_location_of_before_becomes_private_and_a_folder_with_other_files_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        (folder / "streams").mkdir(parents=True)
        folder.chmod(0o755)
    (other / "mine.txt").touch()
    with caplog.at_level(logging.WARNING):
        open_location(str(own), 0o700)
        assert not caplog.records
        open_location(str(other), 0o700)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert f"{other} holds other files too" in caplog.text
    open_location(str(own), 0o750)
    assert stat.S_IMODE(own.stat().st_mode) == 0o750


def test_a_location_with_all_that_the_page_of_formats_names_is_a_querys_own(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    listed = page.split("## Checkpoint location")[1].split("```")[1].strip().splitlines()
    names = {line.split()[0].split("/")[0] for line in listed if not line.startswith(" ")}
    assert {"passes", "footprints", "feeds", "view", "lock"} <= names
    location = tmp_path / "location"
    for name in names:
        (location / name).mkdir(parents=True)
    location.chmod(0o755)
    open_location(str(location), 0o750)
    assert stat.S_IMODE(location.stat().st_mode) == 0o750


@pytest.mark.parametrize("digits", [690, 800, 799, 1_777, 77, 0])
def test_rights_are_what_chmod_takes(digits: int) -> None:
    with pytest.raises(OptionError, match=r"locationMode.*chmod"):
        mode_of(digits)


def test_a_location_that_is_none_is_named_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match=r"file.*is no folder.*another checkpointLocation"):
            open_location(str(place), 0o700)
    with pytest.raises(StorageError, match=r"/proc/holdfast"):
        open_location("/proc/holdfast/location", 0o700)


def as_somebody_else(act: Callable[[], None]) -> str:
    """What an action raises for a user who owns nothing here; it runs in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            if os.geteuid() == 0:
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            act()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_a_user_without_the_right_is_told_whose_place_it_is_and_what_to_set(tmp_path: Path) -> None:
    place = tmp_path / "location"
    (place / "streams").mkdir(parents=True)
    file = ingest_log.write_file(str(place), META, iter([]))
    assert file is None
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o011)
        if path.name.startswith("pytest-of"):
            break
    place.chmod(0o500)  # Not even for the owner, unless that is root.
    acts: tuple[Callable[[], None], ...] = (
        lambda: open_location(str(place), 0o500),
        lambda: open_location(str(place / "below"), 0o700),
        lambda: FolderStore(str(place)).put("a", [b"1"]),
        lambda: FolderStore(str(place / "new")).put("a", [b"1"]),
        lambda: ingest_log.prepare(str(place / "ingest"), META),
    )
    for act in acts:
        text = as_somebody_else(act)
        assert text.startswith(PlaceForbidden.__name__), text
        assert str(place) in text
        assert "spark.holdfast.locationMode=770" in text


def test_folders_and_files_have_the_rights_of_the_folder_they_are_in(
    tmp_path: Path, umask: None
) -> None:
    for mode in (0o700, 0o750, 0o770, 0o777):
        root = tmp_path / f"{mode:o}"
        root.mkdir()
        root.chmod(mode)
        make_folder(root / "a" / "b")
        os.close(create_file(root / "a" / "b" / "c", os.O_WRONLY))
        assert stat.S_IMODE((root / "a").stat().st_mode) == mode
        assert stat.S_IMODE((root / "a" / "b").stat().st_mode) == mode
        assert stat.S_IMODE((root / "a" / "b" / "c").stat().st_mode) == mode & 0o666
