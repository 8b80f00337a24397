"""Figures in texts, alike in messages, tables and pages: `71.2%`, `1850m`, `3.1Gi`, `2m30s`, `2 pods`, times."""

import math
import re
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "-"
"""Shown for unknown values, and for a rate of zero episodes."""
BYTE_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
TIMES: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC\b")
"""The times in a message, as `clock_time` writes them. Terminals and pages show them in local time."""
_TIME: Final = "%Y-%m-%d %H:%M UTC"
AGE_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def percent(share: float | None, digits: int = 1) -> str:
    """0.712 -> `71.2%`, 0.75 -> `75%`: at most `digits` after the point."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return f"{_plain(f'{share * 100:.{digits}f}')}%"


def millicores(value: float | None) -> str:
    """1850.4 -> `1850m`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{_plain(f'{value:.0f}')}m"


def cores(millicores: float | None) -> str:
    """Capacity of a machine: 16000.0 -> `16`; at most two digits after the point."""
    if millicores is None or not math.isfinite(millicores):
        return NOTHING
    return _plain(f"{millicores / 1000:.2f}")


def size(amount: float | None) -> str:
    """Bytes as `3.1Gi`: in the largest fitting unit, rounded to one decimal; `3Gi` without one."""
    if amount is None or not math.isfinite(amount):
        return NOTHING
    unit = 0
    while abs(amount) >= 1024 and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return _plain(f"{amount:.1f}") + BYTE_UNITS[unit]


def age(seconds: float) -> str:
    """`45s`, `2m30s`, `5h12m`, `3d4h`: at most two units, the second where it matters."""
    left = max(round(seconds), 0)
    parts: list[str] = []
    for name, unit in AGE_UNITS:
        if left >= unit or (name == "s" and not parts):
            parts.append(f"{left // unit}{name}")
            left %= unit
        elif parts:
            break
    return "".join(parts[:2])


def clock_time(at: float) -> str:
    """`2026-11-23 14:05 UTC`, of seconds since the epoch: every time in a message, which may be read days later."""
    return datetime.fromtimestamp(at, UTC).strftime(_TIME)


def seconds_of(clock_time: str) -> float:
    """The inverse of `clock_time`. Raises ValueError."""
    return datetime.strptime(clock_time, _TIME).replace(tzinfo=UTC).timestamp()


def counted(count: int, one: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _plain(text: str) -> str:
    """Without trailing zeros, and without a minus before zero."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
