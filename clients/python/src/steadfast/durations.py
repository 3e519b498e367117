"""Durations as people write them: numbers of seconds, or texts as in job files."""

from __future__ import annotations

import math
import re

#: Seconds, or `"500ms"`, `"5s"`, `"1h30m"`, `"2 minutes"`.
Duration = float | str

_UNITS = {
    "ms": 1, "msec": 1, "millis": 1, "millisecond": 1,
    "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hr": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_PART = re.compile(r"\s*([0-9]+)\s*([A-Za-z]+)\s*")


def milliseconds(duration: Duration, name: str) -> int:
    """Whole ones; what is more than 0 stays so."""
    if isinstance(duration, str):
        return _read(duration, name)
    if isinstance(duration, bool) or not math.isfinite(duration) or duration < 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, or a text like \"5s\", not {duration!r}")
    return math.ceil(round(duration * 1000, 3))


def seconds(duration: Duration, name: str) -> float:
    """A number stays what it is, also one that has passed."""
    return _read(duration, name) / 1000 if isinstance(duration, str) else duration


def _read(text: str, name: str) -> int:
    total, at = 0, 0
    while at < len(text) or at == 0:
        part = _PART.match(text, at)
        unit = None if part is None else _UNITS.get(part[2]) or _UNITS.get(part[2].removesuffix("s"))
        if part is None or unit is None:
            why = "has no unit" if text.strip().isdigit() else "is no duration"
            raise ValueError(f"{name}: {text!r} {why}; write 5s for seconds, 500ms, 5m or 1h30m")
        total, at = total + int(part[1]) * unit, part.end()
    return total
