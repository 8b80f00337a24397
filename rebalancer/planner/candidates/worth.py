"""Whether the relief by an eviction is worth its price (`constraints.pods.price`).

The gain of relieving a node is counted in hot node-minutes of the next hour, as if its load stayed: each of its minutes
weighs from 0.5 just over `high` to 1 at the full capacity. A node that stays over `high` gains by what it gets cooler.
The gain is that of everything that may go together, in this cycle or later, down to the target; a candidate has its
share of it by relief. It stays where its gain by price is below that of the policy's `planner.worth`, and where load
that belongs to no pod keeps the node over `high`: the machine is ill, or its measurement is wrong.

What keeps a pod for a time only doesn't count: limits, cooldowns, budgets, windows, room on other nodes. What counts
are the guards, lists and levels that hold whatever happens, and placement rules that admit no other node.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rebalancer.constraints.pods.price import Price
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.figures import percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.candidates.jobs import Job
from rebalancer.policy.schema.policy import Worth

MINUTES = 60.0
"""Of the next hour."""
JUST_HOT = 0.5
"""Weight of a minute just over `high`."""
LEAST_GAIN: dict[Worth, float] = {
    "Minimal": 20.0,
    "Conservative": 6.0,
    "Balanced": 1.5,
    "Active": 0.1,
    "Aggressive": 0.0,
}
"""Hot node-minutes that each ordinary eviction must remove."""
PASSING = frozenset(
    {
        Reason.NOT_READY,
        Reason.TOO_YOUNG,
        Reason.ROLLOUT_IN_PROGRESS,
        Reason.OWNER_NOT_HEALTHY,
        Reason.AUTOSCALING,
        Reason.WINDOW_CLOSED,
        Reason.POOL_FULL,
    }
)
"""Refusals of a pod that end by themselves, or when others have gone."""


def may_go(refusal: Refusal | None) -> bool:
    """Whether a pod may go, now or later, that is refused so whatever else is planned; None = it is not."""
    return refusal is None or refusal.code in PASSING


def not_worth(
    job: Job,
    pods: Sequence[Pod],
    *,
    snapshot: ClusterSnapshot,
    placement: PlacementModel,
    price: Callable[[Pod], Price],
    worth: Worth,
) -> dict[int, Refusal]:
    """Pod -> why its eviction is not worth its price. `pods` are those that may go, now or later. Empty where the load
    of one of them isn't known, and for urgent findings. Pods that no other node admits have own reasons."""
    finding, headroom, least = job.finding, job.cooled, LEAST_GAIN[worth]
    if headroom is None or finding.urgent or finding.in_order or not least:
        return {}
    hot = headroom.over_high(finding.node) > 0
    relief = headroom.loads.relieved_by_all[[pod.index for pod in pods]][:, hot]
    if not hot.any() or np.isnan(relief).any():
        return {}
    room, high = (each[finding.node, hot] for each in (headroom.loads.room, headroom.loads.high))
    may_leave = [at for at, pod in enumerate(pods) if placement.may_leave(pod)]
    excess = headroom.excess(finding.node)[hot]
    load = headroom.loads.target[finding.node, hot] + excess
    own = load - np.nansum(headroom.loads.relieved_by_all[snapshot.pods_on(finding.node)][:, hot], axis=0)
    if (own > high).all():
        outside = Refusal.of(
            Reason.HIGH_UNREACHABLE, f"{percent((own / room).min())} of the node are used by no pod that is measured"
        )
        return {pods[at].index: outside for at in may_leave}
    taken = np.minimum(relief[may_leave].sum(axis=0), excess)
    before = load / room
    after = before - taken / room
    minutes = gain(before, after, high / room)
    out = {}
    for at in may_leave:
        part = float(np.minimum(relief[at] / np.maximum(taken, 1e-9), 1.0).mean())
        paid = price(pods[at])
        if minutes * part < least * paid.total:
            out[pods[at].index] = Refusal.of(
                Reason.NOT_WORTH_ITS_PRICE,
                f"{minutes * part:.2g} hot node-minutes of the next hour, with all that may go {percent(after.max())} "
                f"of the node stay in use; its price is {paid}; {worth} asks for {least:g} minutes for each ordinary "
                "eviction",
            )
    return out


def gain(before: Floats, after: Floats, high: Floats) -> float:
    """Hot node-minutes of the next hour that are removed; shares of a node's capacity (resources,)."""
    return MINUTES * max(danger(before, high) - danger(after, high), 0.0)


def danger(share: Floats, high: Floats) -> float:
    """Weight of a minute of a node with these loads, 0..1; shares of its capacity (resources,). 0 where none is over
    its `high`."""
    over = share > high * (1 + 1e-9)
    if not over.any():
        return 0.0
    depth = np.clip((share - high)[over] / np.maximum(1.0 - high[over], 0.01), 0.0, 1.0)
    return JUST_HOT + (1.0 - JUST_HOT) * float(depth.max())
