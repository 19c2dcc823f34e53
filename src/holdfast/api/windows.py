"""The windows that an aggregate or a join may have.

| windows                       | begin                        | operator class                |
| ----------------------------- | ---------------------------- | ----------------------------- |
| `tumbling`, `sliding`         | at multiples since the epoch | convergent-capable            |
| with `alignment="first"`      | at the key's first tuple     | deterministic                 |
| with `time="processing"`      | by the clock                 | arbitrary                     |
| `counting(size, advance)`     | at every so many of a key    | deterministic                 |
| the same with `advance=1`     | at every tuple of a key      | convergent-capable            |
| with `alignment="stream"`     | at multiples of the tuple id | convergent-capable            |
| `sessions(gap)`               | at a key's earliest tuple    | convergent-capable            |
| any with `timeout`            |                              | arbitrary                     |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from holdfast.errors import DataflowError

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}


def duration_us(text: str) -> int:
    """Microseconds of a duration as Spark writes it, e.g. `10 seconds`, `1 hour 30 minutes`.

    Raises:
        DataflowError: The text is no positive duration of fixed length.
    """
    total = 0
    words = text.split()
    if not words or len(words) % 2:
        raise DataflowError(f"{text!r} is no duration; write for example '10 seconds'")
    for number, unit in zip(words[::2], words[1::2], strict=True):
        factor = _UNITS_US.get(unit.lower().removesuffix("s"))
        if factor is None or not number.isdigit():
            raise DataflowError(
                f"{text!r} is no duration; units are {', '.join(_UNITS_US)}, numbers whole"
            )
        total += int(number) * factor
    if total <= 0:
        raise DataflowError(f"{text!r} is not positive")
    return total


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of time: `size_us` long, a new one every `slide_us`.

    Attributes:
        size_us: Length, microseconds.
        slide_us: Distance of their starts.
        alignment: `epoch`, or `first`: one begins with the first tuple of every key.
        timeout_us: A window closes too when no tuple has come for so long in processing time.
        time: `event`, or `processing`.
    """

    size_us: int
    slide_us: int
    alignment: str = "epoch"
    timeout_us: int | None = None
    time: str = "event"

    @property
    def is_plain(self) -> bool:
        """Whether they are windows of event time, aligned to the epoch, without timeout."""
        return self == Window(self.size_us, self.slide_us)

    def __str__(self) -> str:
        """Only what differs from plain windows beside the size: checkpoint locations hold it."""
        more = "" if self.is_plain else f", {self.alignment}, {self.timeout_us}, {self.time}"
        return f"Window(size_us={self.size_us}, slide_us={self.slide_us}{more})"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of `size` tuples, a new one every `advance` tuples.

    Attributes:
        size: Tuples.
        advance: Tuples.
        alignment: `key`: tuples of a key are counted; `stream`: those of the stream.
        timeout_us: A window closes too when no tuple has come for so long in processing time.
    """

    size: int
    advance: int
    alignment: str = "key"
    timeout_us: int | None = None

    @property
    def is_plain(self) -> bool:
        """They never are windows of event time."""
        return False


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Windows of a key's tuples that follow one another closely.

    Attributes:
        gap_us: A tuple belongs to the session of every one that is at most so far away.
    """

    gap_us: int
    timeout_us: ClassVar[None] = None

    @property
    def is_plain(self) -> bool:
        """They are not aligned to the epoch."""
        return False


AnyWindow: TypeAlias = Window | CountWindow | SessionWindow
"""What `window` of a stream takes."""


def tumbling(
    size: str, *, alignment: str = "epoch", timeout: str | None = None, time: str = "event"
) -> Window:
    """Windows that follow each other, e.g. `tumbling("10 seconds")`.

    Args:
        size: Their length.
        alignment: `epoch`: they begin at multiples of the size since 1970; `first`: one begins
            with the first tuple of every key.
        timeout: Put a key's window out also when no tuple has come for it for so long in
            processing time; tuples that come later open it again.
        time: `event`; `processing` puts every tuple into the window of the moment when it is
            processed, and the result is of that time too.
    """
    return _window(duration_us(size), duration_us(size), alignment, timeout, time)


