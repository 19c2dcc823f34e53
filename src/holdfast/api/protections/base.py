"""The base of all protections, and the checks of settings that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.api.windows import duration_us
from holdfast.core.haunit.plan import UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    from holdfast.api.graph import Graph

PRECISELY: Final = (
    "UpstreamBackup(), ActiveStandby(), PassiveStandby(), Checkpointed() and EventualCheckpoints() "
    "recover precisely"
)
"""What to take instead of a weaker guarantee."""
_SIZE_MAX: Final = 1 << 40
_UNIT_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Protection:
    """The base of all protections."""

    guarantee: str = Guarantee.PRECISE.value

    def check(self, flow: Graph) -> None:
        """Refuse what this protection cannot give. Raises `UnsupportedError`."""

    def describe(self) -> str:
        """What of it must be the same when a query goes on at a location."""
        return type(self).__name__

    def of_unit(self) -> UnitProtection:
        """What nodes are told."""
        return UnitProtection()


def require_guarantee(protection: Protection, *possible: Guarantee) -> None:
    """Raise `UnsupportedError`, with what would work, unless the guarantee is one of these."""
    if protection.guarantee in [guarantee.value for guarantee in possible]:
        return
    name = type(protection).__name__
    names = " or ".join(repr(guarantee.value) for guarantee in possible)
    instead = {
        Guarantee.PRECISE.value: PRECISELY,
        Guarantee.ROLLBACK.value: "UpstreamBackup, PassiveStandby, ActiveStandby, Uncoordinated, "
        "Coordinated and CommunicationInduced with guarantee='rollback' recover so",
        Guarantee.GAP.value: "Amnesia() recovers so",
    }.get(protection.guarantee, "there are 'precise', 'rollback' and 'gap'")
    raise UnsupportedError(
        f"{name}(guarantee={protection.guarantee!r}); it gives {names}. {instead}"
    )


def bytes_of(protection: Protection, name: str, size: str | int) -> int:
    """A size. Raises `OptionError` when it is none."""
    words = str(size).split() if not isinstance(size, bool) else []
    number, unit = words if len(words) == 2 else (*words, "B") if len(words) == 1 else ("", "")
    if unit not in _UNIT_BYTES or not (number.isascii() and number.isdecimal()):
        raise OptionError(
            f"{type(protection).__name__}({name}={size!r}); write a number of bytes, or a number "
            f"and one of {', '.join(_UNIT_BYTES)}, e.g. '64 MiB'"
        )
    found = int(number) * _UNIT_BYTES[unit]
    if not 1 <= found <= _SIZE_MAX:
        raise OptionError(f"{type(protection).__name__}({name}={size!r}); it lies in 1 B to 1 TiB")
    return found


def interval_ms_of(protection: Protection, interval: str, setting: str = "interval") -> int:
    """A period. Raises `DataflowError` when it is no duration, `OptionError` when it is none."""
    interval_ms = duration_us(interval) // 1000
    if interval_ms < 1:
        name = type(protection).__name__
        raise OptionError(f"{name}({setting}={interval!r}); at least 1 millisecond")
    return interval_ms
