"""Where a command's query keeps what it needs."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.main import _place
from holdfast.errors import OptionError


def spark(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def test_on_one_host_a_folder_is_made_and_deleted() -> None:
    with ExitStack() as places:
        made = Path(_place(spark("local[2]"), None, places))
        assert made.is_dir()
    assert not made.exists()


def test_on_a_cluster_a_location_has_to_be_named() -> None:
    with ExitStack() as places:
        with pytest.raises(OptionError, match="--location"):
            _place(spark("spark://host:7077"), None, places)
        assert _place(spark("spark://host:7077"), "s3://bucket/q", places) == "s3://bucket/q"
