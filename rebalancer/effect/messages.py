"""Sentences of counted reasons, and number formatting."""

import math
from collections.abc import Mapping
from typing import Final

from rebalancer.model.effect import Outcome, Rate
from rebalancer.model.reason import BlockedReason, Code, MissReason

NOTHING: Final = "-"
"""Shown for unknown values, and for a rate of zero episodes."""

_GROUPS: Final[Mapping[str, type[Code]]] = {"discovery": MissReason, "eviction": BlockedReason, "effect": Outcome}


def sentence(reason: str) -> str:
    """The sentence of a key of `DayRow.reasons`, such as `eviction/limits`; the key itself where it is not known."""
    group, _, rest = reason.partition("/")
    code, _, resource = rest.partition("/")
    try:
        return _GROUPS[group](code).sentence + (f" of {resource}" if resource else "")
    except (KeyError, ValueError):
        return reason


def percent(share: float | None) -> str:
    """0.712 -> `71.2 %`, 0.75 -> `75 %`."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return f"{_plain(f'{share * 100:.1f}')} %"


def cores(millicores: float) -> str:
    """1850.0 -> `1.85`; at most two digits after the point."""
    return _plain(f"{millicores / 1000:.2f}") if math.isfinite(millicores) else NOTHING


def shown(rate: Rate) -> str:
    """`17 of 20 (85 %)`; a rate without episodes is `-`."""
    return NOTHING if rate.share is None else f"{rate.part} of {rate.whole} ({percent(rate.share)})"


def counted(count: int, one: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _plain(text: str) -> str:
    """Without trailing zeros, and without a minus before zero."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
