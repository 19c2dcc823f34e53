"""What a DataFrame says of itself as a source: its event time, its watermark, how it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.api.steps import FromFrame
from holdfast.api.windows import duration_us
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.spark.watermarks import Watermark, watermarks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_TRIGGERS: Final = ("availableNow", "processingTime")


def from_frame(
    df: DataFrame,
    time: str | None,
    delay: str | None,
    ahead: str | None,
    trigger: Mapping[str, Any] | None,
    partitions: int,
    speed: float | None,
    silent: tuple[str, str] | None = None,
) -> FromFrame:
    """A DataFrame as a source; arguments as in `Dataflow.source`.

    Raises:
        DataflowError: Nobody says which column is the event time, or an argument makes no sense.
        UnsupportedError: There is no such trigger here.
    """
    known = {watermark.column: watermark for watermark in watermarks_of(df.schema)}
    time = _time_column(known) if time is None else time
    watermark = known.get(time) if delay is None else None
    if delay is not None:
        delay_us = duration_us(delay)
    else:
        delay_us = 0 if watermark is None else watermark.delay_us
    return FromFrame(
        df=df,
        time=time,
        delay_us=delay_us,
        ahead_us=None if ahead is None else duration_us(ahead),
        has_watermark=watermark is not None,
        partitions=partitions,
        speed=speed,
        trigger=None if trigger is None else _checked_trigger(df, dict(trigger)),
        silent_s=None if silent is None else _silent_s(silent, speed),
    )


def _silent_s(silent: tuple[str, str], speed: float | None) -> tuple[float, float]:
    if speed is None:
        raise DataflowError(f"silent={silent}: only a replay, with speed=..., falls silent")
    begin, length = (duration_us(each) / 1e6 for each in silent)
    return begin, begin + length


def _time_column(known: dict[str, Watermark]) -> str:
    if len(known) == 1:
        return next(iter(known))
    found = f"it has several: {', '.join(known)}" if known else "it has none"
    raise DataflowError(
        "which column is the event time? Say time='column', or give the streaming DataFrame one "
        f"watermark: df.withWatermark('column', '10 seconds'); {found}"
    )


def _checked_trigger(df: DataFrame, trigger: dict[str, Any]) -> dict[str, Any]:
    if not df.isStreaming:
        raise DataflowError(f"trigger={trigger}: only a streaming DataFrame has one")
    if len(trigger) != 1 or next(iter(trigger)) not in _TRIGGERS:
        raise UnsupportedError(
            f"trigger={trigger}; write {{'availableNow': True}} or {{'processingTime': '1 second'}}"
        )
    if "availableNow" in trigger and trigger["availableNow"] is not True:
        raise DataflowError(f"trigger={trigger}: availableNow is True or left out")
    if "processingTime" in trigger:
        duration_us(str(trigger["processingTime"]))
    return trigger
