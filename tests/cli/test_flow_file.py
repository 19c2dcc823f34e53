"""A file of the user's that cannot be run: the message says where, and names nothing else."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.cli import flow_file, main
from holdfast.errors import DataflowError, OptionError


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("holdfast_flow_file", None)


def test_a_file_that_is_no_python_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text("import holdfast as hf\nflow = hf.Dataflow('x'\n")
    with pytest.raises(OptionError, match=r"(?s)flow\.py is no Python:.*line 2.*never closed"):
        flow_file.check(str(file))
    with pytest.raises(OptionError, match="there is no file"):
        flow_file.check(str(tmp_path / "other.py"))


def test_an_error_of_the_file_is_shown_from_the_users_first_line_on(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text("def rows():\n    return [1, 2][5]\n\nrows()\n")
    with pytest.raises(OptionError) as failed:
        flow_file.module_of(str(file))
    said = str(failed.value)
    assert f'File "{file}", line 4' in said
    assert f'File "{file}", line 2' in said
    assert said.endswith("IndexError: list index out of range")
    assert "importlib" not in said


def test_an_error_of_holdfasts_says_which_line_has_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.py"
    file.write_text("import holdfast as hf\n\nhf.Dataflow('no name [at all]')\n")
    with pytest.raises(DataflowError) as failed:
        flow_file.module_of(str(file))
    assert failed.value.__notes__ == [f"at {file}, line 3"]
    monkeypatch.setattr(main, "app", lambda: flow_file.module_of(str(file)))
    with pytest.raises(SystemExit):
        main.main()
    said = capsys.readouterr().err
    assert "[at all]" in said, "brackets are no markup"
    assert f"at {file}, line 3" in said.splitlines()


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("bids = hf.Dataflow('bids')", r"name flow\.py:bids$"),
        ("number = 1", r"give a dataflow that name, or name it as flow\.py:NAME$"),
    ],
)
def test_a_file_without_the_name_says_which_there_are(tmp_path: Path, text: str, cure: str) -> None:
    file = tmp_path / "flow.py"
    file.write_text(f"import holdfast as hf\n{text}\n")
    module = flow_file.module_of(str(file))
    with pytest.raises(OptionError, match=rf"flow\.py defines no flow; {cure}"):
        flow_file.dataflow_of(module, "flow", cast("Any", None))
