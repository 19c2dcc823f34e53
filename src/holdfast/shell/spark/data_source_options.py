"""Options of `format("holdfast")`: their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_true(options: Mapping[str, str], name: str) -> bool:
    """A switch, off unless it is given. Raises `StorageError` if it is neither on nor off."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise StorageError(f"option {name}={options[name]!r}; it is 'true' or 'false'")
    return text == "true"


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """A count. Raises `StorageError` if it is none."""
    text = options.get(name, str(default))
    if not text.isdigit():
        raise StorageError(f"option {name}={text!r} is no whole number")
    return int(text)
