"""Which globs of a streaming DataFrame nodes read."""

from pathlib import Path

import pytest

from holdfast.driver.scans import NotPlain, require_glob_of_files, require_no_folders


@pytest.mark.parametrize("path", ["/in", "/in/*.parquet", "s3a://b/in/part-?-*", "*.csv"])
def test_a_glob_of_names_of_files_is_read(path: str) -> None:
    require_glob_of_files(path)


@pytest.mark.parametrize("path", ["/in/*/x", "/i?/*", "/in/{a,b}*", "/in/[ab]*", "/in/a\\*"])
def test_other_globs_are_sparks(path: str) -> None:
    with pytest.raises(NotPlain, match="more than names of files"):
        require_glob_of_files(path)


def test_a_glob_of_folders_is_sparks(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    require_no_folders(f"{tmp_path}/*")
    require_no_folders(str(tmp_path))
    (tmp_path / "more").mkdir()
    with pytest.raises(NotPlain, match="a glob of folders"):
        require_no_folders(f"{tmp_path}/*")
