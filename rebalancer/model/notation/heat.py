"""The one figure of what evictions are worth, in the same words wherever it is shown: hot node-hours without them and
with them, and the evictions for each hour relieved. One node that is hot for one hour is one hot node-hour.
"""

from dataclasses import dataclass

from rebalancer.model.notation.document import Amount, Count
from rebalancer.model.notation.figures import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Hot node-hours without some evictions and with them, of the same time."""

    before: Amount | None
    """null: nothing is known to compare with."""
    after: Amount
    evictions: Count

    @property
    def evictions_for_each_hour(self) -> float | None:
        """Evictions / hours relieved; None where none was relieved, or nothing evicted."""
        relieved = 0.0 if self.before is None else self.before - self.after
        return self.evictions / relieved if self.evictions and relieved > 0 else None


def hours(value: float) -> str:
    """`412`, `38.2`, `0.4`: hours with one decimal below a hundred."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")


def change(before: float, after: float) -> str:
    """`-91%`; empty without anything before."""
    return f"{(after / before - 1) * 100:+.0f}%" if before > 0 else ""


def hot_hours(heat: Heat, *, of: str = "") -> str:
    """`Hot node-hours 38.2 -> 3.4 (-91%)`; `of` says what is compared, such as `of the next hour`."""
    if heat.before is None:
        return f"Hot node-hours {hours(heat.after)}"
    what = f"Hot node-hours {of}".rstrip()
    changed = change(heat.before, heat.after) if heat.after != heat.before else ""
    return f"{what} {hours(heat.before)} -> {hours(heat.after)}" + (f" ({changed})" if changed else "")


def its_cost(heat: Heat) -> str:
    """`12 evictions, 0.3 for each hour relieved`, or `no evictions`."""
    if not heat.evictions:
        return "no evictions"
    each = heat.evictions_for_each_hour
    return counted(heat.evictions, "eviction") + ("" if each is None else f", {each:.2g} for each hour relieved")


def heat_sentence(heat: Heat, *, of: str = "") -> str:
    """`Hot node-hours 38.2 -> 3.4 (-91%): 12 evictions, 0.3 for each hour relieved`"""
    return f"{hot_hours(heat, of=of)}: {its_cost(heat)}"
