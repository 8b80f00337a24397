"""Whether a node that is cooled has target nodes under their `low`: in its pool, or in another where the pod fits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.plan import Finding, Loads
from rebalancer.model.notation.arrays import Bools
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.landings.targets import TargetHeadroom


class LowNodes:
    """See the module."""

    def __init__(self, model: PlacementModel, *, pools: Sequence[str], names: Sequence[str]) -> None:
        """`pools` and `names` (nodes,): of each node its pool and its name."""
        self._model = model
        self._pools = np.array(pools, dtype=object)
        self._members: dict[str, Bools] = {}
        self._names = names

    def refuses(self, pod: Pod, finding: Finding, headroom: TargetHeadroom | None) -> Refusal | None:
        """PoolFull, with the nodes that are under their `low` but closed."""
        if headroom is None:
            return None
        own = self._members.get(finding.pool)
        if own is None:
            own = self._members[finding.pool] = np.asarray(self._pools == finding.pool, dtype=np.bool_)
        if (headroom.low & own).any():
            return None
        if headroom.low.any():
            # other pools' nodes count where the pod can go there
            feasible = self._model.feasible(pod)
            if isinstance(feasible, Refusal) or (headroom.low & feasible).any():
                return None
        closed = np.flatnonzero(_under(headroom.loads) & self._model.closed & own)
        if not len(closed):
            return Refusal.of(Reason.POOL_FULL, _unknown(headroom.loads, own, self._names))
        first = int(closed[0])
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        are = "are" if more else "is"
        return Refusal.of(
            Reason.POOL_FULL, f"{self._names[first]}{more} {are}, but closed ({self._model.why_closed(first)})"
        )


def _unknown(loads: Loads, own: Bools, names: Sequence[str]) -> str:
    """The nodes of the pool that would be under their `low` but for a resource that isn't known; empty without one."""
    unknown = np.isfinite(loads.target) & ~np.isfinite(loads.node)
    low = own & unknown.any(axis=1) & _under(replace(loads, target=np.where(unknown, np.nan, loads.target)))
    low |= own & (unknown | ~np.isfinite(loads.target)).all(axis=1) & unknown.any(axis=1)
    lacking = np.flatnonzero(low)
    if not len(lacking):
        return ""
    of = " and ".join(np.array(loads.resources)[unknown[lacking].any(axis=0)].tolist())
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"{of} of {names[int(lacking[0])]}{more} isn't known"


def _under(loads: Loads) -> Bools:
    """(nodes,) under `low` in every resource with a threshold."""
    marked = np.isfinite(loads.target)
    out: Bools = np.asarray(marked.any(axis=1) & ((loads.node < loads.low) | ~marked).all(axis=1), dtype=np.bool_)
    return out
