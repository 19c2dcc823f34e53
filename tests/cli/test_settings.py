"""The page of settings is what the program says."""

from pathlib import Path

from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.cli.settings import page
from holdfast.driver.options import OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_in_docs_is_current() -> None:
    assert PAGE.read_text() == page(), "run: holdfast settings --write docs/settings.md"


def test_the_page_names_every_setting() -> None:
    for option in OPTIONS:
        assert f"| `spark.holdfast.{option.name}` | {option.default} |" in page()


def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["settings"])
    assert (done.exit_code, done.stdout) == (0, page())
    written = tmp_path / "settings.md"
    assert CliRunner().invoke(app, ["settings", "--write", str(written)]).exit_code == 0
    assert written.read_text() == page()
