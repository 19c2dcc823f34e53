"""Code in the guides: the Python of pages runs; every command of all pages is understood."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_topics import committed, produce, rows
from pyspark.sql import SparkSession
from scenes import _START, OF_BROKERS, SCENES, Block
from typer.exceptions import TyperException
from typer.main import get_command

from holdfast.cli.main import app
from holdfast_bench.commands import app as bench
from holdfast_chaos.kafka_broker import KafkaBroker
from holdfast_chaos.schema_registry import schema_registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""CONTRIBUTING.md has a test of its own (tests/simulation/test_contributing.py)."""
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
OF_CLUSTERS = ("spark-submit",)
"""Programs of Spark's, which need a cluster: tests/cluster runs the same on Spark's own master."""


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """By page, its blocks in a language, with continued lines joined."""
    for page in PAGES:
        for indent, found, text in _FENCE.findall(page.read_text()):
            if found == language:
                plain = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
                yield str(page.relative_to(ROOT)), plain


def staged(text: str, block: Block, folder: Path) -> str:
    """A block between what comes before and after, in places of its own."""
    for old, new in block.replaced:
        assert old in text, f"{old!r} is no longer in the block"
        text = text.replace(old, new)
    whole = "\n".join((block.before, text, block.after))
    return re.sub(r"(?<=[\"'])/(tmp|data|mnt)/", f"{folder}/", whole)


def test_every_block_of_python_has_a_scene() -> None:
    found = [page for page, _ in blocks("python")]
    assert {page: found.count(page) for page in found} == {
        page: len(scenes) for page, scenes in {**SCENES, **OF_BROKERS}.items()
    }


def run(page: str, scenes: list[Block], folder: Path, **given: Any) -> None:
    """All blocks of a page, in order, with what is given to them."""
    namespace: dict[str, Any] = {"folder": str(folder), **given}
    exec(compile(_START, "the start", "exec"), namespace)
    texts = [text for at, text in blocks("python") if at == page]
    for n, (text, block) in enumerate(zip(texts, scenes, strict=True)):
        code = compile(staged(text, block, folder), f"{page}, block {n}", "exec")
        exec(code, namespace)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(SCENES))
def test_the_python_of_a_page_runs(page: str, spark: SparkSession, tmp_path: Path) -> None:
    run(page, SCENES[page], tmp_path, spark=spark)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(OF_BROKERS))
def test_the_python_of_a_page_on_topics_runs(
    page: str, spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topics = {"kafka": kafka, "produce": produce, "rows": rows, "committed": committed}
    with schema_registry() as (_, url):
        run(page, OF_BROKERS[page], tmp_path, spark=spark, registry=url, **topics)


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block, by their words; comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def understood(command: Any, words: list[str]) -> None:
    """Parse all words as the program does; raises when it would refuse one."""
    context = command.make_context(command.name, list(words))
    if hasattr(command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, inner, rest = command.resolve_command(context, left)
        inner.make_context(name, list(rest), parent=context)


def check(words: list[str]) -> None:
    """A command of a page does what it says, as far as that can be told without doing it."""
    program, *rest = words
    if program == "holdfast" and rest[0] == "bench":
        understood(get_command(bench), rest[1:])
    elif program == "holdfast":
        understood(get_command(app), rest)
    elif program == "make":
        assert f"\n{rest[0]}:" in (ROOT / "Makefile").read_text()
    elif program == "pip":
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
        extra = re.search(r"\[(\w+)\]", rest[-1])
        assert rest[0] == "install"
        assert extra is None or extra[1] in settings["project"]["optional-dependencies"]
    elif program == "python":
        compile(rest[1], "a page", "exec")
    elif program in OF_CLUSTERS:
        behind = [n for n, word in enumerate(rest) if "holdfast.cli.main" in word]
        for n in behind:
            understood(get_command(app), rest[n + 1 :])
    else:
        raise AssertionError(f"nobody knows {program}")


@pytest.mark.parametrize(("page", "text"), list(blocks("sh")))
def test_the_commands_of_a_page_are_understood(page: str, text: str) -> None:
    found = list(commands(text))
    assert found
    for words in found:
        check(words)


@pytest.mark.parametrize("words", [["holdfast", "view"], ["holdfast", "run", "--no", "x"], ["rm"]])
def test_a_command_that_would_be_refused_is_found(words: list[str]) -> None:
    with pytest.raises((AssertionError, TyperException)):
        check(words)


def test_yaml_is_yaml() -> None:
    for _, text in blocks("yaml"):
        assert yaml.safe_load(text)


def test_a_block_without_a_language_is_a_picture_or_a_layout() -> None:
    for page, text in blocks(""):
        assert not re.search(r"^(holdfast|import|make|pip) |^query\b", text, re.MULTILINE), page
