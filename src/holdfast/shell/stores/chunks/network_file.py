"""The file in which an administrator describes the network for Peace. [SGuard §5]

A small YAML file; what it may hold is said at `NetworkModel.from_dict`. For two racks of two:

    servers:
      - {name: SVR1.1, rack: one}
      - {name: SVR1.2, rack: one, receive: 4}   # two disks
      - {name: SVR2.1, rack: two}
      - {name: SVR2.2, rack: two}
    links:
      - {between: [one, two], capacity: 4}

Capacities are chunks per timestep: how many the part carries side by side while a chunk is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.core.errors import LocalProtocolError
from holdfast.core.peace.network_model import NetworkModel
from holdfast.shell.storage.errors import StorageError

_FILE_BYTES_MAX: Final = 16 << 20


class NetworkFileInvalid(StorageError):
    """A network file that cannot be read, or that describes no network."""

    def __init__(self, path: str | Path, reason: str) -> None:
        """Name the file, and the entry or the line."""
        super().__init__(f"network file {path}: {reason}")


def read_network_file(path: str | Path) -> NetworkModel:
    """Read and check a network file.

    Raises:
        NetworkFileInvalid: the file cannot be read, is no YAML, gives a key twice, or has an entry
            that is unknown, missing or senseless; the message names the file and the entry.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise NetworkFileInvalid(path, error.strerror or str(error)) from error
    if len(text) > _FILE_BYTES_MAX:
        raise NetworkFileInvalid(path, f"it is larger than {_FILE_BYTES_MAX >> 20} MiB")
    try:
        entries = yaml.load(text, Loader=_UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NetworkFileInvalid(path, f"it is no YAML: {error}") from error
    if not isinstance(entries, dict):
        raise NetworkFileInvalid(path, "it holds no entries; it needs at least `servers`")
    try:
        return NetworkModel.from_dict(entries)
    except LocalProtocolError as error:
        raise NetworkFileInvalid(path, str(error)) from error


class _UniqueKeys(yaml.SafeLoader):
    """Plain values only; and where YAML takes the last of two equal keys, an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[object, None] = {}
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key_node.value} is given twice", key_node.start_mark
                )
            seen[key_node.value] = None
        return super().construct_mapping(node, deep)
