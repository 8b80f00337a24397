"""CPU saved by nodes that were removed after they had been emptied.

A removed node saves its cores until its pool has as many nodes again: what an autoscaler adds later ends the saving of
the newest removal first.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.records.effect import PoolHour


def saved_core_hours(drains: Sequence[DrainedNode], hours: Sequence[PoolHour]) -> dict[tuple[str, int], float]:
    """(pool, day) -> core-hours saved. Hours without a record save nothing."""
    out: dict[tuple[str, int], float] = defaultdict(float)
    for pool in {each.pool for each in drains}:
        removed = sorted(
            (each.removed_at, each.capacity_millicores / 1000.0, each.pool_nodes)
            for each in drains
            if each.pool == pool and each.removed_at is not None
        )
        saving: list[tuple[float, float, int]] = []
        for hour in sorted((each for each in hours if each.pool == pool), key=lambda each: each.hour):
            begin, end = hour.hour * HOUR_SECONDS, (hour.hour + 1) * HOUR_SECONDS
            while removed and removed[0][0] < end:
                saving.append(removed.pop(0))
            missing = max((nodes for _, _, nodes in saving), default=0) - hour.nodes
            # the hour of a removal was recorded with the node or without it
            kept = [each for each in saving if each[0] >= begin]
            saving = [each for each in saving if each[0] < begin][: max(missing, 0)] + kept
            for at, cores, _ in saving:
                out[pool, math.floor(begin / DAY_SECONDS)] += cores * (end - max(at, begin)) / HOUR_SECONDS
    return dict(out)
