"""Drained nodes: emptied behind our cordon, so that an autoscaler can remove them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedNode:
    """A node that was emptied, and what became known of it since. At most one of the ends is set."""

    node: str
    pool: str
    capacity_millicores: float
    pool_nodes: int
    """Nodes of the pool, this one included."""
    emptied_at: float
    """When a cycle found it without a pod to move; seconds since the epoch, as all times here."""
    removed_at: float | None = None
    """When it was gone."""
    in_vain_at: float | None = None
    """When its time for removal was over, and it was uncordoned."""
    given_back_at: float | None = None
    """When its cordon was lifted before that time was over."""

    @property
    def is_open(self) -> bool:
        """Whether it is still empty, cordoned and there, as far as is known."""
        return self.removed_at is None and self.in_vain_at is None and self.given_back_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class InVain:
    """A node that was emptied in vain."""

    count: int
    """In a row."""
    until: float
    """Its next drain begins at this time at the earliest."""


def in_vain_in_a_row(drains: Sequence[DrainedNode]) -> dict[str, list[float]]:
    """Node -> times at which it was uncordoned again, since it was last removed; nodes without any are left out."""
    out: dict[str, list[float]] = {}
    for each in sorted(drains, key=lambda one: one.emptied_at):
        if each.removed_at is not None:
            out.pop(each.node, None)
        elif each.in_vain_at is not None:
            out.setdefault(each.node, []).append(each.in_vain_at)
    return out
