"""Sentences of counted reasons, and rates as text."""

from collections.abc import Mapping
from typing import Final

from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.notation.figures import NOTHING, percent
from rebalancer.model.notation.heat import hours
from rebalancer.model.reason import BlockedReason, Code, MissReason
from rebalancer.model.records.effect import Outcome, Rate

OF_REPORT: Final = "against the weeks before"
"""Of what time the hot node-hours of a report are."""
_GROUPS: Final[Mapping[str, type[Code]]] = {"discovery": MissReason, "eviction": BlockedReason, "effect": Outcome}


def sentence(reason: str) -> str:
    """The sentence of a key of `DayRow.reasons`, such as `eviction/limits`; the key itself where it is not known."""
    group, _, rest = reason.partition("/")
    code, _, resource = rest.partition("/")
    try:
        return _GROUPS[group](code).sentence + (f" of {resource}" if resource else "")
    except (KeyError, ValueError):
        return reason


def worth_of_plans(plans: PlanScore) -> str:
    """`Planned relief, summed over cycles whose hours overlap: 342 hot node-minutes, at a price of 31.2 ordinary
    evictions`"""
    relief = f"{plans.hot_node_minutes:.0f} hot node-minutes, at a price of {hours(plans.price)} ordinary evictions"
    return f"Planned relief, summed over cycles whose hours overlap: {relief}"


def shown(rate: Rate) -> str:
    """`17 of 20 (85%)`; a rate without episodes is `-`."""
    return NOTHING if rate.share is None else f"{rate.part} of {rate.whole} ({percent(rate.share)})"
