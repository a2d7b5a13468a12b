"""The times of a report: in UTC, with the local time of the machine that made it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from abscli.pages.facts import Made
from abscli.text.columns import clean, moment
from formats.timestamps import unix_time


def local_time(made: Made, value: str) -> str | None:
    """Return a time as `2026-01-02 13:00:00 +01:00`; None if it is not a time."""
    at = unix_time(value)
    if at is None or not made.utc_offsets:
        return None
    offset = made.utc_offsets[0][1]
    for since, minutes in made.utc_offsets:
        began = unix_time(since)
        if began is None or began > at:
            break
        offset = minutes
    try:
        local = datetime.fromtimestamp(at, UTC) + timedelta(minutes=offset)
    except OverflowError:
        return None
    sign, ahead = "-" if offset < 0 else "+", abs(offset)
    return f"{local:%Y-%m-%d %H:%M:%S} {sign}{ahead // 60:02}:{ahead % 60:02}"


def time_element(made: Made, value: str | None) -> Markup | None:
    """Return a time in UTC whose tooltip has the local time; None for a time that is not known."""
    local = None if value is None else local_time(made, value)
    if value is None or local is None:
        return None if value is None else Markup("{}").format(clean(moment(value)))
    return Markup('<time datetime="{}" title="{} where the report was made">{}</time>').format(
        clean(value), local, clean(moment(value))
    )


def both_times(made: Made, value: str) -> Markup:
    """Return a time in UTC with the local time beside it."""
    local = local_time(made, value)
    utc = Markup("{} UTC").format(time_element(made, value))
    if local is None or local.endswith("+00:00"):
        return utc
    same_day = local[:10] == moment(value)[:10]
    return utc + Markup(" ({} local)").format(local[11:] if same_day else local)
