"""`holdfast settings`: every setting and every option of the data source, as one Markdown page."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

_INTRODUCTION = """# Settings

Written by `holdfast settings --write docs/settings.md`; a test checks that it is current.

Settings are given to the session (`--conf`, `SparkSession.builder.config`, or
`spark.conf.set` before `start`) or to `flow.start(..., options={...})`, which counts more. Values
are whole numbers; `true` and `false` stand for 1 and 0. An unknown name below `spark.holdfast.` is
refused, and so is a value out of bounds.

| setting | default | bounds | meaning |
| --- | --- | --- | --- |
"""

_SOURCE = """
# Options of `format("holdfast")`

`spark.read` and `spark.readStream` take `load(path)`: a checkpoint location with one of `stream`,
`state`, `metrics` and `footprints`, or the folder of one log. An unknown option is refused.

| option of reads | meaning |
| --- | --- |
"""

_WRITING = """
`df.write` and `df.writeStream` append to the ingest log at `save(path)` or `start(path)`, exactly
once by batch id.

| option of writes | meaning |
| --- | --- |
"""

_SESSION = """
# What `holdfast.session` sets

Under `spark-submit` too. Give them to a session that you make yourself; the first one has nodes
start in a fraction of a second.

| setting of Spark | value |
| --- | --- |
"""


def page() -> str:
    """The page."""
    from holdfast.driver.options import OPTIONS, PREFIX
    from holdfast.driver.session import SETTINGS
    from holdfast.shell.spark.data_source import READ_OPTIONS, WRITE_OPTIONS

    settings = [
        f"| `{PREFIX}{o.name}` | {o.default} | {o.low} to {o.high} | {o.meaning} |" for o in OPTIONS
    ]
    return "".join(
        (
            _INTRODUCTION,
            _lines(settings),
            _SOURCE,
            _lines(f"| `{name}` | {meaning} |" for name, meaning in READ_OPTIONS.items()),
            _WRITING,
            _lines(f"| `{name}` | {meaning} |" for name, meaning in WRITE_OPTIONS.items()),
            _SESSION,
            _lines(f"| `{name}` | `{value}` |" for name, value in SETTINGS.items()),
        )
    )


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def settings(
    *,
    write: Annotated[Path | None, typer.Option(help="Write the page here.")] = None,
) -> None:
    """Every setting, with its unit, default and bounds."""
    if write is None:
        sys.stdout.write(page())
    else:
        write.write_text(page())
