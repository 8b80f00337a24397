"""A landing: where a replacement would go, with which probability."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rebalancer.model.decisions.eviction import TargetNode
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.placement.draws.draws import Draws
from rebalancer.placement.draws.outlook import Outlook
from rebalancer.placement.landing.outlooks import NO_SHARES, NOTHING

SHOWN_LANDINGS = 8
"""Target nodes that are shown, the likeliest first; all are checked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landing:
    """Possible target nodes of a replacement, with this plan's moves counted."""

    nodes: Rows
    """Likeliest first, equal ones by name."""
    shares: Floats
    """Probabilities; together 99.9 % or more where a node is feasible in every draw."""
    feasible: int
    """Number of feasible nodes, without the draws' landings."""
    rows: Rows
    """Nodes (with repeats) that may win in draws without a slot there."""
    row_shares: Floats
    """(rows,) the parts of the probability."""
    slots: Rows
    """Slots of the draws (with repeats) that may win."""
    slot_shares: Floats
    """(slots,) the parts of the probability."""
    outlooks: Sequence[tuple[Outlook, Rows]] = ()
    """Each with the draws of which it decides."""

    def summary(self) -> "Landing":
        """The same without what it was computed from."""
        return replace(self, rows=NOTHING, row_shares=NO_SHARES, slots=NOTHING, slot_shares=NO_SHARES, outlooks=())

    def shown(self, names: Sequence[str]) -> tuple[TargetNode, ...]:
        """The likeliest target nodes, SHOWN_LANDINGS at most; `names` (nodes,)."""
        likeliest = zip(self.nodes[:SHOWN_LANDINGS].tolist(), self.shares[:SHOWN_LANDINGS].tolist(), strict=True)
        return tuple(TargetNode(names[node], min(share, 1.0)) for node, share in likeliest)


class Placed(NamedTuple):
    """A counted landing."""

    node: int
    """The target node where it is certain, else -1."""
    winners: Rows
    """(draws,) the target node in each draw."""
    slots: Rows
    """(draws,) the slot in each draw; empty where the node is certain."""


def landing_of(outlooks: Sequence[tuple[Outlook, Rows, float]], draws: Draws, name_rank: Rows) -> Landing | None:
    """The landing by outlooks, each with a mask (its draws,) of those of which it decides, and its part of the
    probability; None where it fits nowhere."""
    feasible = max(each.total for each, _, _ in outlooks)
    if not feasible:
        return None
    rows = np.concatenate([each.nodes for each, _, _ in outlooks])
    row_shares = np.concatenate([each.shares * part for each, _, part in outlooks])
    slots = np.concatenate([each.slots for each, _, _ in outlooks])
    slot_shares = np.concatenate([each.slot_shares * part for each, _, part in outlooks])
    if len(outlooks) == 1 and not len(slots):
        nodes, shares = rows[row_shares > 0], row_shares[row_shares > 0]
    else:
        total = np.bincount(rows, weights=row_shares, minlength=len(name_rank))
        total += np.bincount(draws.node[slots], weights=slot_shares, minlength=len(total))
        nodes = np.flatnonzero(total > 0)
        shares = total[nodes]
    if not len(nodes):  # in every draw the earlier replacements took the room
        return None
    order = np.lexsort((name_rank[nodes], -np.round(shares, 12)))
    return Landing(
        nodes=nodes[order],
        shares=shares[order],
        feasible=feasible,
        rows=rows,
        row_shares=row_shares,
        slots=slots,
        slot_shares=slot_shares,
        outlooks=[(each, mine) for each, mine, _ in outlooks],
    )