def sliding(
    size: str,
    slide: str,
    *,
    alignment: str = "epoch",
    timeout: str | None = None,
    time: str = "event",
) -> Window:
    """Windows that overlap, as `tumbling`: one of `size` begins with every `slide`."""
    window = _window(duration_us(size), duration_us(slide), alignment, timeout, time)
    if window.size_us < window.slide_us:
        raise DataflowError(
            f"windows of {size!r} every {slide!r} would leave tuples out; slide <= size"
        )
    return window


def sessions(gap: str) -> SessionWindow:
    """Windows of a key's tuples that follow one another closely, e.g. `sessions("10 minutes")`.

    As Spark's `session_window`: a session begins with its earliest tuple and ends the gap behind
    its latest one; a tuple at its very end still belongs to it.

    Args:
        gap: How far two tuples of a session may be from each other.
    """
    return SessionWindow(duration_us(gap))


def counting(
    size: int, advance: int | None = None, *, alignment: str = "key", timeout: str | None = None
) -> CountWindow:
    """Windows of so many tuples, e.g. `counting(100, 10)`: the last 100, every 10 tuples.

    Args:
        size: Tuples in a window; those that the input's end leaves incomplete are not put out.
        advance: Tuples from the beginning of one window to that of the next, at most `size`; by
            default `size`.
        alignment: `key`: the tuples of every key are counted on their own, from its first one.
            `stream`: those of the whole stream are, by their ids, and each window is aggregated by
            key; for a stream of one instance.
        timeout: Put out what has come of a key's windows also when no tuple has come for so long
            in processing time, and begin a new count.
    """
    advance = size if advance is None else advance
    for name, value in (("size", size), ("advance", advance)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataflowError(f"counting({name}={value!r}); it is a whole number of at least 1")
    if advance > size:
        raise DataflowError(f"counting({size}, {advance}) would leave tuples out; advance <= size")
    _one_of("alignment", alignment, ("key", "stream"))
    if alignment == "stream" and timeout is not None:
        raise DataflowError(
            "counting(alignment='stream', timeout=...): the ids of a stream go on whatever times "
            "out; use alignment='key'"
        )
    return CountWindow(size, advance, alignment, None if timeout is None else duration_us(timeout))


def window_from(words: list[Any]) -> AnyWindow:
    """The windows that `window_words` described."""
    kind, *fields = words
    if isinstance(kind, int):
        return Window(*words)
    if kind == "sessions":
        return SessionWindow(*fields)
    return CountWindow(*fields) if kind == "count" else Window(*fields)


def window_words(windows: AnyWindow) -> list[Any]:
    """Windows as plain values."""
    if isinstance(windows, SessionWindow):
        return ["sessions", windows.gap_us]
    if isinstance(windows, CountWindow):
        return ["count", windows.size, windows.advance, windows.alignment, windows.timeout_us]
    if windows.is_plain:
        return [windows.size_us, windows.slide_us]
    fields = (windows.size_us, windows.slide_us, windows.alignment, windows.timeout_us)
    return ["time", *fields, windows.time]


def _window(size_us: int, slide_us: int, alignment: str, timeout: str | None, time: str) -> Window:
    _one_of("alignment", alignment, ("epoch", "first"))
    _one_of("time", time, ("event", "processing"))
    if time == "processing" and alignment != "epoch":
        raise DataflowError("windows of processing time are aligned to the epoch")
    if time == "processing" and timeout is not None:
        raise DataflowError("windows of processing time close by the clock; leave timeout out")
    timeout_us = None if timeout is None else duration_us(timeout)
    return Window(size_us, slide_us, alignment, timeout_us, time)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise DataflowError(f"{name}={value!r}; it is {' or '.join(map(repr, allowed))}")
